"""The whole service under faults, from seeds; `make sim SEEDS=…` runs more of them."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.checker.history import violations
from tests.simulation import judging
from tests.simulation.judging import ENOUGH_SEEDS, WANTED, Result, judge, met_in, unmet
from tests.simulation.simulator import run
from tests.torture.sizes import FULL

SEEDS = range(200, 205)
"""`.ci/run` runs those below 200."""

SEEDS_TO_REPEAT = (34, 47) if FULL else (34,)
"""Several zones, jobs, and gateways that die and stand still."""

TOLD = f"""
import json, logging
from tests.simulation.judging import met_in
from tests.simulation.simulator import run
logging.disable(logging.CRITICAL)
simulations = map(run, {SEEDS_TO_REPEAT})
print(json.dumps([[each.trace, dict(met_in(each))] for each in simulations]))
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_is_broken(seed: int) -> None:
    result = judge(seed)

    assert result.wrong == [], result.shown_by
    assert result.met["log: acknowledged calls"], "the seed proves nothing"


def test_the_same_seed_gives_the_same_run_and_counts_in_any_process() -> None:
    first, second = (runs_with_hash_seed(seed) for seed in "12")
    here = run(SEEDS_TO_REPEAT[0])

    assert first == second
    assert first[0] == [here.trace, dict(met_in(here))]
    assert all(len(trace) > 100 for trace, _ in first)


def runs_with_hash_seed(seed: str) -> list[tuple[list[str], dict[str, int]]]:
    """Return traces and counts from a process in which sets have an order of their own."""
    done = subprocess.run(
        [sys.executable, "-c", TOLD],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[tuple[list[str], dict[str, int]]] = json.loads(done.stdout)
    return found


def result_of(met: dict[str, int]) -> Result:
    return Result(1, [], "", Counter(met), 0.0)


def test_seeds_that_meet_too_little_are_called_so() -> None:
    everything = result_of(dict(WANTED))
    assert unmet([everything]) == []

    without = result_of(dict(WANTED, **{"trouble: kill": WANTED["trouble: kill"] - 1}))
    assert unmet([without]) == ["trouble: kill"]
    assert unmet([without, result_of({"trouble: kill": 1})]) == []


def test_a_run_that_breaks_off_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(*_: object) -> object:
        raise RuntimeError("everybody waits")

    monkeypatch.setattr(judging, "run", break_off)

    result = judge(3)

    assert (result.seed, len(result.wrong)) == (3, 1)
    assert "everybody waits" in result.wrong[0]
    assert "break_off" in result.shown_by


def test_a_fault_is_reported_with_its_seed_and_the_smallest_history() -> None:
    simulation = run(9)
    lost = next(call for call in simulation.history.produced if call.base is not None)
    log = simulation.history.final[lost.partition]
    simulation.history.final[lost.partition] = [r for r in log if r[0] != lost.base]

    wrong = violations(simulation.history)
    result = judging.judged(simulation)

    assert result.wrong == wrong
    assert wrong
    # The call that was acknowledged, and the log that lacks it.
    assert 0 < len(result.shown_by.splitlines()) <= 4
    assert ENOUGH_SEEDS <= 200
