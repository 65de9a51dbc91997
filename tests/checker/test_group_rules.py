"""Each rule of groups notices what breaks it, and nothing else."""

import pytest

from tests.checker.group_rules import (
    GROUP_RULES,
    Committing,
    Delivered,
    GroupHistory,
    Read,
    Seen,
    Told,
)
from tests.checker.history import History, violations

SESSION_S = 6.0
LOG = {0: [(0, "a"), (1, "b")]}


def told(name: str, generation: int, at_s: float = 1) -> Told:
    return Told(name, generation, (0,), at_s, at_s)


def read(name: str, began_s: float, ended_s: float, beaten_s: float) -> Read:
    return Read(name, 0, began_s, ended_s, beaten_s)


def delivered(end: int, at_s: float = 1, generation: int = 1) -> Delivered:
    return Delivered("m", generation, 0, range(end), at_s, at_s)


def commit(offset: int, generation: int = 1, at_s: float = 2, *, acked: bool = True) -> Committing:
    return Committing("m", generation, 0, offset, at_s, acked)


@pytest.mark.parametrize(
    ("rule", "group"),
    [
        ("one_owner_per_partition_per_generation", GroupHistory(told=[told("m", 1), told("n", 1)])),
        (
            "a_partition_moves_only_when_it_was_given_up",
            GroupHistory(reads=[read("m", 0, 9, 2), read("n", 7, 8, 7)], session_s=SESSION_S),
        ),
        (
            "stale_generations_are_refused",
            GroupHistory(told=[told("n", 2)], commits=[commit(1)]),
        ),
        (
            "stale_generations_are_refused",
            GroupHistory(told=[told("n", 2)], delivered=[delivered(1, at_s=2)]),
        ),
        (
            "nothing_is_committed_that_was_not_delivered",
            GroupHistory(delivered=[delivered(1)], seen=[Seen(2, {0: 2})]),
        ),
        ("committed_offsets_never_go_back", GroupHistory(seen=[Seen(2, {0: 2}), Seen(3, {0: 1})])),
        ("committed_offsets_never_go_back", GroupHistory(seen=[Seen(2, {0: 2}), Seen(3, {})])),
        ("acknowledged_commits_are_kept", GroupHistory(commits=[commit(2)], seen=[Seen(3, {})])),
        ("every_record_is_delivered", GroupHistory(delivered=[delivered(1)], is_drained=True)),
        ("after_the_faults_everything_moves_again", GroupHistory(is_drained=False)),
        ("members_meet_no_other_errors", GroupHistory(errors=["500"])),
    ],
)
def test_a_broken_rule_is_noticed(rule: str, group: GroupHistory) -> None:
    found = violations(History(final=LOG, group=group))

    assert any(line.startswith(f"{rule}:") for line in found), found


def test_what_may_happen_is_not_held_against_anyone() -> None:
    group = GroupHistory(
        session_s=SESSION_S,
        told=[told("m", 1), told("n", 2, at_s=9), told("m", 1, at_s=2)],
        # It had been silent for a session, and did not know that it was over.
        reads=[read("m", 0, 20, 2), read("n", 9, 15, 9)],
        delivered=[delivered(2), delivered(2, at_s=10, generation=2)],
        commits=[commit(1), commit(2, at_s=12, acked=False), commit(2, generation=2, at_s=13)],
        seen=[Seen(3, {0: 1}), Seen(14, {0: 2})],
        is_drained=True,
    )

    assert [problem for rule in GROUP_RULES for problem in rule(group, LOG)] == []
