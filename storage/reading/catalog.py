"""The catalog of a lane: its head's entries and those of the index objects, as one list.

    offset < covers of the partition     list of segments, footer of a segment: row groups
    before the head's runs               nodes and pages: slices
    else                                 the head's runs: slices

Reads never list a bucket: they follow the head, the root and one of these paths. All but the head
are immutable and cached; a copy that is lost or damaged is read from another zone. `roll` and
`save_root` are the only writers. The objects they write are unreferenced until a commit puts the
new root into the head, so a crash at any point leaves only orphans.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from crc32c import crc32c

from storage import keys
from storage.errors import Corrupt, NotEnoughReplicas
from storage.formats import compacted, index, segment_list, zone_sets
from storage.formats.compacted import Footer, RowGroup
from storage.formats.entries import Entry, Kind
from storage.formats.index import FANOUT, IndexRef, Members, Page
from storage.formats.partitions import LanePartition
from storage.formats.segment_list import Segment, SegmentList
from storage.formats.zone_sets import EVERYWHERE, ZoneSet
from storage.head import head as heads
from storage.head.head import Head
from storage.head.replication import complete_runs, read_names, targets, zone_names, zones_named
from storage.head.roots import Roll, SavedRoot
from storage.reading.cache import ByteCache
from storage.reading.table_batches import TableBatches
from storage.stores.metadata import Delete
from storage.zones.zones import Zones

__all__ = ["ENTRIES_MAX", "Catalog", "zone_names"]

ENTRIES_MAX: Final = 256
"""Maximum number of entries per lookup; a fetch that needs more repeats the lookup."""

_MEMBERS_BYTES: Final = 64
"""Approximate size of a reference in memory, without its offsets."""

_SEGMENT_BYTES: Final = 512
"""Approximate size of a segment of a list in memory."""

_FOOTER_FACTOR: Final = 4
"""Approximate ratio of a footer's size in memory to its stored size."""

Write: TypeAlias = tuple[bytes, keys.IndexKind, bytes]
"""An object still to be written: its identifier, kind and bytes."""


class Catalog:
    def __init__(
        self,
        zones: Zones,
        new_id: Callable[[], bytes],
        cache_bytes_max: int,
        batches: TableBatches | None = None,
    ) -> None:
        """Read and write index objects; `batches` is required if runs are in the table."""
        self.batches = batches
        self._zones = zones
        self._new_id = new_id
        part = cache_bytes_max // 4
        self._pages = ByteCache[bytes, Page](part, lambda page: page.size_bytes)
        self._lists = ByteCache[bytes, Members](part, _members_bytes)
        self._segments = ByteCache[bytes, SegmentList](
            part, lambda found: _SEGMENT_BYTES * (1 + len(found.segments))
        )
        self._footers = ByteCache[bytes, tuple[Footer, int]](part, lambda found: found[1])

    async def after(
        self, head: Head, partition: LanePartition, offset: int, limit: int = ENTRIES_MAX
    ) -> list[Entry]:
        """Return entries of the partition that end after `offset`, in order.

        Returns at least one if there is any, and at most `limit`, without omissions. A gap
        between two entries, or between `offset` and the first, holds no records.
        """
        if offset < heads.inline_start(head, partition):
            entries = await self._listed_after(head, partition, offset, limit)
            if entries:
                return entries
        entries = heads.inline_entries(head, partition)
        return [entry for entry in entries if entry.end_offset > offset][:limit]

    async def _listed_after(
        self, head: Head, partition: LanePartition, offset: int, limit: int
    ) -> list[Entry]:
        """Return entries that the root lists, which ends where the inline runs begin."""
        root = await self.root(head)
        covered = root.covered(partition)
        if offset < covered:
            entries = await self._row_groups_after(head, partition, offset, limit)
            if entries:
                return entries
        return await self._after_in(head, root, partition, max(offset, covered), limit)

    async def _after_in(
        self, head: Head, members: Members, partition: LanePartition, offset: int, limit: int
    ) -> list[Entry]:
        while True:
            refs = members.in_order()
            found = index.first_behind(refs, partition, offset)
            if found == len(refs):
                return []
            ref = refs[found]
            if ref.is_page:
                page = await self._page(head, ref.object_id)
                return page.after(partition, offset, limit)
            members = await self._members(head, ref.object_id, "node")

    async def since(
        self, head: Head, partition: LanePartition, timestamp_ms: int, offset: int
    ) -> Entry | None:
        """Return the first entry after `offset` with a record at `timestamp_ms` or later.

        An entry that begins before `offset` is included, though its record may be before it too.
        """
        if offset < heads.inline_start(head, partition):
            found = await self._listed_since(head, partition, timestamp_ms, offset)
            if found is not None:
                return found
        for entry in heads.inline_entries(head, partition):
            if entry.max_ms >= timestamp_ms and entry.end_offset > offset:
                return entry
        return None

    async def _listed_since(
        self, head: Head, partition: LanePartition, timestamp_ms: int, offset: int
    ) -> Entry | None:
        root = await self.root(head)
        covered = root.covered(partition)
        if offset < covered:
            found = await self._row_group_since(head, partition, timestamp_ms, offset)
            if found is not None:
                return found
        return await self._since_in(head, root, partition, timestamp_ms, max(offset, covered))

    async def root(self, head: Head) -> Members:
        """Return the members of the head's root; empty if it has no root."""
        return await self._members(head, head.root, "root") if head.root else Members()

    async def segment_list(self, head: Head, partition: LanePartition) -> SegmentList:
        """Return the compacted segments of a partition of the lane; an empty list if none."""
        object_id = (await self.root(head)).segment_list(partition)
        if not object_id:
            return SegmentList()

        async def load() -> SegmentList:
            key = keys.index_object(head.topic_id, head.lane, object_id, "segments")
            return await self._zones.get_as(key, read_names(head, head.isr), segment_list.decode)

        return await self._segments.get_or_load(object_id, load)

    async def footer(self, head: Head, segment: Segment) -> Footer:
        """Return the footer of a compacted segment, which describes its row groups."""

        async def load() -> tuple[Footer, int]:
            key = segment.key(head.topic_id)
            start = segment.size_bytes - segment.footer_bytes

            def check(pieces: Sequence[bytes]) -> None:
                [data] = pieces
                if len(data) != segment.footer_bytes or crc32c(data) != segment.footer_crc:
                    raise Corrupt(f"the footer of {key} is damaged")

            names = read_names(head, segment.zones)
            [data] = await self._zones.get_ranges(key, [(start, segment.size_bytes)], names, check)
            footer = await asyncio.to_thread(compacted.footer_of, segment, head.topic_id, data)
            return footer, _FOOTER_FACTOR * len(data)

        footer, _ = await self._footers.get_or_load(segment.object_id, load)
        return footer

    async def _row_groups_after(
        self, head: Head, partition: LanePartition, offset: int, limit: int
    ) -> list[Entry]:
        """Return row groups of the first segment that ends after `offset`."""
        segments = (await self.segment_list(head, partition)).segments
        first = bisect_right(segments, offset, key=lambda segment: segment.end_offset)
        if first == len(segments):
            return []
        segment = segments[first]
        footer = await self.footer(head, segment)
        start = footer.behind(offset)
        groups = footer.row_groups[start : start + limit]
        return [_row_group(partition, segment, group, footer.data_key) for group in groups]

    async def _row_group_since(
        self, head: Head, partition: LanePartition, timestamp_ms: int, offset: int
    ) -> Entry | None:
        for segment in (await self.segment_list(head, partition)).segments:
            if segment.end_offset <= offset or segment.max_ms < timestamp_ms:
                continue
            footer = await self.footer(head, segment)
            for group in footer.row_groups:
                if group.end_offset > offset and group.max_ms >= timestamp_ms:
                    return _row_group(partition, segment, group, footer.data_key)
        return None

    async def _since_in(
        self, head: Head, members: Members, partition: LanePartition, timestamp_ms: int, offset: int
    ) -> Entry | None:
        refs = members.in_order()
        for ref in refs[index.first_behind(refs, partition, offset) :]:
            if ref.newest(partition) < timestamp_ms:
                continue
            if ref.is_page:
                page = await self._page(head, ref.object_id)
                found = page.since(partition, timestamp_ms, offset)
            else:
                node = await self._members(head, ref.object_id, "node")
                found = await self._since_in(head, node, partition, timestamp_ms, offset)
            if found is not None:
                return found
        return None

    async def roll(self, head: Head) -> Roll:
        """Write the inline runs of `head` into the index; `Lane` commits the result.

        Slices in the table are moved into a segment. A run that some zone in sync does not hold
        yet stays inline, and so do all runs after it. Raises `NotEnoughReplicas` if that is all
        of them, and `Overtaken` if another process has already rolled the head.
        """
        count = complete_runs(head)
        if head.runs and not count:
            raise NotEnoughReplicas("the oldest records are still on their way to some zones")
        if count < len(head.runs):
            head = heads.first_runs(head, count)
        entries, moved_zones, removals = await self._moved(head)
        page = Page.of(entries)
        writes: list[Write] = []
        members = await self.root(head)
        refs = members.level(0)
        if len(refs) + 1 < FANOUT:
            leaf = index.ref_of_page(self._save_page(page, writes), page, head.next_offsets)
            members = index.replace_level(members, 0, (*refs, leaf))
        else:
            # The new page would only be read for this merge, so it is not written.
            leaf = index.ref_of_page(b"", page, head.next_offsets)
            older = await asyncio.gather(*(self._page(head, ref.object_id) for ref in refs))
            # Sorting tens of thousands of entries must not block the event loop.
            floors = members.floors(head.log_starts)
            merged = await asyncio.to_thread(_merged, [*older, page], floors)
            members = index.replace_level(members, 0, ())
            if len(merged):
                page_id = self._save_page(merged, writes)
                whole = index.ref_of_members(page_id, (*refs, leaf), is_page=True)
                whole = msgspec.structs.replace(whole, entry_count=len(merged))
                members = self._with_member(members, 1, whole, writes)
        root_id = self._save_members(members, "root", writes)
        zones = moved_zones & await self._write(head, writes)
        return Roll(head.root, root_id, head.run_count, zones, head.leader_epoch, removals)

    async def _moved(self, head: Head) -> tuple[list[Entry], ZoneSet, tuple[Delete, ...]]:
        """Move batches out of the table; return the entries, their zones and the removals."""
        entries = heads.all_entries(head)
        if not any(entry.is_in_table for entry in entries):
            return entries, EVERYWHERE, ()
        assert self.batches is not None, "a process that rolls must be able to read the table"
        move = await self.batches.move(head, entries)
        object_id, zones = self._new_id(), head.isr
        if move.pieces:
            # Before the page, which records the zones that hold the segment.
            zones = await self._put(head, keys.hot_segment(object_id), b"".join(move.pieces))
        return move.listed(entries, object_id, zones), zones, move.removals

    async def save_root(
        self, head: Head, members: Members, lists: Mapping[LanePartition, SegmentList]
    ) -> SavedRoot:
        """Write `members` as a root, and new lists of segments by partition of the lane.

        An empty list removes the partition's list. The root has no effect until a head
        references it. That head must still have the root of `head`, and its ISR must be within
        `SavedRoot.zones`: the zones that hold the root, the lists, and every segment that the
        old lists did not contain.
        """
        writes: list[Write] = []
        zones = EVERYWHERE
        for partition, found in lists.items():
            zones &= await self._holders_of_new(head, partition, found)
            object_id = b""
            if found.segments or found.cleaned:
                object_id = self._new_id()
                writes.append((object_id, "segments", segment_list.encode(found)))
                self._segments.put(object_id, found)
            members = index.with_segment_list(members, partition, object_id)
        root_id = self._save_members(members, "root", writes)
        zones &= await self._write(head, writes)
        return SavedRoot(head.root, root_id, zones, head.leader_epoch)

    async def _holders_of_new(
        self, head: Head, partition: LanePartition, found: SegmentList
    ) -> ZoneSet:
        """Return the zones that hold all segments missing from the partition's present list.

        A zone that comes in sync with the present root has only the objects that this root
        references. It may hold the new root, which was offered to it, and still lack the segments.
        """
        old = {segment.object_id for segment in (await self.segment_list(head, partition)).segments}
        new = [segment for segment in found.segments if segment.object_id not in old]
        return zone_sets.in_all(segment.zones for segment in new)

    def _with_member(
        self, members: Members, number: int, ref: IndexRef, writes: list[Write]
    ) -> Members:
        """Return `members` with `ref` added to a level; a full level becomes a node."""
        refs = (*members.level(number), ref)
        if len(refs) < FANOUT:
            return index.replace_level(members, number, refs)
        node_id = self._save_members(Members((refs,)), "node", writes)
        whole = index.ref_of_members(node_id, refs, is_page=False)
        return self._with_member(
            index.replace_level(members, number, ()), number + 1, whole, writes
        )

    def _save_page(self, page: Page, writes: list[Write]) -> bytes:
        object_id = self._new_id()
        writes.append((object_id, "page", page.encode()))
        self._pages.put(object_id, page)
        return object_id

    def _save_members(
        self,
        members: Members,
        kind: keys.IndexKind,
        writes: list[Write],
    ) -> bytes:
        object_id = self._new_id()
        writes.append((object_id, kind, index.encode_members(members)))
        self._lists.put(object_id, members)
        return object_id

    async def _write(self, head: Head, writes: Sequence[Write]) -> ZoneSet:
        """Write the objects to the zones in sync; return which zones hold all of them."""
        # In any order: the head references none of them before all are durable.
        held = await asyncio.gather(
            *(
                self._put(head, keys.index_object(head.topic_id, head.lane, object_id, kind), data)
                for object_id, kind, data in writes
            )
        )
        return zone_sets.in_all(held)

    async def _put(self, head: Head, key: str, data: bytes) -> ZoneSet:
        """Store an object in the zones in sync, and try the zones that catch up.

        Return the zones that hold it. A zone in sync that fails or is slow is left out.
        """
        where = targets(head)
        required = zone_names(head, where.required)
        hopeful = [n for n in zone_names(head, where.hopeful) if not self._zones.is_avoided(n)]
        return zones_named(head, await self._zones.put_widely(key, [data], required, hopeful))

    async def _members(self, head: Head, object_id: bytes, kind: keys.IndexKind) -> Members:
        async def load() -> Members:
            key = keys.index_object(head.topic_id, head.lane, object_id, kind)
            return await self._zones.get_as(key, read_names(head, head.isr), index.decode_members)

        return await self._lists.get_or_load(object_id, load)

    async def _page(self, head: Head, object_id: bytes) -> Page:
        async def load() -> Page:
            key = keys.index_object(head.topic_id, head.lane, object_id, "page")
            return await self._zones.get_as(key, read_names(head, head.isr), Page.decode)

        return await self._pages.get_or_load(object_id, load)


def _row_group(partition: LanePartition, segment: Segment, group: RowGroup, data_key: int) -> Entry:
    return Entry(
        partition=partition,
        end_offset=group.end_offset,
        record_count=group.count,
        kind=int(Kind.PARQUET_SEALED if data_key else Kind.PARQUET),
        data_key=data_key,
        object_id=segment.object_id,
        position=group.position,
        length=group.length,
        min_ms=group.min_ms,
        max_ms=group.max_ms,
        crc=group.crc,
        zones=segment.zones,
        segment=segment,
        row_group=group.number,
        covers_from=group.start_offset,
    )


def _merged(pages: Sequence[Page], floors: Sequence[int]) -> Page:
    return Page.merge(pages).live(floors)


def _members_bytes(members: Members) -> int:
    return sum(_MEMBERS_BYTES + 64 * len(ref.ends) for level in members.levels for ref in level)
