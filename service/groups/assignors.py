"""Who reads what: the three ways to share partitions among members. Pure.

Each takes what every member wants (its topics), how many partitions each topic has, and who had
what before, and returns the partitions of every member. All members of a group get one answer,
whichever gateway computes it: everything is sorted, nothing is left to chance.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
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
            shares[member] += [(topic, partition) for partition in range(start, end)]
    return shares


def assign_round_robin(
    wants: Wants,
    counts: Mapping[str, int],
    before: Mapping[str, Sequence[TopicPartition]],
) -> Shares:
    """Deal all partitions one by one; who does not want the topic is passed over."""
    shares: Shares = {member: [] for member in wants}
    members = sorted(wants)
    turn = 0
    for topic in sorted(counts):
        if not any(topic in wants[member] for member in members):
            continue
        for partition in range(counts[topic]):
            while topic not in wants[members[turn % len(members)]]:
                turn += 1
            shares[members[turn % len(members)]].append((topic, partition))
            turn += 1
    return shares


def assign_sticky(
    wants: Wants,
    counts: Mapping[str, int],
    before: Mapping[str, Sequence[TopicPartition]],
) -> Shares:
    """Balance, and move as little as possible.

    Everyone keeps what it had; what nobody has goes to whoever has least; then partitions move
    from those with most to those with least until no move would make it more even.
    """
    wanted = {member: set(topics) for member, topics in wants.items()}
    shares: dict[str, set[TopicPartition]] = {member: set() for member in wants}
    free = {(t, p) for t, count in counts.items() for p in range(count)}
    for member in sorted(wants):
        for place in before.get(member, ()):
            if place in free and place[0] in wanted[member]:
                shares[member].add(place)
                free.discard(place)
    for place in sorted(free):
        takers = [member for member in wants if place[0] in wanted[member]]
        if takers:
            shares[min(takers, key=lambda m: (len(shares[m]), m))].add(place)
    kept = {m: set(before.get(m, ())) for m in wants}
    while _level(shares, wanted, kept):
        pass
    return {member: sorted(places) for member, places in shares.items()}


def _level(
    shares: dict[str, set[TopicPartition]],
    wanted: Mapping[str, set[str]],
    kept: Mapping[str, set[TopicPartition]],
) -> bool:
    """Move one partition to where it evens things out; return whether there was one."""
    for giver in sorted(shares, key=lambda m: (-len(shares[m]), m)):
        # What came just now moves rather than what was there before.
        for place in sorted(shares[giver], key=lambda p: (p in kept[giver], p)):
            takers = [m for m in shares if place[0] in wanted[m]]
            taker = min(takers, key=lambda m: (len(shares[m]), m))
            if len(shares[taker]) + 1 < len(shares[giver]):
                shares[giver].discard(place)
                shares[taker].add(place)
                return True
    return False


ASSIGNORS: Final[dict[str, Assignor]] = {
    "sticky": assign_sticky,
    "range": assign_range,
    "roundrobin": assign_round_robin,
}
