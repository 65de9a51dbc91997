"""Maintenance on schedule, beside a gateway: `python -m service.jobs maintain`, again and again.

Each run is a process of its own, so that neither its memory nor a JVM is ever the gateway's, and
it steps back when others want to work. There is one schedule in a `riacho serve`, whatever the
number of workers. Of several of them on the same stores one does the work: the others find the
lease taken, say so, and try again the next time.

The child reads from a pipe that nobody writes to. It ends when we do, however we end.
"""

import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Final

log = logging.getLogger("riacho.maintenance")

STOP_S_MAX: Final = 5.0
"""A run that has not stopped by then is killed; it leaves garbage and a lease that stands still."""

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
    """Runs `command` every so often, the pause counted from the end of the last run."""

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
        """Stop what runs, and return when it has ended."""
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
