"""Gateways that die, stop and sleep under load: what was acknowledged is there, once, for ever."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.gateway import GatewayProcess, free_port
from tests.integration.load import check_through, load, new_ledger, wait_for_acks, watch
from tests.integration.processes import (
    SSE,
    TIMEOUT_S,
    Api,
    embedded,
    events,
    records_path,
)
from tests.integration.trial import connections
from tests.integration.zoned import until
from tests.torture.sizes import FULL, some

WORKERS = pytest.mark.parametrize("workers", some([1, 2], 2))

ROUNDS = 6 if FULL else 2


@WORKERS
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, workers: int) -> None:
    deployment = embedded(tmp_path)
    port = free_port()
    args = ("--workers", str(workers))
    rng = random.Random(workers)
    gateway = deployment.start(*args, port=port)
    try:
        ledger = new_ledger(gateway)
        for round_number in range(ROUNDS):
            with load(ledger, [gateway.url], seed=round_number):
                wait_for_acks(ledger, 60)
                time.sleep(rng.random() * 0.5)
                gateway.kill()
            gateway = deployment.start(*args, port=port)
            check_through(ledger, gateway)
        assert len(ledger.acked) > 100
    finally:
        gateway.kill()


def test_the_log_goes_on_while_its_gateway_is_killed_and_started_again(tmp_path: Path) -> None:
    deployment = embedded(tmp_path)
    port = free_port()
    gateway = deployment.start(port=port)
    try:
        ledger = new_ledger(gateway)
        with watch(ledger, [gateway.url]), load(ledger, [gateway.url]):
            for _ in range(ROUNDS):
                wait_for_acks(ledger, 50)
                gateway.kill()
                gateway = deployment.start(port=port)
            wait_for_acks(ledger, 50)
        check_through(ledger, gateway)
    finally:
        gateway.kill()


@WORKERS
def test_a_gateway_that_is_told_to_stop_answers_what_it_has_taken(
    tmp_path: Path, workers: int
) -> None:
    deployment = embedded(tmp_path)
    gateway = deployment.start("--workers", str(workers))
    ledger = new_ledger(gateway)
    try:
        with load(ledger, [gateway.url], threads=10):
            wait_for_acks(ledger, 100)
            # The process itself, not its group: what a supervisor does.
            os.kill(gateway.process.pid, signal.SIGTERM)
            assert gateway.process.wait(TIMEOUT_S) == 0
    finally:
        gateway.kill()
    with deployment.start() as again:
        check_through(ledger, again)
    stored = {value for values in ledger.seen.values() for value in values}
    # A connection may close before a request is read; but then it was not carried out either.
    assert not ledger.transport_errors & stored
    assert "Traceback" not in gateway.log.read_text()


@WORKERS
def test_those_who_wait_do_not_hold_up_a_gateway_that_is_told_to_stop(
    tmp_path: Path, workers: int
) -> None:
    gateway = embedded(tmp_path).start("--workers", str(workers))
    try:
        with Api(gateway.url) as api:
            path = gateway.url + records_path(api.topic(), 0)

        def tail() -> list[dict[str, str]]:
            with httpx.stream("GET", path, headers={"accept": SSE}, timeout=TIMEOUT_S) as reply:
                return list(events(reply.iter_lines()))

        with ThreadPoolExecutor(8) as pool:
            polls = [
                pool.submit(httpx.get, path, params={"max_wait_ms": 60_000}, timeout=90)
                for _ in range(4)
            ]
            tails = [pool.submit(tail) for _ in range(4)]
            until(lambda: calls_taken(gateway.port) >= 8, "all wait")
            os.kill(gateway.process.pid, signal.SIGTERM)
            assert gateway.process.wait(50) == 0
            assert [poll.result().status_code for poll in polls] == [200] * 4
            for each in tails:
                assert "error" not in {event.get("event") for event in each.result()}
    finally:
        gateway.kill()


def calls_taken(port: int) -> int:
    """Return how many calls a gateway has read, of those that were sent and wait for an answer."""
    counted = []
    for _ in range(2):  # A connection may be open before its request has arrived.
        time.sleep(0.3)
        counted.append(sum(unread == 0 for unread in connections(port)))
    return min(counted)


def test_a_worker_that_dies_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    with embedded(tmp_path).start("--workers", "2") as gateway:
        ledger = new_ledger(gateway)
        with watch(ledger, [gateway.url]), load(ledger, [gateway.url]):
            for _ in range(ROUNDS):
                wait_for_acks(ledger, 50)
                victim = worker_pids(gateway)[0]
                os.kill(victim, signal.SIGKILL)
                wait_for_acks(ledger, 50)
        check_through(ledger, gateway)


def worker_pids(gateway: GatewayProcess) -> list[int]:
    """Return the processes that serve, which /v1/cluster names."""
    cluster = httpx.get(gateway.url + "/v1/cluster").json()
    alive = [each["pid"] for each in cluster["gateways"] if Path(f"/proc/{each['pid']}").exists()]
    assert gateway.process.pid not in alive
    return alive


def test_a_second_start_on_the_same_port_fails_and_harms_nobody(tmp_path: Path) -> None:
    deployment = embedded(tmp_path)
    with deployment.start() as gateway, Api(gateway.url) as api:
        topic = api.topic()
        api.produce(topic, [{"value": "v"}])
        assert exit_code_of_a_second(gateway, ["--data", str(tmp_path / "data")]) != 0
        assert len(api.read_all(topic)) == 1


def exit_code_of_a_second(gateway: GatewayProcess, args: Sequence[str]) -> int:
    command = [*gateway.process.args[:3], "serve", "--port", str(gateway.port), *args]  # type: ignore[index]
    return subprocess.run(
        command, capture_output=True, timeout=TIMEOUT_S, cwd=Path(__file__).parents[2]
    ).returncode
