"""Gateways that are killed, and jobs that are killed and put to sleep beside them."""

import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.gateway import GatewayProcess, free_port, start_gateway
from tests.integration.processes import TIMEOUT_S, Deployment, Json
from tests.integration.tidying_load import UNREACHABLE
from tests.integration.zoned import until

MODULE: Final = "tests.integration.tidying_process"
"""Never imported here: it changes what it imports."""

LOST: Final = "NOT_CONTROLLER"
RANDOM_S: Final = 0.4
"""About as long as a job takes: what is killed within is killed anywhere in it."""

ROOT: Final = Path(__file__).parents[2]


@dataclass
class Place:
    """Where the data is, and who works on it. Each gateway comes back at its old address."""

    deployment: Deployment
    gateways: list[GatewayProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.deployment.folder / "tmp").mkdir()

    def start(self, port: int | None = None) -> GatewayProcess:
        env = {"RIACHO_LOG_LEVEL": "warning", **self.deployment.env}
        return start_gateway(self.deployment.folder, env=env, port=port, module=MODULE)

    def start_two(self) -> None:
        for _ in range(2):
            self.gateways.append(self.start(free_port()))

    def restart(self, number: int) -> None:
        """Kill a gateway, and start another one in its place."""
        old = self.gateways[number % len(self.gateways)]
        old.kill()
        self.gateways[number % len(self.gateways)] = self.start(old.port)

    def kill(self) -> None:
        for gateway in self.gateways:
            gateway.kill()

    @property
    def urls(self) -> list[str]:
        return [gateway.url for gateway in self.gateways]

    @property
    def environment(self) -> Mapping[str, str]:
        """For a process that works on the stores. What it leaves when it is killed is ours."""
        inherited = {n: text for n, text in os.environ.items() if not n.startswith("RIACHO_")}
        folder = self.deployment.folder
        ours = {"RIACHO_DATA": str(folder / "data"), "TMPDIR": str(folder / "tmp")}
        return inherited | ours | dict(self.deployment.env)

    def run(self, *commands: Sequence[str]) -> list[Json]:
        """Run commands one after the other in a process; return the document of each."""
        done = subprocess.run(
            [sys.executable, "-m", MODULE, "each", json.dumps(commands)],
            env=self.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=5 * TIMEOUT_S,
        )
        assert done.returncode == 0, (commands, done.stdout[-3000:], done.stderr[-3000:])
        documents: list[Json] = json.loads(done.stdout)
        return documents

    def is_locked(self) -> bool:
        """Whether somebody who sleeps has the lock of the SQLite file in hand."""
        if self.deployment.kind != "embedded":
            return False
        path = self.deployment.folder / "data" / "metadata.db"
        with closing(sqlite3.connect(path, timeout=3, isolation_level=None)) as table:
            try:
                table.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            table.execute("ROLLBACK")
            return False


@dataclass
class Janitor:
    """A process that runs jobs for ever."""

    process: subprocess.Popen[bytes]
    log: Path
    is_patient: bool
    """Whether stores may be too slow for it."""
    has_slept: bool = False
    _said: list[Json] = field(default_factory=list)
    _read_bytes: int = 0

    def said(self) -> list[Json]:
        """Return all that it has said; only what is new is read."""
        with self.log.open("rb") as log:
            log.seek(self._read_bytes)
            # The last line may be on its way.
            whole, newline, _ = log.read().rpartition(b"\n")
        self._read_bytes += len(whole) + len(newline)
        new = [line for line in whole.splitlines() if line.startswith(b'{"event"')]
        self._said += [json.loads(line) for line in new]
        return self._said

    @property
    def holds(self) -> bool:
        """Whether it has the lease, as far as it has said."""
        said = self.said()
        return bool(said) and said[-1]["event"] == "holds"

    def ended(self) -> list[Json]:
        return [each for each in self.said() if each["event"] == "ended"]

    def is_awake(self) -> bool:
        return self.process.poll() is None

    def problems(self) -> Iterator[str]:
        """Tell how it failed for another reason than those that its fate explains."""
        if self.process.poll() not in (None, -signal.SIGKILL):
            yield f"it ended by itself: {self.log.read_text()[-3000:]}"
        for each in self.ended():
            # One that has slept may have read on in what others have replaced and swept.
            is_explained = not each["code"] or self.has_slept or LOST in each["error"]
            if not is_explained and not (self.is_patient and UNREACHABLE in str(each)):
                yield str(each)


class Janitors:
    """All there ever were; two are at work, unless one sleeps or was just killed."""

    def __init__(self, place: Place, topics: Sequence[str], rng: random.Random) -> None:
        self.place = place
        self.all: list[Janitor] = []
        self.killed = 0
        self.slept = 0
        self._topics = topics
        self._rng = rng
        self._numbers = itertools.count()

    def start(self) -> None:
        log = self.place.deployment.folder / f"janitor-{next(self._numbers)}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", MODULE, "tidy", *self._topics],
                env=self.place.environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
        self.all.append(Janitor(process, log, self.place.deployment.kind == "cloud"))

    def _holder(self) -> Janitor:
        found: list[Janitor] = []

        def one_holds() -> bool:
            self.check()
            found[:] = [each for each in self.all if each.is_awake() and each.holds]
            return bool(found)

        until(one_holds, "nobody takes the lease")
        time.sleep(self._rng.random() * RANDOM_S)
        return found[-1]

    def kill_one(self) -> None:
        """Kill whoever holds the lease, or did a moment ago."""
        victim = self._holder()
        victim.process.kill()
        victim.process.wait(TIMEOUT_S)
        self.killed += 1
        self.start()

    def put_one_to_sleep(self) -> None:
        """Stop one that holds the lease until another has taken it over, and done something."""
        sleeper = self._stopped_holder()
        others = [each for each in self.all if each is not sleeper and each.is_awake()]
        done = sum(len(each.ended()) for each in others)
        try:
            until(lambda: sum(len(each.ended()) for each in others) > done, "nobody takes over")
        finally:
            os.kill(sleeper.process.pid, signal.SIGCONT)
        self.slept += 1
        jobs = len(sleeper.ended())
        until(lambda: len(sleeper.ended()) > jobs, "it does not wake up")

    def _stopped_holder(self) -> Janitor:
        while True:
            sleeper = self._holder()
            os.kill(sleeper.process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, sleeper.process.pid, os.WSTOPPED | os.WNOWAIT)
            if sleeper.holds and not self.place.is_locked():
                sleeper.has_slept = True
                return sleeper
            os.kill(sleeper.process.pid, signal.SIGCONT)

    def check(self) -> None:
        for each in self.all:
            problems = list(each.problems())
            assert not problems, problems[:3]

    def kill(self) -> None:
        for each in self.all:
            each.process.kill()
            each.process.wait()

    def told(self, job: str) -> list[Json]:
        """Return what jobs that ended well have said."""
        every = [line for each in self.all for line in each.ended()]
        return [line["told"] for line in every if line["job"] == job and not line["code"]]

    def lost(self) -> int:
        """Return how many jobs were told that their lease is another's."""
        return sum(LOST in line["error"] for each in self.all for line in each.ended())

    def swept(self) -> int:
        return sum(told["objects_removed"] for told in self.told("sweep"))
