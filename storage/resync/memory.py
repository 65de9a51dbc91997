"""What is known to be in a zone that is brought up to date, while the process lives.

What was seen there need not be looked at again. Nor need that of which its commit says that it is
there: of every commit, or, if the zone has lost what it held, of those that came some time later.
"""

from collections import OrderedDict
from typing import Final

from storage.head.head import Head
from storage.head.replication import Held
from storage.resync.inventory import Reference

OBJECTS_REMEMBERED_MAX: Final = 200_000
INDEXES_REMEMBERED_MAX: Final = 500_000


class _Remembered:
    """Names, each with the zones that were in sync when it was dealt with. Forgets the oldest."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._names: OrderedDict[bytes, int] = OrderedDict()

    def add(self, name: bytes, isr: int) -> None:
        self._names[name] = isr
        if len(self._names) > self._count_max:
            self._names.popitem(last=False)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def covers(self, name: bytes, isr: int) -> bool:
        """Whether nobody is in sync who was not when the name was dealt with."""
        return name in self._names and not isr & ~self._names[name]


class ResyncMemory:
    """What was seen to be in one zone, since it last lost anything."""

    def __init__(self, *, trusts_masks: bool = True) -> None:
        """Believe what runs and entries say of the zone, unless it has lost something."""
        self.trusts_masks = trusts_masks
        self.indexes = _Remembered(INDEXES_REMEMBERED_MAX)
        self.objects = _Remembered(OBJECTS_REMEMBERED_MAX)
        self.out_of_reach = _Remembered(OBJECTS_REMEMBERED_MAX)
        """Objects that it lacks, and those in sync as well."""
        self._believed: dict[tuple[bytes, int], tuple[int, tuple[int, ...]]] = {}
        """By lane: from which run and which offsets on masks are believed in any case."""
        self._compared: dict[tuple[bytes, int], int] = {}
        """Lanes with objects that no zone in sync got at their commit, and the zones that were in
        sync when those objects were looked for: they have them now, or nobody does."""

    def believe_after(self, head: Head) -> None:
        """Believe what is said of commits that follow `head`, unless an older one was named.

        Nothing that was written before the zone lost it may still be on its way to a commit.
        """
        self._believed.setdefault((head.topic_id, head.lane), (head.run_count, head.next_offsets))

    def believes(self, head: Head, ref: Reference) -> bool:
        """Whether the zones of the reference are those that hold it."""
        if self.trusts_masks:
            return True
        believed = self._believed.get((head.topic_id, head.lane))
        if believed is None or not ref.offsets:
            return False
        _, starts = believed
        return all(p >= len(starts) or offset >= starts[p] for p, offset in ref.offsets)

    def lacked(self, head: Head, object_id: bytes) -> None:
        """Note that the zone, and those in sync, lack an object that is out of reach."""
        self.out_of_reach.add(object_id, head.isr)

    def compared(self, head: Head) -> None:
        """Note that an object which no zone in sync got was looked for in those in sync now."""
        lane = head.topic_id, head.lane
        self._compared[lane] = self._compared.get(lane, head.isr) & head.isr

    def is_outdated(self, head: Head) -> bool:
        """Whether a zone came in sync since, which may have, or need, such an object."""
        return bool(head.isr & ~self._compared.get((head.topic_id, head.lane), head.isr))

    def begin_anew(self, head: Head) -> None:
        """Go through the lane again, but only to what no zone in sync got at its commit."""
        self._compared[head.topic_id, head.lane] = head.isr
        self.indexes = _Remembered(INDEXES_REMEMBERED_MAX)

    def held(self, head: Head) -> Held:
        """Return what may be believed of heads that follow `head`, which was gone through."""
        default = head.run_count, head.next_offsets
        believed_from, _ = self._believed.get((head.topic_id, head.lane), default)
        trusted_from = 0 if self.trusts_masks else believed_from
        return Held(self.indexes, self.objects, trusted_from, self.out_of_reach)
