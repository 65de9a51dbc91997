"""`make proof`: everything that proves the log, for as long as it takes.

    make proof                              all of it, some three hours
    make proof PART=torture                 one part, or several: PART=torture,trials
    make proof PART=torture ARGS="-k disk"  what pytest is told besides
    make proof PART=sim MINUTES=60

Parts run one after the other, so that none disturbs what another one measures. A part that fails
does not keep the others from running; the exit status is 1 then.
"""

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests import time_limit
from tests.torture import sizes, summary

ROOT: Final = Path(__file__).parents[2]

TRIAL_S: Final = 120
TRIALS: Final = 2
FUZZ_CASES: Final = 1000
SPARK: Final = (
    "tests/docs/test_spark.py",
    "tests/integration/test_spark_exactly_once.py",
    "tests/riacho/cli/test_jobs.py",
    "tests/riacho/spark",
    "tests/service/jobs",
)
"""Where tests start Spark."""

KAFKA: Final = (
    "tests/kafka_programs",
    *(f"tests/integration/test_kafka_{name}.py" for name in ("deaths", "crowds")),
)
"""Programs made for Kafka, all of them, of which the suite runs some; and what crowds them."""

CONNECT: Final = "tests/integration/test_connect_trials.py"
"""A hundred thousand rows through connectors whose runner is killed, of which the suite has few."""

ROUGH: Final = (
    *("trials", "replication", "controllers", "crashes", "overload"),
    *("cheating_network", "duplicates", "exactly_once", "groups"),
)
"""Of these files of tests/integration the suite runs a slice."""

LONGER: Final = ("tests/checker/test_rules.py", "tests/simulation/test_simulation.py")
"""Have longer histories and more seeds here than in the suite."""

LONG: Final = {time_limit.VARIABLE: "inf"}
EXPLORE: Final = {**LONG, "RIACHO_EXAMPLES": "explore"}

KEEP: Final = """
to keep what Hypothesis found: write the arguments of "Falsifying example" above the test as
@example(...), which every run of the suite tries from then on; if they cannot be written down, the
line @reproduce_failure(...) above it repeats them until the test has a case of its own.
What failed is in .hypothesis, and is tried first when this part runs again.
"""


@dataclass(frozen=True)
class Part:
    """A command, and how to repeat it."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        env = [f"{name}={text}" for name, text in self.env.items() if name != summary.VARIABLE]
        return " ".join([*env, *self.command])


def parts(minutes: int, rest: Sequence[str], figures: Path) -> list[Part]:
    """Return all parts, with other seeds every time."""
    pytest = [str(Path(sys.executable)), "-m", "pytest", "-q", "--timeout", "3600", *rest]
    two = ["-n", "2", "--dist", "loadfile"]
    seeds = ",".join(str(secrets.randbelow(100_000)) for _ in range(TRIALS))
    kept = {summary.VARIABLE: str(figures)}
    return [
        Part(
            "torture",
            [*pytest, "tests/torture", *LONGER],
            {**LONG, **kept, sizes.VARIABLE: "1"},
        ),
        Part(
            "trials",
            [*pytest, *(f"tests/integration/test_{name}.py" for name in ROUGH)],
            {
                **LONG,
                sizes.VARIABLE: "1",
                "RIACHO_CRASH_SECONDS": str(TRIAL_S),
                "RIACHO_CRASH_SEEDS": seeds,
            },
        ),
        Part("spark", [*pytest, "-m", "slow", *SPARK], {**LONG, sizes.VARIABLE: "1"}),
        Part(
            "tidying",
            [*pytest, "tests/integration/test_tidying.py"],
            {**LONG, sizes.VARIABLE: "1"},
        ),
        Part("kafka", [*pytest, *KAFKA], {**LONG, **kept, sizes.VARIABLE: "1"}),
        Part("connect", [*pytest, CONNECT], {**LONG, sizes.VARIABLE: "1"}),
        Part(
            "fuzz",
            [*pytest, *two, "tests/fuzz"],
            {"RIACHO_FUZZ_CASES": str(FUZZ_CASES), **EXPLORE, **kept},
        ),
        Part("properties", [*pytest, *two, "-m", "hypothesis", "tests"], EXPLORE),
        Part("sim", ["make", "sim", f"MINUTES={minutes}"]),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description="Run what proves the log. What is not known here is passed on to pytest.",
    )
    names = [part.name for part in parts(0, [], Path())]
    parser.add_argument("--part", default="", help=f"some of {', '.join(names)} (default: all)")
    parser.add_argument("--minutes", type=int, default=30, help="of simulation (default 30)")
    given, rest = parser.parse_known_args()
    wanted = given.part.split(",") if given.part else names
    if unknown := set(wanted) - set(names):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; use {', '.join(names)}")
    with tempfile.NamedTemporaryFile("r", prefix="riacho-proof-") as figures:
        chosen = parts(given.minutes, rest, Path(figures.name))
        outcomes = [(part, *_run(part)) for part in chosen if part.name in wanted]
        return _tell(outcomes, figures.read())


def _run(part: Part) -> tuple[bool, float]:
    print(f"\n== {part.name}: {part}\n", flush=True)
    began_s = time.monotonic()
    done = subprocess.run(part.command, env={**os.environ, **part.env}, cwd=ROOT)
    return done.returncode == 0, time.monotonic() - began_s


def _tell(outcomes: Sequence[tuple[Part, bool, float]], figures: str) -> int:
    print("\n== summary\n")
    for part, is_ok, took_s in outcomes:
        print(f"{part.name:<12}{'ok' if is_ok else 'FAILED':<8}{took_s / 60:6.1f} min")
    if figures:
        print(f"\n{figures.rstrip()}")
    failed = [part for part, is_ok, _ in outcomes if not is_ok]
    for part in failed:
        print(f"\nagain: {part}")
        if part.name in ("fuzz", "properties"):
            print(KEEP)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
