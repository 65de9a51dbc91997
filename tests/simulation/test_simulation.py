"""The whole log under faults, from seeds; `make sim SEEDS=…` runs more of them."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.idempotent_rules import ACKED, OUT_OF_ORDER, STALE, UNKNOWN
from tests.simulation.rules import Fetched, History, Produced, violations
from tests.simulation.simulator import simulate
from tests.simulation.transaction_rules import ABORTED, COMMITTED, FENCED

SEEDS = range(24)
SEED_OF_EVERYBODY = 8


@pytest.fixture(scope="module")
def histories() -> dict[int, History]:
    """What the seeds have shown so far."""
    return {}


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_is_broken(seed: int, histories: dict[int, History]) -> None:
    history, _ = simulate(seed)

    histories[seed] = history
    assert any(call.base is not None for call in history.produced), "the seed proves nothing"
    assert violations(history) == []


def test_the_seeds_have_groups_that_come_and_go(histories: dict[int, History]) -> None:
    groups = [history.group for history in histories.values()]

    assert max(len({told.generation for told in group.told}) for group in groups) > 20
    assert any(not commit.acked for group in groups for commit in group.commits)
    assert any(group.is_drained for group in groups)


def test_the_seeds_have_producers_that_do_not_know(histories: dict[int, History]) -> None:
    answers = Counter(
        sent.answer for history in histories.values() for sent in history.idempotent.sent
    )

    assert all(answers[answer] for answer in (ACKED, UNKNOWN, OUT_OF_ORDER, STALE)), answers


def test_the_seeds_have_transactions_that_end_in_every_way(histories: dict[int, History]) -> None:
    ends = Counter(
        ending.answer for history in histories.values() for ending in history.transactions.endings
    )

    assert all(ends[answer] for answer in (COMMITTED, ABORTED, FENCED, UNKNOWN)), ends


def test_the_same_seed_gives_the_same_run_in_any_process() -> None:
    command = [sys.executable, "-m", "tests.simulation.simulator"]
    other = subprocess.run(
        [*command, "--seed", str(SEED_OF_EVERYBODY)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )

    _, trace = simulate(SEED_OF_EVERYBODY)

    assert other.stdout.splitlines()[:-1] == trace


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
