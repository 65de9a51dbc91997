"""Java's consumer, librdkafka and HTTP in one group, and in groups whose gateway dies."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from riacho import Consumer
from tests.gateway import GatewayProcess, free_port, start_gateway
from tests.integration.kafka_readers import (
    SESSION_MS,
    LibrdkafkaMember,
    Member,
    PrintingMember,
    Reading,
)
from tests.integration.test_kafka_clients import wait_until
from tests.integration.test_kafka_deaths import FAST, PARTITIONS, Load, create
from tests.kafka_programs.programs import Tools, kafka_jars
from tests.torture.sizes import only_proof

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class HttpMember:
    """A member that knows only HTTP, in a thread."""

    def __init__(self, url: str, topic: str, reading: Reading) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(url, topic, reading))
        self._thread.start()

    def _run(self, url: str, topic: str, reading: Reading) -> None:
        with Consumer(url, group_id=topic, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(topic)
            while not self._over.is_set():
                reading.add([each.value for each in consumer.poll(0.2) if each.value is not None])

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def java_member(
    jars: Path, bootstrap: str, topic: str, reading: Reading, **config: object
) -> PrintingMember:
    given = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 200, **config}
    settings = [
        text for key, value in given.items() for text in ("--command-property", f"{key}={value}")
    ]
    at = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", topic)
    return PrintingMember(Tools(jars, bootstrap).command(CONSOLE, *at, *settings), reading)


def shares(url: str, group: str) -> list[int]:
    """Return how many partitions each member reads, if each partition has one owner."""
    found = httpx.get(f"{url}/v1/groups/{group}", timeout=60).json()
    owned = [
        sorted(p for each in member["assignment"] for p in _partitions(each))
        for member in found.get("members", [])
    ]
    if sorted(p for each in owned for p in each) != list(range(PARTITIONS)):
        return []
    return sorted(map(len, owned))


def _partitions(assigned: dict[str, object]) -> list[int]:
    return [int(str(assigned["partition"]))]


@pytest.fixture(scope="module")
def jars() -> Path:
    return kafka_jars()


def test_java_librdkafka_and_http_share_a_group(
    jars: Path, gateway: GatewayProcess, bootstrap: str
) -> None:
    topic = "shared"
    create(gateway.url, topic)
    reading, load = Reading(), Load(bootstrap, topic)
    new = {"group.protocol": "consumer"}
    starts: Sequence[Callable[[], Member]] = [
        lambda: java_member(jars, bootstrap, topic, reading, **new),
        lambda: LibrdkafkaMember(bootstrap, topic, reading, **new),
        lambda: HttpMember(gateway.url, topic, reading),
    ]
    load.send(count=300)
    load.flush()
    with ExitStack() as stack:
        for start in starts:
            stack.callback(start().stop)
        wait_until(lambda: shares(gateway.url, topic) == [2, 2, 2])
        wait_until(lambda: reading.has(load.values))
        before = set(load.values)

        load.send(count=1200)
        load.flush()

        wait_until(lambda: reading.has(load.values))
        # Partitions do not move while these are read, so none is read twice.
        assert set(reading.of(load.values - before).values()) == {1}
        assert shares(gateway.url, topic) == [2, 2, 2]


@only_proof
def test_a_group_of_six_goes_on_when_two_of_three_gateways_are_killed(
    jars: Path, tmp_path: Path
) -> None:
    topic = "moving"
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    bootstrap = ",".join(addresses)
    with ExitStack() as stack:
        gateways = [
            stack.enter_context(start_gateway(tmp_path, "--kafka", address, env=FAST))
            for address in addresses
        ]
        create(gateways[0].url, topic)
        reading, load = Reading(), Load(bootstrap, topic)
        config = {"session.timeout.ms": SESSION_MS}
        for _ in range(4):
            member = LibrdkafkaMember(bootstrap, topic, reading, **config)
            stack.callback(member.stop)
        for _ in range(2):
            stack.callback(java_member(jars, bootstrap, topic, reading, **config).stop)
        load.send()
        load.flush()
        wait_until(lambda: shares(gateways[0].url, topic) == [1] * 6)
        wait_until(lambda: reading.has(load.values))

        for victim in gateways[1:]:
            victim.kill()
            load.send()
            load.flush()
            wait_until(lambda: reading.has(load.values))
            wait_until(lambda: shares(gateways[0].url, topic) == [1] * 6)
