"""The catalog of a lane: its head's entries and those of the index objects, as one list.

Reads never list a bucket: they walk head, root, node, page. All but the head are immutable and
cached; a copy that is lost or damaged is read from another zone. `roll` is the only writer; it
writes objects that nothing mentions until a commit puts the new root into the head, so a crash
at any point leaves orphans and nothing else.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final, TypeAlias

import msgspec

from storage import head as heads
from storage import index, keys
from storage.cache import ByteCache
from storage.entries import Entry
from storage.errors import NotEnoughReplicas
from storage.head import Head
from storage.index import FANOUT, Members, Page, Ref
from storage.replication import complete_runs, mask_of, read_names, targets, zone_names
from storage.zones import Zones

__all__ = ["ENTRIES_MAX", "Catalog", "Roll", "zone_names"]

ENTRIES_MAX: Final = 256
"""As many entries one lookup returns at most; a fetch that wants more asks again."""

_MEMBERS_BYTES: Final = 64
"""About what a reference takes in memory, without its offsets."""

Write: TypeAlias = tuple[bytes, keys.IndexKind, bytes]
"""An object still to be written: its identifier, what it is, its bytes."""


@dataclass(frozen=True, slots=True)
class Roll:
    """Index objects that are written and wait to be committed."""

    old_root: bytes
    new_root: bytes
    run_count: int
    """The runs up to this one (counted over the life of the lane) are in the new root."""
    zones: int
    """Which zones hold all of it. A head with others in its ISR must not name the new root."""


class Catalog:
    def __init__(self, zones: Zones, new_id: Callable[[], bytes], cache_bytes_max: int) -> None:
        self._zones = zones
        self._new_id = new_id
        self._pages = ByteCache[bytes, Page](cache_bytes_max // 2, lambda page: page.size_bytes)
        self._lists = ByteCache[bytes, Members](cache_bytes_max // 2, _members_bytes)

    async def after(
        self, head: Head, partition: int, offset: int, limit: int = ENTRIES_MAX
    ) -> list[Entry]:
        """Return entries of the partition that end behind `offset`, without a gap, in order.

        At least one if there is any, at most `limit`.
        """
        if offset >= heads.inline_start(head, partition):
            entries = heads.inline_entries(head, partition)
            return [entry for entry in entries if entry.end_offset > offset][:limit]
        members = await self._root(head)
        while True:
            refs = members.in_order()
            ref = refs[index.first_behind(refs, partition, offset)]
            if ref.is_page:
                page = await self._page(head, ref.object_id)
                return page.after(partition, offset, limit)
            members = await self._members(head, ref.object_id, "node")

    async def since(
        self, head: Head, partition: int, timestamp_ms: int, offset: int
    ) -> Entry | None:
        """Return the first entry behind `offset` with a record at `timestamp_ms` or later.

        An entry that begins before `offset` counts, though that record may be before it too.
        """
        if offset < heads.inline_start(head, partition):
            members = await self._root(head)
            found = await self._since_in(head, members, partition, timestamp_ms, offset)
            if found is not None:
                return found
        for entry in heads.inline_entries(head, partition):
            if entry.max_ms >= timestamp_ms and entry.end_offset > offset:
                return entry
        return None

    async def _since_in(
        self, head: Head, members: Members, partition: int, timestamp_ms: int, offset: int
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
        """Write what is inline in `head` into the index; `Lane` commits the result.

        Runs that zones in sync do not hold yet stay, and so do those behind them. Raises
        `NotEnoughReplicas` if that is all of them.
        """
        count = complete_runs(head)
        if head.runs and not count:
            raise NotEnoughReplicas("the oldest records are still on their way to some zones")
        if count < len(head.runs):
            head = _first_runs(head, count)
        page = Page.of(heads.all_entries(head))
        writes: list[Write] = []
        members = await self._root(head)
        refs = members.level(0)
        if len(refs) + 1 < FANOUT:
            leaf = index.ref_of_page(self._save_page(page, writes), page, head.next_offsets)
            members = index.replace_level(members, 0, (*refs, leaf))
        else:
            # The new page would be read once, for this merge, so it is not even written.
            leaf = index.ref_of_page(b"", page, head.next_offsets)
            older = await asyncio.gather(*(self._page(head, ref.object_id) for ref in refs))
            # Sorting tens of thousands of entries may not hold up the event loop.
            merged = await asyncio.to_thread(Page.merge, [*older, page])
            page_id = self._save_page(merged, writes)
            whole = index.ref_of_members(page_id, (*refs, leaf), is_page=True)
            members = index.replace_level(members, 0, ())
            members = self._with_member(members, 1, whole, writes)
        root_id = self._save_members(members, "root", writes)
        zones = await self._write(head, writes)
        return Roll(head.root, root_id, head.run_count, zones)

    def _with_member(self, members: Members, number: int, ref: Ref, writes: list[Write]) -> Members:
        """Return `members` with `ref` added to a level, which becomes a node if it is full."""
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

    async def _write(self, head: Head, writes: Sequence[Write]) -> int:
        """Write the objects to the zones in sync; return which zones hold all of them."""
        # In any order: the head mentions none of them before all are durable.
        masks = await asyncio.gather(
            *(
                self._put(head, keys.index_object(head.topic_id, head.lane, object_id, kind), data)
                for object_id, kind, data in writes
            )
        )
        return reduce(and_, masks)

    async def _put(self, head: Head, key: str, data: bytes) -> int:
        """Store an object in the zones in sync, and in those that catch up if they like.

        Return those that hold it: one that is in sync and fails need not be waited for.
        """
        where = targets(head)
        required = zone_names(head, where.required)
        hopeful = [n for n in zone_names(head, where.hopeful) if not self._zones.is_avoided(n)]
        return mask_of(head, await self._zones.put_widely(key, [data], required, hopeful))

    async def _root(self, head: Head) -> Members:
        return await self._members(head, head.root, "root") if head.root else Members()

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


def _first_runs(head: Head, count: int) -> Head:
    """Return the head as it was when it had only the `count` oldest of its runs."""
    ends = list(head.next_offsets)
    for run in head.runs[count:]:
        for piece in run.slices:
            ends[piece.partition] -= piece.count
    return msgspec.structs.replace(
        head,
        runs=head.runs[:count],
        run_count=head.run_count - len(head.runs) + count,
        next_offsets=tuple(ends),
    )


def _members_bytes(members: Members) -> int:
    return sum(_MEMBERS_BYTES + 64 * len(ref.ends) for level in members.levels for ref in level)
