"""Processes of peers: started in a group of their own, on this machine only, and ended for sure."""

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
START_S_MAX = 120.0
STOP_S_MAX = 20.0


def start(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` in the folder of its `log`."""
    with log.open("ab") as sink:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=log.parent,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )


def _die_with_parent() -> None:
    # For a driver that is killed and cannot stop anything.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server listens on `port`; raise if `process` ends or takes too long."""
    give_up_s = time.monotonic() + START_S_MAX
    while time.monotonic() < give_up_s and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{log.stem} did not start:\n{log.read_text(errors='replace')[-3000:]}")


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End `processes` and their groups: politely, then for sure. The last started ends first."""
    for process in reversed(processes):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S_MAX)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
