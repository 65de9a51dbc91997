"""Writing a segment to the zones of its lanes, and waiting for as many as were asked for.

The object goes to all zones at once. Each lane in it waits for its own: with `acks=all` for every
zone in sync, with `acks=1` for the zones that lead its partitions. A zone that refuses, or takes
longer than `replica.lag.time.max.ms`, is named as failed, and leaves the ISR with the commit. So
one slow zone cannot hold up a partition for longer than that, and not again after it.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from service.lane_buffers import LaneBuffer, Placed
from storage import keys, replication, writer
from storage.errors import StoreUnavailable
from storage.head import Run
from storage.reader import LogReader
from storage.writer import BuiltSegment
from storage.zones import Puts, Zones

ENCODE_INLINE_BYTES_MAX: Final = 64 * 1024
"""Smaller flushes are encoded on the event loop: a hop to a thread would take longer."""


@dataclass(frozen=True, slots=True)
class Written:
    """A segment on its way."""

    segment: BuiltSegment
    puts: Puts | None
    """None: there is only one zone, and it holds the segment already."""

    async def placed(self, waiting: LaneBuffer, run: Run) -> Placed:
        """Return where the run of a lane is, once that is enough for those who wait.

        Raises what the zones raised if none of those in sync holds it.
        """
        head = waiting.view.head
        if self.puts is None:
            return Placed(run, 0)
        required = waiting.required_zones()
        await self._wait(head.zones, required, waiting.lag_s)
        failed = required & ~self._held(waiting)
        if failed and failed != head.isr:
            # Another zone leads now; whoever else is in sync will do.
            await self._wait(head.zones, head.isr & ~failed, waiting.lag_s)
            failed |= head.isr & ~self._held(waiting)
        held = self._held(waiting)
        if not held & head.isr:
            raise self._error()
        return Placed(msgspec.structs.replace(run, zones=held), failed)

    async def caught_up(self, waiting: LaneBuffer, placed: Placed) -> None:
        """Tell the lane what becomes of the zones that nobody waited for."""
        if self.puts is None:
            return
        await self.puts.wait(timeout_s=waiting.lag_s)
        held = self._held(waiting)
        failed = waiting.view.head.isr & ~held & ~placed.failed
        if failed or held & ~placed.run.zones:
            waiting.lane.learn(placed.run.object_id, held, failed)

    async def _wait(self, zones: Sequence[str], mask: int, timeout_s: float) -> None:
        assert self.puts is not None
        names = [name for number, name in enumerate(zones) if mask >> number & 1]
        await self.puts.wait(names, timeout_s=timeout_s)

    def _held(self, waiting: LaneBuffer) -> int:
        assert self.puts is not None
        head = waiting.view.head
        return replication.mask_of(head, self.puts.done) & waiting.wanted_zones()

    def _error(self) -> Exception:
        assert self.puts is not None
        for error in self.puts.failed.values():
            return error
        return StoreUnavailable("no zone took the records in time; send them again")


class SegmentWriter:
    def __init__(self, zones: Zones, reader: LogReader, new_id: Callable[[], bytes]) -> None:
        self._zones = zones
        self._reader = reader
        self._new_id = new_id
        self.count = 0
        self.size_bytes = 0

    async def write(self, lanes: Sequence[LaneBuffer], size_bytes: int) -> Written:
        """Encode what the lanes hold and begin to write it; with one zone, return when it is.

        Raises what that one zone raised.
        """
        object_id = self._new_id()
        parts = [waiting.part() for waiting in lanes]
        if size_bytes <= ENCODE_INLINE_BYTES_MAX:
            segment = writer.build(object_id, parts)
        else:
            segment = await asyncio.to_thread(writer.build, object_id, parts)
        names = list(dict.fromkeys(name for waiting in lanes for name in self._names(waiting)))
        key = keys.hot_segment(object_id)
        puts = None
        if len(names) == 1:
            # Most deployments have one zone, and a task is worth saving.
            await self._zones.put(key, segment.pieces, names)
        else:
            puts = self._zones.start(key, segment.pieces, names)
        self.count += 1
        for position, data in segment.stored:
            self.size_bytes += len(data)
            self._reader.remember(object_id, position, data)
        return Written(segment, puts)

    def leave_behind(self, written: Written) -> None:
        """Say that nobody waits for the rest of the zones."""
        if written.puts is not None:
            self._zones.leave_behind(written.puts)

    def _names(self, waiting: LaneBuffer) -> Collection[str]:
        head = waiting.view.head
        where = replication.targets(head)
        hopeful = replication.zone_names(head, where.hopeful)
        return [
            *replication.zone_names(head, where.required),
            *(name for name in hopeful if not self._zones.is_avoided(name)),
        ]
