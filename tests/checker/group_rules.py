"""Rules of consumer groups, each a function over what members saw. They yield violations in words.

`log` holds the writes and reads of the topic that the group reads.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from tests.checker.log_rules import LogHistory, Partition
from tests.checker.read_back import Highest


@dataclass(frozen=True)
class Assigned:
    """An assignment that a member received. A static member keeps its `name` over restarts."""

    name: str
    generation: int
    assignment: tuple[Partition, ...]
    began_s: float
    at_s: float


@dataclass(frozen=True)
class Read:
    """The time during which a member reads a partition.

    `beaten_s` is when its last answered heartbeat had begun, at the end of that time.
    `ended_s` is when it stopped, because it had to give the partition up or to join again.
    """

    name: str
    partition: Partition
    began_s: float
    ended_s: float
    beaten_s: float


@dataclass(frozen=True)
class Delivered:
    name: str
    generation: int
    partition: Partition
    offsets: range
    began_s: float
    at_s: float
    may_be_old: bool = False
    """Whether an older generation may do this: a fetch of Kafka's protocol does not name one."""


@dataclass(frozen=True)
class Committing:
    """A commit that was acknowledged, or may have happened."""

    name: str
    generation: int
    partition: Partition
    offset: int
    began_s: float
    acked: bool
    ended_s: float | None = None
    """None: not recorded, so only the last look must show this commit."""
    may_be_old: bool = False
    """Whether an older generation may do this: KIP-848 lets a member commit what it still has."""


@dataclass(frozen=True)
class Seen:
    """The committed offsets that an observer outside the group read."""

    at_s: float
    offsets: Mapping[Partition, int]
    began_s: float | None = None
    """When the request began; None: no other observer looked at the same time."""

    @property
    def since_s(self) -> float:
        return self.at_s if self.began_s is None else self.began_s


@dataclass
class GroupHistory:
    session_s: float = 0.0
    told: list[Assigned] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    commits: list[Committing] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Errors that no member should ever receive."""
    is_drained: bool | None = None
    """Whether everything was read and committed in the end; None: there was no group."""


def one_owner_per_partition_per_generation(group: GroupHistory, _: LogHistory) -> Iterator[str]:
    owners: dict[tuple[int, Partition], str] = {}
    for told in group.told:
        for partition in told.assignment:
            owner = owners.setdefault((told.generation, partition), told.name)
            if owner != told.name:
                yield f"{partition} in generation {told.generation}: {owner} and {told.name}"


def a_partition_moves_only_when_it_was_given_up(
    group: GroupHistory, _: LogHistory
) -> Iterator[str]:
    """Two members may read one partition only if the session of one had expired unnoticed."""
    by_partition: dict[Partition, list[Read]] = defaultdict(list)
    for read in sorted(group.reads, key=lambda read: read.began_s):
        by_partition[read.partition].append(read)
    for reads in by_partition.values():
        # The read that owns the partition longest, and the longest one of another member.
        owners: list[tuple[float, Read]] = []
        for _, beginners in groupby(reads, key=lambda read: read.began_s):
            together = list(beginners)
            for one in together:
                owners = _two_longest([*owners, (_owned_until_s(one, group.session_s), one)])
            for other in together:
                for until_s, one in owners:
                    if one.name != other.name and other.began_s < until_s:
                        yield f"{other} while {one}"
                        break


def _owned_until_s(read: Read, session_s: float) -> float:
    return min(read.ended_s, read.beaten_s + session_s - 1e-6)


def _two_longest(owners: list[tuple[float, Read]]) -> list[tuple[float, Read]]:
    """Return the longest owner, then the longest one with another name."""
    longest = max(owners, key=lambda owner: owner[0])
    others = [owner for owner in owners if owner[1].name != longest[1].name]
    return [longest, max(others, key=lambda owner: owner[0])] if others else [longest]


def stale_generations_are_refused(group: GroupHistory, _: LogHistory) -> Iterator[str]:
    first_reported: dict[int, tuple[float, int]] = {}
    for told in group.told:
        known = told.at_s, told.generation
        first_reported[told.generation] = min(known, first_reported.get(told.generation, known))
    generations = sorted(first_reported)
    # For each generation the earliest time of that and all later generations.
    earliest = list(accumulate((first_reported[g] for g in reversed(generations)), min))[::-1]
    calls: list[Delivered | Committing] = [*group.delivered, *group.commits]
    for call in calls:
        if call.may_be_old or (isinstance(call, Committing) and not call.acked):
            continue
        place = bisect_right(generations, call.generation)
        if place < len(generations) and earliest[place][0] < call.began_s:
            at_s, generation = earliest[place]
            yield f"{call} though generation {generation} was known at {at_s}"


def nothing_is_committed_that_was_not_delivered(
    group: GroupHistory, log: LogHistory
) -> Iterator[str]:
    """Each offset is checked once, when a committed offset first exceeds it."""
    first_s: dict[tuple[Partition, int], float] = {}
    for one in sorted(group.delivered, key=lambda one: one.at_s):
        for offset in one.offsets:
            first_s.setdefault((one.partition, offset), one.at_s)
    checked: dict[Partition, int] = {}
    for seen in sorted(group.seen, key=lambda seen: seen.at_s):
        for partition, end in seen.offsets.items():
            start = checked.get(partition, log.log_start(partition))
            for offset in range(start, end):
                at_s = first_s.get((partition, offset))
                if at_s is None or at_s > seen.at_s:
                    when = "never" if at_s is None else f"only at {at_s}"
                    yield f"{partition} was at {end} at {seen.at_s}, {offset} was delivered {when}"
            checked[partition] = max(start, end)


def a_member_passes_over_nothing(group: GroupHistory, log: LogHistory) -> Iterator[str]:
    """Within a generation a member continues where it was, or at the committed offset."""
    reached: dict[tuple[str, int, Partition], int] = {}
    for one in group.delivered:
        key = one.name, one.generation, one.partition
        start = one.offsets.start
        if reached.get(key, start) < start and start > log.log_start(one.partition):
            yield f"{one}, and before it had {reached[key]}"
        reached[key] = max(one.offsets.stop, reached.get(key, 0))


def committed_offsets_never_go_back(group: GroupHistory, _: LogHistory) -> Iterator[str]:
    told: dict[Partition, list[tuple[float, int, Seen]]] = defaultdict(list)
    for seen in group.seen:
        for partition, offset in seen.offsets.items():
            told[partition].append((seen.at_s, offset, seen))
    highest = {partition: Highest(of) for partition, of in told.items()}
    for seen in group.seen:
        for partition, of in highest.items():
            offset = seen.offsets.get(partition, 0)
            top, before = of.before(seen.since_s)
            if top > offset:
                yield f"{partition} went from {top} at {before.at_s} to {offset} at {seen.at_s}"


def acknowledged_commits_are_kept(group: GroupHistory, _: LogHistory) -> Iterator[str]:
    """A look after a commit was acknowledged shows that commit or a later one."""
    if not group.seen:
        return
    last_s = max(seen.since_s for seen in group.seen)
    told: dict[Partition, list[tuple[float, int, Committing]]] = defaultdict(list)
    for commit in group.commits:
        if commit.acked:
            known_s = commit.ended_s
            if known_s is None:
                known_s = max(commit.began_s, last_s - 1e-6)
            told[commit.partition].append((known_s, commit.offset, commit))
    highest = {partition: Highest(of) for partition, of in told.items()}
    for seen in group.seen:
        for partition, of in highest.items():
            top, commit = of.before(seen.since_s)
            offset = seen.offsets.get(partition, 0)
            if top > offset:
                yield f"{commit} was acknowledged, and {offset} is what there was at {seen.at_s}"


def every_record_is_delivered(group: GroupHistory, log: LogHistory) -> Iterator[str]:
    if not group.is_drained:
        return
    delivered: dict[Partition, set[int]] = defaultdict(set)
    for one in group.delivered:
        delivered[one.partition].update(one.offsets)
    for partition, records in log.final.items():
        for offset, value in records:
            if offset not in delivered[partition]:
                yield f"{value!r} at {partition}/{offset} was never delivered"


def after_the_faults_everything_moves_again(group: GroupHistory, _: LogHistory) -> Iterator[str]:
    if group.is_drained is False:
        yield "the group did not read and commit all there was"


def members_meet_no_other_errors(group: GroupHistory, _: LogHistory) -> Iterator[str]:
    yield from group.errors


GROUP_RULES: Sequence[Callable[[GroupHistory, LogHistory], Iterator[str]]] = (
    one_owner_per_partition_per_generation,
    a_partition_moves_only_when_it_was_given_up,
    stale_generations_are_refused,
    nothing_is_committed_that_was_not_delivered,
    a_member_passes_over_nothing,
    committed_offsets_never_go_back,
    acknowledged_commits_are_kept,
    every_record_is_delivered,
    after_the_faults_everything_moves_again,
    members_meet_no_other_errors,
)
