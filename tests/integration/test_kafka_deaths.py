"""Producers and groups of Kafka's clients go on when a worker or a gateway dies at once."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from tests.gateway import GatewayProcess, free_port, start_gateway
from tests.integration.kafka_readers import SESSION_MS, LibrdkafkaMember, Reading
from tests.integration.test_kafka_clients import Sent, wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 6
FAST = {"RIACHO_GATEWAY_HEARTBEAT_S": "1"}


def create(url: str, topic: str) -> None:
    """Make a topic with a lane for each partition, so that all brokers lead some."""
    shape = {"name": topic, "partitions": PARTITIONS, "config": {"lane.partitions": 1}}
    httpx.post(f"{url}/v1/topics", json=shape, timeout=60).raise_for_status()


def workers_of(gateway: GatewayProcess) -> list[int]:
    parent = gateway.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [
        int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def brokers(bootstrap: str) -> set[int]:
    """Return the ports of all brokers that clients are told of."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return {each.port for each in client.list_topics(timeout=30).brokers.values()}


class Load:
    """Records of one producer, and the values of those that it has sent."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._sent = Sent(bootstrap, **{"linger.ms": 5})
        self._topic = topic
        self.values: set[bytes] = set()

    def send(self, count: int = 1200) -> None:
        for _ in range(count):
            number = len(self.values)
            value = b"%d" % number
            self.values.add(value)
            self._sent.send(self._topic, number % PARTITIONS, value)

    def flush(self) -> None:
        """Wait until all are acknowledged, and see that none failed."""
        self._sent.flush()
        assert set(self._sent.acknowledged) == self.values
        assert len(set(self._sent.acknowledged.values())) == len(self.values)


@pytest.fixture
def two_workers(tmp_path: Path) -> Iterator[tuple[GatewayProcess, str]]:
    bootstrap = f"127.0.0.1:{free_port()}"
    args = ("--workers", "2", "--kafka", bootstrap)
    with start_gateway(tmp_path, *args, env=FAST) as gateway:
        wait_until(lambda: len(brokers(bootstrap)) == 2)
        yield gateway, bootstrap


def test_a_worker_that_is_killed_loses_nothing(two_workers: tuple[GatewayProcess, str]) -> None:
    gateway, bootstrap = two_workers
    create(gateway.url, "worked")
    reading, load = Reading(), Load(bootstrap, "worked")
    with ExitStack() as stack:
        members = []
        for _ in range(2):
            config = {"session.timeout.ms": SESSION_MS}
            members.append(LibrdkafkaMember(bootstrap, "worked", reading, **config))
            stack.callback(members[-1].stop)
        load.send()
        load.flush()
        wait_until(lambda: reading.has(load.values))
        wait_until(lambda: sorted(len(member.owned) for member in members) == [3, 3])
        for victim in workers_of(gateway):
            os.kill(victim, signal.SIGKILL)
            load.send()
            load.flush()

            wait_until(lambda: reading.has(load.values))
            wait_until(lambda: sorted(len(member.owned) for member in members) == [3, 3])
            wait_until(lambda: len(workers_of(gateway)) == 2)
        load.send()
        load.flush()
        wait_until(lambda: reading.has(load.values))
        assert [member.fatal for member in members] == [[], []]
