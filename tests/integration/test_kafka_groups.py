"""Clients of three makers share a topic as one group, and its partitions survive their deaths."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from confluent_kafka import Consumer

from tests.commands import riacho
from tests.gateway import free_port, start_gateway
from tests.integration.test_kafka_clients import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 6


class Door:
    def __init__(self, url: str, address: str) -> None:
        self.url = url
        self.address = address

    def topic(self, name: str) -> str:
        body = {"name": name, "partitions": PARTITIONS}
        httpx.post(f"{self.url}/v1/topics", json=body).raise_for_status()
        return name

    def shown(self, group: str) -> tuple[str, list[int]]:
        """Return the state of a group by HTTP, and how much each member reads."""
        found = httpx.get(f"{self.url}/v1/groups/{group}").json()
        return found["state"], sorted(len(member["assignment"]) for member in found["members"])


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    path = tmp_path_factory.mktemp("kafka")
    (path / "data").mkdir(exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    env = {"RIACHO_GROUP_MIN_SESSION_TIMEOUT_MS": "1000"}
    with start_gateway(path, "--kafka", address, env=env) as process:
        yield Door(process.url, address)


class Living:
    """A member in a process of its own."""

    def __init__(self, door: Door, client: str, topic: str, group: str) -> None:
        self.partitions: list[int] = []
        command = [sys.executable, "-m", "tests.integration.kafka_member"]
        self._process = subprocess.Popen(
            [*command, client, door.address, topic, group],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.partitions = json.loads(line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def have_settled(members: Sequence[Living]) -> bool:
    """Whether every member has partitions, and every partition one member."""
    owned = [list(member.partitions) for member in members]
    return all(owned) and sorted(p for each in owned for p in each) == list(range(PARTITIONS))


@pytest.mark.parametrize(
    ("clients", "group", "assignor"),
    [
        (("range", "kafka-python", "aiokafka"), "mixed", "range"),
        (
            ("cooperative-sticky", "cooperative-sticky", "cooperative-sticky"),
            "cooperative",
            "cooperative-sticky",
        ),
    ],
)
def test_each_partition_has_one_owner_whoever_dies(
    door: Door, clients: Sequence[str], group: str, assignor: str
) -> None:
    topic = door.topic(group)
    with ExitStack() as stack:
        members = [Living(door, client, topic, group) for client in clients]
        for member in members:
            stack.callback(member.kill)
        wait_until(lambda: have_settled(members))

        wait_until(lambda: door.shown(group) == ("Stable", [2, 2, 2]))
        listed = httpx.get(f"{door.url}/v1/groups").json()["groups"]
        [found] = [each for each in listed if each["group"] == group]
        assert (found["kind"], found["protocols"]) == ("classic", ["classic"])
        assert (found["protocol_type"], found["assignor"]) == ("consumer", assignor)

        members[0].kill()

        wait_until(lambda: have_settled(members[1:]))


def test_a_group_shows_what_its_members_speak(door: Door) -> None:
    topic, calls = door.topic("shared"), f"{door.url}/v1/groups/shared"
    httpx.post(f"{calls}/members", json={"topics": [topic]}).raise_for_status()
    with ExitStack() as stack:
        for group_protocol in ("consumer", "classic"):
            consumer = Consumer(
                {
                    "bootstrap.servers": door.address,
                    "group.id": "shared",
                    "group.protocol": group_protocol,
                }
            )
            stack.callback(consumer.close)
            consumer.subscribe([topic])
            stack.enter_context(polling(consumer))
        wait_until(lambda: len(door.shown("shared")[1]) == 3)
        found = httpx.get(calls).json()
        listed = riacho("group", "list", url=door.url).stdout.decode()
        described = riacho("group", "describe", "shared", url=door.url).stdout.decode()

    assert (found["kind"], found["protocol_type"]) == ("native", "consumer")
    assert found["protocols"] == ["classic", "consumer", "http"]
    assert sorted(each["protocol"] for each in found["members"]) == found["protocols"]
    assert "classic,consumer,http" in next(x for x in listed.splitlines() if "shared" in x)
    assert "SPEAKS" in described


@contextmanager
def polling(consumer: Consumer) -> Iterator[None]:
    """Let a consumer take part in its group until the end of the block."""
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            consumer.poll(0.1)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
