"""Transactions of Kafka's own client: our Kafka door beside Kafka, in one run.

    python -m benchmarks.kafka_transactions [--seconds 3] [--rounds 3] [--only riacho]

librdkafka, lz4. *Written*: transactions of 1,000 records of 100 bytes to one partition, one after
the other. *Copied*: a group reads 100-byte records of one topic and writes each to another, with
its offsets in a transaction that is committed every 100 ms. Kafka runs twice, as in `kafka_door`:
with a flush before every acknowledgement, and as it is shipped. Peers take turns.
"""

import argparse
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Producer

from benchmarks.harness import show
from benchmarks.kafka_door import ratios, spread, started
from benchmarks.peers.kafka import BATCH_BYTES, Kafka, Kind, Tuning
from benchmarks.peers.peer import CACHED, SYNCED, values_of
from benchmarks.peers.riacho_kafka import RiachoKafka

RECORDS, SIZE = 1000, 100
COMMIT_EVERY_S = 0.1
TO_COPY_S = 4.0
"""How long a source topic is filled: more than is copied."""
ANSWER_S_MAX = 60.0
PER_POLL = 2000


@dataclass
class Found:
    """Records a second, a figure for each round."""

    written: list[float] = field(default_factory=list)
    copied: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["riacho"])
    given = parser.parse_args()
    peers: list[Kafka] = [RiachoKafka()]
    if given.only is None:
        peers += [Kafka(SYNCED), Kafka(CACHED)]
    with ExitStack() as stack:
        running = [peer for peer in peers if started(peer, stack)]
        found = {peer.name: Found() for peer in running}
        for peer in running:
            peer.make("source")
            values = values_of(SIZE)
            kind = Kind(SIZE, 10_000, 5, 1)
            peer.write("source", values, kind, Tuning(5.0, BATCH_BYTES), TO_COPY_S)
        for number in range(-1, given.rounds):
            for peer in running:
                # The first round warms up.
                kept = found[peer.name] if number >= 0 else Found()
                kept.written.append(written_per_s(peer, number, given.seconds))
                kept.copied.append(copied_per_s(peer, number, given.seconds))
        report(found)


def _producer(peer: Kafka, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{peer.port}",
            "transactional.id": name,
            "compression.type": "lz4",
            "linger.ms": 5,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(ANSWER_S_MAX)
    return producer


def written_per_s(peer: Kafka, number: int, seconds: float) -> float:
    topic = f"written{number}"
    peer.make(topic)
    producer, values = _producer(peer, topic), values_of(SIZE)
    began, count = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        producer.begin_transaction()
        for record in range(RECORDS):
            producer.produce(topic, values[record % len(values)])
        producer.commit_transaction(ANSWER_S_MAX)
        count += RECORDS
    assert sum(peer.ends(topic)) >= count, "not all are there"
    return count / took


def copied_per_s(peer: Kafka, number: int, seconds: float) -> float:
    """Return how many records a second are copied, of those that were committed."""
    target = f"copied{number}"
    peer.make(target)
    settings: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{peer.port}",
        "group.id": target,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.queue.backoff.ms": 1,
    }
    consumer, producer = Consumer(settings), _producer(peer, target)
    consumer.subscribe(["source"])
    while not (first := consumer.consume(PER_POLL, 1.0)):
        pass
    began, count, messages = time.perf_counter(), 0, first
    while (took := time.perf_counter() - began) < seconds:
        producer.begin_transaction()
        commit_s = time.perf_counter() + COMMIT_EVERY_S
        while time.perf_counter() < commit_s:
            for message in messages:
                producer.produce(target, message.value())
            producer.poll(0)
            count += len(messages)
            messages = consumer.consume(PER_POLL, 0.1)
        # What was consumed last is written by the next transaction.
        positions = consumer.position(consumer.assignment())
        if messages:
            positions[0].offset = messages[0].offset()
        group = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(positions, group, ANSWER_S_MAX)
        producer.commit_transaction(ANSWER_S_MAX)
    consumer.close()
    # Kafka's ends also count the marks of its transactions.
    assert sum(peer.ends(target)) >= count, "not all are there"
    return count / took


def report(found: dict[str, Found]) -> None:
    rows = []
    for title, by_peer in (
        ("written, in transactions of 1,000", [each.written for each in found.values()]),
        ("copied, commits every 100 ms", [each.copied for each in found.values()]),
    ):
        rows.append([title, *(spread(each) for each in by_peer), *ratios(by_peer)])
    columns = ["records/s of 100 B", *found, *(f"to {name}" for name in list(found)[1:])]
    show("transactions of librdkafka", columns, rows)


if __name__ == "__main__":
    main()
