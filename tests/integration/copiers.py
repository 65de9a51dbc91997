"""Copiers in processes of their own: started, killed, put to sleep, and asked how they fared."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO

from tests.integration import copier
from tests.integration.copier import FENCED, SESSION_MS, TRANSACTION_MS, Job
from tests.integration.processes import TIMEOUT_S

SLEEP_S = 1.6 * max(SESSION_MS, TRANSACTION_MS) / 1000
"""Long enough for the group and the transaction to be given to others."""


@dataclass
class Copier:
    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    asleep_s: float | None = None
    has_rival: bool = False
    """Whether it may have met another one of its name. Who asks last to be the only one is."""

    def kill(self) -> None:
        self.process.kill()
        assert self.process.wait(TIMEOUT_S) == -signal.SIGKILL, self.words()

    def sleep(self) -> None:
        assert self.process.poll() is None, self.words()
        self.asleep_s = time.monotonic()
        os.kill(self.process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on, when it has slept for long enough to have lost everything."""
        assert self.asleep_s is not None
        time.sleep(max(self.asleep_s + SLEEP_S - time.monotonic(), 0))
        os.kill(self.process.pid, signal.SIGCONT)
        self.asleep_s = None

    def check(self) -> None:
        ends = {None, 0, -signal.SIGKILL} | ({FENCED} if self.has_rival else set())
        assert self.process.poll() in ends, self.words()

    def words(self) -> str:
        return f"{self.job.name} {self.process.poll()}\n{self.log.read_text()[-5000:]}"


@dataclass
class Copiers:
    """All copiers there ever were."""

    folder: Path
    jobs: Sequence[Job]
    all: list[Copier] = field(default_factory=list)
    killed: int = 0

    def start(self, number: int) -> Copier:
        """Start a copier; there may be an older one of the same name, asleep."""
        job = self.jobs[number]
        rivals = self._alive(number)
        log = self.folder / f"{job.name}-{len(self.all)}.log"
        with log.open("wb") as sink:
            new = Copier(job, _start(replace(job, seed=len(self.all)), sink), log)
        self.all.append(new)
        for one in [new, *rivals] if rivals else ():
            one.has_rival = True
        return new

    def current(self, number: int) -> Copier:
        """Return the one that was started last with this name, of those that are there."""
        return self._alive(number)[-1]

    def _alive(self, number: int) -> list[Copier]:
        name = self.jobs[number].name
        return [one for one in self.all if one.job.name == name and one.process.poll() is None]

    def restart(self, number: int) -> None:
        """Kill a copier, and start another one in its place."""
        self.current(number).kill()
        self.killed += 1
        self.start(number)

    def wake_all(self) -> None:
        for one in self.all:
            if one.asleep_s is not None:
                one.wake()

    def check(self) -> None:
        """Nobody ended for another reason than that there is another one of its name."""
        for one in self.all:
            one.check()

    def stop(self) -> None:
        """Ask all to end, and wait until they have."""
        self.wake_all()
        for one in self.all:
            one.process.terminate()
        for one in self.all:
            # By the signal itself ends what is still starting, or ends anyway.
            if one.process.wait(TIMEOUT_S) != -signal.SIGTERM:
                one.check()

    def kill(self) -> None:
        for one in self.all:
            one.process.kill()
            one.process.wait()

    def words(self) -> Counter[str]:
        """Return how often which outcome was met."""
        lines = (line.split() for one in self.all for line in one.log.read_text().splitlines())
        return Counter(line[0] for line in lines if len(line) == 2 and line[1].isdigit())


def _start(job: Job, sink: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # By its path: the package of the tests takes longer to import than to copy everything.
        [sys.executable, copier.__file__, json.dumps(asdict(job))],
        stdout=sink,
        stderr=sink,
        stdin=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
