"""A trial: gateways and clients as processes of their own, trouble from a seed, and a judgement.

Clients write, read, poll and transact while gateways are killed, put to sleep past sessions and
leases, and cut off from what they store in. Then all trouble ends, everything must move again, all
is read back, the stores are checked, and the rules of `tests/checker` judge what everybody saw.
"""

import contextlib
import logging
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from tests.checker import idempotent_rules, operations, transaction_rules
from tests.checker.history import History, violations
from tests.checker.log_rules import Fetched
from tests.commands import exit_code
from tests.gateway import GatewayProcess, free_port
from tests.integration import trial_clients
from tests.integration.fault_proxy import DYNAMODB, S3, Fault, Kind, Weather
from tests.integration.processes import TIMEOUT_S, Api, Deployment
from tests.integration.trial_clients import copier_plan, group_plan
from tests.integration.trial_roles import CALM_S, PARTITIONS
from tests.simulation.atomic_writers import ATOMS
from tests.simulation.copiers import COPIES, SOURCE
from tests.simulation.members import TOPIC

log = logging.getLogger(__name__)

ROLES: Final = (
    "writers",
    "numbered",
    "readers",
    "watched-group",
    "group",
    "copiers",
    "atomic",
)
ENV: Final = {
    # So that a sleep of seconds is longer than any lease.
    "RIACHO_CONTROLLER_INTERVAL_S": "0.5",
    "RIACHO_CONTROLLER_LEASE_S": "2",
    "RIACHO_GATEWAY_HEARTBEAT_S": "1",
    "RIACHO_GROUP_UPKEEP_S": "1",
    # One table serves all of them here.
    "RIACHO_HEAD_POLL_MS": "200",
    # So small that readers see what is stored.
    "RIACHO_SLICE_CACHE_BYTES": "20000",
    "RIACHO_INDEX_CACHE_BYTES": "20000",
}
CALLS_WAITING: Final = 6
"""So many calls, of readers and of others, a gateway has not read that hangs before it dies."""
HANG_S_MAX: Final = 5.0
STORMS: Final[tuple[Mapping[Kind, Fault], ...]] = (
    dict.fromkeys([Kind.WRITE_ITEM, Kind.TRANSACT], Fault.LOST_REPLY),
    dict.fromkeys([Kind.WRITE_ITEM, Kind.TRANSACT], Fault.LATE),
    dict.fromkeys([Kind.WRITE_ITEM, Kind.TRANSACT], Fault.SHORTENED),
    dict.fromkeys(DYNAMODB, Fault.RESET),
    dict.fromkeys(DYNAMODB, Fault.THROTTLED),
    dict.fromkeys([Kind.PUT], Fault.LOST_REPLY),
    dict.fromkeys(S3, Fault.SLOW_DOWN),
    dict.fromkeys([Kind.GET, Kind.READ_ITEM], Fault.CUT),
    dict.fromkeys([Kind.GET], Fault.CORRUPTED),
)


@dataclass
class Client:
    name: str
    process: BaseProcess
    pipe: Connection
    file: Path

    def has_done(self, word: str) -> bool:
        """Wait for the answer; return whether it came."""
        return self.pipe.poll(CALM_S + TIMEOUT_S) and bool(self.pipe.recv() == word)


@dataclass
class Trial:
    deployment: Deployment
    seed: int
    seconds: float
    gateways: int
    args: tuple[str, ...] = ()
    weather: Weather | None = None
    zones: Mapping[str, str] = field(default_factory=dict)
    """Buckets of zones, if there are several."""
    happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.folder = self.deployment.folder
        self.running: list[GatewayProcess] = []
        self.history = History()

    def run(self) -> History:
        """Return what everybody saw."""
        try:
            self._set_weather(calm=True)
            for _ in range(self.gateways):
                self.running.append(self._start(free_port()))
            self._prepare()
            with self._clients() as clients:
                self._set_weather(calm=False)
                self._make_trouble()
                self._set_weather(calm=True)
                for word in ("calm", "drain", "stop"):
                    self._tell(clients, word)
            log.info("seed %d: reading back", self.seed)
            self._read_back()
        finally:
            for gateway in self.running:
                gateway.kill()
        self._check_stores()
        files = [client.file for client in clients if client.file.exists()]
        return operations.merge([self.history, *map(operations.load, files)])

    def _start(self, port: int, *, env: Mapping[str, str] | None = None) -> GatewayProcess:
        batch = {"RIACHO_TABLE_BATCH_BYTES_MAX": self.chance.choice(["0", "0", "4096"])}
        settings = {**ENV, **batch, **(env or {})}
        return self.deployment.start(*self.args, port=port, env=settings)

    def _set_weather(self, *, calm: bool) -> None:
        if self.weather is not None:
            self.weather.is_calm = calm

    def _prepare(self) -> None:
        plan = copier_plan(self.seed, self.seconds)
        config: dict[str, object] = {"lane.partitions": self.chance.choice([1, 2, 64])}
        more: dict[str, object] = {}
        if self.zones:
            more["replication_factor"] = len(self.zones)
            config |= {"min.insync.replicas": 2, "replica.lag.time.max.ms": 1500}
        with Api(self.running[0].url) as api:
            for name in (TOPIC, COPIES, ATOMS):
                api.topic(PARTITIONS, name, config=config, **more)
            api.topic(plan.source_partitions, SOURCE, config=config, **more)
            for partition in range(plan.source_partitions):
                values = [f"{partition}:{number}" for number in range(plan.records)]
                api.produce(SOURCE, [{"value": value} for value in values], partition)
                self.history.transactions.source[partition] = values

    @contextlib.contextmanager
    def _clients(self) -> Iterator[list[Client]]:
        """Start one process for each role; what they import is imported once."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([trial_clients.__name__])
        urls = [gateway.url for gateway in self.running]
        clients = []
        for number, name in enumerate(ROLES):
            ours, theirs = context.Pipe()
            file = self.folder / f"{name}.jsonl"
            given = (name, number, self.seed, self.seconds, urls, theirs, file)
            process = context.Process(target=trial_clients.main, args=given, daemon=True)
            process.start()
            theirs.close()
            clients.append(Client(name, process, ours, file))
        try:
            assert all(client.has_done("start") for client in clients)
            yield clients
            for client in clients:
                client.process.join(TIMEOUT_S)
        finally:
            for client in clients:
                client.process.kill()
                client.process.join()
                client.pipe.close()

    # Trouble

    def _make_trouble(self) -> None:
        end_s = time.monotonic() + self.seconds
        troubles: list[Callable[[], None]] = [self._kill, self._sleep]
        if self.args:
            troubles.append(self._kill_worker)
        if self.zones:
            troubles.append(self._lose_zone)
        self.chance.shuffle(troubles)
        # Each of these is in every run, however short.
        more = [*troubles, self._storm, self._storm] if self.weather else [*troubles]
        while troubles or time.monotonic() < end_s:
            time.sleep(self.chance.uniform(0.3, 1.5))
            trouble = troubles.pop() if troubles else self.chance.choice(more)
            log.info("seed %d: %s", self.seed, trouble.__name__)
            trouble()

    def _kill(self) -> None:
        number = self.chance.randrange(len(self.running))
        old = self.running[number]
        if self.happened["gateway killed"] % 2 == 0:
            # It hangs before it dies, so that calls wait in it: what became of them is unknown.
            os.killpg(old.process.pid, signal.SIGSTOP)
            give_up_s = time.monotonic() + HANG_S_MAX
            time.sleep(self.chance.uniform(0.3, 0.6))
            while calls_waiting(old.port) < CALLS_WAITING and time.monotonic() < give_up_s:
                time.sleep(0.05)
        old.kill()
        time.sleep(self.chance.uniform(0, 0.5))
        self.running[number] = self._start(old.port)
        self.happened["gateway killed"] += 1

    def _kill_worker(self) -> None:
        os.kill(self.chance.choice(worker_pids(self.running[0])), signal.SIGKILL)
        self.happened["worker killed"] += 1

    def _sleep(self) -> None:
        gateway = self.chance.choice(self.running)
        victims = worker_pids(gateway) if self.args else [gateway.process.pid]
        victim = self.chance.choice(victims)
        os.kill(victim, signal.SIGSTOP)
        try:
            time.sleep(self.chance.uniform(1.2, 2) * group_plan(self.seed).session_s)
        finally:
            os.kill(victim, signal.SIGCONT)
        self.happened["put to sleep"] += 1

    def _storm(self) -> None:
        assert self.weather is not None
        self.weather.storms = dict(self.chance.choice(STORMS))
        time.sleep(self.chance.uniform(0.5, 3))
        self.weather.storms = {}
        self.happened["storm"] += 1

    def _lose_zone(self) -> None:
        assert self.weather is not None
        bucket = self.chance.choice(sorted(self.zones.values()))
        self.weather.refused_buckets = {bucket}
        time.sleep(self.chance.uniform(3, 5))
        self.weather.refused_buckets = set()
        self.happened["zone lost"] += 1

    # Calm

    def _tell(self, clients: list[Client], word: str) -> None:
        log.info("seed %d: %s", self.seed, word)
        for client in clients:
            client.pipe.send(word)
        for client in clients:
            if not client.has_done(word):
                self.history.stuck.append(f"{client.name} does not come to the end of {word}")

    def _read_back(self) -> None:
        """Read everything through a gateway that remembers nothing, and the log through all."""
        with self._start(free_port()) as fresh, Api(fresh.url) as api:
            for partition in range(PARTITIONS):
                self.history.final[partition] = read(api, TOPIC, partition)
                for topic in (COPIES, ATOMS):
                    place = topic, partition
                    self.history.transactions.final[place] = read(api, *place)
        for number, gateway in enumerate(self.running):
            with Api(gateway.url) as api:
                for partition in range(PARTITIONS):
                    began_s = time.monotonic()
                    values = tuple(read(api, TOPIC, partition))
                    end = len(values)
                    seen = Fetched(-number, partition, 0, began_s, values, end, end, False)
                    self.history.fetched.append(seen)

    def _check_stores(self) -> None:
        data = {"RIACHO_DATA": str(self.folder / "data")}
        code, said = exit_code("fsck", "-o", "json", env={**data, **self.deployment.env})
        if code:
            self.history.damage.append((said.stdout + said.stderr).decode()[-3000:])


def read(api: Api, topic: str, partition: int) -> list[tuple[int, str]]:
    return [(record["offset"], record["value"]) for record in api.read_all(topic, partition)]


def calls_waiting(port: int) -> int:
    """Return on how many connections to `port` something has arrived that nobody has read."""
    return sum(unread > 0 for unread in connections(port))


def connections(port: int) -> Iterator[int]:
    """Yield for every open connection to `port` how many bytes nobody has read."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues = line.split()[:5]
        if state == "01" and int(local.partition(":")[2], 16) == port:
            yield int(queues.partition(":")[2], 16)


def worker_pids(gateway: GatewayProcess) -> list[int]:
    """Return the processes that serve: those of its children that run Python's own start."""
    pid = gateway.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in _command(child)]


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def unknown_outcomes(history: History) -> int:
    return (
        sum(call.base is None and call.may_have_applied for call in history.produced)
        + sum(sent.answer == idempotent_rules.UNKNOWN for sent in history.idempotent.sent)
        + sum(end.answer == transaction_rules.UNKNOWN for end in history.transactions.endings)
    )


def judge(trial: Trial, history: History, replay: str) -> None:
    """Fail, and say how to see it again, if any rule is broken."""
    merged = trial.folder / "history.jsonl"
    operations.dump(history, merged)
    broken = violations(history)
    assert not broken, "\n".join(
        [
            f"seed {trial.seed}: {len(broken)} broken rules, of which the first are",
            *broken[:8],
            f"replay: {replay}",
            f"judge again: python -m tests.checker {merged}",
        ]
    )
