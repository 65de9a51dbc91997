"""Group commit: many requests, one object, one compare-and-set per lane.

    append ─╮
    append ─┼─ buffer ── segment ── PUT to the zones ── commit each lane ── every append returns
    append ─╯

The linger is adaptive. When nothing is in the air, what arrives leaves at once. While a flush is
in the air, arrivals gather; they leave when it lands, when they are `batch_bytes_max`, or when
the first of them has waited `linger_max_s`, whichever comes first, with at most `flights_max`
flushes in the air; while there are as many, arrivals go on gathering. A flush takes its place
in the queue of every lane it touches before its bytes are even encoded, so commits keep the
order of arrival though PUTs overtake.

How much may wait here is bounded by `service/admission.py`, before a request is even read.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from storage import keys, writer
from storage.catalog import zone_names
from storage.errors import OutcomeUnknown, RiachoError, ShuttingDown
from storage.lanes import Lane, Lanes, LaneView, Ticket
from storage.reader import LogReader
from storage.tasks import drop_error
from storage.topics import Topic
from storage.writer import BuiltSegment, LanePart
from storage.zones import Zones

VIEW_AGE_MAX_S: Final = 5.0
"""Replicas and ISR of a lane may be this old when choosing where to write. A commit on a head
that has changed since is refused by its version, so staleness costs a retry, never data."""

ENCODE_INLINE_BYTES_MAX: Final = 64 * 1024
"""Smaller flushes are encoded on the event loop: a hop to a thread would take longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    batch_bytes_max: int
    linger_max_s: float
    flights_max: int
    linger_min_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Append:
    """One request: waits for all its lanes."""

    lanes_left: int
    done: "asyncio.Future[dict[int, int]]"
    bases: dict[int, int] = field(default_factory=dict)
    error: Exception | None = None

    def landed(self, bases: Mapping[int, int]) -> None:
        self.bases.update(bases)
        self._settle()

    def fail(self, error: Exception) -> None:
        if self.error is None or isinstance(error, OutcomeUnknown):
            self.error = error
        self._settle()

    def _settle(self) -> None:
        """Answer when every lane has: only then is it known whether anything was written."""
        self.lanes_left -= 1
        if self.lanes_left or self.done.done():
            return
        if self.error is None:
            self.done.set_result(self.bases)
        elif self.bases and isinstance(self.error, RiachoError):
            mixed = OutcomeUnknown(f"some partitions were written, others not: {self.error}")
            self.done.set_exception(mixed)
        else:
            self.done.set_exception(self.error)


@dataclass(slots=True, eq=False)
class _LaneBuffer:
    topic: Topic
    number: int
    lane: Lane
    view: LaneView
    chunks: dict[int, list[tuple[pa.RecordBatch, _Append]]] = field(default_factory=dict)
    """Record batches by partition within the lane, in order of arrival."""
    sizes: dict[int, int] = field(default_factory=dict)
    """About how many bytes each of these partitions has."""

    @property
    def first_partition(self) -> int:
        return self.number * self.topic.lane_partitions

    def zone_names(self) -> list[str]:
        return zone_names(self.view.head, self.view.head.isr)

    def part(self) -> LanePart:
        return LanePart(
            topic_id=self.topic.topic_id,
            first_partition=self.first_partition,
            codec=self.topic.config.codec,
            zones=self.view.head.isr,
            batches=[
                (partition, [batch for batch, _ in chunks], self.sizes[partition])
                for partition, chunks in self.chunks.items()
            ],
        )

    def appends(self) -> Iterable[_Append]:
        # A dictionary, because a set would answer in any order.
        return dict.fromkeys(append for chunks in self.chunks.values() for _, append in chunks)

    def settled(self, committed: "asyncio.Future[dict[int, int]]") -> None:
        if committed.cancelled():
            # Only when the process stops with the commit under way: then nobody knows.
            self.fail(OutcomeUnknown("the commit was interrupted; it may have happened"))
            return
        error = committed.exception()
        if error is None:
            self.landed(committed.result())
        else:
            assert isinstance(error, Exception), error
            self.fail(error)

    def fail(self, error: Exception) -> None:
        for append in self.appends():
            append.fail(error)

    def landed(self, bases: Mapping[int, int]) -> None:
        """Tell every append of this lane which offsets its records got."""
        offsets: dict[_Append, dict[int, int]] = {append: {} for append in self.appends()}
        for partition, chunks in self.chunks.items():
            offset = bases[partition]
            for batch, append in chunks:
                offsets[append][self.first_partition + partition] = offset
                offset += batch.num_rows
        for append, given in offsets.items():
            append.landed(given)


@dataclass(slots=True, eq=False)
class _Buffer:
    lanes: dict[tuple[bytes, int], _LaneBuffer] = field(default_factory=dict)
    size_bytes: int = 0
    linger: asyncio.TimerHandle | None = None
    has_gathered: bool = False
    has_lingered: bool = False


class Batcher:
    def __init__(
        self,
        zones: Zones,
        lanes: Lanes,
        reader: LogReader,
        limits: BatchLimits,
        new_id: Callable[[], bytes],
    ) -> None:
        self._zones = zones
        self._lanes = lanes
        self._reader = reader
        self._limits = limits
        self._new_id = new_id
        self._open: _Buffer | None = None
        self._sealed: deque[_Buffer] = deque()
        self._flights: set[asyncio.Task[None]] = set()
        self._arriving: dict[bytes, asyncio.Future[None]] = {}
        """By topic: done when the append that came last has its place in a buffer."""
        self._closing = False
        self.flush_count = 0
        self.flushed_bytes = 0

    async def append(
        self, topic: Topic, batches: Mapping[int, pa.RecordBatch], size_bytes: int
    ) -> dict[int, int]:
        """Return the first offset given in each partition, once all records are durable.

        `size_bytes` is about what all batches have together. Raises `ShuttingDown`, or what
        the write raised. To stop waiting does not withdraw the records.
        """
        if not batches:
            return {}
        views = await self._views_in_turn(topic, batches)
        if self._closing:
            raise ShuttingDown("this gateway is shutting down; send it to another")
        append = _Append(len(views), asyncio.get_running_loop().create_future())
        buffer = self._open or self._open_buffer()
        record_bytes = size_bytes / sum(batch.num_rows for batch in batches.values())
        for partition, batch in batches.items():
            number, local = topic.lane_of(partition)
            key = topic.topic_id, number
            waiting = buffer.lanes.get(key)
            if waiting is None:
                lane = self._lanes.lane(*key)
                waiting = buffer.lanes[key] = _LaneBuffer(topic, number, lane, views[number])
            waiting.chunks.setdefault(local, []).append((batch, append))
            grown = waiting.sizes.get(local, 0) + int(batch.num_rows * record_bytes)
            waiting.sizes[local] = grown
        buffer.size_bytes += size_bytes
        if buffer.size_bytes >= self._limits.batch_bytes_max:
            self._seal()
            self._take_off()
        try:
            # Shielded, because the flush goes on for the others when one caller hangs up.
            return await asyncio.shield(append.done)
        except asyncio.CancelledError:
            append.done.add_done_callback(drop_error)
            raise

    async def _views_in_turn(self, topic: Topic, partitions: Iterable[int]) -> dict[int, LaneView]:
        """Return what `_views` returns, but not before those who came earlier have it.

        Else an append that waits for the head of one lane would be overtaken in all its others.
        """
        before = self._arriving.get(topic.topic_id)
        turn = self._arriving[topic.topic_id] = asyncio.get_running_loop().create_future()
        try:
            # Mostly without any pause.
            views = await self._views(topic, partitions)
            if before is not None:
                await asyncio.shield(before)
            return views
        finally:
            if before is None or before.done():
                self._arrived(topic.topic_id, turn)
            else:
                before.add_done_callback(lambda _: self._arrived(topic.topic_id, turn))

    def _arrived(self, topic_id: bytes, turn: "asyncio.Future[None]") -> None:
        turn.set_result(None)
        if self._arriving.get(topic_id) is turn:
            del self._arriving[topic_id]

    async def _views(self, topic: Topic, partitions: Iterable[int]) -> dict[int, LaneView]:
        """Return the head of every lane of `partitions`, reading those not seen lately."""
        widths: dict[int, int] = {}
        for partition in partitions:
            number, local = topic.lane_of(partition)
            widths[number] = max(local + 1, widths.get(number, 0))
        lanes = {number: self._lanes.lane(topic.topic_id, number) for number in widths}
        views: dict[int, LaneView] = {}
        for number, lane in lanes.items():
            view = lane.known(VIEW_AGE_MAX_S)
            # If it is too narrow, the topic was widened after this head was read.
            if view is not None and widths[number] <= view.head.partition_count:
                views[number] = view
        unknown = [number for number in lanes if number not in views]
        if unknown:
            found = await asyncio.gather(*(lanes[number].view(0) for number in unknown))
            views.update(zip(unknown, found, strict=True))
        return views

    async def aclose(self) -> None:
        """Write what is held; return when every append has its answer."""
        self._closing = True
        self._seal()
        self._take_off()
        while self._flights:
            await asyncio.wait(self._flights)

    def _open_buffer(self) -> _Buffer:
        loop = asyncio.get_running_loop()
        self._open = buffer = _Buffer()
        buffer.linger = loop.call_later(self._limits.linger_max_s, self._lingered, buffer)
        if self._limits.linger_min_s:
            loop.call_later(self._limits.linger_min_s, self._gathered, buffer)
        else:
            # In the next turn of the loop, so that all that is arriving in this one comes along.
            loop.call_soon(self._gathered, buffer)
        return buffer

    def _gathered(self, buffer: _Buffer) -> None:
        buffer.has_gathered = True
        self._take_off()

    def _lingered(self, buffer: _Buffer) -> None:
        # Sealed only when it can leave: a store that is slow for a while would else be followed
        # by a queue of small batches, each a flight of its own, that it never catches up with.
        buffer.has_lingered = True
        self._take_off()

    def _seal(self) -> None:
        if self._open is not None:
            if self._open.linger is not None:
                self._open.linger.cancel()
            self._sealed.append(self._open)
            self._open = None

    def _take_off(self) -> None:
        while len(self._flights) < self._limits.flights_max:
            if not self._sealed and self._open and self._is_due(self._open):
                self._seal()
            if not self._sealed:
                return
            buffer = self._sealed.popleft()
            # The places in the lanes' queues are taken now: arrival decides the order.
            tickets = [(waiting, waiting.lane.enqueue()) for waiting in buffer.lanes.values()]
            flight = asyncio.create_task(self._fly(buffer, tickets))
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _is_due(self, buffer: _Buffer) -> bool:
        return (buffer.has_gathered and not self._flights) or buffer.has_lingered

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._take_off()

    async def _fly(self, buffer: _Buffer, tickets: list[tuple[_LaneBuffer, Ticket]]) -> None:
        """Write the segment, then commit it.

        In that order, so that a crash in between leaves an object that nothing mentions, and
        nothing else.
        """
        try:
            segment = await self._write(buffer, [waiting for waiting, _ in tickets])
        except Exception as error:  # noqa: BLE001
            for waiting, ticket in tickets:
                ticket.withdraw()
                waiting.fail(error)
            return
        for (waiting, ticket), run in zip(tickets, segment.runs, strict=True):
            # By a callback, so that no lane waits for the others.
            ticket.committed.add_done_callback(waiting.settled)
            ticket.ready(run)
        for _, ticket in tickets:
            with suppress(RiachoError):
                await ticket.committed

    async def _write(self, buffer: _Buffer, lanes: Sequence[_LaneBuffer]) -> BuiltSegment:
        object_id = self._new_id()
        parts = [waiting.part() for waiting in lanes]
        if buffer.size_bytes <= ENCODE_INLINE_BYTES_MAX:
            segment = writer.build(object_id, parts)
        else:
            segment = await asyncio.to_thread(writer.build, object_id, parts)
        names = list(dict.fromkeys(name for waiting in lanes for name in waiting.zone_names()))
        await self._zones.put(keys.hot_segment(object_id), segment.pieces, names)
        self.flush_count += 1
        for position, data in segment.stored:
            self.flushed_bytes += len(data)
            self._reader.remember(object_id, position, data)
        return segment
