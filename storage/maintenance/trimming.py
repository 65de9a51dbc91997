"""Moving log starts: records before them are hidden from then on, and swept later.

A log start only ever moves forward, by a compare-and-set of the head like everything else, so
appends, rolls and compaction may continue. The head's `sizes` shrink by the hidden entries, which
must be exactly those that were live in the replaced head. If the index was replaced meanwhile,
they are looked up again.

A step reads a limited number of entries, and a long trim takes several steps. This bounds memory,
and the time in which another process can interfere.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from storage.cas import Transact
from storage.errors import Contended, OffsetOutOfRange
from storage.formats.partitions import LanePartition
from storage.head import head as heads
from storage.head.changes import change_head
from storage.head.head import Head
from storage.maintenance import retention
from storage.maintenance.retention import Going, Policy
from storage.reading.catalog import ENTRIES_MAX, Catalog
from storage.stores.metadata import MetadataStore

STEP_ENTRIES_MAX: Final = 8192
"""Maximum number of entries of a lane in one step."""

OVERTAKEN_MAX: Final = 50
"""Maximum number of steps in a row in which the index may be replaced."""


@dataclass(frozen=True, slots=True)
class Trim:
    """The new log start of a partition (within the lane)."""

    partition: LanePartition
    log_start: int
    going: Sequence[Going] = ()
    """Entries that end at or before it and are live in the head that was read."""


@dataclass(slots=True)
class Trimmed:
    """The result for one partition."""

    partition: LanePartition
    """Within the lane."""
    before: int
    after: int
    size_bytes: int
    """Size of the hidden entries."""

    @property
    def offsets(self) -> int:
        return self.after - self.before


Plan = Callable[[Head], Awaitable[list[Trim]]]
"""Returns the next trims for a head; empty: done."""


def trimmed(head: Head, trims: Sequence[Trim]) -> Head:
    """Return the head with log starts moved; `head` itself if none has to move."""
    starts, sizes = list(head.log_starts), list(head.sizes)
    for trim in trims:
        number = trim.partition
        start = min(trim.log_start, head.next_offsets[number])
        if start <= starts[number]:
            continue
        if start == head.next_offsets[number]:
            sizes[number] = 0
        else:
            sizes[number] = max(0, sizes[number] - sum(each.size_bytes for each in trim.going))
        starts[number] = start
    if starts == list(head.log_starts):
        return head
    return msgspec.structs.replace(
        head, commits=head.commits + 1, log_starts=tuple(starts), sizes=tuple(sizes)
    )


class Trimming:
    """Plans over one index."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def expiring(self, policy: Policy, now_ms: int) -> Plan:
        """Return the plan that hides records beyond the retention limits."""

        async def plan(head: Head) -> list[Trim]:
            trims: list[Trim] = []
            left = STEP_ENTRIES_MAX
            for partition in head.partitions:
                going = await self._expired(head, partition, policy, now_ms, left)
                if going:
                    trims.append(Trim(partition, going[-1].end_offset, going))
                    left -= len(going)
                if left <= 0:
                    break
            return trims

        return plan

    async def _expired(
        self, head: Head, partition: LanePartition, policy: Policy, now_ms: int, entries_max: int
    ) -> list[Going]:
        going: list[Going] = []
        position = head.log_starts[partition]
        size_bytes, end = head.sizes[partition], head.next_offsets[partition]
        # Usually the first entry stays, and so do all the others.
        limit = 1
        while position < end and len(going) < entries_max:
            limit = min(limit, entries_max - len(going))
            entries = await self._catalog.after(head, partition, position, limit)
            more = retention.expired(
                entries, policy, size_bytes=size_bytes, end_offset=end, now_ms=now_ms
            )
            going += more
            if not entries or len(more) < len(entries):
                break
            size_bytes -= sum(each.size_bytes for each in more)
            position, limit = entries[-1].end_offset, ENTRIES_MAX
        return going

    def deleting(self, before: Mapping[LanePartition, int | None]) -> Plan:
        """Return the plan that hides records before an offset, by partition; None: all records.

        It raises `OffsetOutOfRange` for an offset after the end.
        """
        targets: dict[LanePartition, int] = {}

        async def plan(head: Head) -> list[Trim]:
            for partition, offset in before.items():
                end = head.next_offsets[partition]
                # None means the end at first, else the plan would chase appends for ever.
                wanted = targets.setdefault(partition, end if offset is None else offset)
                if wanted > end:
                    raise OffsetOutOfRange(wanted, head.log_starts[partition], end)
            trims: list[Trim] = []
            left = STEP_ENTRIES_MAX
            for partition, wanted in targets.items():
                if wanted > head.log_starts[partition] and left > 0:
                    trims.append(await self._before(head, partition, wanted, left))
                    left -= len(trims[-1].going)
            return trims

        return plan

    async def _before(
        self, head: Head, partition: LanePartition, offset: int, entries_max: int
    ) -> Trim:
        if offset == head.next_offsets[partition]:
            # All records are hidden, so there is nothing to count and one step is enough.
            return Trim(partition, offset, [Going(offset, head.sizes[partition])])
        going: list[Going] = []
        position = head.log_starts[partition]
        while len(going) < entries_max:
            limit = min(ENTRIES_MAX, entries_max - len(going))
            entries = await self._catalog.after(head, partition, position, limit)
            more = retention.before(entries, offset)
            going += more
            if not entries or len(more) < len(entries):
                return Trim(partition, offset, going)
            position = entries[-1].end_offset
        return Trim(partition, position, going)


async def foresee(head: Head, plan: Plan) -> tuple[Head, list[Trimmed]]:
    """Return the head after `plan`, and what it would hide. Nothing is written."""
    new = head
    while trims := await plan(new):
        after = trimmed(new, trims)
        assert after is not new, trims
        new = after
    return new, differences(head, new)


async def trim(
    metadata: MetadataStore,
    key: str,
    plan: Plan,
    transact: Transact | None = None,
    report: Callable[[list[Trimmed]], None] = lambda _: None,
) -> Head | None:
    """Follow `plan` to its end, step by step; return the final head, or None if it is deleted.

    `report` is called with the result of each step. `transact` is as for `change_head`. Raises
    `Contended` if other processes were always faster, and the errors of the plan and the stores.
    """
    overtaken = 0
    while True:
        item = await metadata.get(key)
        if item is None:
            return None
        head = heads.decode(item.value, key)
        trims = await plan(head)
        if not trims:
            return head
        step = _Step(head, trims)
        if await change_head(metadata, key, step.change, transact) is None:
            return None
        if step.is_overtaken:
            overtaken += 1
            if overtaken > OVERTAKEN_MAX:
                raise Contended(f"the index of {key} was rewritten all the time; try again")
            continue
        overtaken = 0
        report(step.done)


class _Step:
    def __init__(self, planned: Head, trims: Sequence[Trim]) -> None:
        self._planned = planned
        self._trims = trims
        self.is_overtaken = False
        self.done: list[Trimmed] = []

    def change(self, head: Head) -> Head:
        new = trimmed(head, self._trims)
        self.is_overtaken = new is not head and self._differs(head)
        if new is head or self.is_overtaken:
            return head
        self.done = differences(head, new)
        return new

    def _differs(self, head: Head) -> bool:
        """Whether the live entries may be others than those that were read and later ones."""
        starts = self._planned.log_starts
        moved = any(head.log_starts[t.partition] != starts[t.partition] for t in self._trims)
        return moved or head.root != self._planned.root


def differences(before: Head, after: Head) -> list[Trimmed]:
    """Return what was trimmed between two heads that differ in nothing else."""
    return [
        Trimmed(n, before.log_starts[n], after.log_starts[n], before.sizes[n] - after.sizes[n])
        for n in before.partitions
        if after.log_starts[n] != before.log_starts[n]
    ]
