"""Group commit: many requests, one object, one compare-and-set per lane.

    append ─╮
    append ─┼─ buffer ── segment ── PUT to the zones ── commit each lane ── every append returns
    append ─╯

The linger is adaptive. When no flush is running, arrivals are flushed at once. While a flush is
running, arrivals gather; they are flushed when it completes, when they reach `batch_bytes_max`, or
when the first of them has waited `linger_max_s`, whichever comes first. At most `flights_max`
flushes run concurrently; at that limit, arrivals keep gathering. A flush takes its place in the
queue of every lane it touches before its bytes are even encoded, so commits keep the order of
arrival even if PUTs overtake each other.

`service/process/limits/admission.py` bounds how much may wait here, before a request is even read.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from service.log.lane_buffers import (
    NO_CLAIMS,
    WRITE_VIEW_AGE_MAX_S,
    Append,
    BufferKey,
    Claims,
    LaneBuffer,
    LateCheck,
)
from service.log.segment_writer import Placed, SegmentWriter, Written
from service.log.sequences import Sequences, already_written
from storage.crypto.envelope import Sealer
from storage.crypto.keyring import Keyring, required
from storage.errors import ShuttingDown
from storage.formats import zone_sets
from storage.formats.entries import Kind
from storage.formats.partitions import PartitionNumber
from storage.formats.slices import Sent
from storage.head import replication
from storage.lanes.atomic import LaneRuns, joined
from storage.lanes.building import Records, count_of, kind_of_slices, size_of
from storage.lanes.commits import Bases, RejectedClaims
from storage.lanes.lane import Lanes, LaneView, Ticket
from storage.reading.reader import LogReader
from storage.tasks import Arrivals, begin, drop_error
from storage.topics.topics import Topic
from storage.zones.zones import Zones


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    batch_bytes_max: int
    linger_max_s: float
    flights_max: int
    linger_min_s: float = 0.0
    table_batch_bytes_max: int = 0
    """Maximum size of a single-lane flush that is written to the table; 0: never."""


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
        keyring: Keyring | None = None,
    ) -> None:
        """Write to `zones`; without a `keyring`, records of encrypted topics are refused."""
        self._lanes = lanes
        self._limits = limits
        self._keyring = keyring
        batches, batch_bytes_max = reader.batches, limits.table_batch_bytes_max
        self._writer = SegmentWriter(zones, reader, new_id, batches, batch_bytes_max)
        self._sequences = sequences or Sequences(lanes)
        self._open: _Buffer | None = None
        self._sealed: deque[_Buffer] = deque()
        self._flights: set[asyncio.Task[None]] = set()
        self._arriving = Arrivals[bytes]()
        """By topic: appends that have no place in a buffer yet."""
        self._closing = False
        self._following: set[asyncio.Task[None]] = set()
        """Tasks that watch zones that no commit waits for."""

    @property
    def flush_count(self) -> int:
        return self._writer.count

    @property
    def batch_count(self) -> int:
        """How many of the flushes went into the table."""
        return self._writer.batch_count

    @property
    def flushed_bytes(self) -> int:
        return self._writer.size_bytes

    async def append(
        self,
        topic: Topic,
        batches: Mapping[PartitionNumber, Records],
        size_bytes: int,
        claims: Claims = NO_CLAIMS,
        *,
        waits_for_all: bool = True,
        sent: Sequence[Sent] = (),
        check: LateCheck | None = None,
    ) -> dict[PartitionNumber, int]:
        """Return the first offset given in each partition, once all records are durable.

        Durable means stored in all zones in sync, or in the leading zones only if
        `waits_for_all` is false. `size_bytes` is the approximate size of all batches; `sent` is
        the only batch, in pieces that may be stored as they are. A `check` of the only batch
        is made while it is written: it is committed if it passes. Batches with a claim are
        appended once, however often they are sent; a duplicate returns the original offset.
        Raises `ShuttingDown`, the reason a claim was refused, or what the write or the check
        raised.
        Cancelling the call does not withdraw the records.
        """
        if not batches:
            return {}
        if claims.by_partition:
            await self._sequences.in_turn(topic, claims.by_partition)
        views, sealer = await self._views_in_turn(topic, batches, waits_for_all=waits_for_all)
        if self._closing:
            raise ShuttingDown("this gateway is shutting down; send it to another")
        numbered = claims.by_partition
        known = already_written(topic, views, numbered) if numbered else {}
        if known:
            batches = {p: batch for p, batch in batches.items() if p not in known}
        if not batches:
            return known
        append = Append(known)
        self._hold(
            append, topic, batches, size_bytes, views, sealer, claims, waits_for_all, sent, check
        )
        return await append.answer()

    def _hold(
        self,
        append: Append,
        topic: Topic,
        batches: Mapping[PartitionNumber, Records],
        size_bytes: int,
        views: Mapping[int, LaneView],
        sealer: Sealer | None,
        claims: Claims,
        waits_for_all: bool,
        sent: Sequence[Sent],
        check: LateCheck | None,
    ) -> None:
        """Add a request to the open buffer; close the buffer if it is full."""
        buffer = self._open or self._open_buffer()
        record_bytes = size_bytes / sum(map(count_of, batches.values()))
        touched: set[LaneBuffer] = set()
        for partition, batch in batches.items():
            number, local = topic.lane_of(partition)
            waits = waits_for_all or len(views[number].head.replicas) == 1
            kind = kind_of_slices(batch)
            key = topic.topic_id, number, claims.fence, waits, kind
            waiting = buffer.lanes.get(key)
            if waiting is None:
                lane = self._lanes.lane(topic.topic_id, number)
                waiting = LaneBuffer(topic, number, lane, views[number], claims.fence, waits, kind)
                buffer.lanes[key] = waiting
            waiting.sealer = sealer
            claim = claims.by_partition.get(partition)
            size = int(count_of(batch) * record_bytes)
            waiting.add(local, batch, append, size, claim, sent, check)
            touched.add(waiting)
        append.lanes_left = len(touched)
        buffer.size_bytes += size_bytes
        is_full = any(waiting.is_full for waiting in touched)
        if is_full or buffer.size_bytes >= self._limits.batch_bytes_max:
            self._seal()
            self._take_off()

    async def stage(
        self,
        appends: Sequence[tuple[Topic, Mapping[PartitionNumber, Records]]],
        size_bytes: int,
    ) -> list[LaneRuns]:
        """Write all records as one object without committing it: no reader can see them yet.

        Raises what the write raised. The sweeper deletes objects that are never committed.
        """
        buffers: dict[tuple[bytes, int, Kind], LaneBuffer] = {}
        for topic, batches in appends:
            views = await self._views(topic, batches, waits_for_all=True)
            sealer = await self._sealer(topic)
            for partition, batch in batches.items():
                number, local = topic.lane_of(partition)
                kind = kind_of_slices(batch)
                key = topic.topic_id, number, kind
                if key not in buffers:
                    lane = self._lanes.lane(topic.topic_id, number)
                    buffers[key] = LaneBuffer(
                        topic, number, lane, views[number], kind=kind, sealer=sealer
                    )
                buffers[key].add(local, batch, None, size_of(batch), None)
        if not buffers:
            return []
        lanes = list(buffers.values())
        to_write = [waiting.to_write() for waiting in lanes]
        written = await self._writer.write(to_write, size_bytes, is_staged=True)
        places = (self._writer.placed(written, number) for number in range(len(lanes)))
        found = await asyncio.gather(*places)
        self._writer.leave_behind(written)
        for waiting, placed in zip(lanes, found, strict=True):
            if placed.failed:
                # The commit comes later, but stop waiting for these zones on the next write.
                waiting.lane.upkeep.distrust(placed.failed, waiting.view.head.leader_epoch)
            in_sync = placed.run.zones & waiting.view.head.isr
            replication.check_in_sync(in_sync, waiting.in_sync_min)
        staged = [
            LaneRuns(topic_id, number, (placed.run,), waiting.in_sync_min)
            for ((topic_id, number, _), waiting), placed in zip(buffers.items(), found, strict=True)
        ]
        return joined(staged)

    async def _views_in_turn(
        self, topic: Topic, partitions: Iterable[PartitionNumber], *, waits_for_all: bool
    ) -> tuple[dict[int, LaneView], Sealer | None]:
        """Return what `_views` and `_sealer` do, after all earlier appends to the topic.

        Otherwise an append that waits for the head of one lane would be overtaken in its others.
        """
        arrival = self._arriving.join(topic.topic_id)
        try:
            # Usually returns without suspending.
            views = await self._views(topic, partitions, waits_for_all=waits_for_all)
            sealer = await self._sealer(topic)
            await arrival.turn()
            return views, sealer
        finally:
            arrival.leave()

    async def _sealer(self, topic: Topic) -> Sealer | None:
        """Return what seals the topic's slices; None: they are not sealed.

        Before the records join a flush, so that a missing key fails no other topic.
        """
        if not topic.config.is_encrypted:
            return None
        keyring = required(self._keyring)
        return keyring.sealing(topic) or await keyring.sealer(topic)

    async def _views(
        self, topic: Topic, partitions: Iterable[PartitionNumber], *, waits_for_all: bool
    ) -> dict[int, LaneView]:
        """Return the head of every lane of `partitions`, reading those not read recently.

        Raises `NotEnoughReplicas` before anything is written if too few zones are in sync.
        """
        in_sync_min = topic.in_sync_min if waits_for_all else 1
        widths: dict[int, int] = {}
        for partition in partitions:
            number, local = topic.lane_of(partition)
            widths[number] = max(local + 1, widths.get(number, 0))
        lanes = {number: self._lanes.lane(topic.topic_id, number) for number in widths}
        views: dict[int, LaneView] = {}
        for number, lane in lanes.items():
            view = lane.known(WRITE_VIEW_AGE_MAX_S)
            # If it is too narrow, the topic was widened after this head was read; if too few
            # zones are in sync, more may be by now.
            if (
                view is not None
                and widths[number] <= view.head.partition_count
                and zone_sets.count(view.head.isr) >= in_sync_min
            ):
                views[number] = view
        unknown = [number for number in lanes if number not in views]
        if unknown:
            found = await asyncio.gather(*(lanes[number].view(0) for number in unknown))
            for view in found:
                replication.check_in_sync(view.head.isr, in_sync_min)
            views.update(zip(unknown, found, strict=True))
        return views

    async def aclose(self) -> None:
        """Write what is held; return when every append has its answer."""
        self._closing = True
        self._seal()
        self._take_off()
        while self._flights:
            await asyncio.wait(self._flights)
        for follow in self._following:
            follow.cancel()

    def _open_buffer(self) -> _Buffer:
        loop = asyncio.get_running_loop()
        self._open = buffer = _Buffer()
        least_s = self._limits.linger_min_s
        longest_s = max(self._limits.linger_max_s, least_s)
        buffer.linger = loop.call_later(longest_s, self._lingered, buffer)
        if least_s:
            loop.call_later(least_s, self._gathered, buffer)
        else:
            # In the next turn of the loop, so that everything arriving in this one is included.
            loop.call_soon(self._gathered, buffer)
        return buffer

    def _gathered(self, buffer: _Buffer) -> None:
        buffer.has_gathered = True
        self._take_off()

    def _lingered(self, buffer: _Buffer) -> None:
        # Sealed only when it can be flushed: otherwise a slow period of the store would leave a
        # queue of small batches, each its own flush, that the store never catches up with.
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
            # Take the places in the lanes' queues now: commits keep the order of arrival.
            tickets = [(waiting, waiting.lane.enqueue()) for waiting in buffer.lanes.values()]
            flight = begin(self._fly(buffer.size_bytes, tickets))
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _is_due(self, buffer: _Buffer) -> bool:
        return (buffer.has_gathered and not self._flights) or buffer.has_lingered

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._take_off()

    async def _fly(self, size_bytes: int, tickets: list[tuple[LaneBuffer, Ticket]]) -> None:
        """Write the segment, then commit it.

        In that order, so that a crash in between leaves only an unreferenced object.
        """
        # As tasks, which begin when this one waits for the store.
        checks = [None if waiting.is_checked else begin(waiting.check()) for waiting, _ in tickets]
        try:
            to_write = [waiting.to_write() for waiting, _ in tickets]
            written = await self._writer.write(to_write, size_bytes)
        except Exception as error:  # noqa: BLE001
            for (waiting, ticket), check in zip(tickets, checks, strict=True):
                if check is not None:
                    check.add_done_callback(drop_error)
                ticket.withdraw()
                waiting.fail(error)
            return
        # Concurrently, so that no lane waits for another, or for its zones.
        first, *others = (
            self._land(written, n, *of, check)
            for n, (of, check) in enumerate(zip(tickets, checks, strict=True))
        )
        landings = [begin(other) for other in others]
        await first
        for landing in landings:
            await landing
        self._writer.leave_behind(written)

    async def _land(
        self,
        written: Written,
        number: int,
        waiting: LaneBuffer,
        ticket: Ticket,
        check: "asyncio.Task[bool] | None",
    ) -> None:
        """Commit the run of a lane as soon as enough zones hold it, and answer its requests."""
        try:
            placed = await self._writer.placed(written, number)
            if check is None or await check:
                answer = ticket.ready(waiting.offer(placed))
                if written.is_running:
                    self._spawn(self._follow(written, number, waiting, ticket, placed))
                bases = await self._committed(waiting, ticket, answer)
            else:
                bases = await self._without_rejected(waiting, ticket)
        except Exception as error:  # noqa: BLE001
            ticket.withdraw()
            waiting.fail(error)
        else:
            waiting.landed(bases)

    async def _committed(
        self, waiting: LaneBuffer, ticket: Ticket, answer: "asyncio.Future[Bases | RejectedClaims]"
    ) -> Bases:
        """Return the first offsets; write the run again if some of it must not be appended."""
        outcome = await answer
        if isinstance(outcome, RejectedClaims):
            waiting.reject(outcome.verdicts)
            return await self._without_rejected(waiting, ticket)
        return outcome

    async def _without_rejected(self, waiting: LaneBuffer, ticket: Ticket) -> Bases:
        """Write and commit what is left of a lane whose run must not be appended as it is."""
        if waiting.is_empty:
            ticket.withdraw()
            return {}
        written = await self._writer.write([waiting.to_write()], sum(waiting.sizes.values()))
        placed = await self._writer.placed(written, 0)
        self._writer.leave_behind(written)
        return await self._committed(waiting, ticket, ticket.ready(waiting.offer(placed)))

    def _spawn(self, follow: Coroutine[None, None, None]) -> None:
        task = begin(follow)
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _follow(
        self, written: Written, number: int, waiting: LaneBuffer, ticket: Ticket, placed: Placed
    ) -> None:
        """Report to the lane the result of the zones that the commit did not wait for."""
        await self._writer.caught_up(written, number)
        # Zones are only reported for a run that is in the head.
        await asyncio.wait([ticket.committed])
        held, failed = self._writer.late(written, number, placed)
        if failed or not zone_sets.is_within(held, placed.run.zones):
            waiting.lane.upkeep.learn(placed.run.object_id, held, failed)
