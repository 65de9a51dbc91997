"""From a source to bytes of the log, and from there to a sink: converters and transforms.

The converters are the connector's `key.converter`, `value.converter` and `header.converter`. Where
it names none, keys and values are JSON without schemas (`JsonConverter`, `schemas.enable=false`
unless the configuration says otherwise below `value.converter.`), and headers are text
(`SimpleHeaderConverter`).

Most records of a batch are fine, so a batch is converted without an `await`. Those that fail are
looked at again one by one: tried again where that may help, and given up as the policy says.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from service.connect.config.keys import Config
from service.connect.converters.api import Converter, HeaderConverter, RawHeader
from service.connect.converters.choice import (
    SIMPLE_HEADERS,
    converter_kind,
    converter_of,
    header_converter_of,
)
from service.connect.converters.registry.access import SchemaAccess
from service.connect.data.errors import RetriableFault
from service.connect.data.log_records import LogRecord
from service.connect.data.records import ConnectRecord, Header
from service.connect.tasks.errors import (
    HEADER_CONVERTER,
    KEY_CONVERTER,
    TRANSFORMATION,
    VALUE_CONVERTER,
    ErrorPolicy,
    StoppedAt,
)
from service.connect.tasks.letters import FromRawLog
from service.connect.tasks.queues import as_read, is_queue

DEFAULT_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
DEFAULT_SETTINGS: Final[Mapping[str, str]] = {"schemas.enable": "false"}

TRANSFORM_CLASS: Final = "org.apache.kafka.connect.transforms.Transformation"
"""Named for a transform that does not say which it is."""

AT_ONCE_MAX: Final = 500
"""Records that are converted before others have their turn: some milliseconds."""

Chain: TypeAlias = Callable[[ConnectRecord], ConnectRecord | None]
"""All transforms of a connector, with their predicates; None: the record is dropped."""

A = TypeVar("A", ConnectRecord, LogRecord)
B = TypeVar("B", ConnectRecord, LogRecord)


class _Failed(Exception):
    """A stage failed, with the cause of this."""

    def __init__(self, stage: str, cause: Exception) -> None:
        super().__init__(stage)
        self.stage = stage
        self.cause = cause


_GivenUp: TypeAlias = tuple[A, _Failed]


class Converters:
    """The converters of a connector, and their classes by stage. Raises `ConfigFault`."""

    def __init__(self, config: Config, registry: SchemaAccess | None = None) -> None:
        """Without a `registry`, converters that need one raise `TaskFault` when they are used."""
        self._registry = registry
        self.classes: dict[str, str] = {TRANSFORMATION: TRANSFORM_CLASS}
        self.key: Converter = self._converter(config, "key.converter", KEY_CONVERTER)
        self.value: Converter = self._converter(config, "value.converter", VALUE_CONVERTER)
        named = config.get("header.converter", SIMPLE_HEADERS)
        self.header: HeaderConverter = header_converter_of(
            named, _below(config, "header.converter")
        )
        self.classes[HEADER_CONVERTER] = _class_name(named)

    def _converter(self, config: Config, key: str, stage: str) -> Converter:
        settings = _below(config, key)
        named = config.get(key)
        if named is None:
            named, settings = DEFAULT_CONVERTER, {**DEFAULT_SETTINGS, **settings}
        self.classes[stage] = _class_name(named)
        is_key = key == "key.converter"
        return converter_of(named, settings, is_key=is_key, key=key, registry=self._registry)


class SinkPipeline:
    def __init__(self, converters: Converters, chain: Chain | None, policy: ErrorPolicy) -> None:
        self._converters = converters
        self._chain = chain
        self._policy = policy
        self._work = _Work(policy, converters.classes)

    async def from_log(self, records: Sequence[LogRecord]) -> list[ConnectRecord | None]:
        """Return what the sink gets of each; None: dropped by a transform, or given up.

        Raises `StoppedAt` at the first that fails if none is tolerated, and `RetriableFault` if a
        converter cannot read what it needs, like schemas, within the time for retries.
        """
        by_topic = _by_topic(records)
        if any(is_queue(topic) for topic in by_topic):
            by_topic = _by_topic([as_read(record) for record in records])
        for topic, of in by_topic.items():
            await self._policy.retried(
                lambda topic=topic, of=of: self._prepare(topic, of)  # type: ignore[misc]
            )
        return await self._work.each(records, self._convert)

    async def _prepare(self, topic: str, records: Sequence[LogRecord]) -> None:
        await self._converters.key.prepare(topic, [record.key for record in records])
        await self._converters.value.prepare(topic, [record.value for record in records])

    def _convert(self, given: LogRecord) -> ConnectRecord | None:
        record = as_read(given)
        converters, topic = self._converters, record.topic
        stage = KEY_CONVERTER
        try:
            key_schema, key = converters.key.to_data(topic, record.key)
            stage = VALUE_CONVERTER
            value_schema, value = converters.value.to_data(topic, record.value)
            stage = HEADER_CONVERTER
            headers: tuple[Header, ...] = ()
            if record.headers:
                read = converters.header.to_header
                headers = tuple(read(topic, name, data) for name, data in record.headers)
            stage = TRANSFORMATION
            converted = ConnectRecord(
                topic,
                record.partition or 0,
                key,
                value,
                key_schema,
                value_schema,
                record.timestamp_ms,
                headers,
                FromRawLog(given.topic, given.partition or 0, given.offset, record),
            )
            return converted if self._chain is None else self._chain(converted)
        except Exception as error:
            # Whatever it is, as in Kafka: it is about this record, so the task need not end.
            raise _Failed(stage, error) from error


class SourcePipeline:
    def __init__(self, converters: Converters, chain: Chain | None, policy: ErrorPolicy) -> None:
        self._converters = converters
        self._chain = chain
        self._policy = policy
        self._work = _Work(policy, converters.classes)

    async def to_log(self, records: Sequence[ConnectRecord]) -> list[LogRecord | None]:
        """Return what is written of each; None: dropped by a transform, or given up.

        Raises as `SinkPipeline.from_log` does.
        """
        changed: Sequence[ConnectRecord | None] = records
        failed: list[_GivenUp[ConnectRecord]] = []
        if self._chain is not None:
            changed, failed = await self._work.attempted(records, self._transform)
        left = [record for record in changed if record is not None]
        for topic, of in _by_topic(left).items():
            await self._policy.retried(
                lambda topic=topic, of=of: self._prepare(topic, of)  # type: ignore[misc]
            )
        # Only now, because what a registry refuses to register now is all done again later.
        await self._work.give_up(failed)
        converted = iter(await self._work.each(left, self._convert))
        return [None if record is None else next(converted) for record in changed]

    async def _prepare(self, topic: str, records: Sequence[ConnectRecord]) -> None:
        # A batch has few schemas, and most records share the very same object.
        keys = {id(record.key_schema): record.key_schema for record in records}
        values = {id(record.value_schema): record.value_schema for record in records}
        await self._converters.key.prepare_write(topic, list(keys.values()))
        await self._converters.value.prepare_write(topic, list(values.values()))

    def _transform(self, record: ConnectRecord) -> ConnectRecord | None:
        assert self._chain is not None
        try:
            return self._chain(record)
        except Exception as error:
            raise _Failed(TRANSFORMATION, error) from error

    def _convert(self, record: ConnectRecord) -> LogRecord | None:
        converters, topic = self._converters, record.topic
        stage = HEADER_CONVERTER
        try:
            headers: tuple[RawHeader, ...] = ()
            if record.headers:
                write = converters.header.to_bytes
                headers = tuple((each.key, write(topic, each)) for each in record.headers)
            stage = KEY_CONVERTER
            key = converters.key.to_bytes(topic, record.key_schema, record.key)
            stage = VALUE_CONVERTER
            value = converters.value.to_bytes(topic, record.value_schema, record.value)
            return LogRecord(topic, record.partition, key, value, headers, record.timestamp_ms)
        except Exception as error:
            raise _Failed(stage, error) from error


def sink_pipeline(
    config: Config, chain: Chain | None, policy: ErrorPolicy, registry: SchemaAccess | None = None
) -> SinkPipeline:
    """Return what a sink's configuration asks for. Raises `ConfigFault`."""
    return SinkPipeline(Converters(config, registry), chain, policy)


def source_pipeline(
    config: Config, chain: Chain | None, policy: ErrorPolicy, registry: SchemaAccess | None = None
) -> SourcePipeline:
    """Return what a source's configuration asks for. Raises `ConfigFault`."""
    return SourcePipeline(Converters(config, registry), chain, policy)


class _Work:
    """Applies a step to each record, and does about failures what the policy says."""

    def __init__(self, policy: ErrorPolicy, classes: Mapping[str, str]) -> None:
        self._policy = policy
        self._classes = classes

    async def each(self, records: Sequence[A], step: Callable[[A], B | None]) -> list[B | None]:
        """Return what `step` makes of each; None: dropped, or given up and reported."""
        results, failed = await self.attempted(records, step)
        try:
            await self.give_up(failed)
        except StoppedAt as stopped:
            stopped.before = results
            raise
        return results

    async def attempted(
        self, records: Sequence[A], step: Callable[[A], B | None]
    ) -> tuple[list[B | None], list[_GivenUp[A]]]:
        """Return what `step` makes of each, and what failed; nothing is reported yet.

        If no error is tolerated, it ends before the first that failed.
        """
        results: list[B | None] = []
        failures: list[_GivenUp[A]] = []
        for count, record in enumerate(records, 1):
            try:
                results.append(step(record))
            except _Failed as failed:
                again = await self._again(record, step, failed)
                if isinstance(again, _Failed):
                    failures.append((record, again))
                    if not self._policy.tolerates_all:
                        break
                    results.append(None)
                else:
                    results.append(again)
            if count % AT_ONCE_MAX == 0:
                await asyncio.sleep(0)
        return results, failures

    async def give_up(self, failures: Sequence[_GivenUp[A]]) -> None:
        for record, failed in failures:
            class_name = getattr(failed.cause, "raised_by", "") or self._classes[failed.stage]
            await self._policy.report(record, failed.cause, failed.stage, class_name)

    async def _again(
        self, record: A, step: Callable[[A], B | None], failed: _Failed
    ) -> "B | _Failed | None":
        """Repeat what may succeed later; return what is made of it, or the last failure."""
        if not isinstance(failed.cause, RetriableFault):
            return failed
        latest = failed

        async def attempt() -> B | None:
            nonlocal latest
            try:
                return step(record)
            except _Failed as again:
                latest = again
                raise again.cause from None

        try:
            return await self._policy.retried(attempt, failed=failed.cause)
        except Exception as error:
            if error is not latest.cause:
                raise
            return latest


def _by_topic(records: Sequence[A]) -> dict[str, list[A]]:
    found: dict[str, list[A]] = {}
    for record in records:
        found.setdefault(record.topic, []).append(record)
    return found


def _below(config: Config, key: str) -> dict[str, str]:
    prefix = key + "."
    return {name[len(prefix) :]: text for name, text in config.items() if name.startswith(prefix)}


def _class_name(named: str) -> str:
    kind = converter_kind(named)
    return SIMPLE_HEADERS if kind is None else kind.class_name
