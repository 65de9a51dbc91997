"""Each rule of Connect reports the histories that break it, and no others."""

from dataclasses import replace

import pytest

from tests.checker.connect_history import (
    LETTERS,
    ConnectHistory,
    PositionChange,
    RunCommit,
    StateCall,
    StoredConnector,
    Taken,
    TaskChange,
)
from tests.checker.history import RULES, History, violations

SOURCE = StoredConnector("s", "source", "STARTED", (4,), "t")
PLAIN = StoredConnector("k", "plain", "STARTED", (), "t", {0: 3})
HOLDING = replace(PLAIN, kind="holding")
LOG = [(0, "s/0:0"), (1, "s/0:2?"), (2, "s/0:3")]
OF_SOURCE, OF_SINK = [(0, "s/0:1!")], [(0, "s/0:2?")]
FIRST, LAST = Taken("k", "t", 0, 0, "s/0:0", 1), Taken("k", "t", 0, 2, "s/0:3", 2)
BEGAN = RunCommit("s", 0, 1, 1, 1, 1, 0, "a")
THEN = RunCommit("s", 0, 1, 1, 2, 3, 0, "b")
NEXT = RunCommit("s", 0, 2, 2, 4, 5, 0, "c")
DOUBT = RunCommit("s", 0, 2, 2, 5, 6, None)
RUNS = (BEGAN, THEN, NEXT, DOUBT)
BEGINS = TaskChange(0.9, "s", 0, "a", 1)
WRITES = TaskChange(2.5, "s", 0, "b", 1)
FOLLOWS = TaskChange(4.5, "s", 0, "c", 2)
CHANGES = (BEGINS, WRITES, FOLLOWS)
PAUSE = StateCall(1, "s", "pause", 2.6, 2.8, 0)
RESUME = StateCall(1, "s", "resume", 4, 4.2, 0)
MOVED = PositionChange(1, "s", 0, 3)


def seen(
    *parts: object,
    log: list[tuple[int, str]] = LOG,
    of_source: list[tuple[int, str]] = OF_SOURCE,
    of_sink: list[tuple[int, str]] = OF_SINK,
) -> History:
    """Return a history of these records; what topics hold only matters to connectors that exist."""
    history = ConnectHistory(
        final={("t", 0): log, (LETTERS + "s", 0): of_source, (LETTERS + "k", 0): of_sink}
    )
    lists = {
        RunCommit: history.commits,
        TaskChange: history.changes,
        PositionChange: history.positions,
        StateCall: history.calls,
        Taken: history.taken,
        StoredConnector: history.connectors,
        str: history.errors,
    }
    for part in parts:
        lists[type(part)].append(part)  # type: ignore[index, attr-defined]
    return History(connect=history)


BROKEN = [
    ("sources_skip_and_repeat_nothing", seen(SOURCE, log=[*LOG, (3, "s/0:3")])),
    ("sources_skip_and_repeat_nothing", seen(SOURCE, log=[LOG[1], LOG[0], LOG[2]])),
    ("sources_skip_and_repeat_nothing", seen(SOURCE, log=[LOG[0], LOG[2]])),
    ("sources_skip_and_repeat_nothing", seen(SOURCE, of_source=[])),
    ("a_bad_record_has_one_dead_letter", seen(SOURCE, of_source=[*OF_SOURCE, (1, "s/0:1!")])),
    ("a_bad_record_has_one_dead_letter", seen(SOURCE, of_source=[*OF_SOURCE, (1, "s/0:0")])),
    ("a_bad_record_has_one_dead_letter", seen(SOURCE, log=[*LOG, (3, "s/0:1!")])),
    ("a_bad_record_has_one_dead_letter", seen(PLAIN, of_sink=[])),
    ("a_bad_record_has_one_dead_letter", seen(HOLDING, of_sink=[*OF_SINK, (1, "s/0:2?")])),
    ("committed_positions_never_go_back", seen(MOVED, replace(MOVED, number=2))),
    (
        "committed_positions_never_go_back",
        seen(MOVED, replace(MOVED, partition=1), replace(MOVED, at_s=2, number=0)),
    ),
    ("sinks_with_positions_have_each_record_once", seen(HOLDING, FIRST, FIRST, LAST)),
    ("sinks_with_positions_have_each_record_once", seen(HOLDING, LAST, FIRST)),
    ("sinks_with_positions_have_each_record_once", seen(HOLDING, LAST)),
    ("sinks_miss_nothing_before_what_is_committed", seen(PLAIN, FIRST)),
    ("sinks_miss_nothing_before_what_is_committed", seen(HOLDING, LAST)),
    ("sinks_take_only_what_is_in_the_log", seen(replace(FIRST, value="s/0:9"))),
    ("sinks_take_only_what_is_in_the_log", seen(replace(LAST, offset=7))),
    ("sinks_take_only_what_is_in_the_log", seen(replace(FIRST, offset=1, value="s/0:2?"))),
    ("one_run_commits_in_a_lease_epoch", seen(*RUNS, BEGINS, FOLLOWS, WRITES)),
    ("one_run_commits_in_a_lease_epoch", seen(*RUNS, BEGINS, replace(WRITES, epoch=2))),
    (
        "one_run_commits_in_a_lease_epoch",
        seen(BEGAN, replace(NEXT, epoch=1), BEGINS, replace(FOLLOWS, epoch=1)),
    ),
    ("what_was_answered_committed_is_in_the_table", seen(*RUNS, BEGINS, WRITES)),
    ("what_was_answered_committed_is_in_the_table", seen(THEN)),
    ("a_connector_that_rests_begins_nothing", seen(*CHANGES, PAUSE)),
    (
        "a_connector_that_rests_begins_nothing",
        seen(*CHANGES, replace(PAUSE, does="stop"), replace(RESUME, began_s=4.6, ended_s=5)),
    ),
    # A run that had begun, and does not end.
    ("a_connector_that_rests_begins_nothing", seen(BEGINS, replace(WRITES, at_s=100), PAUSE)),
    ("started_connectors_get_everything_through", seen(SOURCE, of_source=[])),
    ("started_connectors_get_everything_through", seen(SOURCE, log=LOG[:2])),
    ("started_connectors_get_everything_through", seen(PLAIN, FIRST)),
    ("started_connectors_get_everything_through", seen(HOLDING, FIRST, LAST, of_sink=[])),
    ("connectors_meet_no_other_errors", seen("a task failed")),
    ("connectors_meet_no_other_errors", seen("pause: 500", "resume: 400")),
]


@pytest.mark.parametrize(("rule", "broken"), BROKEN)
def test_a_broken_history_is_reported_by_its_rule(rule: str, broken: History) -> None:
    assert list(RULES[rule](broken))


GOOD = [
    seen(SOURCE, PLAIN, FIRST, LAST, *RUNS, *CHANGES, PAUSE, RESUME, MOVED),
    seen(HOLDING, FIRST, LAST),
    # It was read again after a crash.
    seen(PLAIN, FIRST, FIRST, LAST),
    # Those that rest need not have everything.
    seen(replace(SOURCE, target="PAUSED"), log=LOG[:2]),
    seen(replace(PLAIN, target="STOPPED", committed={0: 1}), FIRST, of_sink=[]),
    # A resume without an answer may have happened, and one that overlaps a pause may be the later.
    seen(*CHANGES, PAUSE, replace(RESUME, began_s=2.7, code=None)),
    seen(*CHANGES, PAUSE, replace(RESUME, began_s=1, ended_s=2.7)),
    # A run that had begun ends with a commit.
    seen(BEGINS, replace(WRITES, at_s=4), PAUSE),
    # A pause that was refused, or of another connector, or whose outcome nobody knows.
    seen(*CHANGES, replace(PAUSE, code=404), replace(PAUSE, connector="x")),
    seen(*CHANGES, replace(PAUSE, code=None)),
    # Runs of several tasks have leases of their own.
    seen(*RUNS, *CHANGES, replace(NEXT, task=1, token="d"), replace(FOLLOWS, task=1, token="d")),
]


@pytest.mark.parametrize("history", GOOD)
def test_what_may_happen_breaks_no_rule(history: History) -> None:
    assert violations(history) == []
