"""Copiers and gateways are killed and put to sleep all the time; every record is copied once."""

import itertools
import logging
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.gateway import GatewayProcess, free_port
from tests.integration.backends import on_one_backend
from tests.integration.copier import GROUP, Job
from tests.integration.copiers import SLEEP_S, Copiers
from tests.integration.processes import ARROW, TIMEOUT_S, Api, Deployment, Json, arrow_stream
from tests.torture.sizes import FULL

log = logging.getLogger(__name__)

SLICES = 30 if FULL else 6
RECORDS_PER_SLICE = 3_000 if FULL else 1_500
"""Something is killed with every slice, while there is something left to copy."""

SOURCE_PARTITIONS = 2
TARGET_PARTITIONS = 3
SLOW_S = 4 * TIMEOUT_S

pytestmark = [pytest.mark.timeout(1200), on_one_backend]


@dataclass
class Gateways:
    """Those there are now. Each comes back at its old address."""

    deployment: Deployment
    all: list[GatewayProcess] = field(default_factory=list)
    killed: int = 0

    def __post_init__(self) -> None:
        is_embedded = self.deployment.kind == "embedded"
        self.args = ("--workers", "2") if is_embedded else ()
        for _ in range(1 if is_embedded else 2):
            self.all.append(self._start(free_port()))

    def _start(self, port: int) -> GatewayProcess:
        env = {"RIACHO_GROUP_UPKEEP_S": "1"}
        return self.deployment.start(*self.args, port=port, env=env)

    def restart(self, number: int) -> None:
        number %= len(self.all)
        self.all[number].kill()
        self.killed += 1
        self.all[number] = self._start(self.all[number].port)

    def kill(self) -> None:
        for gateway in self.all:
            gateway.kill()

    @property
    def urls(self) -> list[str]:
        return [gateway.url for gateway in self.all]


@dataclass
class Copying:
    """Two topics, and how far the copy is."""

    gateways: Gateways
    source: str = ""
    target: str = ""
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=TIMEOUT_S))
    fed: list[int] = field(default_factory=lambda: [0] * SOURCE_PARTITIONS)

    def __post_init__(self) -> None:
        with Api(self.gateways.urls[0]) as api:
            self.source = api.topic(SOURCE_PARTITIONS)
            # Two lanes: a transaction has several heads to write.
            self.target = api.topic(TARGET_PARTITIONS, config={"lane.partitions": 2})

    def feed(self, count: int) -> None:
        """Produce more records, as many to each partition."""
        with Api(self.gateways.urls[0]) as api:
            for partition, start in enumerate(self.fed):
                stop = start + count // SOURCE_PARTITIONS
                values = [f"{partition}:{number}" for number in range(start, stop)]
                body = arrow_stream({"value": values})
                reply = api.send(self.source, body, ARROW, partition)
                assert reply.status_code == 200, reply.text
                assert reply.json()["results"][0]["base_offset"] == start
                self.fed[partition] = stop

    def copied(self) -> int:
        """Return how many records are copied; offsets and records are never apart."""
        at_least = self._written()
        committed = sum(self.committed().values())
        at_most = self._written()
        assert at_least <= committed <= at_most
        return at_most

    def committed(self) -> dict[int, int]:
        offsets = self._ask(f"/v1/groups/{GROUP}/offsets", {"topic": self.source}, missing={})
        return {one["partition"]: one["offset"] for one in offsets.get("offsets", [])}

    def owners(self, copiers: Copiers) -> list[int]:
        """Return the numbers of the copiers that have something to copy; of all if none has."""
        members = self._ask(f"/v1/groups/{GROUP}")["members"]
        busy = {one["client_id"] for one in members if one["assignment"]}
        numbers = range(len(copiers.jobs))
        return [n for n in numbers if copiers.jobs[n].name in busy] or list(numbers)

    def _written(self) -> int:
        partitions = self._ask(f"/v1/topics/{self.target}/partitions")["partitions"]
        return sum(one["high_watermark"] for one in partitions)

    def _ask(self, path: str, params: Json = None, missing: Json = None) -> Json:
        give_up_s = time.monotonic() + TIMEOUT_S
        for url in itertools.cycle(self.gateways.urls):
            assert time.monotonic() < give_up_s, "no gateway answers"
            try:
                reply = self.http.get(url + path, params=params)
            except httpx.TransportError:
                continue
            if reply.status_code == 404 and missing is not None:
                return missing
            if reply.status_code == 200:
                return reply.json()
        raise AssertionError

    def wait_until(self, count: int, copiers: Copiers) -> None:
        """Return when so many records are copied."""
        give_up_s = time.monotonic() + SLOW_S
        while (copied := self.copied()) < count:
            copiers.check()
            assert time.monotonic() < give_up_s, (copied, count, copiers.words())
            time.sleep(0.05)

    def check(self) -> None:
        """Read all copies, and compare them with what there was to copy."""
        seen: list[str] = []
        with Api(self.gateways.urls[0]) as api:
            for partition in range(TARGET_PARTITIONS):
                last = [-1] * SOURCE_PARTITIONS
                for record in api.read_all_arrow(self.target, partition):
                    value = record["value"].decode()
                    headers = {one["key"]: one["value"] for one in record["headers"]}
                    assert headers["source"].decode() == value
                    source, offset = map(int, value.split(":"))
                    assert offset > last[source], f"{value} comes after {last[source]}"
                    last[source] = offset
                    seen.append(value)
        expected = {f"{p}:{n}" for p, fed in enumerate(self.fed) for n in range(fed)}
        assert set(seen) == expected, f"{len(expected - set(seen))} are missing"
        assert len(seen) == len(expected), "some are there twice"
        assert self.committed() == dict(enumerate(self.fed))


@pytest.fixture(scope="module")
def gateways(deployment: Deployment) -> Iterator[Gateways]:
    gateways = Gateways(deployment)
    try:
        yield gateways
    finally:
        gateways.kill()


def test_every_record_is_copied_once_and_in_order(gateways: Gateways, tmp_path: Path) -> None:
    copying = Copying(gateways)
    jobs = [
        Job(
            name=f"copier-{number}",
            urls=gateways.urls,
            source=copying.source,
            target=copying.target,
            is_staged=number > 0,
            is_static=number == 2,
        )
        for number in range(3)
    ]
    copiers = Copiers(tmp_path, jobs)
    began_s = time.monotonic()
    chance = random.Random(gateways.deployment.kind)
    with ExitStack() as stack:
        stack.enter_context(copying.http)
        stack.callback(copiers.kill)
        for number in range(len(jobs)):
            copiers.start(number)
        for turn in range(SLICES):
            copying.feed(RECORDS_PER_SLICE)
            share = chance.randrange(RECORDS_PER_SLICE // 2)
            copying.wait_until(turn * RECORDS_PER_SLICE + share, copiers)
            disturb(turn, chance.choice(copying.owners(copiers)), gateways, copiers)
        copiers.wake_all()
        copying.wait_until(SLICES * RECORDS_PER_SLICE, copiers)
        copiers.stop()
        copying.check()
    log.info(
        "%d records in %.0f s; killed %d copiers and %d gateways; %s",
        *(SLICES * RECORDS_PER_SLICE, time.monotonic() - began_s, copiers.killed, gateways.killed),
        dict(copiers.words()),
    )
    assert copiers.killed >= SLICES // 3
    assert gateways.killed >= SLICES // 3


def disturb(turn: int, number: int, gateways: Gateways, copiers: Copiers) -> None:
    """Kill a gateway, or a copier, or put one to sleep until all that it had is lost."""
    match turn % 6:
        case 0 | 3:
            copiers.restart(number)
        case 1:
            gateways.restart(turn // 6)
        case 2:
            # Another one has taken its name when it wakes.
            copiers.current(number).sleep()
            copiers.start(number)
        case 4:
            copiers.restart(number)
            gateways.restart(turn // 6 + 1)
            copiers.wake_all()
        case 5:
            copiers.current(number).sleep()
            if gateways.deployment.kind == "cloud":
                # An embedded one may be asleep with the lock of the SQLite file in hand.
                doze(gateways.all[turn // 6 % 2])
            copiers.wake_all()


def doze(gateway: GatewayProcess) -> None:
    """Let a gateway miss all that happens in the time that a session lasts."""
    os.kill(gateway.process.pid, signal.SIGSTOP)
    try:
        time.sleep(SLEEP_S)
    finally:
        os.kill(gateway.process.pid, signal.SIGCONT)
