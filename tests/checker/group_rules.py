"""The rules of consumer groups, each a function over what members saw. They return what is wrong.

`log` is what was written to and read from the topic that the group reads.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from tests.checker.log_rules import LogHistory, Partition
from tests.checker.read_back import Highest


@dataclass(frozen=True)
class Told:
    """An answer that a member got. `name` stays the same when a static member restarts."""

    name: str
    generation: int
    assignment: tuple[Partition, ...]
    began_s: float
    at_s: float


@dataclass(frozen=True)
class Read:
    """A member reads a partition from one moment to another.

    `beaten_s` is when its last heartbeat that was answered had begun, by the end of the time.
    `ended_s` is when it stopped, as it was told to or because it had to join again.
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
    """None: not noted, so it is held against nobody but who looks last."""


@dataclass(frozen=True)
class Seen:
    """What someone who only looks found committed."""

    at_s: float
    offsets: Mapping[Partition, int]
    began_s: float | None = None
    """When it was asked for; None: nobody else looked meanwhile."""

    @property
    def since_s(self) -> float:
        return self.at_s if self.began_s is None else self.began_s


@dataclass
class GroupHistory:
    session_s: float = 0.0
    told: list[Told] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    commits: list[Committing] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What no member should ever be answered."""
    is_drained: bool | None = None
    """Whether all was read and committed in the end; None: there was no group."""


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
    """Two may read one partition only if the session of one had ended, though it did not know."""
    by_partition: dict[Partition, list[Read]] = defaultdict(list)
    for read in sorted(group.reads, key=lambda read: read.began_s):
        by_partition[read.partition].append(read)
    for reads in by_partition.values():
        # Until when somebody owns it: the longest, and the longest of those with another name.
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
    """Return the one that owns longest, and then the one of another name that does."""
    longest = max(owners, key=lambda owner: owner[0])
    others = [owner for owner in owners if owner[1].name != longest[1].name]
    return [longest, max(others, key=lambda owner: owner[0])] if others else [longest]


def stale_generations_are_refused(group: GroupHistory, _: LogHistory) -> Iterator[str]:
    first_told: dict[int, tuple[float, int]] = {}
    for told in group.told:
        known = told.at_s, told.generation
        first_told[told.generation] = min(known, first_told.get(told.generation, known))
    generations = sorted(first_told)
    # The earliest of this and all later generations.
    earliest = list(accumulate((first_told[g] for g in reversed(generations)), min))[::-1]
    calls: list[Delivered | Committing] = [*group.delivered, *group.commits]
    for call in calls:
        if isinstance(call, Committing) and not call.acked:
            continue
        place = bisect_right(generations, call.generation)
        if place < len(generations) and earliest[place][0] < call.began_s:
            at_s, generation = earliest[place]
            yield f"{call} though generation {generation} was known at {at_s}"


def nothing_is_committed_that_was_not_delivered(
    group: GroupHistory, log: LogHistory
) -> Iterator[str]:
    """Each offset is looked at once, when it is first behind what is committed."""
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
    """In one generation it goes on where it was; who comes back begins with what is committed."""
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
    """Who looks after a commit was acknowledged sees it, or a later one."""
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
