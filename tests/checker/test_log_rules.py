"""Each rule of the log reports the histories that break it, and no others."""

from dataclasses import replace

import pytest

from tests.checker.history import History, violations
from tests.checker.log_rules import VIEW_AGE_S, Fetched, Produced


def produced(
    value: str, base: int | None, *, at_s: float = 0, maybe: bool = False, client: int = 0
) -> Produced:
    return Produced(client, 0, (value,), at_s, at_s + 1, base, maybe)


def fetched(
    offset: int,
    *values: tuple[int, str],
    at_s: float = 5,
    watermark: int = 2,
    start: int = 0,
    end: int | None = None,
) -> Fetched:
    if end is None:
        end = values[-1][0] + 1 if values else offset
    return Fetched(7, 0, offset, at_s, values, end, watermark, False, at_s + 1, start)


A, B, C = (0, "a"), (1, "b"), (2, "c")
ACKED = [produced("a", 0), produced("b", 1, at_s=2)]
MAYBE = produced("a", None, maybe=True)
THIRD = produced("c", 2, at_s=20)
LOG = {0: [A, B]}

BROKEN = [
    ("acked_records_are_at_their_offset", History(ACKED, [], {0: [A]})),
    ("acked_records_are_at_their_offset", History(ACKED, [], {0: [(0, "b"), (1, "a")]})),
    ("acked_records_are_at_their_offset", History(ACKED, [], {})),
    ("acked_records_are_at_their_offset", History(ACKED, [], {0: []}, {0: 1})),
    ("one_offset_one_value", History(ACKED, [fetched(0, (0, "b"))], LOG)),
    ("one_offset_one_value", History(ACKED, [], {0: [A, (1, "c")]})),
    # All reads of a record that was deleted later must agree, too.
    ("one_offset_one_value", History(ACKED, [fetched(0, (0, "c"))], {0: [B]}, {0: 1})),
    ("one_offset_one_value", History([], [fetched(0, A), fetched(0, (0, "b"))])),
    ("one_offset_one_value", History([produced("a", 0), produced("b", 0)])),
    ("what_was_read_stays", History([], [fetched(0, A)], {0: []})),
    ("what_was_read_stays", History(ACKED, [fetched(0, A, B)], {0: [A]})),
    ("what_was_read_stays", History(ACKED, [fetched(0, A, B)], {0: []}, {0: 1})),
    ("offsets_are_dense", History(ACKED, [], {0: [A, (2, "b")]})),
    ("offsets_are_dense", History(ACKED, [], {0: [(1, "a"), (2, "b")]})),
    ("offsets_are_dense", History(ACKED, [], {0: [(5, "a")]}, {0: 4})),
    ("nothing_appears_twice", History(ACKED, [], {0: [A, B, (2, "a")]})),
    ("nothing_appears_twice", History(ACKED, [], {0: [A, B], 1: [A]})),
    ("nothing_appears_twice", History(ACKED, [fetched(2, (2, "a"))], {0: []}, {0: 3})),
    ("nothing_comes_from_nowhere", History([produced("a", None)], [], {0: [A]})),
    ("nothing_comes_from_nowhere", History(ACKED, [], {0: [A, B, C]})),
    ("nothing_comes_from_nowhere", History([produced("a", None)], [fetched(0, A)])),
    ("nothing_comes_from_nowhere", History(ACKED, [], {0: [A, B], 1: [(0, "b")]})),
    ("nothing_is_read_before_it_was_sent", History([produced("a", 0, at_s=9)], [fetched(0, A)])),
    (
        "nothing_is_read_before_it_was_sent",
        History([produced("b", None, at_s=6.5, maybe=True)], [fetched(0, A, B)]),
    ),
    ("a_producers_order_holds", History(ACKED, [], {0: [(0, "b"), (1, "a")]})),
    # Calls with an unknown outcome cannot come before earlier acked ones, nor in reverse order.
    (
        "a_producers_order_holds",
        History([produced("b", 1), produced("a", None, at_s=2, maybe=True)], [], LOG),
    ),
    (
        "a_producers_order_holds",
        History(
            [produced("b", 2), produced("a", None, at_s=2, maybe=True)], [fetched(1, (1, "a"))]
        ),
    ),
    (
        "a_producers_order_holds",
        History([Produced(0, 0, ("b", "a"), 0, 1, None, True)], [fetched(0, A, B)]),
    ),
    (
        "appends_keep_the_order_of_time",
        History([produced("b", 1), produced("a", 0, at_s=2, client=1)], [], LOG),
    ),
    # It may have been written after it was sent, but not before.
    (
        "appends_keep_the_order_of_time",
        History([produced("b", 1), produced("a", None, at_s=2, client=1, maybe=True)], [], LOG),
    ),
    ("reads_see_what_was_acked_before", History(ACKED, [fetched(1, watermark=1)], LOG)),
    ("reads_see_what_was_acked_before", History(ACKED, [fetched(0, watermark=0)], LOG)),
    # The fetch claims to be at the end.
    ("reads_see_what_was_acked_before", History(ACKED, [fetched(0, A, watermark=1)], LOG)),
    (
        "high_watermarks_never_go_back",
        History([], [fetched(2), fetched(0, A, at_s=9, watermark=1)]),
    ),
    (
        "high_watermarks_never_go_back",
        History([], [fetched(0, A), fetched(0, A, at_s=6.1 + VIEW_AGE_S, watermark=1)]),
    ),
    ("high_watermarks_never_go_back", History(ACKED, [fetched(0, at_s=5, watermark=1)])),
    ("high_watermarks_never_go_back", History([], [fetched(2, watermark=3)], LOG)),
    ("log_starts_never_go_back", History([], [fetched(2, start=1), fetched(2, at_s=7)])),
    ("log_starts_never_go_back", History([], [fetched(2, start=2)], LOG, {0: 1})),
    ("log_starts_never_go_back", History([], [fetched(2, start=1)], LOG)),
    ("a_fetch_stays_within_the_log", History(ACKED, [fetched(0, A, B, watermark=1)], LOG)),
    ("a_fetch_stays_within_the_log", History(ACKED, [fetched(0, A, end=3)], LOG)),
    ("a_fetch_stays_within_the_log", History(ACKED, [fetched(2, start=3)], LOG)),
    ("readers_skip_nothing", History(ACKED, [fetched(0, B)], LOG)),
    ("readers_skip_nothing", History(ACKED, [fetched(0, A, A)], LOG)),
    ("readers_skip_nothing", History(ACKED, [fetched(0, A, end=2)], LOG)),
    ("readers_skip_nothing", History(ACKED, [fetched(0, end=1)], LOG)),
    ("readers_skip_nothing", History(ACKED, [fetched(0, (2, "c"), start=1)], LOG)),
    ("a_reader_passes_over_nothing", History(ACKED, [fetched(0, end=0), fetched(1, B)], LOG)),
    (
        "a_reader_passes_over_nothing",
        History(ACKED, [fetched(0, A), fetched(0, A), fetched(2)], LOG, {0: 1}),
    ),
]

LIBERTIES = [
    History([MAYBE], [], {0: [A]}),
    History([MAYBE], [], {0: []}),
    History([MAYBE, produced("b", 0, at_s=2)], [], {0: [(0, "b")]}),
    History([MAYBE, produced("b", 1, at_s=2)], [fetched(0, A, B)], LOG),
    # Given up, and written after the next call.
    History([MAYBE, produced("b", 0, at_s=2)], [], {0: [(0, "b"), (1, "a")]}),
    # It failed at first, and was retried.
    History([produced("a", None), produced("a", 0, at_s=2)], [], {0: [A]}),
    # Records were deleted: readers read them before, come too late, or begin at the log start.
    History(ACKED, [fetched(0, A)], {0: [B]}, {0: 1}),
    History(ACKED, [fetched(0, A), fetched(2, start=2, at_s=8)], {0: []}, {0: 2}),
    History(ACKED, [fetched(0, B, start=1)], {0: [B]}, {0: 1}),
    History(ACKED, [], LOG, {0: 1}),
    # A reader before the end may get a slightly old high watermark, and so may a concurrent
    # reader.
    History([*ACKED, THIRD], [fetched(0, A, at_s=21.5)], {0: [A, B, C]}),
    History([], [fetched(2), fetched(1, at_s=5.5, watermark=1)], {0: [A, B]}),
    # Readers seek back and read again.
    History(ACKED, [fetched(0, A), fetched(1, B), fetched(0, A, B), fetched(2)], LOG),
    # Concurrent calls of different clients have no order. A call with an unknown outcome may
    # happen much later.
    History([produced("b", 1), produced("a", 0, at_s=0.5, client=1)], [], LOG),
    History([produced("b", None, maybe=True), produced("a", 0, at_s=2, client=1)], [], LOG),
]


@pytest.mark.parametrize(("rule", "history"), BROKEN)
def test_a_history_that_breaks_a_rule_is_reported(rule: str, history: History) -> None:
    found = violations(history)

    assert any(line.startswith(f"{rule}:") for line in found), found


@pytest.mark.parametrize("history", LIBERTIES)
def test_allowed_histories_break_no_rule(history: History) -> None:
    sent = {value for call in history.produced for value in call.values}
    rest = [v for records in history.final.values() for _, v in records if v not in sent]
    others = [produced(value, None, maybe=True, client=9) for value in rest]

    assert violations(replace(history, produced=[*history.produced, *others])) == []


def test_a_missing_record_is_reported_with_its_neighbours_in_the_log() -> None:
    gone = History([produced("b", 1)], [], {0: [A, C]})
    cut = History([produced("b", 1)], [], {0: [A]})
    unread = History([produced("b", 1)])

    words = [violations(history)[0].partition(", where ")[2] for history in (gone, cut, unread)]

    assert words == [
        "there is nothing between 0 and 2",
        "there is nothing: 0 ends behind 0",
        "there is nothing: 0 was not read back",
    ]


def test_a_refused_value_and_one_never_sent_are_reported_differently() -> None:
    [refused] = violations(History([produced("a", None)], [], {0: [A]}))
    [unsent] = violations(History([], [], {0: [A]}))

    assert refused.endswith("was refused as not written")
    assert unsent.endswith("was never sent there")
