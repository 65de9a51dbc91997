"""Runs a connector as the runtime does, in memory, and dies where a test says.

    trial = SourceTrial(PLUGIN, {"file": "a.txt", "topic": "t"}, environment(files=tmp_path))
    await trial.run(until=lambda: len(trial.records) >= 10, crash=SourceCrash.BEFORE_COMMIT)
    await trial.run(until=lambda: len(trial.records) >= 10)

    trial = SinkTrial(PLUGIN, config, environment())
    trial.give("t", 0, "a", "b", "c")
    await trial.run(crash=SinkCrash.AFTER_FLUSH)
    await trial.run()

A trial outlives its runs: what the log, the positions and the group hold is what a real deployment
would hold, and each run makes a new task that knows nothing else. With `tasks_max` above 1 each
task of the plan is a run: `run(task=1)`.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, cast

from service.connect.config.values import Values
from service.connect.connectors.api import (
    Environment,
    FillingSinkTask,
    HoldingSinkTask,
    Plugin,
    PluginKind,
    Position,
    SinkTask,
    SourceTask,
    TaskContext,
    TopicPartition,
)
from service.connect.data.errors import ConfigFault, ConnectFault, RetriableFault
from service.connect.data.records import ConnectRecord, FromLog, FromSource
from service.connect.data.schema import ConnectSchema
from service.world.clock import World, real_world
from storage.formats.partitioner import partition_for

RUN_S_MAX = 120.0
"""A run that has not come to its condition by then fails the test. Busy machines take long."""

OF_THE_FRAME = {"name", "connector.class", "tasks.max", "topics", "topics.regex"}
"""Keys that every connector has, and no plugin defines."""

RETRY_S = 0.01


class SourceCrash(Enum):
    BEFORE_COMMIT = auto()
    """The records of a poll are lost, and their positions with them."""
    AFTER_COMMIT = auto()
    """They are in the log with their positions, and `committed` is never called."""


class SinkCrash(Enum):
    AFTER_POSITIONS = auto()
    AFTER_PUT = auto()
    AFTER_FLUSH = auto()
    """What was put is durable, and the group does not know it."""


def environment(
    files: Path | None = None, *, private_addresses: bool = False, world: World | None = None
) -> Environment:
    return Environment(
        world=world or real_world(), files=files, private_addresses=private_addresses
    )


class MemoryOffsets:
    """The committed positions of a source."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[Position, Position]] = {}

    async def read(self, partitions: Sequence[Position]) -> list[Position | None]:
        found = [self.stored.get(_key(each)) for each in partitions]
        return [None if each is None else each[1] for each in found]

    async def all(self) -> list[tuple[Position, Position]]:
        return list(self.stored.values())

    def store(self, partition: Position, offset: Position) -> None:
        # As JSON and back, since that is all that the runtime keeps.
        self.stored[_key(partition)] = (_as_json(partition), _as_json(offset))


def _key(partition: Position) -> str:
    return json.dumps(partition, sort_keys=True)


def _as_json(position: Position) -> Position:
    kept: Position = json.loads(json.dumps(position))
    return kept


@dataclass
class Reports:
    """The reporter: collects what was given up, or raises it as `errors.tolerance=none` does."""

    tolerates: bool = True
    given_up: list[tuple[ConnectRecord, ConnectFault]] = field(default_factory=list)

    async def __call__(self, record: ConnectRecord, error: ConnectFault) -> None:
        if not self.tolerates:
            raise error
        self.given_up.append((record, error))


@dataclass
class MemoryLog:
    """A `LogAccess` without a log: topics with their records, and groups."""

    records: dict[TopicPartition, list[ConnectRecord]] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    topic_configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    groups_with_members: set[str] = field(default_factory=set)

    async def partition_count(self, topic: str) -> int | None:
        return self.topics.get(topic)

    async def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        self.topics[topic] = max(partitions, self.topics.get(topic, 0))
        self.topic_configs.setdefault(topic, dict(config))

    async def end_offset(self, at: TopicPartition) -> int:
        return len(self.records.get(at, ()))

    async def group_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        return dict(self.groups.get(group, {}))

    async def commit_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
        if group in self.groups_with_members:
            return False
        self.groups.setdefault(group, {}).update(offsets)
        return True

    def append(self, record: ConnectRecord) -> None:
        """Append to the partition that the record names, or that its key decides."""
        count = self.topics.setdefault(record.topic, 1)
        partition = record.partition
        if partition is None:
            key = record.key if isinstance(record.key, bytes) else repr(record.key).encode()
            partition = 0 if record.key is None else partition_for(key, count)
        assert 0 <= partition < count, (record, count)
        self.records.setdefault(TopicPartition(record.topic, partition), []).append(record)


@dataclass
class _Trial:
    plugin: Plugin
    config: Mapping[str, str]
    environment: Environment
    tasks_max: int = 1
    name: str = "trial"
    log: MemoryLog = field(default_factory=MemoryLog)
    offsets: MemoryOffsets = field(default_factory=MemoryOffsets)
    reports: Reports = field(default_factory=Reports)
    gauges: dict[str, float] = field(default_factory=dict)
    retries_max: int = 50
    """How often a call is repeated after `RetriableFault`, as `errors.retry.timeout` decides."""

    def check(self) -> None:
        """Raise `ConfigFault` for what the plugin's keys and its own check refuse."""
        Values(self.plugin.keys, self.config)
        known = {key.name for key in self.plugin.keys} | {*self.plugin.ignored, *OF_THE_FRAME}
        problems = {
            name: "is not a key of this connector"
            for name in self.config
            if name not in known and not name.startswith(tuple(self.plugin.prefixes))
        }
        problems |= self.plugin.check(self.config, self.environment)
        if problems:
            raise ConfigFault(problems)

    async def context(self, task: int = 0) -> TaskContext:
        self.check()
        planned = await self.plugin.tasks(self.config, self.tasks_max, self.environment)
        assert 1 <= len(planned) <= self.tasks_max, planned
        return TaskContext(
            connector=self.name,
            task=task,
            config=planned[task],
            environment=self.environment,
            offsets=self.offsets,
            report=self.reports,
            metric=self.gauges.__setitem__,
            log=self.log,
        )

    async def _retried(self, call: Callable[[], Any]) -> Any:
        for _ in range(self.retries_max):
            try:
                return await call()
            except RetriableFault:
                await asyncio.sleep(RETRY_S)
        return await call()


@dataclass
class SourceTrial(_Trial):
    records: list[ConnectRecord] = field(default_factory=list)
    """What the log has, in the order in which it was written."""
    polls: int = 0
    """Of all runs, those that gave nothing included."""

    @property
    def values(self) -> list[Any]:
        return [record.value for record in self.records]

    async def run(
        self,
        until: Callable[[], bool],
        *,
        crash: SourceCrash | None = None,
        crash_at: int = 1,
        task: int = 0,
        records_max: int = 500,
        wait_s: float = 0.02,
        stop: bool = True,
    ) -> None:
        """Run a task until the condition holds, or until it dies at its `crash_at`th full poll.

        `until` is asked after each poll. Without `stop` a dead task is left as it is, like that of
        a process that was killed; otherwise it may close its files and connections.
        """
        assert self.plugin.kind is PluginKind.SOURCE
        source = cast(SourceTask, self.plugin.make(await self.context(task)))
        died = False
        try:
            async with asyncio.timeout(RUN_S_MAX):
                await source.start()
                died = await self._steps(source, until, crash, crash_at, records_max, wait_s)
        finally:
            if stop or not died:
                await source.stop()

    async def _steps(
        self,
        source: SourceTask,
        until: Callable[[], bool],
        crash: SourceCrash | None,
        crash_at: int,
        records_max: int,
        wait_s: float,
    ) -> bool:
        full = 0
        while not until():
            batch = await self._retried(lambda: source.poll(wait_s, records_max))
            self.polls += 1
            await asyncio.sleep(0)
            full += bool(batch)
            dies = bool(batch) and full == crash_at
            if dies and crash is SourceCrash.BEFORE_COMMIT:
                return True
            self._commit(batch)
            if dies and crash is SourceCrash.AFTER_COMMIT:
                return True
            if batch:
                await source.committed()
        assert crash is None, "the condition held before the task died"
        return False

    def _commit(self, batch: Sequence[ConnectRecord]) -> None:
        for record in batch:
            assert isinstance(record.origin, FromSource), record
            self.records.append(record)
            self.log.append(record)
            self.offsets.store(record.origin.partition, record.origin.offset)


@dataclass
class SinkTrial(_Trial):
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    """The offsets of the group `connect-<name>`."""
    puts: int = 0
    told: dict[TopicPartition, int | None] = field(default_factory=dict)
    """What somebody has set by hand, which the next run tells the target."""

    def give(
        self,
        topic: str,
        partition: int,
        *values: Any,
        keys: Sequence[Any] | None = None,
        schema: ConnectSchema | None = None,
        key_schema: ConnectSchema | None = None,
        timestamp_ms: int = 1_700_000_000_000,
    ) -> None:
        """Append values to the topic that the sink reads."""
        self.log.topics[topic] = max(partition + 1, self.log.topics.get(topic, 0))
        held = self.log.records.setdefault(TopicPartition(topic, partition), [])
        for n, value in enumerate(values):
            held.append(
                ConnectRecord(
                    topic=topic,
                    partition=partition,
                    key=None if keys is None else keys[n],
                    value=value,
                    key_schema=key_schema,
                    value_schema=schema,
                    timestamp_ms=timestamp_ms,
                    origin=FromLog(topic, partition, len(held)),
                )
            )

    async def run(
        self,
        *,
        crash: SinkCrash | None = None,
        crash_at: int = 1,
        task: int = 0,
        records_max: int = 500,
        puts_per_flush: int = 1,
        partitions: Sequence[TopicPartition] | None = None,
        stop: bool = True,
    ) -> None:
        """Run a task to the end of the log, or until it dies at the `crash_at`th of these points.

        A put has records of all partitions, at most `records_max` of each.
        """
        assert self.plugin.kind is PluginKind.SINK
        sink = cast(SinkTask, self.plugin.make(await self.context(task)))
        died = False
        try:
            async with asyncio.timeout(RUN_S_MAX):
                await sink.start()
                owned = list(self.log.records) if partitions is None else list(partitions)
                countdown = _Countdown(crash, crash_at)
                died = await self._steps(sink, owned, countdown, records_max, puts_per_flush)
        finally:
            if stop or not died:
                await sink.stop()

    async def _steps(
        self,
        sink: SinkTask,
        owned: Sequence[TopicPartition],
        dies: "_Countdown",
        records_max: int,
        puts_per_flush: int,
    ) -> bool:
        held = await sink.positions(owned)
        if self.told:
            assert isinstance(sink, HoldingSinkTask)
            await sink.set_positions(self.told)
            held = await sink.positions(owned)
        if dies.at(SinkCrash.AFTER_POSITIONS):
            return True
        self.told = {}
        at = {each: held.get(each, self.committed.get(each, 0)) for each in owned}
        unflushed = 0
        while True:
            spans = {
                each: self.log.records[each][start:][:records_max] for each, start in at.items()
            }
            batch = [record for span in spans.values() for record in span]
            if batch:
                await self._retried(lambda batch=batch: sink.put(batch))  # type: ignore[misc]
                self.puts += 1
                unflushed += 1
                if dies.at(SinkCrash.AFTER_PUT):
                    return True
                at = {each: start + len(spans[each]) for each, start in at.items()}
            if unflushed and (unflushed >= puts_per_flush or not batch):
                await self._retried(sink.flush)
                unflushed = 0
                if dies.at(SinkCrash.AFTER_FLUSH):
                    return True
                filling = isinstance(sink, FillingSinkTask)
                self.committed.update(sink.committable() if filling else at)
            if not batch:
                assert dies.crash is None, "the log ended before the task died"
                return False


@dataclass
class _Countdown:
    crash: SinkCrash | None
    left: int

    def at(self, point: SinkCrash) -> bool:
        """Return whether the task dies here and now."""
        self.left -= point is self.crash
        return point is self.crash and self.left == 0
