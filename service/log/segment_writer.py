"""Write a segment to the zones of its lanes, and wait for the zones that `acks` asks for.

The object goes to all zones at once. Each lane in it waits for its own: with `acks=all` for every
zone in sync, with `acks=1` for the zones that lead its partitions. A zone that refuses, or takes
longer than `replica.lag.time.max.ms`, is reported as failed, and leaves the ISR with the commit.
So a slow zone delays a partition by at most that time, and only once.

If configured, a small flush of a single lane goes into the metadata table instead
(storage/reading/table_batches.py, docs/decisions/0024). Then there is no zone to wait for.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from service.log.lane_buffers import LaneBuffer, Placed
from storage import keys
from storage.errors import StoreUnavailable
from storage.formats.entries import Kind
from storage.head import replication
from storage.head.head import Head, Run
from storage.lanes import building as writer
from storage.lanes.building import BuiltSegment
from storage.reading.reader import LogReader
from storage.reading.table_batches import EVERYWHERE, TableBatches
from storage.zones.zones import Puts, Zones

ENCODE_INLINE_BYTES_MAX: Final = 64 * 1024
"""Smaller flushes are encoded on the event loop: a hop to a thread would take longer."""


@dataclass(frozen=True, slots=True)
class Written:
    """A segment whose writes may still be running."""

    segment: BuiltSegment
    heads: Mapping[LaneBuffer, Head]
    """The heads that decided where to write."""
    puts: Puts | None
    """None: it is durable already, in the only zone or in the table."""

    async def placed(self, waiting: LaneBuffer, run: Run) -> Placed:
        """Return where the run of a lane is, once enough zones hold it for its requests.

        Raises what the zones raised if none of those in sync holds it.
        """
        if self.puts is None:
            return Placed(run)
        head = self.heads[waiting]
        required = waiting.required_zones(head)
        await self._wait(head.zones, required, waiting.lag_s)
        # A zone that refused it has failed, too, even if it was not waited for.
        failed = required & ~self._held(head) | head.isr & self._refused(head)
        if failed & required and failed != head.isr:
            # Another zone becomes the leader; wait for the remaining zones in sync.
            await self._wait(head.zones, head.isr & ~failed, waiting.lag_s)
            failed |= head.isr & ~self._held(head)
        held = self._held(head)
        if not held & head.isr:
            raise self._error()
        awaited = head.isr & ~held & ~failed
        return Placed(msgspec.structs.replace(run, zones=held), failed, awaited)

    async def caught_up(self, waiting: LaneBuffer) -> None:
        """Return when all zones have it, or `replica.lag.time.max.ms` has passed."""
        if self.puts is not None:
            await self.puts.wait(timeout_s=waiting.lag_s)

    def tell(self, waiting: LaneBuffer, placed: Placed) -> None:
        """Report to the lane the result of the zones that the commit did not wait for."""
        held = self._held(self.heads[waiting])
        failed = placed.awaited & ~held
        if failed or held & ~placed.run.zones:
            waiting.lane.learn(placed.run.object_id, held, failed)

    async def _wait(self, zones: Sequence[str], mask: int, timeout_s: float) -> None:
        assert self.puts is not None
        names = [name for number, name in enumerate(zones) if mask >> number & 1]
        await self.puts.wait(names, timeout_s=timeout_s)

    def _held(self, head: Head) -> int:
        """Return the zones of the lane that hold it; zones of other lanes do not count."""
        assert self.puts is not None
        where = replication.targets(head)
        return replication.mask_of(head, self.puts.done) & (where.required | where.hopeful)

    def _refused(self, head: Head) -> int:
        assert self.puts is not None
        return replication.mask_of(head, self.puts.failed)

    def _error(self) -> Exception:
        assert self.puts is not None
        for error in self.puts.failed.values():
            return error
        return StoreUnavailable("no zone took the records in time; send them again")


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
        self, lanes: Sequence[LaneBuffer], size_bytes: int, *, is_staged: bool = False
    ) -> Written:
        """Encode what the lanes hold and start writing it; with one zone, wait for the write.

        A segment that `is_staged` may be committed much later, so it is always an object. Raises
        what that one zone, or the table, raised.
        """
        object_id = self._new_id()
        chosen = {waiting: waiting.look_again() for waiting in lanes}
        parts = [waiting.part() for waiting in lanes]
        if size_bytes <= ENCODE_INLINE_BYTES_MAX:
            segment = writer.build(object_id, parts)
        else:
            segment = await asyncio.to_thread(writer.build, object_id, parts)
        if not is_staged and self._is_small(segment):
            segment = await self._write_batch(object_id, segment)
            return Written(segment, chosen, None)
        names = list(dict.fromkeys(name for head in chosen.values() for name in self._names(head)))
        key = keys.hot_segment(object_id)
        puts = None
        if len(names) == 1:
            # Most deployments have one zone; this saves a task.
            await self._zones.put(key, segment.pieces, names)
        else:
            puts = self._zones.start(key, segment.pieces, names)
        self._written(object_id, segment)
        return Written(segment, chosen, puts)

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
        run = msgspec.structs.replace(run, kind=int(Kind.TABLE), zones=EVERYWHERE)
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
