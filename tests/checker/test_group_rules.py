"""Each rule of groups reports the histories that break it, and no others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checker.group_rules import (
    Assigned,
    Committing,
    Delivered,
    GroupHistory,
    Read,
    Seen,
    a_partition_moves_only_when_it_was_given_up,
    nothing_is_committed_that_was_not_delivered,
    stale_generations_are_refused,
)
from tests.checker.history import History, violations
from tests.checker.log_rules import Produced

SESSION_S = 6.0
LOG = [(0, "a"), (1, "b")]


def told(name: str, generation: int, at_s: float = 1) -> Assigned:
    return Assigned(name, generation, (0,), at_s, at_s)


def read(name: str, began_s: float, ended_s: float, beaten_s: float) -> Read:
    return Read(name, 0, began_s, ended_s, beaten_s)


def delivered(end: int, *, start: int = 0, at_s: float = 1, generation: int = 1) -> Delivered:
    return Delivered("m", generation, 0, range(start, end), at_s, at_s)


def commit(
    offset: int,
    generation: int = 1,
    *,
    at_s: float = 2,
    acked: bool = True,
    took_s: float | None = None,
) -> Committing:
    ended_s = None if took_s is None else at_s + took_s
    return Committing("m", generation, 0, offset, at_s, acked, ended_s)


def seen(at_s: float, end: int | None, *, took_s: float = 0) -> Seen:
    return Seen(at_s, {} if end is None else {0: end}, at_s - took_s)


def grouped(group: GroupHistory, log_start: int = 0) -> History:
    return History(
        [Produced(0, 0, ("a", "b"), 0, 1, 0, False)],
        final={0: LOG[log_start:]},
        log_starts={0: log_start} if log_start else {},
        group=group,
    )


def members(
    told: list[Assigned] | None = None,
    reads: list[Read] | None = None,
    got: list[Delivered] | None = None,
    commits: list[Committing] | None = None,
    looks: list[Seen] | None = None,
    is_drained: bool | None = None,
) -> GroupHistory:
    return GroupHistory(
        session_s=SESSION_S,
        told=told or [],
        reads=reads or [],
        delivered=got or [],
        commits=commits or [],
        seen=looks or [],
        is_drained=is_drained,
    )


BROKEN_GROUPS = [
    ("one_owner_per_partition_per_generation", members([told("m", 1), told("n", 1)])),
    (
        "one_owner_per_partition_per_generation",
        members([told("m", 1), told("n", 2), told("m", 2, at_s=9)]),
    ),
    (
        "a_partition_moves_only_when_it_was_given_up",
        members(reads=[read("m", 0, 9, 2), read("n", 7, 8, 7)]),
    ),
    # Both begin at once; or the earlier owner is not the reader that began last.
    (
        "a_partition_moves_only_when_it_was_given_up",
        members(reads=[read("m", 3, 9, 3), read("n", 3, 3.5, 3)]),
    ),
    (
        "a_partition_moves_only_when_it_was_given_up",
        members(reads=[read("m", 0, 9, 5), read("n", 1, 2, 1), read("n", 8, 9, 8)]),
    ),
    ("stale_generations_are_refused", members([told("n", 2)], commits=[commit(1)])),
    ("stale_generations_are_refused", members([told("n", 2)], got=[delivered(1, at_s=2)])),
    (
        "stale_generations_are_refused",
        members([told("n", 3, at_s=1), told("n", 2, at_s=5)], commits=[commit(1)]),
    ),
    (
        "nothing_is_committed_that_was_not_delivered",
        members(got=[delivered(1)], looks=[seen(2, 2)]),
    ),
    (
        "nothing_is_committed_that_was_not_delivered",
        members(got=[delivered(2, at_s=4)], looks=[seen(2, 2)]),
    ),
    (
        "a_member_passes_over_nothing",
        members(got=[delivered(0), delivered(2, start=1, at_s=2)]),
    ),
    (
        "a_member_passes_over_nothing",
        members(got=[delivered(1), delivered(1, at_s=2), delivered(3, start=2, at_s=3)]),
    ),
    ("committed_offsets_never_go_back", members(looks=[seen(2, 2), seen(3, 1)])),
    ("committed_offsets_never_go_back", members(looks=[seen(2, 2), seen(3, None)])),
    ("committed_offsets_never_go_back", members(looks=[seen(2, 2), seen(3, 2), seen(9, 1)])),
    ("acknowledged_commits_are_kept", members(commits=[commit(2)], looks=[seen(3, None)])),
    ("acknowledged_commits_are_kept", members(commits=[commit(2), commit(1)], looks=[seen(3, 1)])),
    (
        "acknowledged_commits_are_kept",
        members(commits=[commit(2, took_s=1)], looks=[seen(4, 1), seen(5, 2)]),
    ),
    ("every_record_is_delivered", members(got=[delivered(1)], is_drained=True)),
    ("every_record_is_delivered", members(is_drained=True)),
    ("after_the_faults_everything_moves_again", members(is_drained=False)),
    (
        "after_the_faults_everything_moves_again",
        members(got=[delivered(2)], looks=[seen(3, 1)], is_drained=False),
    ),
    ("members_meet_no_other_errors", GroupHistory(errors=["500"])),
    ("members_meet_no_other_errors", GroupHistory(errors=["INVALID_REQUEST", "404"])),
]
BROKEN = [(rule, grouped(group)) for rule, group in BROKEN_GROUPS]


@pytest.mark.parametrize(("rule", "history"), BROKEN)
def test_a_history_that_breaks_a_rule_is_reported(rule: str, history: History) -> None:
    found = violations(history)

    assert any(line.startswith(f"{rule}:") for line in found), found


LIBERTIES = [
    grouped(
        members(
            [told("m", 1), told("n", 2, at_s=9), told("m", 1, at_s=2)],
            # Its session had expired without a heartbeat, and it did not know.
            reads=[read("m", 0, 20, 2), read("n", 9, 15, 9), read("m", 15, 16, 15)],
            got=[delivered(2), delivered(2, at_s=10, generation=2)],
            commits=[commit(1), commit(2, at_s=12, acked=False), commit(2, 2, at_s=13)],
            looks=[seen(3, 1), seen(14, 2)],
            is_drained=True,
        )
    ),
    # A commit without an answer may or may not have happened.
    grouped(members(got=[delivered(2)], commits=[commit(2, acked=False)], looks=[seen(9, 2)])),
    grouped(members(got=[delivered(2)], commits=[commit(2, acked=False)], looks=[seen(9, None)])),
    # The commit was in progress during the look; two looks at once have no order.
    grouped(members(got=[delivered(2)], commits=[commit(2, took_s=3)], looks=[seen(4, 1)])),
    grouped(members(got=[delivered(2)], commits=[commit(2, at_s=9)], looks=[seen(4, 1)])),
    grouped(members(got=[delivered(2)], looks=[seen(4, 2), seen(5, 1, took_s=2)])),
    # A returning member continues at the committed offset; a new generation begins anywhere.
    grouped(members(got=[delivered(2), delivered(1, at_s=2), delivered(2, start=1, at_s=3)])),
    grouped(members(got=[delivered(1), delivered(3, start=2, at_s=2, generation=2)])),
    # Records deleted before any member joined need not be delivered.
    grouped(members(got=[delivered(2, start=1)], looks=[seen(4, 2)], is_drained=True), log_start=1),
]


@pytest.mark.parametrize("history", LIBERTIES)
def test_allowed_histories_break_no_rule(history: History) -> None:
    assert violations(history) == []


MOMENTS = st.integers(0, 12)


@given(
    st.lists(
        st.builds(read, st.sampled_from("mno"), MOMENTS, MOMENTS, MOMENTS), max_size=9, unique=True
    )
)
def test_two_owners_are_found_as_by_comparing_all_pairs(reads: list[Read]) -> None:
    group = members(reads=reads)
    problems = list(a_partition_moves_only_when_it_was_given_up(group, History()))

    assert [one for one in reads if any(p.startswith(f"{one} while") for p in problems)] == [
        other
        for other in reads
        if any(
            one.name != other.name
            and one.began_s <= other.began_s < one.ended_s
            and other.began_s < one.beaten_s + SESSION_S - 1e-6
            for one in reads
        )
    ]


@given(
    st.lists(st.builds(told, st.just("n"), st.integers(0, 5), MOMENTS), max_size=8),
    st.lists(st.builds(commit, st.just(1), st.integers(0, 5), at_s=MOMENTS), max_size=8),
)
def test_stale_commits_are_found_as_by_comparing_all_pairs(
    heard: list[Assigned], commits: list[Committing]
) -> None:
    group = members(heard, commits=commits)
    problems = list(stale_generations_are_refused(group, History()))

    assert [one for one in commits if any(p.startswith(f"{one} though") for p in problems)] == [
        one
        for one in commits
        if any(t.generation > one.generation and t.at_s < one.began_s for t in heard)
    ]


@given(
    st.lists(
        st.builds(
            delivered, st.integers(0, 8), start=st.integers(0, 8), at_s=MOMENTS, generation=MOMENTS
        ),
        max_size=8,
    ),
    st.lists(st.builds(seen, MOMENTS, st.integers(0, 9)), max_size=6),
)
def test_undelivered_offsets_are_found_as_by_comparing_all_pairs(
    got: list[Delivered], looks: list[Seen]
) -> None:
    """Each offset is reported once, for the first look that saw it committed."""
    group = members(got=got, looks=looks)

    def is_undelivered(offset: int) -> bool:
        return any(
            offset < look.offsets[0]
            and not any(offset in one.offsets and one.at_s <= look.at_s for one in got)
            for look in looks
        )

    problems = list(nothing_is_committed_that_was_not_delivered(group, History()))

    found = sorted(int(p.partition(", ")[2].partition(" ")[0]) for p in problems)
    assert found == [offset for offset in range(9) if is_undelivered(offset)]
