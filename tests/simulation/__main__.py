"""Run seeds, and judge them.

make sim SEEDS=200                     many, on all cores
python -m tests.simulation --seed 7    one, with its trace
"""

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.checker.operations import dump
from tests.simulation.judging import ENOUGH_SEEDS, Result, judge, judged, unmet
from tests.simulation.simulator import run

SHOWN_MAX = 5
LINES_MAX = 60
PROGRESS_EVERY = 50


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Run seeds of the simulation, and judge what was seen. Everything a run does"
        " comes from its seed. Exit status: 1 if a rule was broken.",
    )
    parser.add_argument("--seed", type=int, help="run this one only, and show its trace")
    parser.add_argument("--history", metavar="FILE", help="with --seed: write what was seen there")
    parser.add_argument("--seeds", type=int, default=200, help="run so many (default 200)")
    parser.add_argument("--first", type=int, default=0, help="beginning with this one (default 0)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="so many at once (default: all cores)"
    )
    given = parser.parse_args()
    _be_quiet()
    if given.seed is not None:
        return _show(given.seed, given.history)
    return _run_all(range(given.first, given.first + given.seeds), given.jobs)


def _run_all(seeds: Sequence[int], jobs: int) -> int:
    began_s, results = time.monotonic(), list[Result]()
    with ProcessPoolExecutor(jobs, initializer=_be_quiet) as pool:
        for result in pool.map(judge, seeds):
            results.append(result)
            if result.wrong:
                _tell(result)
            if sys.stderr.isatty() or len(results) % PROGRESS_EVERY == 0:
                end = "\r" if sys.stderr.isatty() else "\n"
                print(f"{len(results)} of {len(seeds)} seeds", end=end, file=sys.stderr, flush=True)
    failed = [result.seed for result in results if result.wrong]
    total: Counter[str] = sum((result.met for result in results), Counter())
    for name, count in sorted(total.items()):
        print(f"{count:>9,}  {name}")
    hours = sum(result.simulated_s for result in results) / 3600
    print(
        f"{len(seeds)} seeds, {hours:.1f} simulated hours in {time.monotonic() - began_s:.0f} s,"
        f" {len(failed)} failed{f': {failed}' if failed else ''}"
    )
    missing = unmet(results) if len(seeds) >= ENOUGH_SEEDS else []
    if missing:
        print(f"these seeds prove too little, they met too seldom: {', '.join(missing)}")
    return 1 if failed or missing else 0


def _show(seed: int, path: str | None) -> int:
    simulation = run(seed)
    print("\n".join(simulation.trace))
    if path is not None:
        dump(simulation.history, path)
    result = judged(simulation)
    if result.wrong:
        _tell(result)
    return 1 if result.wrong else 0


def _tell(result: Result) -> None:
    for line in result.wrong[:SHOWN_MAX]:
        print(f"seed {result.seed}: {line}")
    if len(result.wrong) > SHOWN_MAX:
        print(f"seed {result.seed}: {len(result.wrong)} in all")
    shown_by = result.shown_by.splitlines()
    print("shown by:", *shown_by[:LINES_MAX], *(["…"] if shown_by[LINES_MAX:] else []), sep="\n  ")
    print(f"replay: python -m tests.simulation --seed {result.seed}", flush=True)


def _be_quiet() -> None:
    # Gateways have much to say about what befalls them here.
    logging.disable(logging.CRITICAL)


if __name__ == "__main__":
    sys.exit(main())
