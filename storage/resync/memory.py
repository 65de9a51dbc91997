"""Which objects a zone that is being resynced is known to hold. Kept in memory only.

Objects that were seen in the zone are not checked again. Objects that a commit lists for this zone
are trusted. If the zone was wiped, only commits made after it settled are.
"""

from collections import OrderedDict
from typing import Final

from storage.formats import zone_sets
from storage.formats.zone_sets import ZoneSet
from storage.head.head import Head
from storage.head.replication import VerifiedObjects
from storage.resync.inventory import Reference

OBJECTS_REMEMBERED_MAX: Final = 200_000
INDEXES_REMEMBERED_MAX: Final = 500_000


class _Remembered:
    """Names, each with the zones in sync when it was processed. Drops the oldest when full."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._names: OrderedDict[bytes, ZoneSet] = OrderedDict()

    def add(self, name: bytes, isr: ZoneSet) -> None:
        self._names[name] = isr
        if len(self._names) > self._count_max:
            self._names.popitem(last=False)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def covers(self, name: bytes, isr: ZoneSet) -> bool:
        """Whether all zones of `isr` were in sync when the name was processed."""
        return name in self._names and zone_sets.is_within(isr, self._names[name])


class ResyncMemory:
    """What was seen in one zone since it last lost anything."""

    def __init__(self, *, trusts_commits: bool = True) -> None:
        """`trusts_commits`: trust the zones in runs and entries, as the zone has lost nothing."""
        self.trusts_commits = trusts_commits
        self.indexes = _Remembered(INDEXES_REMEMBERED_MAX)
        self.objects = _Remembered(OBJECTS_REMEMBERED_MAX)
        self.out_of_reach = _Remembered(OBJECTS_REMEMBERED_MAX)
        """Objects that this zone and the zones in sync lack."""
        self._believed: dict[tuple[bytes, int], tuple[int, tuple[int, ...]]] = {}
        """By lane: the run and the offsets from which on commits are always trusted."""
        self._compared: dict[tuple[bytes, int], ZoneSet] = {}
        """Lanes with objects that no zone in sync held at their commit, and the zones in sync when
        these objects were searched for: these zones hold them now, or no reachable zone does."""

    def believe_after(self, head: Head) -> None:
        """Trust the zones in commits after `head`, or after an older head set before.

        Call it only when no object written before the zone was wiped can still be committed.
        """
        self._believed.setdefault((head.topic_id, head.lane), (head.run_count, head.next_offsets))

    def believes(self, head: Head, ref: Reference) -> bool:
        """Whether the zones listed in the reference can be trusted to hold it."""
        if self.trusts_commits:
            return True
        believed = self._believed.get((head.topic_id, head.lane))
        if believed is None or not ref.offsets:
            return False
        _, starts = believed
        return all(p >= len(starts) or offset >= starts[p] for p, offset in ref.offsets)

    def lacked(self, head: Head, object_id: bytes) -> None:
        """Record that the zone and the zones in sync lack an object that is out of reach."""
        self.out_of_reach.add(object_id, head.isr)

    def compared(self, head: Head) -> None:
        """Record that the present zones in sync were searched for an object that none got."""
        lane = head.topic_id, head.lane
        self._compared[lane] = self._compared.get(lane, head.isr) & head.isr

    def is_outdated(self, head: Head) -> bool:
        """Whether a zone came in sync since then; it may have or need such an object."""
        compared = self._compared.get((head.topic_id, head.lane), head.isr)
        return not zone_sets.is_within(head.isr, compared)

    def begin_anew(self, head: Head) -> None:
        """Walk the lane again, but only for objects that no zone in sync got at their commit."""
        self._compared[head.topic_id, head.lane] = head.isr
        self.indexes = _Remembered(INDEXES_REMEMBERED_MAX)

    def held(self, head: Head) -> VerifiedObjects:
        """Return what can be trusted of heads after `head`, which was walked completely."""
        default = head.run_count, head.next_offsets
        believed_from, _ = self._believed.get((head.topic_id, head.lane), default)
        trusted_from = 0 if self.trusts_commits else believed_from
        return VerifiedObjects(self.indexes, self.objects, trusted_from, self.out_of_reach)
