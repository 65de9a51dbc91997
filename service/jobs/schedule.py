"""Scheduled maintenance beside a gateway: runs `python -m service.jobs maintain` periodically.

Each run is a separate process with a low CPU priority, so that neither its memory nor a JVM is
ever the gateway's. A `riacho serve` has one schedule, whatever its number of workers. If several
of them share the same stores, one does the work: the others find the lease taken, report it, and
retry the next time.

The child's stdin is a pipe that this process never writes to. The child stops at its end, so it
ends when this process does, for whatever reason.
"""

import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Final

log = logging.getLogger("riacho.maintenance")

STOP_S_MAX: Final = 5.0
"""A run that has not stopped by then is killed; it leaves garbage and a lease that must expire."""

NICE: Final = 10

COMMAND: Final = (
    sys.executable,
    "-m",
    "service.jobs",
    "maintain",
    "--until-eof",
    "--nice",
    str(NICE),
)


class Maintenance:
    """Runs `command` periodically, `every_s` after the end of the last run."""

    def __init__(self, every_s: float, command: Sequence[str] = COMMAND) -> None:
        self._every_s = every_s
        self._command = command
        self._stopping = threading.Event()
        self._turn = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the schedule and the current run, and wait for it to end."""
        self._stopping.set()
        with self._turn:
            process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join(STOP_S_MAX)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self._once()
            except Exception:
                log.exception("maintenance could not be started")

    def _once(self) -> None:
        with self._turn:
            if self._stopping.is_set():
                return
            self._process = process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        try:
            assert process.stdout is not None
            _log(process.stdout)
            code = process.wait()
        finally:
            with self._turn:
                self._process = None
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        if code and not self._stopping.is_set():
            log.warning("maintenance ended with exit code %d; it is tried again", code)


def _log(lines: IO[str]) -> None:
    for line in lines:
        log.info("maintenance: %s", line.rstrip())
