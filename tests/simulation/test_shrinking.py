"""Failing runs are shrunk to what they need, and what is left is replayed exactly."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.simulation import judging
from tests.simulation.cuts import JANITOR_PARTS, PARTS, WHOLE, Cut
from tests.simulation.judging import judge, judge_and_shrink
from tests.simulation.shrinking import shrunk
from tests.simulation.simulator import Simulation, run
from tests.simulation.trouble import KINDS

SEED = 394
"""A short run with seven events, of which two are kills."""

A_DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def what_was_imported_is_no_garbage() -> Iterator[None]:
    """Every try looks for garbage first; not in all that the suite has loaded, though."""
    gc.freeze()
    yield
    gc.unfreeze()


def plant_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run fail in which a gateway was killed."""

    async def check(self: Simulation) -> None:
        if self.trouble.counts["kill"]:
            self.history.damage.append("planted")

    monkeypatch.setattr(Simulation, "_check_stores", check)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_planted_fault_is_shrunk_to_the_one_event_that_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant_a_fault(monkeypatch)

    result = judge_and_shrink(SEED, A_DAY_S)

    assert result.wrong == ["every_referenced_object_exists: planted"]
    # A run that ends before its first event shows nothing, so something may have to stay.
    assert "kill" not in result.cut.without
    assert len({*PARTS, *JANITOR_PARTS, *KINDS} - set(result.cut.without)) <= 4
    again = judge(SEED, result.cut)
    assert again.wrong == result.wrong
    assert again.met["trouble: kill"] == 1
    assert sum(n for name, n in again.met.items() if name.startswith("trouble: ")) == 1


def test_a_run_that_holds_is_not_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Cut:
        raise AssertionError("there is nothing to shrink")

    monkeypatch.setattr(judging, "shrunk", refuse)

    assert judge_and_shrink(SEED, A_DAY_S).cut == WHOLE


def test_shrinking_ends_when_the_time_is_over() -> None:
    now_s = iter(range(100))
    tries = []

    def broken(cut: Cut) -> set[str]:
        tries.append(cut)
        return {"rule"}

    cut = shrunk(broken, "rule", 3, seconds_max=5.5, now_s=lambda: next(now_s))

    assert cut == tries[-1]
    assert len(tries) == 5


def test_another_rule_is_another_failure() -> None:
    def broken(cut: Cut) -> set[str]:
        return {"other"} if "copiers" in cut.without else {"rule", "other"}

    cut = shrunk(broken, "rule", 2, seconds_max=A_DAY_S)

    assert "copiers" not in cut.without
    assert cut.skipped == (1, 2)


def test_the_command_that_is_printed_replays_the_shrunk_run() -> None:
    cut = Cut(without=("janitors", "stop"), skipped=(1,), calls_max=2)
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(SEED)]

    told = subprocess.run(
        [*command, *cut.arguments().split()], capture_output=True, text=True, check=True
    )

    assert told.stdout.splitlines() == run(SEED, cut).trace
