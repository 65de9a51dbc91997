"""The limit on the time of a test: what is counted, and what is said."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import time_limit
from tests.time_limit import Clocks, read_clocks, slowness

ROOT = Path(__file__).parents[1]

BURN = "import time\nwhile time.process_time() < {seconds}:\n    pass\n"


def outcome(tmp_path: Path, body: str, seconds_max: float) -> subprocess.CompletedProcess[str]:
    """Run a test with this body under the limit."""
    test = "import subprocess, sys, time\n\ndef test_it():\n    " + body
    (tmp_path / "test_it.py").write_text(test)
    env = {
        time_limit.VARIABLE: str(seconds_max),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.time_limit", str(tmp_path)],
        env={**os.environ, **env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    "body",
    [
        "until = time.process_time() + 1\n    while time.process_time() < until: pass",
        f"subprocess.run([sys.executable, '-c', {BURN.format(seconds=1)!r}], check=True)",
    ],
    ids=["the test", "a child"],
)
def test_processor_time_over_the_limit_fails_a_test_that_passed(tmp_path: Path, body: str) -> None:
    done = outcome(tmp_path, body, seconds_max=0.05)

    assert done.returncode == 1, done.stdout
    assert "make it shorter or move the long form to `make proof`" in done.stdout
    assert outcome(tmp_path, body, seconds_max=600).returncode == 0


def test_why_a_test_failed_is_still_what_is_said(tmp_path: Path) -> None:
    body = "until = time.process_time() + 1\n    while time.process_time() < until: pass\n    1 / 0"

    said = outcome(tmp_path, body, seconds_max=0.05).stdout

    assert "ZeroDivisionError" in said
    assert "make proof" not in said


@pytest.mark.parametrize(
    ("after", "counted_s"),
    [
        (Clocks(wall_s=190, cpu_s=15, contended_s=1000), 90),
        (Clocks(wall_s=190, cpu_s=15, contended_s=1080), 10),
        (Clocks(wall_s=190, cpu_s=85, contended_s=1080), 80),
        # Several resources may be short at once.
        (Clocks(wall_s=190, cpu_s=5, contended_s=1270), 0),
    ],
    ids=["sleeps", "delayed by others", "computes beside others", "delayed in every way"],
)
def test_time_that_others_took_does_not_count(
    after: Clocks, counted_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert after.since(Clocks(wall_s=100, cpu_s=5, contended_s=1000)) == counted_s


def test_two_processors_may_compute_for_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    after = Clocks(wall_s=190, cpu_s=105, contended_s=1080)
    assert after.since(Clocks(wall_s=100, cpu_s=5, contended_s=1000)) == 50


def test_the_clocks_go_forward() -> None:
    before = read_clocks()
    sum(range(1_000_000))

    assert read_clocks().since(before) > 0


def test_a_slower_machine_gets_more_time() -> None:
    ticks = itertools.count(0.0, 2 * time_limit.YARDSTICK_S)

    assert slowness(lambda: next(ticks)) == pytest.approx(2)
    assert slowness(lambda: 0.0) == 1


def test_what_is_said_names_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "SECONDS_MAX", 60.0)
    monkeypatch.setattr(time_limit, "_factors", [1.5])

    assert time_limit.complaint(59) is None
    assert time_limit.complaint(89) is None
    assert str(time_limit.complaint(91)).startswith("took 91 s; at most 90 s: ")
