"""Roots that are written and wait to be committed, and the heads that may name them.

What a head names must be in every zone in sync with it, and must list what its old root did.

A zone that took an object may lose it before a head names it: it is wiped, leaves the ISR, is
filled with what heads name, and enters again. Whenever a zone leaves, the head's `leader_epoch`
goes up, so an object is trusted under the epoch under which it was written.
"""

from dataclasses import dataclass

from storage.errors import Contended
from storage.head import head as heads
from storage.head.head import Head
from storage.stores.metadata import Delete


class Overtaken(Contended):
    """Somebody else has rolled the lane meanwhile: look at its head again."""


@dataclass(frozen=True, slots=True)
class Roll:
    """Index objects that are written and wait to be committed."""

    old_root: bytes
    new_root: bytes
    run_count: int
    """The runs up to this one (counted over the life of the lane) are in the new root."""
    zones: int
    """Which zones hold all of it. A head with others in its ISR must not name the new root."""
    leader_epoch: int
    """Of the head it was written for."""
    removals: tuple[Delete, ...] = ()
    """What was in the table and is in a segment now: to be removed when a head names the root."""

    def is_of(self, head: Head) -> bool:
        """Whether nobody rolled, and no zone left the ISR, since it was written."""
        return (self.old_root, self.leader_epoch) == (head.root, head.leader_epoch)

    def applied_to(self, head: Head) -> Head | None:
        """Return `head` with the roll applied; None if it does not fit (any more).

        Someone else rolled or compacted meanwhile, or a zone came in sync that was not written to.
        """
        count = self.run_count - (head.run_count - len(head.runs))
        is_overtaken = self.old_root != head.root or not 0 < count <= len(head.runs)
        if is_overtaken or head.isr & ~self.zones:
            return None
        return heads.drop_runs(head, count, self.new_root)


@dataclass(frozen=True, slots=True)
class SavedRoot:
    """A root that is written and waits to be committed, like a `Roll`.

    It counts for a head whose root is still `old_root`, and whose ISR is all in `zones`.
    """

    old_root: bytes
    new_root: bytes
    zones: int
    """The zones that hold the new root and all it names that the old one did not."""
    leader_epoch: int
    """Of the head it was written for."""

    def fits(self, head: Head) -> bool:
        is_overtaken = (self.old_root, self.leader_epoch) != (head.root, head.leader_epoch)
        return not is_overtaken and not head.isr & ~self.zones
