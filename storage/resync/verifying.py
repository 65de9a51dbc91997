"""Verifying that zones in sync hold what the index of a lane names, and copying what they lack.

A zone in the ISR is trusted: nothing else checks that it holds an object until a reader wants it
from there, or the other zones are lost. So a bug, or an object that was removed by hand, would
stay unnoticed until it is too late.

- *Bounded.* A step makes a limited number of calls to the zones; the next step continues.
- *Exact.* A suspect object is compared with a new head before it is reported: it may have been
  compacted and swept meanwhile, or the zone may have left the ISR.
- Only sizes are compared. `riacho fsck` reads every byte.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from storage.errors import ObjectMissing, StoreUnavailable
from storage.formats import zone_sets
from storage.head import replication
from storage.head.head import Head
from storage.resync import inventory
from storage.resync.inventory import INLINE, Reference
from storage.resync.resync import Resync, ResyncProgress
from storage.tasks import finish_all
from storage.zones.zones import Zones

SIZE_S_MAX: Final = 10.0
"""A zone that takes longer to return a size is unavailable."""

_CHUNK: Final = 16

Sizes = Mapping[str, int | None]
"""By zone; None: the zone does not hold the object."""


@dataclass(slots=True)
class Findings:
    objects: int = 0
    """Objects that were checked in every zone in sync."""
    repaired: list[str] = field(default_factory=list)
    """Zone and key of objects that were missing or had another size, and were copied again."""
    lost: list[str] = field(default_factory=list)
    """Keys of objects that no zone holds any more."""


@dataclass(slots=True)
class LaneProgress:
    """How far the verification of one lane is."""

    key: str
    shelves: set[bytes] = field(default_factory=set)
    """Index objects that are done, with everything they reference."""
    objects: set[str] = field(default_factory=set)
    """Keys that are done in the current shelf."""


class Verifier:
    def __init__(
        self, zones: Zones, resync: Resync, read: Callable[[str], Awaitable[Head | None]]
    ) -> None:
        """Verify lanes whose heads `read` returns by their keys; None if a lane is deleted."""
        self._zones = zones
        self._resync = resync
        self._read = read

    async def step(
        self,
        lane: LaneProgress,
        sizes_max: int,
        found: Findings,
        avoided: Collection[str] = (),
    ) -> tuple[int, bool]:
        """Verify some objects; return the number of calls, and whether the lane is done.

        A lane with a single zone in sync is skipped: there is nothing to copy from. Raises
        `StoreUnavailable` if a zone in sync is `avoided` or does not answer, and `Corrupt` if no
        zone holds an index object intact.
        """
        head = await self._read(lane.key)
        if head is None or zone_sets.count(head.isr) < 2:
            return 1, True
        names = replication.zone_names(head, head.isr)
        if trouble := [name for name in names if name in avoided]:
            raise StoreUnavailable(f"zone {', '.join(trouble)} is in trouble")
        on_their_way = replication.incomplete(head)
        calls, has_begun = 1, False
        async for shelf in inventory.walk(self._zones, head, skip=lane.shelves.__contains__):
            calls += 1
            skipped = on_their_way if shelf.object_id == INLINE else frozenset()
            left = [
                ref
                for ref in shelf.references
                if ref.key not in lane.objects and ref.object_id not in skipped
            ]
            for start in range(0, len(left), _CHUNK):
                # Not before the first: a step that verifies nothing would be repeated forever.
                if has_begun and calls >= sizes_max:
                    return calls, False
                has_begun = True
                chunk = left[start : start + _CHUNK]
                await finish_all(self._verify(lane.key, head, ref, found) for ref in chunk)
                lane.objects.update(ref.key for ref in chunk)
                calls += len(chunk) * len(names)
            if shelf.object_id != INLINE:
                lane.shelves.add(shelf.object_id)
                lane.objects.clear()
        return calls, True

    async def _verify(self, key: str, head: Head, ref: Reference, found: Findings) -> None:
        names = replication.zone_names(head, head.isr)
        sizes = dict(
            zip(names, await asyncio.gather(*(self._size(ref, n) for n in names)), strict=True)
        )
        found.objects += 1
        suspects = _suspects(ref, sizes)
        if not suspects:
            return
        now = await self._read(key)
        if now is None or not await self._is_named(now, ref):
            return
        if not ref.zones & now.isr and not any(sizes.values()):
            # It was written for a leader that failed, and returns with that zone (resync.py).
            return
        in_sync = replication.zone_names(now, now.isr)
        for name in [name for name in suspects if name in in_sync]:
            if not await self._repair(now, ref, name, sizes[name], found):
                found.lost.append(ref.key)
                return

    async def _repair(
        self, head: Head, ref: Reference, name: str, size_bytes: int | None, found: Findings
    ) -> bool:
        """Copy the object to the zone; return False if no zone holds it."""
        is_there = size_bytes is not None
        if is_there and ref.size_bytes is None and await self._resync.is_whole(ref, name):
            return True
        progress = ResyncProgress()
        await self._resync.copy(head, ref, name, progress, is_bad=is_there)
        if progress.objects_copied:
            found.repaired.append(f"{name}: {ref.key}")
        return not progress.lost

    async def _size(self, ref: Reference, name: str) -> int | None:
        try:
            async with asyncio.timeout(SIZE_S_MAX):
                return await self._zones.store(name).size(ref.key)
        except ObjectMissing:
            return None
        except TimeoutError:
            raise StoreUnavailable(f"zone {name} took more than {SIZE_S_MAX:g} s") from None

    async def _is_named(self, head: Head, ref: Reference) -> bool:
        """Whether the lane still references the object."""
        async for shelf in inventory.walk(self._zones, head):
            if any(each.key == ref.key for each in shelf.references):
                return True
        return False


def _suspects(ref: Reference, sizes: Sizes) -> list[str]:
    """Return the zones whose copy may be missing or differ from the others."""
    expected = ref.size_bytes
    if expected is None:
        # The index knows only where the last slice ends, but all copies have the same size.
        known = {size for size in sizes.values() if size is not None}
        expected = known.pop() if len(known) == 1 else -1
    return [name for name, size in sizes.items() if size != expected or size < ref.end]
