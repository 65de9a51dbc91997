"""Each rule of idempotent producers notices what breaks it, and nothing else."""

import pytest

from tests.checker.history import History, violations
from tests.checker.idempotent_rules import (
    ACKED,
    DUPLICATE,
    IDEMPOTENT_RULES,
    OUT_OF_ORDER,
    STALE,
    UNAVAILABLE,
    UNKNOWN,
    IdempotentHistory,
    Line,
    Sent,
)


def sent(
    sequence: int,
    answer: str | int,
    *,
    epoch: int = 0,
    count: int = 1,
    at_s: float = 0,
    producer: int = 2,
) -> Sent:
    """Return a copy that was answered with an offset, or otherwise."""
    base = answer if isinstance(answer, int) else None
    said = ACKED if isinstance(answer, int) else answer
    values = tuple(value(sequence + row, epoch, producer) for row in range(count))
    line = Line(producer, 0, epoch)
    return Sent(line, sequence, values, at_s, at_s + 1, said, base)


def value(number: int, epoch: int = 0, producer: int = 2) -> str:
    return f"{producer}/0/{epoch}/{number}"


def log(*values: str) -> list[tuple[int, str]]:
    return list(enumerate(values))


@pytest.mark.parametrize(
    ("rule", "copies", "records"),
    [
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
    ],
)
def test_a_broken_rule_is_noticed(
    rule: str, copies: list[Sent], records: list[tuple[int, str]]
) -> None:
    history = History(final={0: records}, idempotent=IdempotentHistory(sent=copies))
    found = violations(history)

    assert any(line.startswith(f"{rule}:") for line in found), found


@pytest.mark.parametrize(
    ("rule", "history"),
    [
        ("after_the_faults_all_is_written", IdempotentHistory(stuck=["2/0/0/0"])),
        ("producers_meet_no_other_errors", IdempotentHistory(errors=["500"])),
    ],
)
def test_what_producers_complain_of_is_noticed(rule: str, history: IdempotentHistory) -> None:
    assert any(line.startswith(f"{rule}:") for line in violations(History(idempotent=history)))


def test_what_may_happen_is_not_held_against_anyone() -> None:
    copies = [
        sent(0, UNKNOWN),
        sent(0, 0, at_s=2),
        sent(0, 0, at_s=3),
        # It overtook the one before it, and was sent again.
        sent(3, OUT_OF_ORDER),
        sent(1, 1, count=2, at_s=1),
        sent(3, 3, at_s=4),
        *(sent(n, n, at_s=n) for n in range(4, 9)),
        sent(0, DUPLICATE, at_s=20),
        # Given up, but written; then a new epoch, and someone who has not heard of it.
        sent(9, UNKNOWN, at_s=21),
        sent(10, UNKNOWN, at_s=21),
        sent(0, 10, epoch=1, at_s=22),
        sent(10, STALE, at_s=24),
        sent(9, 9, at_s=25),
    ]
    records = log(*(value(n) for n in range(10)), value(0, epoch=1))
    history = IdempotentHistory(sent=copies)

    assert [problem for rule in IDEMPOTENT_RULES for problem in rule(history, {0: records})] == []
