"""Taking out of a root what nothing live is behind: pages, and segments of compacted lists.

A log start that moved hides records; what lists them stays in the root until it is written anew.
That is done here, beside appends and rolls, as a roll does it: write a root that nothing
mentions, then one compare-and-set. What was taken out is swept later.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from storage.formats import index
from storage.formats.index import Members
from storage.formats.segment_list import SegmentList
from storage.head import head as heads
from storage.head.changes import Transact, change_head
from storage.head.head import Head
from storage.head.roots import SavedRoot
from storage.reading.catalog import Catalog
from storage.stores.metadata import MetadataStore

ATTEMPTS_MAX: Final = 5
"""So often a roll may come in between; then it has to wait for the next time."""


@dataclass(frozen=True, slots=True)
class Pruned:
    members: int
    """Pages and nodes that left the root."""
    segments: int
    """Compacted segments that left their lists."""


async def prune(
    metadata: MetadataStore, catalog: Catalog, key: str, transact: Transact | None = None
) -> Pruned:
    """Make the root of a lane list only what may be live; return what left it."""
    for _ in range(ATTEMPTS_MAX):
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
) -> tuple[dict[int, SegmentList], int]:
    """Return those lists that become shorter, and by how many segments."""
    lists: dict[int, SegmentList] = {}
    count = 0
    for partition, start in enumerate(head.log_starts):
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
            # Rolled meanwhile, or a zone came in sync that the root was not written to.
            return head
        self.is_done = True
        return msgspec.structs.replace(head, commits=head.commits + 1, root=self._saved.new_root)
