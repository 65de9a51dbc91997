"""Transactions of clients of several makers: all or nothing, and offsets with what was written."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as Place
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.test_kafka_clients import PATIENCE_S, Door

RECORDS = 60
IN_A_TRANSACTION = 10


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    found = Door(tmp_path_factory.mktemp("kafka-transactions"))
    with found.process:
        yield found


def create(door: Door, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": door.address})
    for made in admin.create_topics([NewTopic(name, 3) for name in names]).values():
        made.result(PATIENCE_S)


def in_log(door: Door, topic: str, level: str = "read_committed") -> list[bytes]:
    """Return everything up to the end of each partition."""
    config = {
        "bootstrap.servers": door.address,
        "group.id": "readers",
        "isolation.level": level,
        "enable.auto.commit": False,
    }
    consumer = Consumer(config)
    places = [TopicPartition(topic, number, 0) for number in range(3)]
    left = sum(consumer.get_watermark_offsets(place, PATIENCE_S)[1] for place in places)
    consumer.assign(places)
    found: list[bytes] = []
    while len(found) < left:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
    consumer.close()
    return sorted(found)


def fill(door: Door, topic: str) -> list[bytes]:
    producer = Producer({"bootstrap.servers": door.address})
    values = [b"%03d" % number for number in range(RECORDS)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0
    return values


def copy_with_librdkafka(door: Door, source: str, target: str) -> None:
    """Copy in transactions, of which every other one is first aborted, then done again."""
    config = {"bootstrap.servers": door.address, "group.id": f"to-{target}"}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([source])
    producer = Producer({"bootstrap.servers": door.address, "transactional.id": target})
    producer.init_transactions(PATIENCE_S)
    copied = tries = 0
    while copied < RECORDS:
        messages = consumer.consume(IN_A_TRANSACTION, 5)
        if not messages:
            continue
        for outcome in (producer.abort_transaction, producer.commit_transaction)[tries % 2 :]:
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value(), partition=message.partition() or 0)
            producer.flush(PATIENCE_S)
            positions = consumer.position(consumer.assignment())
            read = [place for place in positions if place.offset >= 0]
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(read, metadata, PATIENCE_S)
            outcome(PATIENCE_S)
        copied += len(messages)
        tries += 1
    consumer.close()


def committed(door: Door, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": door.address, "group.id": group})
    places = consumer.committed([TopicPartition(topic, n) for n in range(3)], PATIENCE_S)
    consumer.close()
    return sum(place.offset for place in places)


def test_librdkafka_copies_exactly_once(door: Door) -> None:
    create(door, "rd-in", "rd-out")
    values = fill(door, "rd-in")
    copy_with_librdkafka(door, "rd-in", "rd-out")
    assert in_log(door, "rd-out") == in_log(door, "rd-out", "read_uncommitted") == values
    assert committed(door, "to-rd-out", "rd-in") == RECORDS


def test_a_producer_of_librdkafka_is_fenced_by_a_newer_one(door: Door) -> None:
    create(door, "fenced")
    config = {"bootstrap.servers": door.address, "transactional.id": "one", "log_level": 0}
    offsets: list[int | None] = []
    zombie, newer = Producer(config), Producer(config)
    zombie.init_transactions(PATIENCE_S)
    zombie.begin_transaction()
    for number in range(3):
        zombie.produce(
            "fenced",
            b"%d" % number,
            partition=0,
            on_delivery=lambda error, message: offsets.append(message.offset()),
        )
    assert zombie.flush(PATIENCE_S) == 0
    assert offsets == [0, 1, 2]
    assert in_log(door, "fenced", "read_uncommitted") == []
    [shown] = httpx.get(f"{door.process.url}/v1/transactions").json()["transactions"][-1:]
    assert shown["state"] in {"ongoing", "committed"}

    newer.init_transactions(PATIENCE_S)
    with pytest.raises(KafkaException, match="fenced"):
        zombie.commit_transaction(PATIENCE_S)
    newer.begin_transaction()
    newer.produce("fenced", b"newer", partition=0)
    newer.commit_transaction(PATIENCE_S)
    assert in_log(door, "fenced") == [b"newer"]


@pytest.mark.anyio
async def test_aiokafka_writes_all_or_nothing(door: Door) -> None:
    create(door, "aio-out")
    producer = AIOKafkaProducer(bootstrap_servers=door.address, transactional_id="aio")
    await producer.start()
    for number in range(6):
        await producer.begin_transaction()
        for partition in range(3):
            await producer.send_and_wait("aio-out", b"%d" % number, partition=partition)
        offsets = {Place("aio-out", 0): number}
        await producer.send_offsets_to_transaction(offsets, "aio-group")
        await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
    await producer.stop()
    assert in_log(door, "aio-out") == sorted([b"0", b"2", b"4"] * 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_writes_all_or_nothing(door: Door) -> None:
    # Its import reads resources in an old way.
    from kafka import KafkaProducer
    from kafka import TopicPartition as PythonPlace
    from kafka.structs import OffsetAndMetadata

    create(door, "py-out")
    producer = KafkaProducer(bootstrap_servers=door.address, transactional_id="py")
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        sent = [producer.send("py-out", b"%d" % number, partition=p) for p in range(3)]
        ends: list[Callable[[], Any]] = [producer.commit_transaction, producer.abort_transaction]
        assert all(each.get(PATIENCE_S).offset >= 0 for each in sent)
        offsets = {PythonPlace("py-out", 0): OffsetAndMetadata(number, "", -1)}
        producer.send_offsets_to_transaction(offsets, "py-group")
        ends[number % 2]()
    producer.close()
    assert in_log(door, "py-out") == sorted([b"0", b"2", b"4"] * 3)
