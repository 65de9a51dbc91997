"""The mutation check: do tests notice a small mistake in code that must be right?

    python -m tests.mutants                      every module of modules.toml (some 40 minutes)
    python -m tests.mutants storage/head/head.py      some of them
    python -m tests.mutants storage/head/head.py --only append

Mutants of each module (tests/mutants/mutations.py) run with the quick tests that reach them. A
survivor must be listed in tests/mutants/accepted with a reason, else the command fails, as it does
when less than 85 % of a module's mutants are killed. An accepted mutant that is killed now, or no
longer exists, is reported: its line can be removed.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.mutants import accepted
from tests.mutants.trials import Court, Verdict, every_module, hold_court, parts

KILLED_SHARE_MIN: Final = 0.85


@dataclass(frozen=True, slots=True)
class Summary:
    module: str
    verdicts: Sequence[Verdict]
    reasons: dict[str, str]

    @property
    def killed(self) -> int:
        return sum(bool(verdict.killer) for verdict in self.verdicts)

    @property
    def timed_out(self) -> int:
        """Mutants that never end count as killed: a test would not end either."""
        return sum(verdict.killer is None for verdict in self.verdicts)

    @property
    def survivors(self) -> list[Verdict]:
        alive = [verdict for verdict in self.verdicts if verdict.killer == ""]
        return sorted(alive, key=lambda verdict: verdict.mutant.line)

    @property
    def unexplained(self) -> list[Verdict]:
        return [verdict for verdict in self.survivors if verdict.mutant.name not in self.reasons]

    @property
    def stale(self) -> list[str]:
        alive = {verdict.mutant.name for verdict in self.survivors}
        return [name for name in self.reasons if name not in alive]

    @property
    def share(self) -> float:
        return (self.killed + self.timed_out) / max(1, len(self.verdicts))

    @property
    def passes(self) -> bool:
        return not self.unexplained and self.share >= KILLED_SHARE_MIN

    def __str__(self) -> str:
        survived = len(self.survivors)
        return (
            f"{self.module:<40}{len(self.verdicts):>5} mutants {self.share:>6.1%} killed"
            f" ({self.timed_out} timed out), {survived} survived,"
            f" {survived - len(self.unexplained)} of them accepted"
        )


def tests_of(modules: Sequence[str]) -> list[str]:
    """Return the files with the tests that must notice."""
    files = [file for part in parts() if set(part.modules) & set(modules) for file in part.tests]
    return list(dict.fromkeys(files))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("module", nargs="*", help="paths like storage/head/head.py")
    parser.add_argument("--only", default="", help="mutants whose name has this in it")
    parser.add_argument("--processes", type=int, default=2, help="trials at a time")
    parser.add_argument("--fresh", action="store_true", help="find out anew what tests run")
    asked = parser.parse_args(arguments)
    modules = asked.module or every_module()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # This ends the children, too.

    def say(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else f"{text}\n")
        sys.stderr.flush()

    court = Court(modules, asked.processes, say, fresh=asked.fresh, only=asked.only)
    hold_court(court, tests_of(modules))
    say("")
    summaries = []
    for module in modules:
        verdicts = [verdict for verdict in court.verdicts if verdict.mutant.module == module]
        summaries.append(Summary(module, verdicts, accepted.read(module)))
    return report(summaries, partial=bool(asked.only))


def report(summaries: Sequence[Summary], *, partial: bool) -> int:
    """Print the result of every module, and return the exit status."""
    for summary in summaries:
        for verdict in summary.unexplained:
            place = f"{verdict.mutant.module}:{verdict.mutant.line}"
            tests = f"passes {verdict.tests} tests" if verdict.tests else "no test runs it"
            sys.stdout.write(f"{place} {verdict.mutant.name}  ({tests})\n")
        for name in [] if partial else summary.stale:
            sys.stdout.write(f"{summary.module}: accepted, but no survivor: {name}\n")
    for summary in summaries:
        sys.stdout.write(f"{summary}\n")
    complete = all(summary.verdicts for summary in summaries)
    return 0 if complete and all(s.passes or partial for s in summaries) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
