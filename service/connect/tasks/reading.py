"""What a sink reads: records of its partitions, from given offsets on, in the order of each.

A partition that is read to its end costs nothing until its lane moves: the reader waits for all
lanes with one wait, and reads again only what has moved. Now and then it looks at all again.

An offset that retention has removed, or that was never there, is where `auto.offset.reset` says:
at the earliest record, as in Kafka Connect, or at the latest.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from service.connect.access.parts import ConnectParts
from service.connect.access.rights import caller_of
from service.connect.connectors.api import TopicPartition
from service.connect.converters.api import RawHeader
from service.connect.data.errors import RetriableFault, TaskFault
from service.connect.data.log_records import LogRecord
from service.connect.tasks.items import ConnectorItem
from service.connect.tasks.queues import queue_of
from service.log.gateway import FetchResult, Gateway, Position, Wait, Watch
from service.process.limits.outgoing import RequestShares
from service.security.acls import Operation
from storage.errors import (
    OffsetOutOfRange,
    OutcomeUnknown,
    RiachoError,
    Unavailable,
    UnknownTopicOrPartition,
)
from storage.formats.partitions import PartitionNumber
from storage.reading.fetched import Budget

FETCH_BYTES_MAX: Final = 4 * 1024 * 1024
PARTITION_BYTES_MAX: Final = 1024 * 1024
FETCH_RECORDS_MAX: Final = 20_000
"""What is read ahead: stored bytes of all partitions and of one, and records of one."""

DECODED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Keys, values and headers of one partition that are read ahead; one record may have more."""

FETCHES_AT_ONCE: Final = 8

LOOK_AGAIN_S: Final = 10.0
"""So often partitions that did not move are read, too: their topics may have been deleted."""

NOTICE_S: Final = 0.1
"""So soon a reader that waits notices that it should stop."""

Reset: TypeAlias = Literal["earliest", "latest"]

log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Place:
    """How far one partition was read."""

    fetched: int
    """The offset to read next."""
    topic_id: bytes = b""
    """Empty: nothing was read yet."""
    watch: Watch | None = None
    """What to watch, if it was read to its end."""


class _Ahead:
    """Records of one partition that were read and not given yet."""

    def __init__(self, place: TopicPartition, records: Sequence[LogRecord], end: int) -> None:
        self.place = place
        self.records = records
        self.start = 0
        self.end = end

    def take(self, count: int) -> Sequence[LogRecord]:
        taken = self.records[self.start : self.start + count]
        self.start += len(taken)
        return taken

    @property
    def is_given(self) -> bool:
        return self.start >= len(self.records)

    @property
    def position(self) -> int:
        """The offset behind what was given."""
        return self.end if self.is_given else self.records[self.start].offset


class SinkReader:
    """Reads as the principal of the connector; topics are named as its configuration names them.

    Every call raises `RetriableFault` if the log cannot be read now, and `TaskFault` if it may not
    be read.
    """

    def __init__(
        self, parts: ConnectParts, connector: ConnectorItem, reset: Reset = "earliest"
    ) -> None:
        self._parts = parts
        self._connector = connector
        self._prefix = connector.name_prefix
        self._reset: Reset = reset
        self._places: dict[TopicPartition, _Place] = {}
        self._turns: deque[TopicPartition] = deque()
        """Who is read next: each fetch begins with another partition."""
        self._ahead: deque[_Ahead] = deque()
        self._looked_s = 0.0
        self.positions: dict[TopicPartition, int] = {}
        """The offset behind what was given of each partition."""

    @property
    def _gateway(self) -> Gateway:
        return self._parts.gateway

    async def begin(self, wanted: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions, too, from these offsets; None: where a reset says.

        Repeating it is harmless.
        """
        for place, offset in wanted.items():
            try:
                self._go_to(place, await self._reset_offset(place) if offset is None else offset)
            except UnknownTopicOrPartition:
                continue  # Deleted meanwhile.
            except RiachoError as error:
                raise fault_of(error) from error
            # Whoever repeats a call that failed halfway begins some again.
            if place not in self._turns:
                self._turns.append(place)

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """Do not read these any more."""
        for place in places:
            self._places.pop(place, None)
            self.positions.pop(place, None)
            if place in self._turns:
                self._turns.remove(place)
        self._ahead = deque(each for each in self._ahead if each.place in self._places)

    def rewind(self, records: Sequence[LogRecord]) -> None:
        """Give these records, which were given last, again."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition or 0), record.offset)
        self._ahead = deque(each for each in self._ahead if each.place not in first)
        for place, offset in first.items():
            if place in self._places:
                self._go_to(place, offset)

    async def poll(
        self, records_max: int, wait_s: float, is_over: Callable[[], bool]
    ) -> list[LogRecord]:
        """Return the next records; wait for some for `wait_s`, or until `is_over`."""
        given = self._given(records_max)
        if given:
            return given
        until_s = self._gateway.world.monotonic_s() + wait_s
        while True:
            try:
                await self._fetch()
            except RiachoError as error:
                raise fault_of(error) from error
            given = self._given(records_max)
            left_s = until_s - self._gateway.world.monotonic_s()
            if given or left_s <= 0 or is_over() or self._gateway.draining.is_set():
                return given
            await self._news(until_s, is_over)

    def _given(self, records_max: int) -> list[LogRecord]:
        given: list[LogRecord] = []
        while self._ahead and len(given) < records_max:
            first = self._ahead[0]
            given += first.take(records_max - len(given))
            self.positions[first.place] = first.position
            if first.is_given:
                self._ahead.popleft()
        return given

    def _go_to(self, place: TopicPartition, offset: int) -> None:
        known = self._places.get(place)
        self._places[place] = _Place(offset, known.topic_id if known else b"")
        self.positions[place] = offset

    # Waiting

    async def _news(self, until_s: float, is_over: Callable[[], bool]) -> None:
        """Return when a partition may have moved, or there is another reason to look."""
        world = self._gateway.world
        while not (is_over() or self._gateway.draining.is_set()):
            watched = [place.watch for place in self._places.values() if place.watch is not None]
            left_s = min(until_s, self._looked_s + LOOK_AGAIN_S) - world.monotonic_s()
            if left_s <= 0 or len(watched) < len(self._places) or any(map(_has_moved, watched)):
                return
            if watched:
                await self._gateway.changed(watched, min(left_s, NOTICE_S))
            else:
                await world.sleep(min(left_s, NOTICE_S))

    # Reading

    async def _fetch(self) -> None:
        """Read partitions in turn, as much as may be read ahead."""
        caller = await caller_of(self._parts, self._connector)
        queue = queue_of(self._connector.name.removeprefix(self._prefix))
        for topic in {place.topic for place in self._places} - {queue}:
            caller.require_topic(Operation.READ, self._prefix + topic)
        now_s = self._gateway.world.monotonic_s()
        # The same sum as in `_news`: another one may be rounded differently, and never be due.
        if now_s >= self._looked_s + LOOK_AGAIN_S:
            self._looked_s = now_s
            for known in self._places.values():
                known.watch = None
        left = FETCH_BYTES_MAX
        waiting = [place for place in self._turns if self._may_have_more(place)]
        with RequestShares(self._gateway.outgoing) as shares:
            for start in range(0, len(waiting), FETCHES_AT_ONCE):
                wave = waiting[start : start + FETCHES_AT_ONCE]
                budget = min(PARTITION_BYTES_MAX, left)
                read = await self._wave(wave, budget, shares)
                left -= sum(read)
                for place, size_bytes in zip(wave, read, strict=True):
                    if size_bytes and place in self._places:
                        self._turns.remove(place)
                        self._turns.append(place)
                if left <= 0:
                    return

    async def _wave(
        self, places: Sequence[TopicPartition], bytes_max: int, shares: RequestShares
    ) -> list[int]:
        """Read these at the same time; return the stored size of each."""
        found = await asyncio.gather(
            *(self._fetch_one(place, bytes_max, shares) for place in places),
            return_exceptions=True,
        )
        # Only when all have ended: none may go on with shares that are released.
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return [each for each in found if isinstance(each, int)]

    def _may_have_more(self, place: TopicPartition) -> bool:
        watch = self._places[place].watch
        return watch is None or _has_moved(watch)

    async def _fetch_one(self, place: TopicPartition, bytes_max: int, shares: RequestShares) -> int:
        """Read ahead in one partition; return the stored size of what was read."""
        known = self._places[place]
        try:
            result = await self._gateway.fetch(
                self._prefix + place.topic,
                PartitionNumber(place.partition),
                Position(offset=known.fetched),
                Budget(records_max=FETCH_RECORDS_MAX, bytes_max=bytes_max),
                Wait(),
                shares,
            )
        except OffsetOutOfRange as error:
            return await self._restart(place, str(error))
        except UnknownTopicOrPartition:
            self.forget([place])
            return 0
        if known.topic_id not in (b"", result.topic.topic_id):
            return await self._restart(place, "the topic was deleted and created again")
        return self._keep(place, known, result)

    async def _restart(self, place: TopicPartition, because: str) -> int:
        """Go to where a reset says; it is to be read now, so it counts as read."""
        offset = await self._reset_offset(place)
        log.warning(
            "sink continues at another offset",
            extra={
                "connector": self._connector.name,
                "topic": place.topic,
                "partition": place.partition,
                "offset": offset,
                "because": because,
            },
        )
        self._go_to(place, offset)
        self._places[place].topic_id = b""
        return 1

    def _keep(self, place: TopicPartition, known: _Place, result: FetchResult) -> int:
        fetched = result.fetched
        batches = fetched.batches(DECODED_BYTES_MAX)
        end = fetched.end_of(batches)
        records = [
            record
            for offsets, batch in batches
            for record in records_of(place.topic, place.partition, offsets, batch)
        ]
        known.topic_id = result.topic.topic_id
        known.fetched = end
        known.watch = result.watch if end >= result.high_watermark else None
        if records:
            self._ahead.append(_Ahead(place, records, end))
        else:
            # All records up to there were compacted away.
            self.positions[place] = end
        return fetched.size_bytes

    async def _reset_offset(self, place: TopicPartition) -> int:
        offset, _ = await self._gateway.offset_at(
            self._prefix + place.topic, PartitionNumber(place.partition), self._reset
        )
        return offset


def records_of(
    topic: str, partition: int, offsets: Sequence[int], batch: pa.RecordBatch
) -> list[LogRecord]:
    timestamps, keys, values, headers = batch.columns
    count = batch.num_rows
    no_headers = headers.null_count == count
    return [
        LogRecord(topic, partition, key, value, _headers(of) if of else (), timestamp, offset)
        for timestamp, key, value, of, offset in zip(
            timestamps.to_pylist(),
            keys.to_pylist(),
            values.to_pylist(),
            [None] * count if no_headers else headers.to_pylist(),
            offsets,
            strict=True,
        )
    ]


def _headers(stored: Sequence[Mapping[str, str | bytes | None]]) -> tuple[RawHeader, ...]:
    return tuple((each["key"], each["value"]) for each in stored)  # type: ignore[misc]


def _has_moved(watch: Watch) -> bool:
    lane, view, local = watch
    latest = lane.watched.latest
    return latest is None or (
        latest.head.next_offsets[local] != view.head.next_offsets[local]
        or latest.head.log_starts[local] != view.head.log_starts[local]
    )


def fault_of(error: RiachoError) -> RetriableFault | TaskFault:
    """Return what the error of the log means for a task."""
    if isinstance(error, Unavailable | OutcomeUnknown):
        return RetriableFault(f"the log: {error}")
    return TaskFault(f"the log: {error} ({error.code})")
