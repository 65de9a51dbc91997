"""Everything that a lane refers to, one shelf at a time.

    shelf = an index object (page, node, root, page of producers) and the segments it lists,
            or the segments of the head's own runs

Shelves come oldest first, and an object that lists others after them. So whoever has dealt with
every shelf up to one has dealt with all that it mentions, and may remember only its name. The
next walk, which may be of a newer head, leaves out what was remembered.

What lies before the log start of its partition is not needed by anyone and is left out. Memory
is bounded by one page: some thousands of entries.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from crc32c import crc32c

from storage import head as heads
from storage import index, keys
from storage.entries import Entry, Kind
from storage.errors import Corrupt
from storage.head import Head
from storage.index import Members, Page
from storage.replication import read_names
from storage.zones import Zones

T = TypeVar("T")

INLINE: Final = b""
"""The name of the shelf that is the head itself."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some bytes of an object, and their checksum."""

    position: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An object that must exist."""

    key: str
    object_id: bytes
    zones: int
    """Which zones held it when it was committed; those in sync now do as well."""
    size_bytes: int | None
    """None: not known, but `end` at least."""
    stretches: tuple[Stretch, ...]
    is_segment: bool

    @property
    def end(self) -> int:
        return max(each.position + each.length for each in self.stretches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    object_id: bytes
    is_leaf: bool
    """Whether it lists only what is on it. Otherwise the shelves before belong to it too."""
    references: list[Reference]
    entries: list[Entry] = field(default_factory=list)
    """What it lists, by partition and offset."""


Broken = Callable[[str, Corrupt], None]
"""Told of an index object that no zone holds whole."""


async def walk(
    zones: Zones,
    head: Head,
    *,
    skip: Callable[[bytes], bool] = lambda _: False,
    broken: Broken | None = None,
) -> AsyncIterator[Shelf]:
    """Yield every shelf of the lane but those whose name `skip` knows.

    An index object that no zone holds whole is told to `broken`, and what it listed is left
    out; without `broken`, `Corrupt` is raised. Raises `StoreUnavailable` if it cannot be had.
    """
    walker = _Walker(zones, head, skip, broken)
    if head.root:
        async for shelf in walker.members(head.root, "root"):
            yield shelf
    for ref in head.producer_pages:
        if not skip(ref.object_id):
            found = await walker.load(ref.object_id, "producers", lambda _: None)
            if found is not None:
                yield Shelf(object_id=ref.object_id, is_leaf=True, references=[found[0]])
    yield inline(head)


def inline(head: Head) -> Shelf:
    """Return the shelf that is the head itself."""
    return _segments_of(head, INLINE, heads.all_entries(head))


class _Walker:
    def __init__(
        self, zones: Zones, head: Head, skip: Callable[[bytes], bool], broken: Broken | None
    ) -> None:
        self._zones = zones
        self._head = head
        self._skip = skip
        self._broken = broken

    async def members(self, object_id: bytes, kind: keys.IndexKind) -> AsyncIterator[Shelf]:
        if self._skip(object_id):
            return
        found = await self.load(object_id, kind, index.decode_members)
        if found is None:
            return
        own, members = found
        assert isinstance(members, Members)
        for ref in members.in_order():
            if ref.is_page:
                shelf = await self._page(ref.object_id)
                if shelf is not None:
                    yield shelf
            else:
                async for shelf in self.members(ref.object_id, "node"):
                    yield shelf
        yield Shelf(object_id=object_id, is_leaf=False, references=[own])

    async def _page(self, object_id: bytes) -> Shelf | None:
        if self._skip(object_id):
            return None
        found = await self.load(object_id, "page", Page.decode)
        if found is None:
            return None
        own, page = found
        shelf = _segments_of(self._head, object_id, page.entries())
        shelf.references.insert(0, own)
        return shelf

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


def _segments_of(head: Head, object_id: bytes, entries: Iterable[Entry]) -> Shelf:
    needed = [entry for entry in entries if entry.end_offset > head.log_starts[entry.partition]]
    by_object: dict[bytes, list[Entry]] = {}
    for entry in needed:
        by_object.setdefault(entry.object_id, []).append(entry)
    return Shelf(
        object_id=object_id,
        is_leaf=True,
        references=[_reference(group) for group in by_object.values()],
        entries=needed,
    )


def _reference(entries: list[Entry]) -> Reference:
    if entries[0].kind != Kind.ARROW:
        raise Corrupt(f"entries of kind {entries[0].kind} are not known to this version")
    return Reference(
        key=keys.hot_segment(entries[0].object_id),
        object_id=entries[0].object_id,
        zones=entries[0].zones,
        size_bytes=None,
        stretches=tuple(Stretch(each.position, each.length, each.crc) for each in entries),
        is_segment=True,
    )


def check(reference: Reference, pieces: Iterable[bytes]) -> None:
    """Raise `Corrupt` unless `pieces` are the bytes of the reference's stretches."""
    for stretch, piece in zip(reference.stretches, pieces, strict=True):
        if len(piece) != stretch.length or crc32c(piece) != stretch.crc:
            raise Corrupt(f"{reference.key} is damaged at {stretch.position}")
