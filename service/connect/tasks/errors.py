"""What a task does about errors, as `errors.*` of its connector says.

As in Kafka Connect: what may succeed later is tried again for `errors.retry.timeout`, with pauses
that double from 0.3 s to `errors.retry.delay.max.ms`. Then the record is given up. With
`errors.tolerance=all` it is dropped, logged and dead-lettered as configured, and the task goes on;
with `none` the task fails at it. Here that holds for sources, too.

Dead letters are kept until `drain`: they are written with the offsets of the records they are of.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from service.connect.config.common import COMMON_KEYS, DLQ_TOPIC, SOURCE_KEYS
from service.connect.config.keys import Config
from service.connect.config.values import Values
from service.connect.connectors.api import LogAccess, TopicPartition
from service.connect.data.errors import ConfigFault, ConnectFault, RetriableFault, TaskFault
from service.connect.data.log_records import LogRecord
from service.connect.data.records import ConnectRecord, FromLog, FromSource
from service.connect.tasks.letters import FailedAt, dead_letter, java_class_of, place_of
from service.connect.tasks.queues import as_read
from service.world.clock import World

T = TypeVar("T")

TRANSFORMATION: Final = "TRANSFORMATION"
KEY_CONVERTER: Final = "KEY_CONVERTER"
VALUE_CONVERTER: Final = "VALUE_CONVERTER"
HEADER_CONVERTER: Final = "HEADER_CONVERTER"
TASK_PUT: Final = "TASK_PUT"
TASK_POLL: Final = "TASK_POLL"
"""Stages, with Kafka's names."""

RETRY_DELAY_MIN_S: Final = 0.3
NOTICE_S: Final = 0.5
"""So soon a pause ends when the task is to end."""

HELD_BYTES_MAX: Final = 8 * 1024 * 1024
HELD_COUNT_MAX: Final = 1000
"""Commit before there are more dead letters than so many."""

log: Final = logging.getLogger(__name__)

_KEYS: Final = tuple(key for key in (*COMMON_KEYS, *SOURCE_KEYS) if key.name.startswith("errors."))


class StoppedAt(TaskFault):
    """A record failed and none is tolerated. `before` is what was made of those before it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.before: Sequence[ConnectRecord | LogRecord | None] = ()


@dataclass(frozen=True, slots=True)
class _Letter:
    origin: FromLog | None
    record: LogRecord

    def is_within(self, durable: Mapping[TopicPartition, int]) -> bool:
        return self.origin is None or _is_before(self.origin, durable)


class ErrorPolicy:
    """The errors of one run of a task. Raises `ConfigFault` if `config` contradicts itself."""

    def __init__(
        self, connector: str, task: int, config: Config, world: World, class_name: str = ""
    ) -> None:
        values = Values(_KEYS, config)
        self._connector = connector
        self._task = task
        self._world = world
        self._class_name = class_name or config.get("connector.class", "")
        self.tolerates_all: bool = str(values["errors.tolerance"]).lower() == "all"
        timeout_ms: int = values["errors.retry.timeout"]
        self.retry_timeout_s = float("inf") if timeout_ms < 0 else timeout_ms / 1000
        self._delay_max_s: float = values["errors.retry.delay.max.ms"] / 1000
        self._logs: bool = values["errors.log.enable"]
        self._logs_messages: bool = values["errors.log.include.messages"]
        self.dead_letter_topic: str = values[DLQ_TOPIC]
        self._with_context: bool = values["errors.deadletterqueue.context.headers.enable"]
        if self.dead_letter_topic and not self.tolerates_all:
            raise ConfigFault({DLQ_TOPIC: "needs errors.tolerance=all"})
        self._replicas = str(values["errors.deadletterqueue.topic.replication.factor"])
        self._letters: list[_Letter] = []
        self._letter_bytes = 0
        self.is_over: Callable[[], bool] = lambda: False
        """Whether the task is to end: then nothing is tried again."""
        self.errors = 0
        """Records that were given up since the last commit; who commits sets it to 0."""
        self.lettered: dict[TopicPartition, int] = {}
        """Records before these offsets have their dead letters, from an earlier run."""

    async def prepare(self, access: LogAccess | None) -> None:
        """Create the topic of dead letters, unless it is there or none is named."""
        if self.dead_letter_topic and access is not None:
            await access.create_topic(
                self.dead_letter_topic, 1, {"replication.factor": self._replicas}
            )

    @property
    def is_full(self) -> bool:
        """Whether it holds so many dead letters that they should be committed now."""
        return len(self._letters) >= HELD_COUNT_MAX or self._letter_bytes >= HELD_BYTES_MAX

    async def retried(
        self,
        call: Callable[[], Awaitable[T]],
        *,
        failed: RetriableFault | None = None,
        timeout_min_s: float = 0.0,
    ) -> T:
        """Return what `call` returns; repeat it while it raises `RetriableFault` and time is left.

        The time is `errors.retry.timeout`, or `timeout_min_s` if that is longer; it ends when the
        run `is_over`. `failed` is why a first call failed that was made already.
        """
        now_s = self._world.monotonic_s
        deadline_s = now_s() + max(self.retry_timeout_s, timeout_min_s)
        failures = 0
        while True:
            if failed is not None:
                left_s = deadline_s - now_s()
                if left_s <= 0 or self.is_over():
                    raise failed
                failures += 1
                await self._pause(min(self._delay_s(failures), left_s))
            try:
                return await call()
            except RetriableFault as fault:
                failed = fault

    async def _pause(self, delay_s: float) -> None:
        """Sleep, and notice soon that the task is to end."""
        until_s = self._world.monotonic_s() + delay_s
        while (left_s := until_s - self._world.monotonic_s()) > 0 and not self.is_over():
            await self._world.sleep(min(left_s, NOTICE_S))

    def _delay_s(self, failures: int) -> float:
        delay_s = RETRY_DELAY_MIN_S * 2.0 ** min(failures - 1, 60)
        if delay_s > self._delay_max_s:
            return self._world.random() * self._delay_max_s
        return delay_s

    async def report(
        self,
        record: ConnectRecord | LogRecord,
        error: Exception,
        stage: str = "",
        class_name: str = "",
    ) -> None:
        """Give up on a record: log it and keep its dead letter, as configured.

        Without a stage, the connector itself gave it up. Raises `StoppedAt` if none is tolerated.
        """
        origin = _origin_of(record)
        if isinstance(record, LogRecord):
            record = as_read(record)
        failure = FailedAt(
            connector=self._connector,
            task=self._task,
            stage=stage or _own_stage(record),
            class_name=class_name or self._class_name,
            error=error,
        )
        if self._logs:
            self._log(record, failure)
        if not self.tolerates_all:
            raise StoppedAt(
                f"Tolerance exceeded in error handler: {failure.stage} of {place_of(record)} failed"
                f" with {java_class_of(error)}: {error}"
            ) from error
        self.errors += 1
        if self.dead_letter_topic and not _is_before(origin, self.lettered):
            letter = dead_letter(
                self.dead_letter_topic, record, failure, with_context=self._with_context
            )
            self._letters.append(_Letter(origin, letter))
            self._letter_bytes += _size_of(letter)

    async def report_put(self, record: ConnectRecord, error: ConnectFault) -> None:
        """Give up on a record for its connector; this is the `Reporter` of a task."""
        await self.report(record, error)

    def drain(self, durable: Mapping[TopicPartition, int] | None = None) -> list[LogRecord]:
        """Return the dead letters since the last call, to be written with the offsets.

        With `durable`: those of records before these offsets, and the others later.
        """
        letters = self._letters
        self._letters = []
        if durable is not None:
            self._letters = [each for each in letters if not each.is_within(durable)]
        kept = {id(each) for each in self._letters}
        drained = [each.record for each in letters if id(each) not in kept]
        self._letter_bytes -= sum(map(_size_of, drained))
        return drained

    def _log(self, record: ConnectRecord | LogRecord, failure: FailedAt) -> None:
        said: dict[str, Any] = {
            "connector": failure.connector,
            "task": failure.task,
            "stage": failure.stage,
            "class_name": failure.class_name,
            "error": f"{java_class_of(failure.error)}: {failure.error}",
        }
        if self._logs_messages:
            said |= {"record": place_of(record), "timestamp_ms": record.timestamp_ms}
        log.error("record of a connector failed", extra=said)


def _is_before(origin: FromLog | None, offsets: Mapping[TopicPartition, int]) -> bool:
    if origin is None:
        return False
    return origin.offset < offsets.get(TopicPartition(origin.topic, origin.partition), 0)


def _origin_of(record: ConnectRecord | LogRecord) -> FromLog | None:
    if isinstance(record, LogRecord):
        return FromLog(record.topic, record.partition or 0, record.offset)
    return record.origin if isinstance(record.origin, FromLog) else None


def _own_stage(record: ConnectRecord | LogRecord) -> str:
    is_source = isinstance(record, ConnectRecord) and isinstance(record.origin, FromSource)
    return TASK_POLL if is_source else TASK_PUT


def _size_of(record: LogRecord) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)
