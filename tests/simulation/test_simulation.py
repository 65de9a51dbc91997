"""The whole log under faults, from seeds; `make sim SEEDS=…` runs more of them."""

import os
import subprocess
import sys
from functools import cache

import pytest

from tests.checker import idempotent_rules
from tests.checker.history import History, violations
from tests.checker.transaction_rules import (
    ABORTED,
    COMMITTED,
    FENCED,
    OUTDATED,
    REFUSED,
    UNKNOWN,
)
from tests.simulation.simulator import simulate

SEED_OF_A_COPIER_THAT_SLEEPS = 60
"""Another copies what it has read, before it wakes up."""
SEEDS_OF_JOBS_THAT_ARE_REPLACED = (25, 30, 31, 40, 49, 58, 59)
"""They sleep for longer than their leases last."""
SEEDS = (*range(24), *SEEDS_OF_JOBS_THAT_ARE_REPLACED, SEED_OF_A_COPIER_THAT_SLEEPS)
SEED_OF_EVERYBODY = 8


@cache
def run(seed: int) -> tuple[History, list[str]]:
    return simulate(seed)


def histories() -> list[History]:
    return [run(seed)[0] for seed in SEEDS]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_is_broken(seed: int) -> None:
    history, _ = run(seed)

    assert any(call.base is not None for call in history.produced), "the seed proves nothing"
    assert violations(history) == []


def test_the_seeds_have_groups_that_come_and_go() -> None:
    groups = [history.group for history in histories()]

    assert max(len({told.generation for told in group.told}) for group in groups) > 20
    assert any(not commit.acked for group in groups for commit in group.commits)
    assert any(group.is_drained for group in groups)


def test_the_seeds_have_producers_that_are_told_everything() -> None:
    answers = {sent.answer for history in histories() for sent in history.idempotent.sent}

    assert answers >= {
        idempotent_rules.ACKED,
        idempotent_rules.UNKNOWN,
        idempotent_rules.OUT_OF_ORDER,
        idempotent_rules.STALE,
    }


def test_the_seeds_have_transactions_that_end_in_every_way() -> None:
    ends = {ending.answer for history in histories() for ending in history.transactions.endings}

    assert ends >= {COMMITTED, ABORTED, FENCED, OUTDATED, REFUSED, UNKNOWN}


def test_the_seeds_have_janitors_that_meet_everything() -> None:
    keyed = [history.keyed for history in histories()]

    assert sum(each.compacted for each in keyed) > 100
    assert sum(each.swept for each in keyed) > 100
    assert sum(each.killed for each in keyed) > 50
    assert sum(each.lost_leases for each in keyed) > 10
    records = [record for each in keyed for look in each.looks for record in look.records]
    assert any(record.value is None for record in records)
    # Readers come by what was compacted, and by what was not yet.
    sparse = [len(look.records) < look.next_offset - look.asked for k in keyed for look in k.looks]
    assert {True, False} == set(sparse)


def test_the_seeds_have_batches_in_the_table() -> None:
    assert sum(history.batches > 0 for history in histories()) > 10
    assert any(history.batches == 0 for history in histories())
    assert sum(history.batches for history in histories()) > 500
    assert sum(history.keyed.swept_batches for history in histories()) > 20


def test_the_same_seed_gives_the_same_run_in_any_process() -> None:
    command = [sys.executable, "-m", "tests.simulation.simulator"]
    other = subprocess.run(
        [*command, "--seed", str(SEED_OF_EVERYBODY)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )

    _, trace = run(SEED_OF_EVERYBODY)

    assert other.stdout.splitlines()[:-1] == trace
