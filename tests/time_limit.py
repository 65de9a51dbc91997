"""A test of the suite takes at most a minute; one that takes longer fails, though it passed.

A busy machine must not fail a good test, so two things are measured that do not depend on who
else works on it:

- the processor time of the test, and of the processes that it started and that ended in it,
  divided by the number of processors: that long they would take if they had all of them;
- the time that passed without the kernel's seeing any process wait for a processor, a disk or
  memory (`/proc/pressure`; where there is none, only processor time counts). Who sleeps for two
  minutes is seen here. What this leaves out is more than what others took, never less.

Both are compared with a minute of the machine on which the limit was set; a slower one gets more.
`RIACHO_TEST_SECONDS_MAX` is another limit: `make proof`, which runs the long form, has none.
"""

import os
import re
import resource
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

VARIABLE: Final = "RIACHO_TEST_SECONDS_MAX"
SECONDS_MAX: Final = float(os.environ.get(VARIABLE, "60"))

YARDSTICK_S: Final = 0.025
"""How long `_yardstick` takes on the machine on which the limit was set."""

PRESSURE: Final = [Path("/proc/pressure", name) for name in ("cpu", "io", "memory")]


@dataclass(frozen=True)
class Clocks:
    """What has passed since some moment, in seconds."""

    wall_s: float
    cpu_s: float
    contended_s: float
    """While anybody on this machine waited for a resource."""

    def since(self, before: "Clocks") -> float:
        """Return what is compared with the limit."""
        wall_s = self.wall_s - before.wall_s
        undisturbed_s = wall_s - (self.contended_s - before.contended_s)
        return max((self.cpu_s - before.cpu_s) / (os.cpu_count() or 1), undisturbed_s)


def read_clocks() -> Clocks:
    wall_s = time.monotonic()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(each.ru_utime + each.ru_stime for each in used)
    try:
        contended_s = sum(_total_s(path.read_text()) for path in PRESSURE)
    except OSError:
        contended_s = wall_s
    return Clocks(wall_s, cpu_s, contended_s)


def _total_s(pressure: str) -> float:
    found = re.search(r"^some .* total=(\d+)$", pressure, re.MULTILINE)
    assert found is not None, pressure
    return int(found[1]) / 1e6


def slowness(clock_s: Callable[[], float] = time.thread_time) -> float:
    """Return how many times slower this machine computes, or 1 if it does not."""

    def took_s() -> float:
        began_s = clock_s()
        _yardstick()
        return clock_s() - began_s

    return max(1.0, min(took_s() for _ in range(5)) / YARDSTICK_S)


def _yardstick() -> int:
    return sum(n * n % 7 for n in range(400_000))


_factors: Final[list[float]] = []


def complaint(took_s: float) -> str | None:
    """Return what to say of a test that took so long, or None."""
    if took_s <= SECONDS_MAX:
        return None
    if not _factors:
        _factors.append(slowness())
    max_s = SECONDS_MAX * _factors[0]
    if took_s <= max_s:
        return None
    return (
        f"took {took_s:.3g} s; at most {max_s:.3g} s: "
        "make it shorter or move the long form to `make proof`"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    before = read_clocks()
    yield
    said = complaint(read_clocks().since(before))
    if said is not None:
        pytest.fail(said, pytrace=False)
