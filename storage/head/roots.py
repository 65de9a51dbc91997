"""Roots that are written but not committed, and the heads that may name them.

A root that a head names must be in every zone of its ISR, and must list all that the old root did.

A zone may lose an object before a head names it: it is wiped, leaves the ISR, is refilled with
what heads name, and enters again. Whenever a zone leaves, the head's `leader_epoch` is
incremented, so an object is trusted only under the epoch in which it was written.
"""

from dataclasses import dataclass

from storage.errors import Contended
from storage.formats import zone_sets
from storage.formats.zone_sets import ZoneSet
from storage.head import head as heads
from storage.head.head import Head
from storage.stores.metadata import Delete


class Overtaken(Contended):
    """Another process rolled the lane meanwhile: read its head again."""


@dataclass(frozen=True, slots=True)
class Roll:
    """Index objects that are written but not committed."""

    old_root: bytes
    new_root: bytes
    run_count: int
    """The runs up to this one (counted over the life of the lane) are in the new root."""
    zones: ZoneSet
    """Zones that hold all of it. A head with other zones in its ISR must not name the new root."""
    leader_epoch: int
    """Of the head it was written for."""
    removals: tuple[Delete, ...] = ()
    """Items of the table that are in a segment now: removed when a head names the root."""

    def is_of(self, head: Head) -> bool:
        """Whether root and epoch are unchanged: no other roll, and no zone left the ISR."""
        return (self.old_root, self.leader_epoch) == (head.root, head.leader_epoch)

    def applied_to(self, head: Head) -> Head | None:
        """Return `head` with the roll applied, or None if it does not fit.

        Then another process rolled or compacted, or a zone that lacks the roll came in sync.
        """
        count = self.run_count - (head.run_count - len(head.runs))
        is_overtaken = self.old_root != head.root or not 0 < count <= len(head.runs)
        if is_overtaken or not zone_sets.is_within(head.isr, self.zones):
            return None
        return heads.drop_runs(head, count, self.new_root)


@dataclass(frozen=True, slots=True)
class SavedRoot:
    """A root that is written but not committed, like a `Roll`.

    It is valid for a head whose root is still `old_root`, and whose whole ISR is in `zones`.
    """

    old_root: bytes
    new_root: bytes
    zones: ZoneSet
    """The zones that hold the new root and all it names that the old one did not."""
    leader_epoch: int
    """Of the head it was written for."""

    def fits(self, head: Head) -> bool:
        is_overtaken = (self.old_root, self.leader_epoch) != (head.root, head.leader_epoch)
        return not is_overtaken and zone_sets.is_within(head.isr, self.zones)
