"""Run seeds, and check their histories.

make sim SEEDS=200                     many seeds, on all cores
make sim MINUTES=60                    as many seeds as fit into the time
python -m tests.simulation --seed 7    one seed, with its trace
"""

import argparse
import itertools
import logging
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from tests.checker.operations import dump
from tests.simulation.cuts import (
    CONNECT_PARTS,
    JANITOR_PARTS,
    KAFKA_PARTS,
    PARTS,
    SCHEMA_PARTS,
    Cut,
)
from tests.simulation.judging import (
    ENOUGH_SEEDS,
    Result,
    judge_and_shrink,
    judged,
    prepare_worker,
    unmet,
)
from tests.simulation.simulator import run
from tests.simulation.trouble import KINDS

SEEDS = 200
SHOWN_MAX = 5
LINES_MAX = 60
PROGRESS_EVERY = 50
SHRINK_S = 120.0
FIRST_MAX = 1_000_000_000
WAITING_PER_JOB = 2
"""Number of seeds queued for each worker, so that none is idle."""


def main() -> int:
    given = _parser().parse_args()
    _be_quiet()
    if given.seed is not None:
        cut = Cut(tuple(given.without), tuple(given.skip), given.calls)
        return _show(given.seed, cut, given.history)
    first = random.SystemRandom().randrange(FIRST_MAX) if given.first is None else given.first
    print(f"first seed: {first}", flush=True)
    seeds: Iterable[int] = itertools.count(first)
    if given.seeds is not None or given.minutes is None:
        seeds = range(first, first + (SEEDS if given.seeds is None else given.seeds))
    return _run_all(seeds, given.jobs, given.minutes, 0.0 if given.no_shrink else SHRINK_S)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Run seeds of the simulation, one after the other, and judge what was seen."
        " Everything a run does comes from its seed and from the code: a seed that failed is"
        " replayed with --seed, on the same commit. Each failure is printed as it happens, with"
        " the command that replays it; the other seeds go on. Ctrl-C reports what ran so far."
        " Exit status: 1 if a rule was broken, or if 200 seeds or more met too few faults.",
    )
    many = parser.add_argument_group("many seeds")
    many.add_argument("--seeds", type=int, metavar="N", help=f"run N seeds (default {SEEDS})")
    many.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="begin new seeds for N minutes; with --seeds, stop at whichever comes first",
    )
    many.add_argument(
        "--first", type=int, metavar="N", help="begin with seed N (default: a random one)"
    )
    cores = os.cpu_count() or 1
    many.add_argument(
        "--jobs", type=int, metavar="N", default=cores, help="use N processes (default: all cores)"
    )
    many.add_argument(
        "--no-shrink",
        action="store_true",
        help="do not look for the fewest faults and actors with which a seed still fails"
        f" (which takes at most {SHRINK_S:.0f} s for each failure)",
    )
    one = parser.add_argument_group("one seed")
    one.add_argument("--seed", type=int, metavar="N", help="run seed N only, and show its trace")
    one.add_argument("--history", metavar="FILE", help="write what was seen to FILE, as JSON lines")
    names = (*PARTS, *JANITOR_PARTS, *KAFKA_PARTS, *SCHEMA_PARTS, *CONNECT_PARTS, *KINDS)
    one.add_argument(
        "--without",
        type=lambda text: _names(text, names),
        metavar="NAME,...",
        default=[],
        help=f"leave out actors and kinds of faults: {', '.join(names)}"
        " (of producers and gateways all but one)",
    )
    one.add_argument(
        "--skip",
        type=lambda text: [int(number) for number in text.split(",")],
        metavar="N,...",
        default=[],
        help="leave out single events (kills, stops and so on): 1 is the first of the run",
    )
    one.add_argument(
        "--calls", type=int, metavar="N", help="each actor makes at most N calls or records"
    )
    return parser


def _names(text: str, known: Iterable[str]) -> list[str]:
    names = text.split(",")
    if others := sorted(set(names) - set(known)):
        raise argparse.ArgumentTypeError(f"there is no {', '.join(others)}")
    return names


def _run_all(
    seeds: Iterable[int], jobs: int, minutes: float | None, shrink_seconds_max: float
) -> int:
    began_s, results = time.monotonic(), list[Result]()
    stop_s = None if minutes is None else began_s + minutes * 60
    with ProcessPoolExecutor(jobs, initializer=_start_worker) as pool:
        try:
            for result in _results(pool, seeds, jobs, stop_s, shrink_seconds_max):
                results.append(result)
                if result.wrong:
                    _tell(result)
                _tell_progress(len(results))
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr)
            pool.shutdown(wait=False, cancel_futures=True)
    _tell_all(results, time.monotonic() - began_s)
    missing = unmet(results) if len(results) >= ENOUGH_SEEDS else []
    if missing:
        print(f"these seeds prove too little, they met too seldom: {', '.join(missing)}")
    return 1 if missing or any(result.wrong for result in results) else 0


def _results(
    pool: ProcessPoolExecutor,
    seeds: Iterable[int],
    jobs: int,
    stop_s: float | None,
    shrink_seconds_max: float,
) -> Iterator[Result]:
    """Yield the result of each seed as soon as it is known; start none after `stop_s`."""
    left, running = iter(seeds), set[Future[Result]]()
    while True:
        while len(running) < jobs * WAITING_PER_JOB:
            if stop_s is not None and time.monotonic() >= stop_s:
                break
            seed = next(left, None)
            if seed is None:
                break
            running.add(pool.submit(judge_and_shrink, seed, shrink_seconds_max))
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def _show(seed: int, cut: Cut, path: str | None) -> int:
    simulation = run(seed, cut)
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
    command = f"python -m tests.simulation --seed {result.seed}"
    if smaller := result.cut.arguments():
        print(f"shrunk: {command}{smaller}")
    print(f"replay: {command}", flush=True)


def _tell_progress(count: int) -> None:
    if sys.stderr.isatty() or count % PROGRESS_EVERY == 0:
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"{count} seeds", end=end, file=sys.stderr, flush=True)


def _tell_all(results: list[Result], took_s: float) -> None:
    failed = sorted(result.seed for result in results if result.wrong)
    total: Counter[str] = sum((result.met for result in results), Counter())
    for name, count in sorted(total.items()):
        print(f"{count:>9,}  {name}")
    hours = sum(result.simulated_s for result in results) / 3600
    print(
        f"{len(results)} seeds, {hours:.1f} simulated hours in {took_s:.0f} s"
        f" ({len(results) / max(took_s, 1e-3) * 60:.0f} seeds a minute),"
        f" {len(failed)} failed{f': {failed}' if failed else ''}"
    )


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent process ends it.
    _be_quiet()
    prepare_worker()


def _be_quiet() -> None:
    # Gateways log a lot under these faults.
    logging.disable(logging.CRITICAL)


if __name__ == "__main__":
    sys.exit(main())
