"""Processes that stand still, also with SQLite's lock in hand, beside others on one directory."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.gateway import GatewayProcess
from tests.integration.load import Ledger, load, new_ledger, wait_for_acks
from tests.integration.processes import JSON, TIMEOUT_S, Api, records_path
from tests.integration.trial import worker_pids
from tests.integration.zoned import until
from tests.torture.deployment import AS_OBJECTS, check_all, deployment
from tests.torture.sizes import FULL, only_proof

pytestmark = pytest.mark.slow

STOPS = 30 if FULL else 3
LOCKED_S_MAX = 15.0
"""The gateway gives up after ten seconds; the rest is for the machine."""

HOLDER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
print("released", flush=True)
"""


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def lock_held(data: Path) -> Iterator[None]:
    """Hold SQLite's lock by a process that does not run."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(data / "metadata.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == "locked\n"
            with stopped(holder.pid):
                yield
            holder.stdin.write("\n")
            holder.stdin.flush()
            assert holder.stdout.readline() == "released\n"
        finally:
            holder.kill()


def progress(ledger: Ledger) -> int:
    return len(ledger.acked) + len(ledger.refused) + len(ledger.unknown)


def stop_often(ledger: Ledger, pids: list[int]) -> None:
    """Stop one process after the other at any moment, until the others have had answers."""
    rng = random.Random(1)
    for _ in range(STOPS):
        wait_for_acks(ledger, 10)
        time.sleep(rng.random() * 0.05)
        with stopped(rng.choice(pids)):
            enough = progress(ledger) + 10
            until(lambda enough=enough: progress(ledger) >= enough, "others are answered")


def test_one_of_two_gateways_stands_still_at_any_moment(tmp_path: Path) -> None:
    here = deployment(tmp_path, AS_OBJECTS)
    with here.start() as first, here.start() as second:
        ledger = new_ledger(first)
        with load(ledger, [first.url, second.url]):
            stop_often(ledger, [first.process.pid, second.process.pid])
            wait_for_acks(ledger, 50)
        check_all(ledger, first, tmp_path)
        check_all(ledger, second, tmp_path)


@only_proof
def test_one_of_two_workers_stands_still_at_any_moment(tmp_path: Path) -> None:
    with deployment(tmp_path).start("--workers", "2") as gateway:
        ledger = new_ledger(gateway)
        until(lambda: len(worker_pids(gateway)) == 2, "two workers")
        with load(ledger, [gateway.url], threads=12):
            stop_often(ledger, worker_pids(gateway))
            wait_for_acks(ledger, 50)
        check_all(ledger, gateway, tmp_path)


@only_proof
def test_a_lock_that_a_stopped_process_holds_is_waited_for_and_forgotten(tmp_path: Path) -> None:
    here = deployment(tmp_path)
    with here.start() as first, here.start() as second:
        ledger = new_ledger(first)
        with load(ledger, [first.url, second.url]):
            wait_for_acks(ledger, 30)
            with lock_held(tmp_path / "data"):
                check_reads_go_on(ledger, first)
                refused = len(ledger.refused)
                until(lambda: len(ledger.refused) > refused + 4, "refusals")
            wait_for_acks(ledger, 50)
        check_all(ledger, second, tmp_path)


def check_reads_go_on(ledger: Ledger, gateway: GatewayProcess) -> None:
    with Api(gateway.url) as api:
        (partition, offset), value = next(iter(ledger.acked.items()))
        page = api.fetch(ledger.topic, partition, offset=offset, max_records=1)
        assert [record["value"] for record in page["records"]] == [value]


def test_a_lock_that_is_held_is_reported_in_time(tmp_path: Path) -> None:
    with deployment(tmp_path).start() as gateway, Api(gateway.url) as api:
        topic = api.topic(4)

        def produce(number: int) -> tuple[httpx.Response, float]:
            began_s = time.monotonic()
            reply = httpx.post(
                gateway.url + records_path(topic, number % 4),
                content=json.dumps({"records": [{"value": str(number)}]}),
                headers={"content-type": JSON},
                timeout=2 * TIMEOUT_S,
            )
            return reply, time.monotonic() - began_s

        with lock_held(tmp_path / "data"), ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(produce, range(32)))
        # Two waves: those of the second came when the first had been refused.
        assert max(took_s for _, took_s in answers) < LOCKED_S_MAX or not FULL
        for reply, _ in answers:
            assert reply.status_code == 503, reply.text
            assert reply.json()["may_have_applied"] is False, reply.text
            assert "lock" in reply.json()["detail"], reply.text
        [result] = api.produce(topic, [{"value": "again", "partition": 0}])
        assert result["base_offset"] == 0
