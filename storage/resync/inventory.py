"""All objects that a lane references, one shelf at a time.

    shelf = an index object (page, node, root, list of segments, page of producers) and the
            segments it lists, or the segments of the head's own runs

Shelves are yielded oldest first, and an object that lists others after these. So a caller that has
processed every shelf up to one has processed everything that shelf references, and need only
remember its name. The next walk, which may be of a newer head, skips the remembered names.

Slices and segments before the log start of their partition are not needed and are skipped; so are
slices that a compacted segment has replaced. Index objects are needed as long as another one lists
them, whatever they list. Memory is bounded by one page or list: some thousands of entries.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from crc32c import crc32c

from storage import keys
from storage.errors import Corrupt
from storage.formats import index, segment_list, zone_sets
from storage.formats.compacted_footer import MAGIC
from storage.formats.entries import OBJECT_SLICES, Entry
from storage.formats.index import Members, Page
from storage.formats.partitions import LanePartition
from storage.formats.segment_list import Segment
from storage.formats.zone_sets import ZoneSet
from storage.head import head as heads
from storage.head.head import Head
from storage.head.replication import read_names
from storage.lanes import windows
from storage.zones.zones import Zones

T = TypeVar("T")

INLINE: Final = b""
"""The name of the shelf for the head itself."""

_NO_PARTITION: Final = LanePartition(-1)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of bytes of an object, and its checksum."""

    position: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An object that must exist."""

    key: str
    object_id: bytes
    zones: ZoneSet
    """Zones that held it when it was committed; the zones in sync now hold it as well."""
    size_bytes: int | None
    """None: unknown, but at least `end`."""
    stretches: tuple[Stretch, ...]
    """The checksums in the index. For a compacted segment the footer comes first; it has those of
    the rest."""
    is_segment: bool
    offsets: tuple[tuple[int, int], ...] = ()
    """Partition of the lane and first offset of each slice; only for hot segments."""
    compacted: Segment | None = None
    """Set if this is a compacted segment, which may be too large for memory."""

    @property
    def end(self) -> int:
        return max(each.position + each.length for each in self.stretches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    object_id: bytes
    is_leaf: bool
    """Whether all it lists is on this shelf. Otherwise earlier shelves belong to it too."""
    references: list[Reference]
    entries: list[Entry] = field(default_factory=list)
    """The slices it lists, by partition and offset."""
    partition: LanePartition = _NO_PARTITION
    """The partition of the lane, if this is its list of compacted segments."""
    segments: Sequence[Segment] = ()
    """The compacted segments, by offset."""
    covers: Sequence[int] = ()
    """`covered` of the root, by partition; empty if the root was skipped or cannot be read."""


Broken = Callable[[str, Corrupt], None]
"""Called with an index object that no zone holds intact."""


async def walk(
    zones: Zones,
    head: Head,
    *,
    skip: Callable[[bytes], bool] = lambda _: False,
    broken: Broken | None = None,
) -> AsyncIterator[Shelf]:
    """Yield every shelf of the lane, except those whose name `skip` accepts.

    An index object that no zone holds intact is reported to `broken`, and the objects it lists are
    skipped; without `broken`, `Corrupt` is raised. Raises `StoreUnavailable` if it cannot be read.
    """
    walker = _Walker(zones, head, skip, broken)
    if head.root:
        async for shelf in walker.root(head.root):
            yield shelf
    for ref in head.producer_pages:
        if not skip(ref.object_id):
            found = await walker.load(ref.object_id, "producers", windows.decode)
            if found is not None:
                yield Shelf(object_id=ref.object_id, is_leaf=True, references=[found[0]])
    yield walker.slices(INLINE, heads.all_entries(head))


def inline(head: Head) -> Shelf:
    """Return the shelf for the head itself."""
    return _slices_of(head.log_starts, INLINE, heads.all_entries(head))


class _Walker:
    def __init__(
        self, zones: Zones, head: Head, skip: Callable[[bytes], bool], broken: Broken | None
    ) -> None:
        self._zones = zones
        self._head = head
        self._skip = skip
        self._broken = broken
        self._covers: tuple[int, ...] = ()
        self._floors: Sequence[int] = head.log_starts

    async def root(self, object_id: bytes) -> AsyncIterator[Shelf]:
        found = await self._load_members(object_id, "root")
        if found is None:
            return
        own, members = found
        self._floors = members.floors(self._head.log_starts)
        self._covers = tuple(members.covered(p) for p in self._head.partitions)
        for partition, list_id in enumerate(members.compacted):
            shelf = await self._list(LanePartition(partition), list_id) if list_id else None
            if shelf is not None:
                yield shelf
        async for shelf in self._below(members):
            yield shelf
        yield self._shelf(object_id, is_leaf=False, references=[own])

    async def _node(self, object_id: bytes) -> AsyncIterator[Shelf]:
        found = await self._load_members(object_id, "node")
        if found is None:
            return
        own, members = found
        async for shelf in self._below(members):
            yield shelf
        yield self._shelf(object_id, is_leaf=False, references=[own])

    async def _load_members(
        self, object_id: bytes, kind: keys.IndexKind
    ) -> tuple[Reference, Members] | None:
        if self._skip(object_id):
            return None
        return await self.load(object_id, kind, index.decode_members)

    async def _below(self, members: Members) -> AsyncIterator[Shelf]:
        for ref in members.in_order():
            if ref.is_page:
                shelf = await self._page(ref.object_id)
                if shelf is not None:
                    yield shelf
            else:
                async for shelf in self._node(ref.object_id):
                    yield shelf

    async def _list(self, partition: LanePartition, object_id: bytes) -> Shelf | None:
        if self._skip(object_id):
            return None
        found = await self.load(object_id, "segments", segment_list.decode)
        if found is None:
            return None
        own, listed = found
        start = self._head.log_starts[partition]
        needed = [segment for segment in listed.segments if segment.end_offset > start]
        return self._shelf(
            object_id,
            is_leaf=True,
            references=[own, *(_compacted(self._head, segment) for segment in needed)],
            partition=partition,
            segments=needed,
        )

    async def _page(self, object_id: bytes) -> Shelf | None:
        if self._skip(object_id):
            return None
        found = await self.load(object_id, "page", Page.decode)
        if found is None:
            return None
        own, page = found
        shelf = self.slices(object_id, page.entries())
        shelf.references.insert(0, own)
        return shelf

    def slices(self, object_id: bytes, entries: Iterable[Entry]) -> Shelf:
        return replace(_slices_of(self._floors, object_id, entries), covers=self._covers)

    def _shelf(self, object_id: bytes, **fields: Any) -> Shelf:
        return Shelf(object_id=object_id, covers=self._covers, **fields)

    async def load(
        self, object_id: bytes, kind: keys.IndexKind, decode: Callable[[bytes], T]
    ) -> tuple[Reference, T] | None:
        key = keys.index_object(self._head.topic_id, self._head.lane, object_id, kind)

        def decoded(body: bytes) -> tuple[bytes, T]:
            return body, decode(body)

        try:
            names = read_names(self._head, self._head.isr)
            body, value = await self._zones.get_as(key, names, decoded)
        except Corrupt as error:
            if self._broken is None:
                raise
            self._broken(key, error)
            return None
        whole = Stretch(0, len(body), crc32c(body))
        reference = Reference(
            key=key,
            object_id=object_id,
            zones=self._head.isr,
            size_bytes=len(body),
            stretches=(whole,),
            is_segment=False,
        )
        return reference, value


def _slices_of(floors: Sequence[int], object_id: bytes, entries: Iterable[Entry]) -> Shelf:
    needed = [entry for entry in entries if entry.end_offset > floors[entry.partition]]
    by_object: dict[bytes, list[Entry]] = {}
    for entry in needed:
        if entry.is_in_table and object_id == INLINE:
            # It is in the table, not in an object of any zone.
            continue
        by_object.setdefault(entry.object_id, []).append(entry)
    return Shelf(
        object_id=object_id,
        is_leaf=True,
        references=[_reference(group) for group in by_object.values()],
        entries=needed,
    )


def _reference(entries: list[Entry]) -> Reference:
    if entries[0].kind not in OBJECT_SLICES:
        raise Corrupt(f"entries of kind {entries[0].kind} are not known to this version")
    return Reference(
        key=keys.hot_segment(entries[0].object_id),
        object_id=entries[0].object_id,
        # Its parts may have been committed separately, with different zones.
        zones=zone_sets.in_any(entry.zones for entry in entries),
        size_bytes=None,
        stretches=tuple(Stretch(each.position, each.length, each.crc) for each in entries),
        is_segment=True,
        offsets=tuple((each.partition, each.base_offset) for each in entries),
    )


def _compacted(head: Head, segment: Segment) -> Reference:
    footer_begins = segment.size_bytes - segment.footer_bytes
    footer = Stretch(footer_begins, segment.footer_bytes, segment.footer_crc)
    return Reference(
        key=segment.key(head.topic_id),
        object_id=segment.object_id,
        zones=segment.zones,
        size_bytes=segment.size_bytes,
        stretches=(footer, Stretch(0, len(MAGIC), crc32c(MAGIC))),
        is_segment=True,
        compacted=segment,
    )


def check(reference: Reference, pieces: Iterable[bytes]) -> None:
    """Raise `Corrupt` unless `pieces` are the bytes of the reference's stretches."""
    for stretch, piece in zip(reference.stretches, pieces, strict=True):
        if len(piece) != stretch.length or crc32c(piece) != stretch.crc:
            raise Corrupt(f"{reference.key} is damaged at {stretch.position}")
