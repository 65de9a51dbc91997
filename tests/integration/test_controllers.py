"""Two controllers, one of which is asleep whenever it matters: only one changes anything."""

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import GatewayProcess
from tests.integration.processes import Api
from tests.integration.zoned import ZONES, Zoned, in_sync, make_topic, until, until_in_sync
from tests.torture.sizes import FULL

ROUNDS = 10 if FULL else 2

TAKEN_OVER_S = 8.0
"""After so long a sleeper is woken for a moment: it may hold the lock of the table's file."""

pytestmark = pytest.mark.timeout(1800)


@dataclass
class Pair:
    zoned: Zoned
    gateways: dict[int, GatewayProcess]

    def api(self, pid: int) -> Api:
        return Api(self.gateways[pid].url)

    def other(self, pid: int) -> int:
        [other] = self.gateways.keys() - {pid}
        return other

    def controller(self, asked: int) -> tuple[int, int]:
        """Return who it is, and in which epoch."""
        with self.api(asked) as api:
            cluster = api.http.get("/v1/cluster").json()
        pids = {each["id"]: each["pid"] for each in cluster["gateways"]}
        return pids.get(cluster["controller"], 0), cluster["controller_epoch"] or 0


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    zoned = Zoned(tmp_path)
    with zoned.start() as one, zoned.start() as other:
        try:
            yield Pair(zoned, {each.process.pid: each for each in (one, other)})
        finally:
            for gateway in (one, other):
                os.kill(gateway.process.pid, signal.SIGCONT)


def test_a_controller_that_was_asleep_changes_nothing(pair: Pair) -> None:
    chance = random.Random(1)
    zoned = pair.zoned
    until(lambda: pair.controller(min(pair.gateways))[0] in pair.gateways, "somebody is it")
    with pair.api(min(pair.gateways)) as api:
        topic = make_topic(api)
        for partition in range(3):
            api.produce(topic, [{"value": "v"}], partition)
    for number in range(ROUNDS):
        name = ZONES[number % len(ZONES)]
        asleep, epoch = pair.controller(min(pair.gateways))
        awake = pair.other(asleep)
        # It has seen that the zone fails, or is about to: in the middle of anything.
        zoned.fail(name, "denied")
        time.sleep(chance.random() * 1.2)
        os.kill(asleep, signal.SIGSTOP)
        taken_over(pair, asleep, awake, epoch)
        zoned.heal(name)
        with pair.api(awake) as api:
            until_in_sync(api, topic, ZONES, f"{name} is back")
            before = epochs(api, topic)
            os.kill(asleep, signal.SIGCONT)
            # What it had decided is refused, and it notices that it is not the controller.
            successor = (awake, epoch + 1)
            until(lambda: pair.controller(asleep) == successor, "it notices")  # noqa: B023
            assert epochs(api, topic) == before
            assert in_sync(api, topic) == {ZONES}
        assert pair.controller(awake) == successor
    check_table(zoned.faults / "table.log", set(pair.gateways), ROUNDS)
    code, said = zoned.fsck()
    assert code == 0, said[-3000:]


def taken_over(pair: Pair, asleep: int, awake: int, epoch: int) -> None:
    """Return when the other one is the controller."""
    give_up_s = time.monotonic() + 600
    while True:
        look_again_s = time.monotonic() + TAKEN_OVER_S
        while time.monotonic() < look_again_s:
            if pair.controller(awake) == (awake, epoch + 1):
                return
            time.sleep(0.1)
        assert time.monotonic() < give_up_s, "nobody took over"
        os.kill(asleep, signal.SIGCONT)
        time.sleep(0.01)
        os.kill(asleep, signal.SIGSTOP)


def epochs(api: Api, topic: str) -> list[int]:
    reply = api.http.get(f"/v1/topics/{topic}/partitions")
    return [each["leader_epoch"] for each in reply.json()["partitions"]]


def check_table(log: Path, pids: set[int], rounds: int) -> None:
    """Check that whatever a controller changed it changed under a lease of its own."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    leases = [line for line in lines if line["key"] == "lease/controller"]
    holders = {line["new"]: (line["pid"], line["epoch"]) for line in leases}
    owners: dict[int, set[int]] = {}
    for pid, epoch in holders.values():
        owners.setdefault(epoch, set()).add(pid)
    assert all(len(each) == 1 for each in owners.values()), owners
    assert set(owners) >= set(range(1, rounds + 2))
    assert set().union(*owners.values()) == pids
    decided = [line for line in lines if line["key"].startswith("zone/") or line["under"]]
    assert {line["pid"] for line in decided} == pids
    for line in decided:
        [version] = line["under"]
        assert holders[version][0] == line["pid"], line
