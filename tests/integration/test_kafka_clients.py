"""Clients of other makers against `riacho serve`: what they send comes back, in order."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as Place
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.commands import riacho
from tests.gateway import GatewayProcess, free_port, start_gateway

PATIENCE_S = 120.0


class Door:
    """A gateway, and where Kafka's clients reach it."""

    def __init__(self, path: Path) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        env = {"RIACHO_GATEWAY_HEARTBEAT_S": "1"}
        folder = path / "data"
        folder.mkdir(exist_ok=True)
        self.process: GatewayProcess = start_gateway(path, "--kafka", self.address, env=env)
        wait_until(self._listens)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def wait_until(condition: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s, "it takes too long"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    found = Door(tmp_path_factory.mktemp("kafka"))
    with found.process:
        yield found


class Sent:
    """A producer of librdkafka, and what became of its records."""

    def __init__(self, address: str, **config: Any) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.errors: list[str] = []
        self.fatal: list[str] = []
        common = {"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0}
        self.producer = Producer({**common, "error_cb": self._on_error, **config})

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.fatal.append(str(error))

    def _on_delivery(self, error: Any, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert isinstance(value, bytes)
        assert partition is not None
        assert offset is not None
        self.acknowledged[value] = partition, offset

    def send(self, topic: str, partition: int, *values: bytes) -> None:
        for value in values:
            self.producer.produce(topic, value, partition=partition, on_delivery=self._on_delivery)
            self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(PATIENCE_S) == 0
        assert self.errors == self.fatal == []


def consumed(address: str, topic: str, partitions: int, count: int) -> dict[int, list[bytes]]:
    """Return the values of each partition, once there are so many in all."""
    config = {
        "bootstrap.servers": address,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    consumer = Consumer(config)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        give_up_s = time.monotonic() + PATIENCE_S
        while sum(map(len, found.values())) < count:
            assert time.monotonic() < give_up_s, {p: len(v) for p, v in found.items()}
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert isinstance(value, bytes)
                assert message.offset() == len(found[partition])
                found[partition].append(value)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_reads_what_it_wrote(door: Door, codec: str) -> None:
    sent = Sent(door.address, **{"compression.type": codec, "linger.ms": 2})
    values = [b"%d " % number + b"x" * 100 for number in range(2000)]
    sent.send(f"of-{codec}", 0, *values)
    sent.flush()

    assert consumed(door.address, f"of-{codec}", 1, len(values)) == {0: values}
    assert [sent.acknowledged[value] for value in values] == [(0, n) for n in range(2000)]


def test_the_cluster_shows_where_kafkas_clients_connect(door: Door) -> None:
    [shown] = httpx.get(f"{door.process.url}/v1/cluster").json()["gateways"]
    printed = riacho("cluster", url=door.process.url).stdout.decode()

    assert shown["kafka"] == {"node_id": 1, "host": "127.0.0.1", "port": door.port}
    assert f"  {door.address}" in printed


def test_what_is_made_for_three_brokers_works_on_a_laptop(door: Door) -> None:
    config = {"min.insync.replicas": "2"}
    admin = AdminClient({"bootstrap.servers": door.address})
    [made] = admin.create_topics([NewTopic("safe", 1, 3, config=config)]).values()
    made.result(PATIENCE_S)
    sent = Sent(door.address, acks="all")
    sent.send("safe", 0, b"x")
    sent.flush()

    shown = httpx.get(f"{door.process.url}/v1/topics/safe").json()
    assert shown["replication_factor"] == 1
    assert shown["config"]["min.insync.replicas"] == "2"


def test_records_are_the_same_through_both_doors(door: Door) -> None:
    sent = Sent(door.address)
    headers: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("h", None)]
    sent.producer.produce("both", b"by kafka", b"k", 0, timestamp=1234, headers=headers)
    sent.flush()
    records = f"{door.process.url}/v1/topics/both/partitions/0/records"
    [record] = httpx.get(records, params={"offset": 0}).json()["records"]
    assert (record["key"], record["value"], record["timestamp"]) == ("k", "by kafka", 1234)

    body = {"records": [{"key": None, "value": "by http"}]}
    assert httpx.post(records, json=body).status_code == 200
    assert consumed(door.address, "both", 1, 2) == {0: [b"by kafka", b"by http"]}


@pytest.mark.anyio
async def test_aiokafka_reads_what_it_wrote(door: Door) -> None:
    values = [b"%d" % number for number in range(200)]
    producer = AIOKafkaProducer(bootstrap_servers=door.address, enable_idempotence=True)
    await producer.start()
    sent = [await producer.send("aio", value) for value in values]
    assert [(await each).offset for each in sent] == list(range(200))
    await producer.stop()

    consumer = AIOKafkaConsumer(
        bootstrap_servers=door.address, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    place = Place("aio", 0)
    consumer.assign([place])
    assert await consumer.end_offsets([place]) == {place: 200}
    found: list[bytes | None] = []
    give_up_s = time.monotonic() + PATIENCE_S
    while len(found) < 200 and time.monotonic() < give_up_s:
        for some in (await consumer.getmany(timeout_ms=200)).values():
            found += [record.value for record in some]
    await consumer.stop()
    assert found == values


def test_clients_move_to_another_leader_when_theirs_dies(tmp_path: Path) -> None:
    partitions = 8
    with ExitStack() as stack:
        doors = [Door(tmp_path), Door(tmp_path)]
        for each in doors:
            stack.enter_context(each.process)
        shape = {"name": "moving", "partitions": partitions, "config": {"lane.partitions": 1}}
        assert httpx.post(f"{doors[0].process.url}/v1/topics", json=shape).status_code == 201
        sent = Sent(",".join(each.address for each in doors), **{"linger.ms": 5})

        def leaders() -> set[int]:
            found = sent.producer.list_topics("moving", 10).topics["moving"].partitions
            return {each.leader for each in found.values()}

        wait_until(lambda: len(leaders()) == 2)
        values: dict[int, list[bytes]] = {number: [] for number in range(partitions)}

        def send_some() -> None:
            for number in range(40):
                for partition, of_partition in values.items():
                    value = b"%d %d %d" % (partition, len(of_partition), number)
                    of_partition.append(value)
                    sent.send("moving", partition, value)

        send_some()
        doors[1].process.kill()
        send_some()
        wait_until(lambda: len(leaders()) == 1)
        send_some()
        sent.flush()

        count = sum(map(len, values.values()))
        assert consumed(doors[0].address, "moving", partitions, count) == values
