"""Each rule of idempotent producers reports the histories that break it, and no others."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checker.history import History, violations
from tests.checker.idempotent_rules import (
    ACKED,
    DUPLICATE,
    OUT_OF_ORDER,
    REMEMBERED,
    STALE,
    UNAVAILABLE,
    UNKNOWN,
    IdempotentHistory,
    Line,
    Sent,
    stale_epochs_are_refused,
    the_last_five_batches_are_remembered,
    who_keeps_the_order_is_not_refused,
)
from tests.checker.log_rules import Fetched, LogHistory, Produced


def sent(
    sequence: int,
    answer: str | int,
    *,
    epoch: int = 0,
    count: int = 1,
    at_s: float = 0,
    producer: int = 2,
) -> Sent:
    """Return a copy of a request with its answer: an offset, or another answer."""
    base = answer if isinstance(answer, int) else None
    said = ACKED if isinstance(answer, int) else answer
    values = tuple(value(sequence + row, epoch, producer) for row in range(count))
    line = Line(producer, 0, epoch)
    return Sent(line, sequence, values, at_s, at_s + 1, said, base)


def value(number: int, epoch: int = 0, producer: int = 2) -> str:
    return f"{producer}/0/{epoch}/{number}"


def log(*values: str) -> list[tuple[int, str]]:
    return list(enumerate(values))


BROKEN_COPIES = [
    ("idempotent_sequences_appear_once", [sent(0, 0)], log(value(0), value(0))),
    (
        "idempotent_sequences_appear_once",
        [sent(0, 0), sent(1, UNKNOWN), sent(1, 2, at_s=3)],
        log(value(0), value(1), value(1)),
    ),
    (
        "a_producers_numbers_are_in_order_and_without_gaps",
        [sent(0, 1), sent(1, 0)],
        log(value(1), value(0)),
    ),
    (
        "a_producers_numbers_are_in_order_and_without_gaps",
        [sent(0, 0), sent(1, UNAVAILABLE), sent(2, 1)],
        log(value(0), value(2)),
    ),
    (
        "a_producers_numbers_are_in_order_and_without_gaps",
        [sent(0, 0, epoch=1), sent(0, 1)],
        log(value(0, 1), value(0)),
    ),
    ("acknowledged_batches_are_where_they_were_said_to_be", [sent(0, 0)], log()),
    (
        "acknowledged_batches_are_where_they_were_said_to_be",
        [sent(0, 0), sent(0, 1, at_s=2)],
        log(value(0), "other"),
    ),
    ("refused_batches_are_not_written", [sent(0, OUT_OF_ORDER)], log(value(0))),
    (
        "refused_batches_are_not_written",
        [sent(0, UNAVAILABLE), sent(0, STALE, at_s=2), sent(0, 0, epoch=1)],
        log(value(0), value(0, 1)),
    ),
    ("what_is_called_a_duplicate_is_in_the_log", [sent(0, DUPLICATE)], log()),
    (
        "what_is_called_a_duplicate_is_in_the_log",
        [sent(0, 0), sent(0, DUPLICATE, count=2)],
        log(value(0)),
    ),
    (
        "the_last_five_batches_are_remembered",
        [sent(0, 0), sent(1, 1), sent(0, DUPLICATE, at_s=5)],
        log(value(0), value(1)),
    ),
    (
        "the_last_five_batches_are_remembered",
        [sent(0, 0), sent(0, DUPLICATE, at_s=5), *(sent(n, n, at_s=9) for n in range(1, 7))],
        log(*(value(n) for n in range(7))),
    ),
    (
        "stale_epochs_are_refused",
        [sent(0, 0, epoch=1), sent(0, 1, at_s=2)],
        log(value(0, 1), value(0)),
    ),
    (
        "stale_epochs_are_refused",
        [sent(0, 0), sent(0, 1, epoch=3), sent(1, 2, epoch=3), sent(1, 3, at_s=4)],
        log(value(0), value(0, 3), value(1, 3), value(1)),
    ),
    ("who_keeps_the_order_is_not_refused", [sent(0, OUT_OF_ORDER)], log()),
    (
        "who_keeps_the_order_is_not_refused",
        [sent(0, 0), sent(1, OUT_OF_ORDER, at_s=2)],
        log(value(0)),
    ),
    (
        "who_keeps_the_order_is_not_refused",
        [sent(0, STALE, epoch=1), sent(0, 0, epoch=2, at_s=4)],
        log(value(0, 2)),
    ),
    (
        "a_producers_numbers_are_in_order_and_without_gaps",
        [sent(1, UNKNOWN)],
        log(value(1)),
    ),
    (
        "who_keeps_the_order_is_not_refused",
        [sent(0, 0), sent(0, STALE, epoch=1, at_s=3), sent(0, UNKNOWN, epoch=2, at_s=5)],
        log(value(0)),
    ),
]


def judged(copies: list[Sent], records: list[tuple[int, str]], log_start: int = 0) -> History:
    """Return the history in which each batch is also a call, of a client of its own."""
    calls: dict[tuple[str, ...], Produced] = {}
    for number, one in enumerate(copies):
        may_be = one.answer in {UNKNOWN, DUPLICATE}
        before = calls.get(one.values)
        if before is None or (before.base is None and (one.base is not None or may_be)):
            # Any copy may have written the batch, so the call begins with the first one.
            began_s = min(copy.began_s for copy in copies if copy.values == one.values)
            calls[one.values] = Produced(
                number, 0, one.values, began_s, one.ended_s, one.base, may_be
            )
    return History(
        list(calls.values()),
        final={0: records[log_start:]},
        log_starts={0: log_start} if log_start else {},
        idempotent=IdempotentHistory(sent=copies),
    )


BROKEN = [
    *((rule, judged(copies, records)) for rule, copies, records in BROKEN_COPIES),
    # Read at two offsets, one of them deleted later; and read at an offset other than acked.
    (
        "idempotent_sequences_appear_once",
        replace(
            judged([sent(0, 1)], log("x", value(0)), log_start=1),
            fetched=[Fetched(0, 0, 0, 5, ((0, value(0)),), 1, 2, False)],
        ),
    ),
    (
        "acknowledged_batches_are_where_they_were_said_to_be",
        replace(
            judged([sent(0, 0)], log("x", "y"), log_start=1),
            fetched=[Fetched(0, 0, 0, 5, ((0, "x"),), 1, 2, False)],
        ),
    ),
    (
        "a_producers_numbers_are_in_order_and_without_gaps",
        judged([sent(1, 1), sent(3, 2)], log(value(0), value(1), value(3)), log_start=1),
    ),
    *(
        (rule, History(idempotent=IdempotentHistory(stuck=stuck, errors=errors)))
        for rule, stuck, errors in (
            ("after_the_faults_all_is_written", ["2/0/0/0"], []),
            ("after_the_faults_all_is_written", ["2/0/0/0", "2/0/0/1"], []),
            ("producers_meet_no_other_errors", [], ["500"]),
            ("producers_meet_no_other_errors", [], ["404", "INVALID_REQUEST"]),
        )
    ),
]


@pytest.mark.parametrize(("rule", "history"), BROKEN)
def test_a_history_that_breaks_a_rule_is_reported(rule: str, history: History) -> None:
    found = violations(history)

    assert any(line.startswith(f"{rule}:") for line in found), found


def test_an_allowed_history_breaks_no_rule() -> None:
    copies = [
        sent(0, UNKNOWN),
        sent(0, 0, at_s=2),
        sent(0, 0, at_s=3),
        # This copy overtook the batch before it, and was retried.
        sent(3, OUT_OF_ORDER),
        sent(1, 1, count=2, at_s=1),
        sent(3, 3, at_s=4),
        *(sent(n, n, at_s=n) for n in range(4, 9)),
        sent(0, DUPLICATE, at_s=20),
        # Given up, but written; then a new epoch, and copies of the old one.
        sent(9, UNKNOWN, at_s=21),
        sent(10, UNKNOWN, at_s=21),
        sent(0, 10, epoch=1, at_s=22),
        sent(10, STALE, at_s=24),
        sent(9, 9, at_s=25),
    ]
    records = log(*(value(n) for n in range(10)), value(0, epoch=1))

    assert violations(judged(copies, records)) == []
    # The same with deleted records: the original of a duplicate may be deleted.
    assert violations(judged(copies, records, log_start=5)) == []


def test_a_batch_with_an_unknown_outcome_may_or_may_not_be_in_the_log() -> None:
    copies = [sent(0, UNKNOWN), sent(1, OUT_OF_ORDER, at_s=2)]

    assert violations(judged(copies, log())) == []
    assert violations(judged([sent(0, UNKNOWN), sent(0, UNAVAILABLE)], log(value(0)))) == []


@given(
    st.lists(
        st.builds(
            sent,
            st.integers(0, 8),
            st.sampled_from([DUPLICATE, STALE, OUT_OF_ORDER, ACKED]) | st.integers(0, 9),
            epoch=st.integers(0, 4),
            at_s=st.integers(0, 9),
        ),
        max_size=25,
    )
)
def test_fast_rules_report_the_same_copies_as_comparing_all_pairs(copies: list[Sent]) -> None:
    """The definition of each rule compares all copies with all others."""
    history = judged(copies, [])

    assert blamed(stale_epochs_are_refused, history) == [
        one for one in copies if any(is_after(one, other, copies) for other in copies)
    ]
    assert blamed(the_last_five_batches_are_remembered, history) == [
        one for one in copies if one.answer == DUPLICATE and len(behind(one, copies)) < REMEMBERED
    ]
    assert blamed(who_keeps_the_order_is_not_refused, history) == [
        one
        for one in copies
        if not is_outdated(one, copies)
        and (one.answer == STALE or (one.answer == OUT_OF_ORDER and is_next(one, copies)))
    ]


def is_after(one: Sent, newer: Sent, copies: list[Sent]) -> bool:
    if one.base is None or newer.base is None or newer.line.epoch <= one.line.epoch:
        return False
    bases = [c.base for c in copies if c.line == newer.line and c.base is not None]
    return newer.ended_s < one.began_s and one.base > min(bases)


def behind(one: Sent, copies: list[Sent]) -> set[int]:
    of_line = [c for c in copies if c.line == one.line and c.began_s < one.ended_s]
    return {c.sequence for c in of_line if c.sequence > one.sequence}


def is_outdated(one: Sent, copies: list[Sent]) -> bool:
    return any(c.line.epoch > one.line.epoch and c.began_s < one.ended_s for c in copies)


def is_next(one: Sent, copies: list[Sent]) -> bool:
    before = [c for c in copies if c.line == one.line and c.end == one.sequence]
    acked = [c.ended_s for c in before if c.answer in {ACKED, DUPLICATE}]
    return not one.sequence or any(ended_s < one.began_s for ended_s in acked)


def blamed(
    rule: Callable[[IdempotentHistory, LogHistory], Iterator[str]], history: History
) -> list[Sent]:
    problems = list(rule(history.idempotent, history))
    sent = history.idempotent.sent
    return [one for one in sent if any(p.startswith(str(one)) for p in problems)]
