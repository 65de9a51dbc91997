"""Assignors: three ways to divide partitions among the members of a group. Pure.

Each takes the topics that every member subscribes to, the partition count of each topic and the
previous assignment, and returns the partitions of every member. The result is the same on every
gateway: all inputs are sorted and nothing is random.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from storage.formats.partitions import PartitionNumber

TopicPartition: TypeAlias = tuple[str, PartitionNumber]
Wants: TypeAlias = Mapping[str, Sequence[str]]
"""Topics by member."""
Shares: TypeAlias = dict[str, list[TopicPartition]]
"""Partitions by member, sorted; every member has an entry."""
Assignor: TypeAlias = Callable[
    [Wants, Mapping[str, int], Mapping[str, Sequence[TopicPartition]]], Shares
]


def assign_range(
    wants: Wants,
    counts: Mapping[str, int],
    before: Mapping[str, Sequence[TopicPartition]],
) -> Shares:
    """Give each member a range of every topic, so that equal numbers of topics stay together."""
    shares: Shares = {member: [] for member in wants}
    for topic in sorted(counts):
        members = sorted(member for member, topics in wants.items() if topic in topics)
        for number, member in enumerate(members):
            start = counts[topic] * number // len(members)
            end = counts[topic] * (number + 1) // len(members)
            shares[member] += [(topic, PartitionNumber(p)) for p in range(start, end)]
    return shares


def assign_round_robin(
    wants: Wants,
    counts: Mapping[str, int],
    before: Mapping[str, Sequence[TopicPartition]],
) -> Shares:
    """Deal all partitions one by one; skip members that do not subscribe to the topic."""
    shares: Shares = {member: [] for member in wants}
    members = sorted(wants)
    turn = 0
    for topic in sorted(counts):
        if not any(topic in wants[member] for member in members):
            continue
        for partition in range(counts[topic]):
            while topic not in wants[members[turn % len(members)]]:
                turn += 1
            shares[members[turn % len(members)]].append((topic, PartitionNumber(partition)))
            turn += 1
    return shares


def assign_sticky(
    wants: Wants,
    counts: Mapping[str, int],
    before: Mapping[str, Sequence[TopicPartition]],
) -> Shares:
    """Balance, and move as little as possible.

    Every member keeps what it had. Each unassigned partition goes to the member with the fewest.
    Then partitions move from the members with most to those with fewest until no move would
    balance them better.
    """
    takers = _takers(wants, counts)
    shares: dict[str, set[TopicPartition]] = {member: set() for member in wants}
    free = {(topic, PartitionNumber(p)) for topic in takers for p in range(counts[topic])}
    for member in sorted(wants):
        for place in before.get(member, ()):
            if place in free and member in takers[place[0]]:
                shares[member].add(place)
                free.discard(place)
    _deal(shares, sorted(free), takers)
    kept = {(m, place) for m in wants for place in before.get(m, ())}
    crowds = sorted(set(takers.values()))
    while any(_level(shares, crowd, takers, kept) for crowd in crowds):
        pass
    return {member: sorted(places) for member, places in shares.items()}


def _takers(wants: Wants, counts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Return the members that subscribe to each topic, for topics with at least one."""
    takers: dict[str, list[str]] = {}
    for member in sorted(wants):
        for topic in set(wants[member]):
            takers.setdefault(topic, []).append(member)
    return {topic: tuple(takers[topic]) for topic in sorted(takers) if topic in counts}


def _deal(
    shares: dict[str, set[TopicPartition]],
    free: Sequence[TopicPartition],
    takers: Mapping[str, tuple[str, ...]],
) -> None:
    """Give each of `free` to the subscribed member with the fewest partitions."""
    heaps: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for place in free:
        crowd = takers[place[0]]
        if crowd not in heaps:
            heaps[crowd] = sorted((len(shares[m]), m) for m in crowd)
        heap = heaps[crowd]
        # A count in the heap may be stale, because this crowd or another one gave the member more
        # since. Shares only grow here, so refreshing the top entry is enough.
        while heap[0][0] != len(shares[heap[0][1]]):
            heapq.heapreplace(heap, (len(shares[heap[0][1]]), heap[0][1]))
        _, member = heap[0]
        shares[member].add(place)


def _level(
    shares: dict[str, set[TopicPartition]],
    crowd: tuple[str, ...],
    takers: Mapping[str, tuple[str, ...]],
    kept: AbstractSet[tuple[str, TopicPartition]],
) -> bool:
    """Balance the topics that exactly `crowd` subscribes to; return whether anything moved."""
    spare = {m: [p for p in shares[m] if takers[p[0]] == crowd] for m in crowd}
    for member, places in spare.items():
        # The last one moves first: a partition dealt just now, before one the member had.
        places.sort(key=lambda p: ((member, p) in kept, p), reverse=True)
    least = sorted((len(shares[m]), m) for m in crowd)
    most = sorted((-len(shares[m]), m) for m in crowd if spare[m])
    moved = False
    while most:
        (few, taker), (many, giver) = least[0], most[0]
        if not spare[giver]:
            heapq.heappop(most)
        elif -many - few < 2:
            break
        else:
            place = spare[giver].pop()
            shares[giver].discard(place)
            shares[taker].add(place)
            # A taker never becomes a giver, nor a giver a taker: their entries in the other heap
            # are stale, but never decide.
            heapq.heapreplace(least, (len(shares[taker]), taker))
            heapq.heapreplace(most, (-len(shares[giver]), giver))
            moved = True
    return moved


ASSIGNORS: Final[dict[str, Assignor]] = {
    "sticky": assign_sticky,
    "range": assign_range,
    "roundrobin": assign_round_robin,
}
