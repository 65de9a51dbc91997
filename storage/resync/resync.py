"""Resyncing a zone: copy the objects that a lane references and the zone does not hold.

- *Resumable.* An object that exists with the right size is not copied again; objects appear
  completely or not at all, so none is half copied. `ResyncMemory` remembers the objects seen while
  the process lives, so the next step continues where the last one stopped. However short a step
  is and however slow the zones are, it processes some objects that no earlier step did.
- *Verified.* Bytes are compared with the checksums of the index, and a segment also with those
  of its footer, before they are written. A damaged copy is skipped in favour of another zone's,
  and replaced where it is found.
- *Bounded*: by bytes a second, concurrent copies, and an end time. Compacted segments are copied
  through a file, one at a time, so neither memory nor the disk has to hold many.

An object is lost if every zone was asked and none holds it. It is counted and reported, and does
not keep the zone out of the ISR: a zone in sync holds all objects that still exist. If a zone
could not be asked, nothing is lost yet, and the lane waits for that zone. The exception is an
object that the zones in sync lack too, because it was written for a leader that then failed. When
that zone comes back, the others get the object from there; and a zone that was compared with
fewer zones is compared again.

Masks do not distinguish such an object from one that a zone in sync got only by a resync. So every
object that no zone in sync held at its commit is searched for in the zones in sync, once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from crc32c import crc32c

from storage.errors import Corrupt, ObjectExists, ObjectMissing, StoreUnavailable
from storage.formats import segments, zone_sets
from storage.head.head import Head
from storage.head.replication import read_names, zone_names, zones_named
from storage.resync import inventory, segment_copies
from storage.resync.inventory import INLINE, Reference, Shelf
from storage.resync.memory import ResyncMemory
from storage.stores.objects import ObjectStore
from storage.tasks import finish_all
from storage.zones.zones import Zones

T = TypeVar("T")

LOST_NAMED_MAX: Final = 20
CALL_S_MAX: Final = 60.0
"""A zone that takes longer to answer is unavailable."""

_CHUNK: Final = 16
"""Maximum number of references processed at once, between checks of the time; a page has
thousands."""

_CHUNK_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of a chunk, where the index has sizes: compacted segments can have gigabytes."""

_BYTES_PER_S_MIN: Final = 2 * 1024 * 1024
"""A zone that stores a large file more slowly is unavailable."""


@dataclass(slots=True)
class ResyncProgress:
    objects_checked: int = 0
    objects_copied: int = 0
    bytes_copied: int = 0
    replaced: int = 0
    """Damaged copies that were replaced."""
    lost: int = 0
    """Objects that no zone holds any more."""
    lost_keys: list[str] = field(default_factory=list)
    """The first `LOST_NAMED_MAX` of them."""
    out_of_reach: int = 0
    """Objects that only unavailable zones may hold; the zones in sync lack them as well."""


class Rate:
    """Limits copies to `bytes_per_s`."""

    def __init__(
        self,
        bytes_per_s: float,
        monotonic_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._free_s = 0.0

    async def take(self, size_bytes: int) -> None:
        """Return when `size_bytes` may be sent."""
        now_s = self._monotonic_s()
        begins_s = max(now_s, self._free_s)
        self._free_s = begins_s + size_bytes / self._bytes_per_s
        if begins_s > now_s:
            await self._sleep(begins_s - now_s)


class Resync:
    def __init__(
        self,
        zones: Zones,
        *,
        rate: Rate,
        copies_at_once: int,
        monotonic_s: Callable[[], float],
        folder: Path | None = None,
    ) -> None:
        """Copy large objects through `folder`; None: the system's temporary folder."""
        self._zones = zones
        self._rate = rate
        self._gate = asyncio.Semaphore(copies_at_once)
        self._large = asyncio.Lock()
        self._folder = folder
        self._monotonic_s = monotonic_s

    async def lane(
        self, head: Head, zone: str, known: ResyncMemory, progress: ResyncProgress, until_s: float
    ) -> bool:
        """Copy to `zone` the objects of the lane that it lacks; return whether it has all.

        Returns False at `until_s`, with some progress made. Raises `StoreUnavailable` if the
        zone, or the only zones that may hold an object, are unavailable.
        """
        if known.is_outdated(head):
            known.begin_anew(head)
        async for shelf in inventory.walk(self._zones, head, skip=known.indexes.__contains__):
            if not await self._shelf(head, shelf, zone, known, progress, until_s):
                return False
            if shelf.object_id == INLINE:
                break
            known.indexes.add(shelf.object_id, head.isr)
            if self._monotonic_s() >= until_s:
                return False
        return True

    async def _shelf(
        self,
        head: Head,
        shelf: Shelf,
        zone: str,
        known: ResyncMemory,
        progress: ResyncProgress,
        until_s: float,
    ) -> bool:
        missing = [r for r in shelf.references if not self._is_done(head, r, zone, known)]
        for number, chunk in enumerate(_chunks(missing)):
            # Not before the first: a step that copies nothing would be repeated forever.
            if number and self._monotonic_s() >= until_s:
                return False
            await finish_all(self._bring(head, ref, zone, known, progress) for ref in chunk)
        return True

    def _is_done(self, head: Head, ref: Reference, zone: str, known: ResyncMemory) -> bool:
        if _is_stranded(head, ref):
            # A zone that came in sync since may have it, or may need it.
            seen = known.objects, known.out_of_reach
            return any(each.covers(ref.object_id, head.isr) for each in seen)
        return ref.object_id in known.objects or _is_said_to_be_there(head, ref, zone, known)

    async def _bring(
        self, head: Head, ref: Reference, zone: str, known: ResyncMemory, progress: ResyncProgress
    ) -> None:
        """Copy the object to the zone, and to the zones in sync if none of them held it."""
        if not _is_stranded(head, ref):
            await self.copy(head, ref, zone, progress)
        else:
            known.compared(head)
            if not await self._share(head, ref, zone, known, progress):
                # The zones in sync also lack it until the zone that has it is back.
                progress.out_of_reach += 1
                known.lacked(head, ref.object_id)
                return
        # One by one: if others fail, this one need not be checked again.
        known.objects.add(ref.object_id, head.isr)

    async def _share(
        self, head: Head, ref: Reference, zone: str, known: ResyncMemory, progress: ResyncProgress
    ) -> bool:
        """Copy a stranded object to all; False if it is out of reach and none of them has it.

        The zone itself may be the one that has it. Then the others get it now.
        """
        names = zone_names(head, zone_sets.without(head.isr, zones_named(head, [zone])))
        if not _is_said_to_be_there(head, ref, zone, known):
            names.insert(0, zone)
        for name in names:
            try:
                await self.copy(head, ref, name, progress)
            except StoreUnavailable:
                if not await self._is_missing_in_sync(head, ref, zone):
                    raise
                return False
        return True

    async def _is_missing_in_sync(self, head: Head, ref: Reference, zone: str) -> bool:
        for name in dict.fromkeys([zone, *zone_names(head, head.isr)]):
            try:
                await _within(self._zones.store(name).size(ref.key))
            except ObjectMissing:
                continue
            return False
        return True

    async def copy(
        self,
        head: Head,
        ref: Reference,
        zone: str,
        progress: ResyncProgress,
        *,
        is_bad: bool = False,
    ) -> None:
        """Copy the object to the zone, if any zone holds it; `is_bad`: its copy is damaged."""
        async with self._gate:
            progress.objects_checked += 1
            if not is_bad and await _within(self._is_there(head, ref, zone)):
                return
            move = self._move if ref.compacted is None else self._move_large
            try:
                size_bytes = await move(head, ref, zone, progress)
            except Corrupt:
                progress.lost += 1
                if len(progress.lost_keys) < LOST_NAMED_MAX:
                    progress.lost_keys.append(ref.key)
                return
            progress.objects_copied += 1
            progress.bytes_copied += size_bytes

    async def _move(self, head: Head, ref: Reference, zone: str, progress: ResyncProgress) -> int:
        """Copy the object from another zone; return its size."""
        names = [name for name in read_names(head, ref.zones) if name != zone]
        body = await self._zones.get_as(ref.key, names, lambda body: _verified(ref, body))
        await self._rate.take(len(body))
        await _within(self._put(ref, zone, lambda store: store.put(ref.key, [body]), progress))
        return len(body)

    async def _move_large(
        self, head: Head, ref: Reference, zone: str, progress: ResyncProgress
    ) -> int:
        segment = ref.compacted
        assert segment is not None, ref
        names = [name for name in read_names(head, ref.zones) if name != zone]
        async with self._large:
            with TemporaryDirectory(prefix="riacho-", dir=self._folder) as folder:
                path = Path(folder) / "segment"
                await segment_copies.fetch(
                    self._zones, head.topic_id, segment, names, path, self._rate.take
                )
                put = self._put(ref, zone, lambda store: store.put_file(ref.key, path), progress)
                await _within(put, CALL_S_MAX + segment.size_bytes / _BYTES_PER_S_MIN)
        return segment.size_bytes

    async def _put(
        self,
        ref: Reference,
        zone: str,
        put: Callable[[ObjectStore], Awaitable[None]],
        progress: ResyncProgress,
    ) -> None:
        store = self._zones.store(zone)
        try:
            await put(store)
        except ObjectExists:
            # Its bytes differ from the verified ones. While the copy is deleted, readers are
            # served by another zone.
            await store.delete([ref.key])
            await put(store)
            progress.replaced += 1

    async def _is_there(self, head: Head, ref: Reference, zone: str) -> bool:
        store = self._zones.store(zone)
        try:
            size_bytes = await store.size(ref.key)
        except ObjectMissing:
            return False
        expected = ref.size_bytes
        if expected is None and size_bytes >= ref.end:
            expected = await self._size_elsewhere(head, ref, zone)
        if expected is not None:
            return size_bytes == expected
        # There is no size to compare with, so check its bytes.
        return await self.is_whole(ref, zone)

    async def is_whole(self, ref: Reference, zone: str) -> bool:
        """Whether the zone holds the object undamaged. Not for compacted segments."""
        try:
            _verified(ref, await self._zones.store(zone).get(ref.key))
        except Corrupt:
            return False
        return True

    async def _size_elsewhere(self, head: Head, ref: Reference, zone: str) -> int | None:
        for name in read_names(head, ref.zones):
            if name == zone or self._zones.is_avoided(name):
                continue
            try:
                return await self._zones.store(name).size(ref.key)
            except (ObjectMissing, StoreUnavailable):
                continue
        return None


def _is_stranded(head: Head, ref: Reference) -> bool:
    """Whether no zone in sync got it at its commit: it was written only for the leader."""
    return not ref.zones & head.isr


def _is_said_to_be_there(head: Head, ref: Reference, zone: str, known: ResyncMemory) -> bool:
    is_said = bool(ref.zones & zones_named(head, [zone]))
    return ref.is_segment and is_said and known.believes(head, ref)


def _verified(ref: Reference, body: bytes) -> bytes:
    """Return `body` if it matches the checksums of the index and of a segment's footer."""
    view = memoryview(body)
    for stretch in ref.stretches:
        piece = view[stretch.position : stretch.position + stretch.length]
        if len(piece) != stretch.length or crc32c(piece) != stretch.crc:
            raise Corrupt(f"{ref.key} is damaged at {stretch.position}")
    if ref.is_segment:
        segments.footer(body)
    return body


def _chunks(references: Iterable[Reference]) -> Iterator[list[Reference]]:
    chunk: list[Reference] = []
    size_bytes = 0
    for ref in references:
        ref_bytes = ref.size_bytes or 0
        if chunk and (len(chunk) == _CHUNK or size_bytes + ref_bytes > _CHUNK_BYTES):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(ref)
        size_bytes += ref_bytes
    if chunk:
        yield chunk


async def _within(work: Awaitable[T], seconds: float = CALL_S_MAX) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise StoreUnavailable(f"a zone took more than {seconds:g} s") from None
