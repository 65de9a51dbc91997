"""The rules of consumer groups, each a function over what members saw. They return what is wrong.

`final` is the log at the end: offset and value of every record, by partition.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Partition = int


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


@dataclass(frozen=True)
class Seen:
    """What someone who only looks found committed."""

    at_s: float
    offsets: Mapping[Partition, int]


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


Final = Mapping[Partition, Sequence[tuple[int, str]]]


def one_owner_per_partition_per_generation(group: GroupHistory, _: Final) -> Iterator[str]:
    owners: dict[tuple[int, Partition], str] = {}
    for told in group.told:
        for partition in told.assignment:
            owner = owners.setdefault((told.generation, partition), told.name)
            if owner != told.name:
                yield f"{partition} in generation {told.generation}: {owner} and {told.name}"


def a_partition_moves_only_when_it_was_given_up(group: GroupHistory, _: Final) -> Iterator[str]:
    """Two may read one partition only if the session of one had ended, though it did not know."""
    by_partition: dict[Partition, list[Read]] = defaultdict(list)
    for read in group.reads:
        by_partition[read.partition].append(read)
    for reads in by_partition.values():
        for one in reads:
            for other in reads:
                if one.name == other.name or not one.began_s <= other.began_s < one.ended_s:
                    continue
                if other.began_s < one.beaten_s + group.session_s - 1e-6:
                    yield f"{other} while {one}"


def stale_generations_are_refused(group: GroupHistory, _: Final) -> Iterator[str]:
    first_told: dict[int, float] = {}
    for told in group.told:
        first_told[told.generation] = min(told.at_s, first_told.get(told.generation, float("inf")))
    calls: list[Delivered | Committing] = [*group.delivered, *group.commits]
    for call in calls:
        if isinstance(call, Committing) and not call.acked:
            continue
        later = [at_s for generation, at_s in first_told.items() if generation > call.generation]
        if later and min(later) < call.began_s:
            yield f"{call} though a later generation was known at {min(later)}"


def nothing_is_committed_that_was_not_delivered(group: GroupHistory, _: Final) -> Iterator[str]:
    moments = sorted(
        [(d.at_s, 0, d) for d in group.delivered] + [(s.at_s, 1, s) for s in group.seen],
        key=lambda moment: moment[:2],
    )
    delivered: dict[Partition, set[int]] = defaultdict(set)
    for at_s, _, what in moments:
        if isinstance(what, Delivered):
            delivered[what.partition] |= set(what.offsets)
            continue
        for partition, offset in what.offsets.items():
            missing = set(range(offset)) - delivered[partition]
            if missing:
                yield f"{partition} was at {offset} at {at_s}, {sorted(missing)[:5]} undelivered"


def committed_offsets_never_go_back(group: GroupHistory, _: Final) -> Iterator[str]:
    last: dict[Partition, int] = {}
    for seen in group.seen:
        for partition in last.keys() | seen.offsets.keys():
            offset = seen.offsets.get(partition, 0)
            if offset < last.get(partition, 0):
                yield f"{partition} went from {last[partition]} to {offset} at {seen.at_s}"
            last[partition] = offset


def acknowledged_commits_are_kept(group: GroupHistory, _: Final) -> Iterator[str]:
    if not group.seen:
        return
    final = group.seen[-1]
    for commit in group.commits:
        if commit.acked and final.offsets.get(commit.partition, 0) < commit.offset:
            yield f"{commit} was acknowledged, and {final} is what there is"


def every_record_is_delivered(group: GroupHistory, final: Final) -> Iterator[str]:
    if not group.is_drained:
        return
    delivered: dict[Partition, set[int]] = defaultdict(set)
    for one in group.delivered:
        delivered[one.partition] |= set(one.offsets)
    for partition, records in final.items():
        missing = {offset for offset, _ in records} - delivered[partition]
        if missing:
            yield f"partition {partition}: {sorted(missing)[:5]} were never delivered"


def after_the_faults_everything_moves_again(group: GroupHistory, _: Final) -> Iterator[str]:
    if group.is_drained is False:
        yield "the group did not read and commit all there was"


def members_meet_no_other_errors(group: GroupHistory, _: Final) -> Iterator[str]:
    yield from group.errors


GROUP_RULES = (
    one_owner_per_partition_per_generation,
    a_partition_moves_only_when_it_was_given_up,
    stale_generations_are_refused,
    nothing_is_committed_that_was_not_delivered,
    committed_offsets_never_go_back,
    acknowledged_commits_are_kept,
    every_record_is_delivered,
    after_the_faults_everything_moves_again,
    members_meet_no_other_errors,
)
