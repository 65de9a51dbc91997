"""A member of a classic group that says what it is assigned, until it is killed.

python -m tests.integration.kafka_member <client> <address> <topic> <group>
"""

import asyncio
import json
import sys
from collections.abc import Collection
from typing import Any, Final

SESSION_MS: Final = 3_000
BEAT_MS: Final = 500


class Report:
    """Prints the partitions of the member whenever they have changed, as a line of JSON."""

    def __init__(self) -> None:
        self._last: list[int] | None = None

    def tell(self, partitions: Collection[int]) -> None:
        if sorted(partitions) != self._last:
            self._last = sorted(partitions)
            sys.stdout.write(json.dumps(self._last) + "\n")
            sys.stdout.flush()


def librdkafka(address: str, topic: str, group: str, strategy: str) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": BEAT_MS,
            "partition.assignment.strategy": strategy,
        }
    )
    consumer.subscribe([topic])
    report = Report()
    while True:
        consumer.poll(0.1)
        report.tell([one.partition for one in consumer.assignment()])


def kafka_python(address: str, topic: str, group: str) -> None:
    from kafka import KafkaConsumer

    consumer: Any = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=BEAT_MS,
    )
    report = Report()
    while True:
        consumer.poll(timeout_ms=100)
        report.tell([one.partition for one in consumer.assignment()])


async def aiokafka(address: str, topic: str, group: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=BEAT_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    await consumer.start()
    report = Report()
    while True:
        await consumer.getmany(timeout_ms=100)
        report.tell([one.partition for one in consumer.assignment()])


def main(client: str, address: str, topic: str, group: str) -> None:
    if client == "kafka-python":
        kafka_python(address, topic, group)
    elif client == "aiokafka":
        asyncio.run(aiokafka(address, topic, group))
    else:
        librdkafka(address, topic, group, client)


if __name__ == "__main__":
    main(*sys.argv[1:])
