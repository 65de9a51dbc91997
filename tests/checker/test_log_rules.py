"""Each rule of the log notices what breaks it, and nothing else."""

import pytest

from tests.checker.history import History, violations
from tests.checker.log_rules import Fetched, Produced


def produced(value: str, base: int | None, *, at_s: float = 0, maybe: bool = False) -> Produced:
    return Produced(0, 0, (value,), at_s, at_s + 1, base, maybe)


def fetched(offset: int, *values: tuple[int, str], at_s: float = 5, watermark: int = 0) -> Fetched:
    end = values[-1][0] + 1 if values else offset
    return Fetched(0, 0, offset, at_s, values, end, watermark, waited=False)


A, B = (0, "a"), (1, "b")
ACKED = [produced("a", 0), produced("b", 1, at_s=2)]


@pytest.mark.parametrize(
    ("rule", "history"),
    [
        ("acked_records_are_at_their_offset", History(ACKED, [], {0: [A]})),
        ("acked_records_are_at_their_offset", History(ACKED, [], {0: [(0, "b"), (1, "a")]})),
        ("one_offset_one_value", History(ACKED, [fetched(0, (0, "b"))], {0: [A, B]})),
        ("one_offset_one_value", History([], [fetched(0, A)], {0: []})),
        ("offsets_are_dense", History(ACKED, [], {0: [A, (2, "b")]})),
        ("offsets_are_dense", History(ACKED, [], {0: [(1, "a"), (2, "b")]})),
        ("nothing_appears_twice", History(ACKED, [], {0: [A, B, (2, "a")]})),
        ("nothing_appears_twice", History(ACKED, [], {0: [A, B], 1: [A]})),
        ("nothing_comes_from_nowhere", History([produced("a", None)], [], {0: [A]})),
        ("nothing_comes_from_nowhere", History(ACKED, [], {0: [A, B, (2, "c")]})),
        ("a_producers_order_holds", History(ACKED, [], {0: [(0, "b"), (1, "a")]})),
        (
            "a_producers_order_holds",
            History(
                [produced("a", None, maybe=True), produced("b", 0)], [], {0: [(0, "b"), (1, "a")]}
            ),
        ),
        ("reads_see_what_was_acked_before", History(ACKED, [fetched(1, watermark=1)], {0: [A, B]})),
        ("reads_see_what_was_acked_before", History(ACKED, [fetched(0)], {0: [A, B]})),
        ("readers_skip_nothing", History(ACKED, [fetched(0, B)], {0: [A, B]})),
        ("readers_skip_nothing", History(ACKED, [fetched(0, A, A)], {0: [A, B]})),
    ],
)
def test_a_broken_rule_is_noticed(rule: str, history: History) -> None:
    assert any(line.startswith(f"{rule}:") for line in violations(history))


def test_an_unknown_outcome_may_go_either_way() -> None:
    call = produced("a", None, maybe=True)

    assert violations(History([call], [], {0: [A]})) == []
    assert violations(History([call], [], {0: []})) == []
