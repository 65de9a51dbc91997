"""The mirror, of our own Kafka door in another process, and of Kafka where it is installed."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers.kafka_server import start_kafka
from benchmarks.peers.peer import CACHED
from service.connect.connectors.api import SourceTask, TopicPartition
from service.connect.connectors.catalog import plugin_of
from service.connect.connectors.mirror.selection import PartitionShare
from service.connect.data.errors import ConfigFault, TaskFault
from service.world.clock import World, real_world
from tests.gateway import free_port, start_gateway
from tests.kafka_programs.programs import kafka_jars
from tests.service.connect.connectors.harness import SourceCrash, SourceTrial, environment

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PATIENCE_S = 120.0
FASTER = 20
"""Waits of the mirror are so much shorter in tests."""


class Source:
    """A cluster that is mirrored."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        wait_until(lambda: self.admin.list_topics(timeout=PATIENCE_S).brokers)

    def make(self, topic: str, partitions: int, **config: str) -> None:
        said = {name.replace("_", "."): text for name, text in config.items()}
        made = self.admin.create_topics([NewTopic(topic, partitions, 1, config=said)])
        made[topic].result(PATIENCE_S)

    def send(self, topic: str, values: list[bytes], partition: int, **more: object) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(topic, value, partition=partition, **more)  # type: ignore[arg-type]
        assert producer.flush(PATIENCE_S) == 0

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        places = [Place(topic, partition, offset) for partition, offset in offsets.items()]

        def is_committed() -> bool:
            # A new cluster has to make its topic of groups first.
            with suppress(KafkaException):
                consumer.commit(offsets=places, asynchronous=False)
                return True
            return False

        wait_until(is_committed)
        consumer.close()


def wait_until(condition: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s, "it takes too long"
        time.sleep(0.05)


@pytest.fixture(scope="module", params=["riacho", "kafka"])
def source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Source]:
    folder = tmp_path_factory.mktemp("source")
    with ExitStack() as stack:
        if request.param == "kafka":
            kafka_jars()
            server = start_kafka(folder, CACHED)
            stack.callback(server.kill)
            yield Source(f"127.0.0.1:{server.port}")
        else:
            address = f"127.0.0.1:{free_port()}"
            (folder / "data").mkdir()
            stack.enter_context(start_gateway(folder, "--kafka", address))
            yield Source(address)


def fast_world() -> World:
    world = real_world()
    return replace(world, monotonic_s=lambda: world.monotonic_s() * FASTER)


def mirror(source: Source, topics: str, tasks_max: int = 1, **config: str) -> SourceTrial:
    plugin = plugin_of("org.apache.kafka.connect.mirror.MirrorSourceConnector")
    assert plugin is not None
    said = {name.replace("_", "."): text for name, text in config.items()}
    reached = {"source.cluster.bootstrap.servers": source.bootstrap, "topics": topics}
    named = {"source.cluster.alias": "old"}
    return SourceTrial(
        plugin, {**reached, **named, **said}, environment(world=fast_world()), tasks_max
    )


def copied(trial: SourceTrial, topic: str, partition: int) -> list[object]:
    return [each.value for each in trial.log.records.get(TopicPartition(topic, partition), ())]


async def test_records_are_copied_as_they_are(source: Source) -> None:
    source.make("whole", 3, retention_ms="123456789", cleanup_policy="compact")
    headers = [("a", b"\x00\xff"), ("empty", None)]
    at_ms = 1_700_000_000_123
    source.send("whole", [b"\xff\x00"], 2, key=b"k", headers=headers, timestamp=at_ms)
    trial = mirror(source, "whole")

    await trial.run(until=lambda: len(trial.records) == 1)

    [record] = trial.records
    assert (record.topic, record.partition, record.key) == ("old.whole", 2, b"k")
    assert (record.value, record.timestamp_ms) == (b"\xff\x00", at_ms)
    assert [(each.key, each.value) for each in record.headers] == headers
    assert trial.log.topics == {"old.whole": 3}
    config = trial.log.topic_configs["old.whole"]
    assert config == {"retention.ms": "123456789", "cleanup.policy": "compact"}


async def test_each_record_once_after_many_deaths(source: Source) -> None:
    source.make("deaths", 4)
    values = [[b"%d-%d" % (partition, n) for n in range(250)] for partition in range(4)]
    for partition, of_partition in enumerate(values):
        source.send("deaths", of_partition, partition)
    trial = mirror(source, "deaths", 2, replication_policy_class="IdentityReplicationPolicy")

    for n in range(6):
        crash = (SourceCrash.BEFORE_COMMIT, SourceCrash.AFTER_COMMIT)[n % 2]
        await trial.run(lambda: False, crash=crash, crash_at=1, task=n // 2 % 2, records_max=70)
    for task in range(2):
        mine = [part for part in range(4) if PartitionShare(task, 2).has("deaths", part)]
        await trial.run(
            until=lambda mine=mine: all(len(copied(trial, "deaths", each)) == 250 for each in mine),
            task=task,
        )

    assert [copied(trial, "deaths", partition) for partition in range(4)] == values


async def test_aborted_transactions_are_not_copied(source: Source) -> None:
    source.make("aborts", 1)
    config = {"bootstrap.servers": source.bootstrap, "transactional.id": "aborts"}
    producer = Producer(config)
    producer.init_transactions(PATIENCE_S)
    for n, end in enumerate((producer.abort_transaction, producer.commit_transaction) * 2):
        producer.begin_transaction()
        producer.produce("aborts", b"%d" % n, partition=0)
        producer.flush(PATIENCE_S)
        end(PATIENCE_S)
    trial = mirror(source, "aborts")

    await trial.run(until=lambda: len(trial.records) == 2)

    assert copied(trial, "old.aborts", 0) == [b"1", b"3"]


async def test_new_partitions_and_topics_are_found(source: Source) -> None:
    source.make("growing.a", 1)
    source.send("growing.a", [b"1"], 0)
    trial = mirror(source, "growing.*", refresh_topics_interval_seconds="1")
    made = False

    def more() -> bool:
        nonlocal made
        if len(trial.records) == 1 and not made:
            source.make("growing.b", 1)
            source.send("growing.b", [b"2"], 0)
            made = True
        return len(trial.records) == 2

    await trial.run(until=more)

    assert trial.log.topics == {"old.growing.a": 1, "old.growing.b": 1}


async def test_groups_go_on_where_they_were(source: Source) -> None:
    source.make("shop", 2)
    trial = mirror(source, "shop", sync_group_offsets_enabled="true", groups="app.*")
    # Another producer was here first, so offsets here are higher.
    plain = mirror(source, "shop")
    for n in range(5):
        source.send("shop", [b"%d" % n], 0)
    await plain.run(until=lambda: len(plain.records) == 5)
    for record in plain.records:
        trial.log.append(record)
    source.send("shop", [b"x"], 1)
    source.commit("app-1", "shop", {0: 5, 1: 1})
    source.commit("app-behind", "shop", {0: 3})
    source.commit("app-busy", "shop", {0: 5})
    trial.log.groups_with_members.add("app-busy")

    await trial.run(until=lambda: len(trial.records) == 6 and "app-1" in trial.log.groups)

    first, second = TopicPartition("old.shop", 0), TopicPartition("old.shop", 1)
    await trial.run(until=lambda: trial.log.groups["app-1"].get(first) == 10)
    assert trial.log.groups == {"app-1": {first: 10, second: 1}, "app-behind": {first: 5}}


async def test_a_partition_that_lost_records_is_not_copied_twice(source: Source) -> None:
    source.make("shrunk", 1)
    source.send("shrunk", [b"1", b"2"], 0)
    trial = mirror(source, "shrunk")
    position = {"cluster": "old", "topic": "shrunk", "partition": 0}
    trial.offsets.store(position, {"offset": 1000})

    with pytest.raises(TaskFault, match="made anew"):
        await trial.run(until=lambda: False)

    assert trial.records == []


async def test_a_poll_that_is_cancelled_loses_nothing(source: Source) -> None:
    source.make("cancelled", 1)
    values = [b"%d" % n for n in range(300)]
    source.send("cancelled", values, 0)
    trial = mirror(source, "cancelled")
    task = cast(SourceTask, trial.plugin.make(await trial.context()))
    await task.start()
    found: list[object] = []
    for n in range(10_000):
        poll = asyncio.create_task(task.poll(0.1, 7))
        if n % 2:
            await asyncio.sleep(0)
            poll.cancel()
        with suppress(asyncio.CancelledError):
            found += [record.value for record in await poll]
        if len(found) >= len(values):
            break
    await task.stop()

    assert found == values


def test_converters_that_change_bytes_are_refused() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    plugin = plugin_of("MirrorSource")
    assert plugin is not None
    trial = SourceTrial(
        plugin,
        {"source.cluster.bootstrap.servers": nowhere, "key.converter": "StringConverter"},
        environment(),
    )

    with pytest.raises(ConfigFault, match="ByteArrayConverter"):
        trial.check()
