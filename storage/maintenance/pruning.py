"""Removes pages and compacted segments without live records from a root.

Moving a log start hides records, but the root still lists them until it is rewritten. That is done
here, in parallel with appends and rolls, in the way of a roll: write an unreferenced root, then one
compare-and-set. The removed objects are swept later.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from storage.cas import Transact
from storage.formats import index
from storage.formats.index import Members
from storage.formats.partitions import LanePartition
from storage.formats.segment_list import SegmentList
from storage.head import head as heads
from storage.head.changes import change_head
from storage.head.head import Head
from storage.head.roots import SavedRoot
from storage.reading.catalog import Catalog
from storage.stores.metadata import MetadataStore

PRUNE_ATTEMPTS_MAX: Final = 5
"""Maximum number of attempts overtaken by a roll; then wait for the next run."""


@dataclass(frozen=True, slots=True)
class Pruned:
    members: int
    """Number of pages and nodes removed from the root."""
    segments: int
    """Number of compacted segments removed from their lists."""


async def prune(
    metadata: MetadataStore, catalog: Catalog, key: str, transact: Transact | None = None
) -> Pruned:
    """Make the root of a lane list only what may be live; return what was removed."""
    for _ in range(PRUNE_ATTEMPTS_MAX):
        item = await metadata.get(key)
        if item is None:
            break
        head = heads.decode(item.value, key)
        before = await catalog.root(head)
        after = index.live_members(before, head.log_starts)
        lists, segments = await _live_lists(catalog, head, before)
        gone = len(before.in_order()) - len(after.in_order())
        if not gone and not lists:
            break
        step = _Step(await catalog.save_root(head, after, lists))
        await change_head(metadata, key, step.change, transact)
        if step.is_done:
            return Pruned(gone, segments)
    return Pruned(0, 0)


async def _live_lists(
    catalog: Catalog, head: Head, root: Members
) -> tuple[dict[LanePartition, SegmentList], int]:
    """Return the lists to shorten, and the total number of removed segments."""
    lists: dict[LanePartition, SegmentList] = {}
    count = 0
    for partition, start in zip(head.partitions, head.log_starts, strict=True):
        if not root.segment_list(partition):
            continue
        found = await catalog.segment_list(head, partition)
        live = SegmentList(
            tuple(each for each in found.segments if each.end_offset > start),
            tuple(each for each in found.cleaned if each.end_offset > start),
        )
        gone = len(found.segments) - len(live.segments)
        if gone:
            lists[partition] = live
            count += gone
    return lists, count


class _Step:
    def __init__(self, saved: SavedRoot) -> None:
        self._saved = saved
        self.is_done = False

    def change(self, head: Head) -> Head:
        self.is_done = head.root == self._saved.new_root
        if not self._saved.fits(head):
            # Rolled meanwhile, or a zone that does not hold the root came in sync.
            return head
        self.is_done = True
        return msgspec.structs.replace(head, commits=head.commits + 1, root=self._saved.new_root)
