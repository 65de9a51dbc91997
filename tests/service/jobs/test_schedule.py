"""The schedule: one run at a time, each logged, none that outlives us. Real processes."""

import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.jobs.schedule import Maintenance
from service.world import durations

GIVE_UP_S = 100.0


class Lines(logging.Handler):
    """Collects log lines; lets a test wait for one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self.lines.append(record.getMessage())
            self._changed.notify_all()

    def wait_for(self, text: str, count: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: sum(text in line for line in self.lines) >= count, GIVE_UP_S
            ), self.lines


@pytest.fixture
def lines() -> Iterator[Lines]:
    found = Lines()
    logger = logging.getLogger("riacho.maintenance")
    logger.addHandler(found)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(found)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_it_is_done_again_and_again_and_logged(lines: Lines) -> None:
    maintenance = Maintenance(0.01, python("print('tidied up')"))

    maintenance.start()
    lines.wait_for("maintenance: tidied up", 3)
    maintenance.stop()

    assert not any("exit code" in line for line in lines.lines)


def test_what_fails_is_logged_and_tried_again(lines: Lines) -> None:
    maintenance = Maintenance(0.01, python("import sys; sys.exit('no luck')"))

    maintenance.start()
    lines.wait_for("maintenance ended with exit code 1", 2)
    maintenance.stop()

    assert "maintenance: no luck" in lines.lines


def test_what_cannot_be_started_is_logged(lines: Lines, tmp_path: Path) -> None:
    maintenance = Maintenance(0.01, [str(tmp_path / "nothing")])

    maintenance.start()
    lines.wait_for("maintenance could not be started", 2)
    maintenance.stop()


def test_no_two_at_once(lines: Lines, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    code = f"""
import os, pathlib
lock = pathlib.Path({str(lock)!r})
lock.mkdir()  # Fails if another one runs.
print("ran")
lock.rmdir()
"""
    maintenance = Maintenance(0.001, python(code))

    maintenance.start()
    lines.wait_for("maintenance: ran", 3)
    maintenance.stop()

    assert not any("exit code" in line for line in lines.lines)


def test_what_runs_is_stopped(lines: Lines) -> None:
    # It ends with its stdin, and as it would when told to; else it would run for ever.
    maintenance = Maintenance(0.01, python("print('begun', flush=True); input()"))

    maintenance.start()
    lines.wait_for("maintenance: begun")
    maintenance.stop()

    assert lines.lines == ["maintenance: begun"]


def test_before_it_began_there_is_nothing_to_stop() -> None:
    maintenance = Maintenance(1000, python(""))

    maintenance.start()
    maintenance.stop()


@pytest.mark.parametrize(
    ("text", "expected"), [("500ms", 0.5), ("30s", 30), ("5m", 300), ("1h", 3600), ("2d", 172_800)]
)
def test_durations(text: str, expected: float) -> None:
    assert durations.seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "5", "m", "1.5h", "-1s", "5 m", "1w", "9999999999s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 30s"):
        durations.seconds(text)
