"""Run seeds, and judge them.

make sim SEEDS=200                     many, on all cores
python -m tests.simulation --seed 7    one, with its trace
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.checker.history import violations
from tests.simulation.judging import Result, judge
from tests.simulation.simulator import run

SHOWN_MAX = 5


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Run seeds of the simulation, and judge them.",
    )
    parser.add_argument("--seed", type=int, help="run this one only, and show its trace")
    parser.add_argument("--seeds", type=int, default=200, help="run so many (default 200)")
    parser.add_argument("--first", type=int, default=0, help="beginning with this one (default 0)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="so many at once (default: all cores)"
    )
    given = parser.parse_args()
    if given.seed is not None:
        return show(given.seed)
    seeds = range(given.first, given.first + given.seeds)
    began_s, failed, acked, simulated_s = time.monotonic(), 0, 0, 0.0
    with ProcessPoolExecutor(given.jobs, max_tasks_per_child=50) as pool:
        for result in pool.map(judge, seeds):
            acked += result.acked
            simulated_s += result.simulated_s
            if result.wrong:
                failed += 1
                tell(result)
    took_s = time.monotonic() - began_s
    print(
        f"{len(seeds)} seeds, {acked} acknowledged calls, {simulated_s / 3600:.1f} simulated hours,"
        f" {failed} failed, {took_s:.1f} s"
    )
    return 1 if failed else 0


def show(seed: int) -> int:
    simulation = run(seed)
    print("\n".join(simulation.trace))
    wrong = violations(simulation.history)
    if wrong:
        tell(Result(seed, wrong, 0, 0.0))
    return 1 if wrong else 0


def tell(result: Result) -> None:
    for line in result.wrong[:SHOWN_MAX]:
        print(f"seed {result.seed}: {line}")
    if len(result.wrong) > SHOWN_MAX:
        print(f"seed {result.seed}: … {len(result.wrong)} in all")
    print(f"replay: python -m tests.simulation --seed {result.seed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
