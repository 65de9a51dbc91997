"""Which zones hold a lane, which of them lead, and how that changes. Pure, over the head.

    replicas   the zones that should hold the lane, in the order in which they would lead
    ISR        the zones that hold everything committed; `acks=all` waits for them
    leader     of a partition: its replicas, turned by its number in the lane, first in the ISR

Leaders are computed and never stored, so they spread over the zones without balancing. A zone
leads its partitions again as soon as it is back in the ISR.

- A zone leaves the ISR when it fails, and `leader_epoch` is incremented. The last zones never
  leave: any of them that recovers still holds everything.
- A zone enters the ISR again only if it is known to hold all that the head mentions
  (`VerifiedObjects`).
- Replicas are reassigned by putting the new set in front; the replicas after it are removed once
  the new set is in sync.
- An unclean election lets a zone lead that lacks some records. Nothing is truncated: the order of
  records is in the table, so records that only absent zones hold keep their offsets. They cannot
  be read until one of those zones returns.

Every change increments `commits`, because readers distinguish new heads from old ones by it.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from storage.errors import NotEnoughReplicas
from storage.formats import zone_sets
from storage.formats.partitions import FIRST, LanePartition
from storage.formats.zone_sets import NONE, ZoneSet
from storage.head.head import Head, Run, all_entries
from storage.keys import ID_BYTES


@dataclass(frozen=True, slots=True)
class Targets:
    """Where to write."""

    required: ZoneSet
    """The ISR: a commit for `acks=all` waits for these."""
    hopeful: ZoneSet
    """Replicas that catch up. New data is written to them, but no commit waits for them."""


@dataclass(frozen=True, slots=True)
class VerifiedObjects:
    """Objects that were verified to be completely in a zone."""

    indexes: Container[bytes]
    """Roots and pages of producers, together with everything that they mention."""
    objects: Container[bytes]
    """Segments."""
    trusted_from: int = 0
    """Runs from this number on (counted over the life of the lane) are trusted when they list the
    zone. Earlier ones are not, if the zone has lost what it held."""
    out_of_reach: Container[bytes] = ()
    """Segments that the zone lacks, and need not hold while the zones in sync lack them too."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Offsets of a partition (within the lane) that no available zone holds."""

    partition: LanePartition
    start: int
    end: int


def place(topic_id: bytes, lane: int, factor: int, zones: Sequence[str]) -> tuple[str, ...]:
    """Return the zones of a new lane, the first leader in front.

    Each lane of a topic begins one zone after the previous lane, and each topic where its id says.
    So replica sets and leaders are evenly distributed, and depend on nothing that could change.
    """
    start = int.from_bytes(topic_id[ID_BYTES // 2 :]) + lane
    return tuple(zones[(start + n) % len(zones)] for n in range(factor))


def zone_names(head: Head, zones: ZoneSet) -> list[str]:
    """Return the names of `zones`, replicas in their order first."""
    ordered = [*head.replicas, *(n for n in range(len(head.zones)) if n not in head.replicas)]
    return [head.zones[number] for number in ordered if zone_sets.has(zones, number)]


def zones_named(head: Head, names: Collection[str]) -> ZoneSet:
    """Return those of the named zones that the head knows."""
    return zone_sets.of([number for number, name in enumerate(head.zones) if name in names])


def replica_zones(head: Head) -> ZoneSet:
    return zone_sets.of(head.replicas)


def targets(head: Head) -> Targets:
    hopeful = zone_sets.without(replica_zones(head), head.isr)
    return Targets(required=head.isr, hopeful=hopeful)


def turned(head: Head, partition: LanePartition) -> list[int]:
    """Return the replicas in the order in which they would lead the partition of the lane."""
    turn = partition % len(head.replicas)
    return [*head.replicas[turn:], *head.replicas[:turn]]


def leader(head: Head, partition: LanePartition) -> int | None:
    """Return the zone that leads the partition of the lane, if any can."""
    return next((n for n in turned(head, partition) if zone_sets.has(head.isr, n)), None)


def leaders(head: Head) -> list[int | None]:
    """Return the leader of every partition of the lane."""
    by_turn = [leader(head, LanePartition(turn)) for turn in range(len(head.replicas))]
    return [by_turn[p % len(by_turn)] for p in range(head.partition_count)]


def read_names(head: Head, zones: ZoneSet, partition: LanePartition = FIRST) -> list[str]:
    """Return every zone that may hold what was written to `zones`, the likeliest first.

    `zones` held it at commit. Zones that came in sync later hold it too, though an immutable
    index page does not say so. Any other zone may also hold it.
    """
    order = turned(head, partition)
    order += [n for n in range(len(head.zones)) if n not in head.replicas]
    # Sorting is stable, so among equals the leader and the next leaders come first.
    order.sort(key=lambda n: (not zone_sets.has(zones, n), not zone_sets.has(head.isr, n)))
    return [head.zones[number] for number in order]


def check_in_sync(zones: ZoneSet, in_sync_min: int) -> None:
    """Raise `NotEnoughReplicas` unless `zones` are at least `min.insync.replicas`."""
    count = zone_sets.count(zones)
    if count < in_sync_min:
        raise NotEnoughReplicas(
            f"{count} zones are in sync, min.insync.replicas demands {in_sync_min};"
            " send it again when more are, or with acks=1"
        )


def is_under_replicated(head: Head, factor: int) -> bool:
    """Whether one of the first `factor` replicas of the lane is not in sync."""
    return not zone_sets.is_within(zone_sets.of(head.replicas[:factor]), head.isr)


def is_offline(head: Head, alive: ZoneSet) -> bool:
    """Whether none of the zones in sync is among `alive`: nothing can be written."""
    return not head.isr & alive


def without_zones(head: Head, zones: ZoneSet) -> Head:
    """Return the head after `zones` left the ISR; `head` itself if none was in it.

    Raises `NotEnoughReplicas` if none would be left.
    """
    leaving = head.isr & zones
    if not leaving:
        return head
    if leaving == head.isr:
        raise NotEnoughReplicas("none of the zones in sync can be reached; nothing can be written")
    isr = zone_sets.without(head.isr, leaving)
    return _changed(head, isr=isr, leader_epoch=head.leader_epoch + 1)


def lacks(head: Head, zone: int, held: VerifiedObjects) -> bool:
    """Whether something that the head mentions is not known to be in the zone."""
    indexes = [*([head.root] if head.root else []), *_producer_pages(head)]
    if not all(each in held.indexes for each in indexes):
        return True
    needed = visible_objects(head)
    said, trusted = held_by(head), held_by(head, held.trusted_from)
    return not all(
        object_id not in needed
        or object_id in held.objects
        or zone_sets.has(trusted.get(object_id, NONE), zone)
        or (not zones & head.isr and object_id in held.out_of_reach)
        for object_id, zones in said.items()
    )


def held_by(head: Head, first: int = 0) -> dict[bytes, ZoneSet]:
    """Return the zones of each object of the inline runs, from run number `first` on.

    Runs are counted over the life of the lane. An object that was committed in parts has a run for
    each of them, and one run may name zones that another does not: the object is in all of them.
    """
    found: dict[bytes, ZoneSet] = {}
    for number, run in enumerate(head.runs, head.run_count - len(head.runs)):
        if number >= first and not run.is_in_table:
            found[run.object_id] = found.get(run.object_id, NONE) | run.zones
    return found


def visible_objects(head: Head) -> frozenset[bytes]:
    """Return the objects of inline runs that hold anything from their log starts on.

    The others need not be copied: they can no longer be read.
    """
    return frozenset(
        entry.object_id
        for entry in all_entries(head)
        if entry.end_offset > head.log_starts[entry.partition]
    )


def with_zone(head: Head, zone: int, held: VerifiedObjects) -> Head:
    """Return the head with a replica back in the ISR; it must be known to lack nothing.

    Runs that can no longer be read are recorded as if the zone held them. The epoch is incremented
    only if a partition's leader changes. A writer with an older head is stopped by the head's
    version, not by the epoch.
    """
    assert zone in head.replicas, (zone, head.replicas)
    assert not lacks(head, zone, held), (head.topic_id, head.lane, zone)
    # Objects that no zone in sync holds may be out of reach; the zone has all others now.
    added = zone_sets.of([zone])
    copies = {name: added for name, zones in held_by(head).items() if zones & head.isr}
    new = _changed(head, isr=head.isr | added, runs=_with_copies(head, copies))
    if leaders(new) == leaders(head):
        return new
    return msgspec.structs.replace(new, leader_epoch=head.leader_epoch + 1)


def incomplete(head: Head) -> frozenset[bytes]:
    """Return the objects that zones in sync do not hold yet: those written with `acks=1`."""
    held = held_by(head).items()
    return frozenset(name for name, zones in held if not zone_sets.is_within(head.isr, zones))


def complete_runs(head: Head) -> int:
    """Return how many of the oldest runs are complete: no zone in sync still waits for a copy.

    A run that some zones in sync lack stays in the head, where it is seen. A run that only zones
    outside the ISR hold would stay for ever, so it counts as complete: when such a zone comes
    back, the others copy it from there (storage/resync/resync.py).
    """
    held = held_by(head)
    for number, run in enumerate(head.runs):
        zones = held.get(run.object_id, run.zones)
        if head.isr & zones and not zone_sets.is_within(head.isr, zones):
            return number
    return len(head.runs)


def without_laggards(head: Head) -> Head:
    """Return the head after zones that lack its oldest run left the ISR, unless all lack it."""
    if complete_runs(head):
        return head
    holders = held_by(head)[head.runs[0].object_id]
    return without_zones(head, zone_sets.without(head.isr, holders))


def with_copies(head: Head, copies: Mapping[bytes, ZoneSet]) -> Head:
    """Return the head with the zones in `copies` added to the inline runs of those objects."""
    runs = _with_copies(head, copies)
    return head if runs == head.runs else _changed(head, runs=runs)


def _with_copies(head: Head, copies: Mapping[bytes, ZoneSet]) -> tuple[Run, ...]:
    return tuple(_with_copy(run, copies.get(run.object_id, NONE)) for run in head.runs)


def _with_copy(run: Run, zones: ZoneSet) -> Run:
    if zone_sets.is_within(zones, run.zones):
        return run
    return msgspec.structs.replace(run, zones=run.zones | zones)


def reassigned(head: Head, names: Sequence[str]) -> Head:
    """Return the head with `names` as its first replicas, in that order.

    Old replicas in the ISR stay after them until `settled`. Returns `head` if nothing changes.
    """
    zones = (*head.zones, *(name for name in names if name not in head.zones))
    wanted = tuple(zones.index(name) for name in names)
    old = tuple(n for n in head.replicas if n not in wanted and zone_sets.has(head.isr, n))
    if (wanted + old, zones) == (head.replicas, head.zones):
        return head
    return _changed(head, zones=zones, replicas=wanted + old, leader_epoch=head.leader_epoch + 1)


def with_factor(head: Head, factor: int, names: Sequence[str]) -> Head:
    """Return the head with `factor` replicas: those it has, and more of `names` if needed."""
    wanted = [head.zones[number] for number in head.replicas[:factor]]
    others = [n for n in place(head.topic_id, head.lane, len(names), names) if n not in wanted]
    return reassigned(head, wanted + others[: factor - len(wanted)])


def is_reassigning(head: Head, factor: int) -> bool:
    return len(head.replicas) > factor


def settled(head: Head, factor: int) -> Head:
    """Return the head without replaced replicas; `head` if the new ones do not hold all yet."""
    kept = head.replicas[:factor]
    isr = zone_sets.of(kept)
    holders = held_by(head).values()
    is_safe = zone_sets.is_within(isr, head.isr) and all(zones & isr for zones in holders)
    if not is_reassigning(head, factor) or not is_safe:
        return head
    return _changed(head, replicas=kept, isr=isr, leader_epoch=head.leader_epoch + 1)


def elected(head: Head, alive: ZoneSet) -> Head:
    """Return the head after an unclean election among the replicas in `alive`.

    Only for a lane that is offline. The replica that lacks the fewest recent objects wins, and is
    the whole ISR; the others catch up from it and from any zone that holds more. Raises
    `NotEnoughReplicas` if no replica is alive.
    """
    assert is_offline(head, alive), (head.isr, alive)
    candidates = [number for number in head.replicas if zone_sets.has(alive, number)]
    if not candidates:
        raise NotEnoughReplicas("no replica can be reached, so none can be elected")
    holders = held_by(head).values()
    winner = max(candidates, key=lambda n: sum(zone_sets.has(zones, n) for zones in holders))
    return _changed(head, isr=zone_sets.of([winner]), leader_epoch=head.leader_epoch + 1)


def lost(head: Head, alive: ZoneSet) -> list[Lost]:
    """Return the offsets of inline runs that only zones outside `alive` hold, neighbours joined."""
    found: list[Lost] = []
    held = held_by(head)
    for entry in all_entries(head):
        if held.get(entry.object_id, entry.zones) & alive:
            continue
        if found and (found[-1].partition, found[-1].end) == (entry.partition, entry.base_offset):
            found[-1] = Lost(entry.partition, found[-1].start, entry.end_offset)
        else:
            found.append(Lost(entry.partition, entry.base_offset, entry.end_offset))
    return found


def _producer_pages(head: Head) -> list[bytes]:
    return [page.object_id for page in head.producer_pages]


def _changed(head: Head, **fields: Any) -> Head:
    new: Head = msgspec.structs.replace(head, commits=head.commits + 1, **fields)
    return new
