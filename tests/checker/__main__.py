"""Check recorded histories against every rule.

python -m tests.checker FILE...              read and merge them, print every broken rule
python -m tests.checker --smallest FILE...   and the smallest history that shows the first
python -m tests.checker --bench              measure how many operations are checked in a second

The exit code is 0 if nothing is wrong, 1 if a rule is broken, 2 if a file is no history.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import groupby

from tests.checker.history import RULES, History, violations
from tests.checker.operations import MalformedHistory, entries, load, merge
from tests.checker.sample import sample
from tests.checker.smallest import lines, smallest

SHOWN_MAX = 10
"""At most this many violations of one rule are printed."""
BENCH_SIZES = (10_000, 100_000)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.checker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", metavar="FILE", nargs="*", help="operations, one on each line")
    parser.add_argument(
        "--smallest", action="store_true", help="print what is left for the first broken rule"
    )
    parser.add_argument("--bench", action="store_true", help="judge made-up histories instead")
    given = parser.parse_args(argv)
    if given.bench:
        bench()
        return 0
    if not given.files:
        parser.error("which FILE?")
    try:
        history = merge([load(file) for file in given.files])
    except (MalformedHistory, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return judge(history, with_smallest=given.smallest)


def judge(history: History, *, with_smallest: bool) -> int:
    found = violations(history)
    count = len(entries(history))
    if not found:
        say(f"{count} operations, {len(RULES)} rules, nothing wrong")
        return 0
    for rule, of in groupby(found, key=lambda line: line.partition(":")[0]):
        problems = list(of)
        for line in problems[:SHOWN_MAX]:
            say(line)
        if len(problems) > SHOWN_MAX:
            say(f"{rule}: and {len(problems) - SHOWN_MAX} more")
    broken = {line.partition(":")[0] for line in found}
    say(f"{count} operations, {len(RULES)} rules, {len(broken)} of them broken")
    if with_smallest:
        least = smallest(history, found[0])
        say(f"\n{len(entries(least))} operations are left of them that show the first:")
        say(lines(least).rstrip())
    return 1


def bench() -> None:
    for size in BENCH_SIZES:
        history = sample(size)
        count = len(entries(history))
        began_s = time.process_time()
        assert not violations(history)
        took_s = time.process_time() - began_s
        say(f"{count} operations in {took_s:.2f} s of CPU: {count / took_s:.0f} each second")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
