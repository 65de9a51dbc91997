"""Kafka Streams counts words on a gateway, and goes on where it was after a restart."""

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from tests.gateway import GatewayProcess
from tests.integration.test_kafka_clients import wait_until
from tests.kafka_programs.programs import TIMEOUT_S, Tools, streams_jars
from tests.torture.sizes import some

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PROGRAM: Final = str(Path(__file__).with_name("java") / "WordCount.java")
LINES: Final = [f"{word} and {word} again" for word in ("log", "lane", "head", "zone") * 5]


@pytest.fixture(scope="module")
def jars() -> Path:
    return streams_jars()


@contextmanager
def counting(jars: Path, bootstrap: str, guarantee: str, folder: Path) -> Iterator[None]:
    """Count until the end of the block, then end in order."""
    names = f"lines-{guarantee}", f"counts-{guarantee}"
    command = Tools(jars, bootstrap).command(PROGRAM, bootstrap, *names, str(folder), guarantee)
    log = folder.with_suffix(".log")
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    try:
        yield
        assert process.poll() is None, log.read_text()[-3000:]
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)
    finally:
        process.kill()
        process.wait()


class Counts:
    """The newest count of each word."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.seen: dict[str, list[int]] = {}
        self.consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        )
        self.consumer.subscribe([topic])

    def are(self, expected: Counter[str]) -> bool:
        for message in self.consumer.consume(500, 0.2):
            word, count = message.key(), message.value()
            if message.error() is None and isinstance(word, bytes) and isinstance(count, bytes):
                self.seen.setdefault(word.decode(), []).append(int(count))
        return {word: counts[-1] for word, counts in self.seen.items()} == dict(expected)


def write(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for line in LINES:
        producer.produce(topic, line)
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.parametrize("guarantee", some(["at_least_once", "exactly_once_v2"], "exactly_once_v2"))
def test_words_are_counted_before_and_after_a_restart(
    jars: Path, gateway: GatewayProcess, bootstrap: str, tmp_path: Path, guarantee: str
) -> None:
    lines = f"lines-{guarantee}"
    for topic in (lines, f"counts-{guarantee}"):
        body = {"name": topic, "partitions": 2}
        httpx.post(f"{gateway.url}/v1/topics", json=body).raise_for_status()
    once = Counter(word for line in LINES for word in line.split())
    twice = Counter({word: 2 * count for word, count in once.items()})
    counts = Counts(bootstrap, f"counts-{guarantee}")

    write(bootstrap, lines)
    with counting(jars, bootstrap, guarantee, tmp_path / "first"):
        wait_until(lambda: counts.are(once))
    write(bootstrap, lines)
    # Another folder, so that it has to restore its counts from their topic.
    with counting(jars, bootstrap, guarantee, tmp_path / "second"):
        wait_until(lambda: counts.are(twice))

    counts.consumer.close()
    for of_word in counts.seen.values():
        assert of_word == sorted(set(of_word))
    topics = [each["name"] for each in httpx.get(f"{gateway.url}/v1/topics").json()["topics"]]
    inner = [name for name in topics if name.startswith(f"{guarantee}-")]
    assert sorted(name.rpartition("-")[2] for name in inner) == ["changelog", "repartition"]
