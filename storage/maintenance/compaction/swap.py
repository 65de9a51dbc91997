"""Swapping in a compaction: one compare-and-set of the lane's head, which sets a new root.

Before it, the new segments are unreferenced; after it, they are the log. Appends continue meanwhile
and change the head every few milliseconds, so the compare-and-set is tried many times. That is
cheap: the new root is written once, and again only if a roll came in between.

A change is applied only if the partition's list and `covers` are still those it was planned from.
Otherwise another process compacted it: this one was *overtaken*, and its segments are orphans. A
log start may have moved, which only hides more of the result.

Every zone in sync must hold all that the new root references. Each zone is asked, because it may
have come in sync since the segments were written, or lost them. Missing segments are copied.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from storage.cas import Again, Keep, Patience, Replace, Transact, change_item
from storage.errors import (
    NotEnoughReplicas,
    ObjectMissing,
    StoreUnavailable,
    UnknownTopicOrPartition,
)
from storage.formats import index, zone_sets
from storage.formats.compacted_footer import MAGIC
from storage.formats.index import Members
from storage.formats.partitions import LanePartition
from storage.formats.segment_list import Segment
from storage.formats.zone_sets import ZoneSet
from storage.head import head as heads
from storage.head.head import Head
from storage.head.replication import read_names, zone_names, zones_named
from storage.head.roots import Overtaken, Roll, SavedRoot
from storage.maintenance.compaction import plan
from storage.maintenance.compaction.plan import Rewrite
from storage.maintenance.compaction.puts import put_file
from storage.reading.catalog import Catalog
from storage.resync import segment_copies
from storage.stores.metadata import MetadataStore, Versioned
from storage.zones.zones import Zones

SWAP_ATTEMPTS_MAX: Final = 500
"""Maximum number of attempts. A busy lane commits every few ms; each commit costs an attempt."""

SWAP_FREE_LOSSES: Final = 4
"""Wait between two attempts only after this many lost races."""

SWAP_WAIT_S_MAX: Final = 0.01
"""Maximum of that random wait. After a longer one, the head that is known would be outdated."""

SIZE_S_MAX: Final = 10.0
"""Maximum time to wait for a zone to report whether it holds a segment."""


@dataclass(frozen=True, slots=True)
class Change:
    """One partition's part of a swap."""

    rewrite: Rewrite
    written: tuple[Segment, ...]
    """The segments that replace what was rewritten, in order."""


@dataclass(frozen=True, slots=True)
class Swapped:
    head: Head
    applied: frozenset[LanePartition]
    """Partitions (within the lane) whose change was applied."""
    overtaken: frozenset[LanePartition]
    """Partitions that another process changed since the plan was made."""


@dataclass(frozen=True, slots=True)
class Swapper:
    """Swaps changes into the heads of lanes."""

    catalog: Catalog
    zones: Zones
    metadata: MetadataStore
    transact: Transact
    """`transact` of the lease, so that a process that lost it changes nothing."""
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]

    async def swap(self, key: str, changes: Mapping[LanePartition, Change]) -> Swapped:
        """Apply all `changes` (by partition of the lane) that are still valid, at once.

        Raises `NotEnoughReplicas` if a zone in sync does not store what it must hold, `Contended`
        if other processes were always faster, `UnknownTopicOrPartition` if the lane was deleted,
        and the errors of the stores and `transact`. After an error, changes may have been applied
        only if it says so.
        """
        saved: SavedRoot | None = None

        async def decide(item: Versioned | None) -> Keep[Swapped] | Replace[Swapped]:
            nonlocal changes, saved
            head = _decoded(key, item)
            root = await self.catalog.root(head)
            valid = {p: change for p, change in changes.items() if _holds(root, p, change)}
            if not valid:
                return Keep(_outcome(head, changes, frozenset()))
            if saved is None or not saved.fits(head):
                changes = {**changes, **await self._copied(head, valid)}
                valid = {p: changes[p] for p in valid}
                saved = await self._save(head, root, valid)
            new = await self._changed(head, saved, valid)
            return Replace(heads.encode(new), _outcome(new, changes, frozenset(valid)))

        async def landed(item: Versioned | None, sent: Swapped) -> Swapped | None:
            head = _decoded(key, item)
            return replace(sent, head=head) if await self._landed(head, sent) else None

        return await change_item(
            self.metadata,
            key,
            decide,
            Patience(SWAP_ATTEMPTS_MAX, self._back_off),
            transact=self.transact,
            landed=landed,
        )

    async def _back_off(self, lost: int) -> None:
        if lost > SWAP_FREE_LOSSES:
            await self.sleep(self.random() * SWAP_WAIT_S_MAX)

    async def roll_all(self, key: str) -> Head:
        """Roll the inline runs that all zones in sync hold into the index; return the new head.

        Otherwise the newest records could not be compacted. If another process rolls the lane,
        this is retried; raises `Contended` after `SWAP_ATTEMPTS_MAX`.
        """
        roll: Roll | None = None

        async def decide(item: Versioned | None) -> Keep[Head] | Replace[Head] | Again:
            nonlocal roll
            head = _decoded(key, item)
            try:
                if roll is None or not roll.is_of(head):
                    roll = await self._rolled(head)
            except Overtaken:
                return Again()
            rolled = None if roll is None else roll.applied_to(head)
            if rolled is None:
                return Keep(head)
            new = heads.append(rolled, [])
            return Replace(heads.encode(new), new)

        async def landed(item: Versioned | None, sent: Head) -> Head | None:
            head = _decoded(key, item)
            return head if head.root == sent.root else None

        head = await change_item(
            self.metadata,
            key,
            decide,
            Patience(SWAP_ATTEMPTS_MAX),
            transact=self.transact,
            landed=landed,
        )
        if roll is not None and head.root == roll.new_root:
            await self._remove(roll)
        return head

    async def _rolled(self, head: Head) -> Roll | None:
        """Return a roll to be committed; None: there is nothing that can be rolled."""
        try:
            return await self.catalog.roll(head) if head.runs else None
        except NotEnoughReplicas:
            return None

    async def _remove(self, roll: Roll) -> None:
        """Remove the batches that a committed roll has moved."""
        if roll.removals:
            assert self.catalog.batches is not None
            await self.catalog.batches.remove(roll.removals)

    async def _landed(self, head: Head, sent: Swapped) -> bool:
        """Whether a swap that was sent was applied; other processes may have rolled since."""
        if head.root == sent.head.root:
            return True
        root = await self.catalog.root(head)
        # It is in the cache, as this process wrote it.
        ours = await self.catalog.root(msgspec.structs.replace(head, root=sent.head.root))
        return all(
            (root.covered(p), root.segment_list(p)) == (ours.covered(p), ours.segment_list(p))
            for p in sent.applied
        )

    async def _save(
        self, head: Head, root: Members, changes: Mapping[LanePartition, Change]
    ) -> SavedRoot:
        lists = {}
        for partition, change in changes.items():
            lists[partition] = plan.applied(
                change.rewrite, change.written, head.log_starts[partition]
            )
            root = index.with_covered(root, partition, change.rewrite.covers)
        saved = await self.catalog.save_root(head, index.live_members(root, head.log_starts), lists)
        _check_zones(head, saved.zones, "the index")
        return saved

    async def _changed(
        self, head: Head, saved: SavedRoot, changes: Mapping[LanePartition, Change]
    ) -> Head:
        sizes = list(head.sizes)
        for partition, change in changes.items():
            gone = change.rewrite.segments
            start = head.log_starts[partition]
            hot_bytes = change.rewrite.hot.after(start).size_bytes
            sizes[partition] -= await self._live_bytes(head, gone, start) + hot_bytes
            sizes[partition] += await self._live_bytes(head, change.written, start)
            sizes[partition] = max(0, sizes[partition])
        return msgspec.structs.replace(
            head, commits=head.commits + 1, root=saved.new_root, sizes=tuple(sizes)
        )

    async def _live_bytes(self, head: Head, segments: tuple[Segment, ...], start: int) -> int:
        """Return the size of the row groups that are not before the log start."""
        total = 0
        for segment in segments:
            if segment.start_offset >= start:
                total += segment.size_bytes - segment.footer_bytes - len(MAGIC)
            elif segment.end_offset > start:
                groups = (await self.catalog.footer(head, segment)).row_groups
                total += sum(group.length for group in groups if group.end_offset > start)
        return total

    async def _copied(
        self, head: Head, changes: Mapping[LanePartition, Change]
    ) -> dict[LanePartition, Change]:
        """Return the changes with their new segments in all zones in sync."""
        found: dict[LanePartition, Change] = {}
        for partition, change in changes.items():
            written = []
            for segment in change.written:
                if segment not in change.rewrite.segments:
                    held = await self._holders(head, segment)
                    segment = msgspec.structs.replace(segment, zones=held)
                    if not zone_sets.is_within(head.isr, held):
                        await self._copy(head, partition, segment)
                        segment = msgspec.structs.replace(segment, zones=held | head.isr)
                written.append(segment)
            found[partition] = replace(change, written=tuple(written))
        return found

    async def _holders(self, head: Head, segment: Segment) -> ZoneSet:
        """Return the zones that stored the segment, without zones in sync that lack it now."""
        names = zone_names(head, head.isr & segment.zones)
        if len(names) < 2:
            # There would be no other zone to copy it from.
            return segment.zones
        key = segment.key(head.topic_id)
        there = await asyncio.gather(*(self._has(name, key) for name in names))
        lacking = [name for name, is_there in zip(names, there, strict=True) if not is_there]
        return zone_sets.without(segment.zones, zones_named(head, lacking))

    async def _has(self, name: str, key: str) -> bool:
        try:
            async with asyncio.timeout(SIZE_S_MAX):
                await self.zones.store(name).size(key)
        except ObjectMissing:
            return False
        except (StoreUnavailable, TimeoutError):
            # Not known to have lost it. If it cannot store the new root either, the swap fails.
            return True
        return True

    async def _copy(self, head: Head, partition: LanePartition, segment: Segment) -> None:
        """Copy a segment to the zones in sync that lack it."""
        key = segment.key(head.topic_id)
        names = read_names(head, segment.zones, partition)
        with TemporaryDirectory(prefix="riacho-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "copy.parquet"
            await segment_copies.fetch(self.zones, head.topic_id, segment, names, path)
            missing = zone_names(head, zone_sets.without(head.isr, segment.zones))
            held, _ = await put_file(self.zones, key, path, missing, size_bytes=segment.size_bytes)
        _check_zones(head, segment.zones | zones_named(head, held), key)


def _decoded(key: str, item: Versioned | None) -> Head:
    if item is None:
        raise UnknownTopicOrPartition(f"{key} is gone; its topic was deleted")
    return heads.decode(item.value, key)


def _holds(root: Members, partition: LanePartition, change: Change) -> bool:
    """Whether the partition is still as it was when the change was planned."""
    state = change.rewrite.state
    found = root.covered(partition), root.segment_list(partition)
    return found == (state.covers, state.list_id)


def _outcome(
    head: Head, changes: Mapping[LanePartition, Change], applied: frozenset[LanePartition]
) -> Swapped:
    return Swapped(head, applied, frozenset(changes) - applied)


def _check_zones(head: Head, held: ZoneSet, what: str) -> None:
    if lacking := zone_sets.without(head.isr, held):
        names = ", ".join(zone_names(head, lacking))
        raise NotEnoughReplicas(f"zone {names} is in sync, but did not take {what}; try again")
