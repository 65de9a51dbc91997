"""What came of one seed, as far as whoever runs many of them wants to know."""

from dataclasses import dataclass

from tests.checker.history import violations
from tests.simulation.simulator import run


@dataclass(frozen=True)
class Result:
    seed: int
    wrong: list[str]
    acked: int
    simulated_s: float


def judge(seed: int) -> Result:
    simulation = run(seed)
    history = simulation.history
    acked = sum(call.base is not None for call in history.produced)
    return Result(seed, violations(history), acked, simulation.loop.now_s)
