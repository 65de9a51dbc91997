"""A deployment whose runner of connectors is killed while data goes through it.

A `Feeder` writes rows in another thread, never many more than have arrived, so whatever is done to
the runner finds it at work; and it keeps rows back for each kill that is still to come.
"""

import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import pytest

from tests.gateway import GatewayProcess
from tests.integration.processes import Api, embedded
from tests.torture.sizes import FULL

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

ROWS: Final = 100_000 if FULL else 2_000
KILLS: Final = 20 if FULL else 2
KILL_S: Final = 2.0 if FULL else 0.5
"""How long a runner lives, at most, after it was found at work."""

AHEAD: Final = ROWS // 50
"""Rows that wait to be read, at most."""
STEP: Final = ROWS // 100
"""Rows of one transaction."""

PATIENCE_S: Final = 1200.0 if FULL else 50.0
POLL_S: Final = 0.05

Config: TypeAlias = Mapping[str, str]


def eventually(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s, what()
        time.sleep(POLL_S)


class Trial:
    """A gateway, its runner, and the files that connectors may open."""

    def __init__(self, gateway: GatewayProcess, api: Api, files: Path, env: Config) -> None:
        self.gateway = gateway
        self.files = files
        self.api = api
        self.connectors: list[str] = []
        self.random = random.Random(secrets.randbits(32))
        self._env = env

    def create(self, name: str, config: Config) -> None:
        answer = self.api.http.put(f"/connectors/{name}/config", json=dict(config))
        assert answer.status_code == 201, answer.text
        self.connectors.append(name)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.http.get(f"/connectors/{name}/status").json()
        return found

    def told(self) -> object:
        """Return what explains why something has not happened."""
        log = self.gateway.log.read_text(errors="replace")
        return [self.status(name) for name in self.connectors], log[-4000:]

    def eventually(self, condition: Callable[[], bool]) -> None:
        eventually(condition, self.told)

    def arrived(self, topic: str) -> int:
        """Return how many records a topic has."""
        answer = self.api.http.get(f"/v1/topics/{topic}/partitions")
        if answer.status_code == 404:
            return 0
        found = answer.raise_for_status().json()["partitions"]
        return sum(partition["high_watermark"] for partition in found)

    def committed(self, name: str) -> int:
        """Return how many records a sink has done with."""
        answer = self.api.http.get(f"/connectors/{name}/offsets").raise_for_status().json()
        return sum(each["offset"]["kafka_offset"] for each in answer["offsets"])

    # The processes that run connectors

    def runner(self) -> int | None:
        """Return the process beside the gateway, if there is one."""
        for folder in Path("/proc").iterdir():
            try:
                command = (folder / "cmdline").read_bytes()
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            except (OSError, IndexError):
                continue
            if b"service.connect.running" in command and int(parent) == self.gateway.process.pid:
                return int(folder.name)
        return None

    def holders(self) -> set[int]:
        """Return the processes that have run tasks last."""
        tasks = [task for name in self.connectors for task in self.status(name)["tasks"]]
        return {int(task["worker_id"].rpartition(":")[2] or 0) for task in tasks}

    @contextmanager
    def another_runner(self) -> Iterator[subprocess.Popen[bytes]]:
        """`riacho connect run` on the same stores."""
        folder = self.gateway.log.parent
        command = [sys.executable, "-m", "riacho", "connect", "run", "--data", str(folder / "data")]
        with (folder / "another.log").open("wb") as output:
            process = subprocess.Popen(
                command, env={**os.environ, **self._env}, stdout=output, stderr=output
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def kill_again_and_again(self, feeder: "Feeder") -> None:
        """Kill the runner `KILLS` times: soon after it began, or soon after it got on."""
        for number in range(KILLS):
            before = feeder.progress()
            self.eventually(lambda: self.runner() is not None)
            if number % 2:
                self.eventually(lambda before=before: feeder.progress() > before)  # type: ignore[misc]
            else:
                self.eventually(lambda: self.holders() == {self.runner()})
            # When exactly is chance, and whatever it finds must do no harm.
            time.sleep(self.random.uniform(0, KILL_S))
            pid = self.runner()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
            self.eventually(lambda pid=pid: self.runner() != pid)  # type: ignore[misc]
            feeder.go_on()


@contextmanager
def trial(folder: Path, **env: str) -> Iterator[Trial]:
    files = folder / "files"
    files.mkdir()
    settings = {"RIACHO_CONNECT_FILES": str(files), **env}
    with embedded(folder).start(env=settings) as gateway, Api(gateway.url) as api:
        yield Trial(gateway, api, files, settings)


class Feeder(threading.Thread):
    """Writes rows from 1 to `count`, a share of them before each `go_on`."""

    def __init__(
        self,
        write: Callable[[int, int], None],
        progress: Callable[[], int],
        count: int = ROWS,
        pauses: int = KILLS,
    ) -> None:
        super().__init__(daemon=True)
        self.progress = progress
        self.error: Exception | None = None
        self._write = write
        self._count = count
        self._shares = pauses + 1
        self._granted = 1
        self._over = threading.Event()

    def go_on(self) -> None:
        self._granted += 1

    def run(self) -> None:
        try:
            written = 0
            while written < self._count and not self._over.is_set():
                granted = self._count * min(self._granted, self._shares) // self._shares
                end = min(granted, written + STEP, self.progress() + AHEAD)
                if end > written:
                    self._write(written + 1, end)
                    written = end
                else:
                    self._over.wait(POLL_S)
        except (httpx.HTTPError, OSError, AssertionError) as error:
            self.error = error

    def __enter__(self) -> "Feeder":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        assert self.error is None, self.error
