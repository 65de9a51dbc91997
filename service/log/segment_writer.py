"""Write a segment to the zones of its lanes, and wait for the zones that `acks` asks for.

The object goes to all zones at once. Each lane in it waits for its own: with `acks=all` for every
zone in sync, with `acks=1` for the zones that lead its partitions. A zone that refuses, or takes
longer than `replica.lag.time.max.ms`, is reported as failed, and leaves the ISR with the commit.
So a slow zone delays a partition by at most that time, and only once.

If configured, a small flush of a single lane goes into the metadata table instead
(storage/reading/table_batches.py, docs/decisions/0024). Then there is no zone to wait for.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec

from storage import keys
from storage.errors import StoreUnavailable
from storage.formats import zone_sets
from storage.formats.zone_sets import EVERYWHERE, NONE, ZoneSet
from storage.head import head as heads
from storage.head import replication
from storage.head.head import Head, Run
from storage.lanes import building as writer
from storage.lanes.building import BuiltSegment, LanePart
from storage.reading.reader import LogReader
from storage.reading.table_batches import TableBatches
from storage.zones.zones import Puts, Zones

ENCODE_INLINE_BYTES_MAX: Final = 64 * 1024
"""Smaller flushes are encoded on the event loop: a hop to a thread would take longer."""


class Placed(NamedTuple):
    """A run whose `zones` hold it, and the state of the other zones in sync."""

    run: Run
    failed: ZoneSet = NONE
    """Zones that refused it, or took too long."""
    awaited: ZoneSet = NONE
    """Zones that are still writing it; `SegmentWriter.late` returns their result."""


@dataclass(frozen=True, slots=True)
class LaneWrite:
    """What a lane adds to a segment, and which zones have to hold it."""

    part: LanePart
    head: Head
    """It decides where to write."""
    required: ZoneSet
    """Zones to wait for."""
    lag_s: float
    """Maximum time a zone may take and stay in sync."""


@dataclass(frozen=True, slots=True)
class Written:
    """A segment whose writes may still be running."""

    lanes: Sequence[LaneWrite]
    runs: Sequence[Run]
    """One for each of the lanes."""
    puts: Puts | None
    """None: it is durable already, in the only zone or in the table."""

    @property
    def is_running(self) -> bool:
        return self.puts is not None and bool(self.puts.running)


class SegmentWriter:
    def __init__(
        self,
        zones: Zones,
        reader: LogReader,
        new_id: Callable[[], bytes],
        batches: TableBatches | None = None,
        batch_bytes_max: int = 0,
    ) -> None:
        """Write to `zones`, but single-lane slices of up to `batch_bytes_max` to `batches`."""
        self._zones = zones
        self._reader = reader
        self._new_id = new_id
        self._batches = batches
        self._batch_bytes_max = batch_bytes_max
        self.count = 0
        self.batch_count = 0
        self.size_bytes = 0

    async def write(
        self, lanes: Sequence[LaneWrite], size_bytes: int, *, is_staged: bool = False
    ) -> Written:
        """Encode what the lanes hold and start writing it; with one zone, wait for the write.

        A segment that `is_staged` may be committed much later, so it is always an object. Raises
        what that one zone, or the table, raised.
        """
        object_id = self._new_id()
        parts = [lane.part for lane in lanes]
        if size_bytes <= ENCODE_INLINE_BYTES_MAX or all(part.is_encoded for part in parts):
            segment = writer.build(object_id, parts)
        else:
            segment = await asyncio.to_thread(writer.build, object_id, parts)
        if not is_staged and self._is_small(segment):
            segment = await self._write_batch(object_id, segment)
            return Written(lanes, segment.runs, None)
        names = list(dict.fromkeys(name for lane in lanes for name in self._names(lane.head)))
        key = keys.hot_segment(object_id)
        puts = None
        if len(names) == 1:
            # Most deployments have one zone; this saves a task.
            await self._zones.put(key, segment.pieces, names[0])
        else:
            puts = self._zones.start(key, segment.pieces, names)
        self._written(object_id, segment)
        return Written(lanes, segment.runs, puts)

    async def placed(self, written: Written, number: int) -> Placed:
        """Return where the run of a lane is, once enough zones hold it for its requests.

        Raises what the zones raised if none of those in sync holds it.
        """
        lane, run, puts = written.lanes[number], written.runs[number], written.puts
        if puts is None:
            return Placed(run)
        head, required = lane.head, lane.required
        await _wait(puts, head, required, lane.lag_s)
        # A zone that refused it has failed, too, even if it was not waited for.
        refused = replication.zones_named(head, puts.failed)
        failed = zone_sets.without(required, _held(puts, head)) | head.isr & refused
        if failed & required and failed != head.isr:
            # Another zone becomes the leader; wait for the remaining zones in sync.
            await _wait(puts, head, zone_sets.without(head.isr, failed), lane.lag_s)
            failed |= zone_sets.without(head.isr, _held(puts, head))
        held = _held(puts, head)
        if not held & head.isr:
            raise _error(puts)
        awaited = zone_sets.without(head.isr, held | failed)
        return Placed(msgspec.structs.replace(run, zones=held), failed, awaited)

    async def caught_up(self, written: Written, number: int) -> None:
        """Return when all zones have it, or `replica.lag.time.max.ms` has passed."""
        if written.puts is not None:
            await written.puts.wait(timeout_s=written.lanes[number].lag_s)

    def late(self, written: Written, number: int, placed: Placed) -> tuple[ZoneSet, ZoneSet]:
        """Return which zones hold a run by now, and which of the awaited ones do not."""
        assert written.puts is not None, "no zone is late if there was nothing to wait for"
        held = _held(written.puts, written.lanes[number].head)
        return held, zone_sets.without(placed.awaited, held)

    def _is_small(self, segment: BuiltSegment) -> bool:
        size_bytes = sum(len(data) for _, data in segment.stored)
        return len(segment.runs) == 1 and size_bytes <= self._batch_bytes_max

    async def _write_batch(self, object_id: bytes, segment: BuiltSegment) -> BuiltSegment:
        """Write the segment to the table; return it with its run changed to match."""
        assert self._batches is not None, "a limit, and nowhere to write to"
        await self._batches.write(object_id, b"".join(segment.pieces))
        self._written(object_id, segment)
        self.batch_count += 1
        [run] = segment.runs
        run = msgspec.structs.replace(heads.in_table(run), zones=EVERYWHERE)
        return replace(segment, runs=[run])

    def _written(self, object_id: bytes, segment: BuiltSegment) -> None:
        self.count += 1
        for position, data in segment.stored:
            self.size_bytes += len(data)
            self._reader.remember(object_id, position, data)

    def leave_behind(self, written: Written) -> None:
        """Stop waiting for the remaining zones; their writes may be cancelled for space."""
        if written.puts is not None:
            self._zones.leave_behind(written.puts)

    def _names(self, head: Head) -> Collection[str]:
        where = replication.targets(head)
        hopeful = replication.zone_names(head, where.hopeful)
        return [
            *replication.zone_names(head, where.required),
            *(name for name in hopeful if not self._zones.is_avoided(name)),
        ]


async def _wait(puts: Puts, head: Head, zones: ZoneSet, timeout_s: float) -> None:
    names = [head.zones[number] for number in zone_sets.numbers(zones)]
    await puts.wait(names, timeout_s=timeout_s)


def _held(puts: Puts, head: Head) -> ZoneSet:
    """Return the zones of the lane that hold it; zones of other lanes do not count."""
    where = replication.targets(head)
    return replication.zones_named(head, puts.done) & (where.required | where.hopeful)


def _error(puts: Puts) -> Exception:
    for error in puts.failed.values():
        return error
    return StoreUnavailable("no zone took the records in time; send them again")
