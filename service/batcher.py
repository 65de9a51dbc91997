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

from service.lane_buffers import NO_CLAIMS, Append, BufferKey, Claims, LaneBuffer
from service.sequences import Sequences, already_written
from storage import keys, writer
from storage.atomic import LaneRuns
from storage.errors import RiachoError, ShuttingDown
from storage.head import Run
from storage.lanes import Lanes, LaneView, Ticket
from storage.reader import LogReader
from storage.tasks import drop_error
from storage.topics import Topic
from storage.writer import BuiltSegment
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
class _Buffer:
    lanes: dict[BufferKey, LaneBuffer] = field(default_factory=dict)
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
        sequences: Sequences | None = None,
    ) -> None:
        self._zones = zones
        self._lanes = lanes
        self._reader = reader
        self._limits = limits
        self._new_id = new_id
        self._sequences = sequences or Sequences(lanes)
        self._open: _Buffer | None = None
        self._sealed: deque[_Buffer] = deque()
        self._flights: set[asyncio.Task[None]] = set()
        self._arriving: dict[bytes, asyncio.Future[None]] = {}
        """By topic: done when the append that came last has its place in a buffer."""
        self._closing = False
        self.flush_count = 0
        self.flushed_bytes = 0

    async def append(
        self,
        topic: Topic,
        batches: Mapping[int, pa.RecordBatch],
        size_bytes: int,
        claims: Claims = NO_CLAIMS,
    ) -> dict[int, int]:
        """Return the first offset given in each partition, once all records are durable.

        `size_bytes` is about what all batches have together. Batches with a claim are appended
        once, however often they come; one that was appended before gets the offset of then.
        Raises `ShuttingDown`, what a claim is refused for, or what the write raised. To stop
        waiting does not withdraw the records.
        """
        if not batches:
            return {}
        if claims.by_partition:
            await self._sequences.in_turn(topic, claims.by_partition)
        views = await self._views_in_turn(topic, batches)
        if self._closing:
            raise ShuttingDown("this gateway is shutting down; send it to another")
        known: dict[int, int] = {}
        if claims.by_partition:
            known = already_written(topic, views, claims.by_partition)
            batches = {p: batch for p, batch in batches.items() if p not in known}
            if not batches:
                return known
        append = Append(0, asyncio.get_running_loop().create_future(), known)
        buffer = self._open or self._open_buffer()
        record_bytes = size_bytes / sum(batch.num_rows for batch in batches.values())
        touched: set[LaneBuffer] = set()
        for partition, batch in batches.items():
            number, local = topic.lane_of(partition)
            key = topic.topic_id, number, claims.fence
            waiting = buffer.lanes.get(key)
            if waiting is None:
                lane = self._lanes.lane(topic.topic_id, number)
                waiting = buffer.lanes[key] = LaneBuffer(
                    topic, number, lane, views[number], claims.fence
                )
            claim = claims.by_partition.get(partition)
            waiting.add(local, batch, append, int(batch.num_rows * record_bytes), claim)
            touched.add(waiting)
        append.lanes_left = len(touched)
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

    async def stage(
        self, appends: Sequence[tuple[Topic, Mapping[int, pa.RecordBatch]]], size_bytes: int
    ) -> list[LaneRuns]:
        """Write all records as one object, and commit nothing: nobody can see them yet.

        Raises what the write raised. What is never committed is an orphan for the sweeper.
        """
        buffers: dict[tuple[bytes, int], LaneBuffer] = {}
        for topic, batches in appends:
            views = await self._views(topic, batches)
            for partition, batch in batches.items():
                number, local = topic.lane_of(partition)
                key = topic.topic_id, number
                if key not in buffers:
                    lane = self._lanes.lane(*key)
                    buffers[key] = LaneBuffer(topic, number, lane, views[number], None)
                buffers[key].add(local, batch, None, batch.nbytes, None)
        if not buffers:
            return []
        segment = await self._write(list(buffers.values()), size_bytes)
        return [LaneRuns(*key, (run,)) for key, run in zip(buffers, segment.runs, strict=True)]

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

    async def _fly(self, buffer: _Buffer, tickets: list[tuple[LaneBuffer, Ticket]]) -> None:
        """Write the segment, then commit it.

        In that order, so that a crash in between leaves an object that nothing mentions, and
        nothing else.
        """
        try:
            segment = await self._write([waiting for waiting, _ in tickets], buffer.size_bytes)
        except Exception as error:  # noqa: BLE001
            for waiting, ticket in tickets:
                ticket.withdraw()
                waiting.fail(error)
            return
        for (waiting, ticket), run in zip(tickets, segment.runs, strict=True):
            # By a callback, so that no lane waits for the others.
            ticket.committed.add_done_callback(waiting.settled)
            ticket.ready(waiting.offer(run, self._write_again))
        for _, ticket in tickets:
            with suppress(RiachoError):
                await ticket.committed

    async def _write_again(self, waiting: LaneBuffer) -> Run:
        segment = await self._write([waiting], sum(waiting.sizes.values()))
        return segment.runs[0]

    async def _write(self, lanes: Sequence[LaneBuffer], size_bytes: int) -> BuiltSegment:
        object_id = self._new_id()
        parts = [waiting.part() for waiting in lanes]
        if size_bytes <= ENCODE_INLINE_BYTES_MAX:
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
