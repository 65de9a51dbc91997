"""The codec of Kafka's protocol: microseconds of a message, beside kio, in one run.

    python -m benchmarks.kafka_codec

CPU seconds, best of some rounds that take turns. kio reads and writes the same bytes; it is here
for comparison only, since some bytes end the process that reads with it.
"""

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from service.kafka.protocol.codec import decode, encode, encode_response
from service.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from service.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from service.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from service.kafka.protocol.notation import Message

ROUNDS = 15
ROUND_S = 0.02
TOPIC_ID = b"0123456789abcdef"
BATCH = bytes(16 * 1024)


@dataclass(frozen=True)
class Row:
    name: str
    message: Message
    version: int
    is_request: bool


def rows() -> list[Row]:
    return [
        Row("Produce, 1 partition of 16 KiB", _produce(1), 13, True),
        Row("Produce, 20 partitions", _produce(20), 13, True),
        Row("Fetch, 1 partition", _fetch(1), 18, True),
        Row("Fetch, 100 partitions", _fetch(100), 18, True),
        Row(
            "Metadata, 1 topic", MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 13, True
        ),
        Row("Produce, 1 partition", _produced(1), 13, False),
        Row("Produce, 20 partitions", _produced(20), 13, False),
        Row("Fetch, 1 partition of 16 KiB", _fetched(1), 18, False),
        Row("Fetch, 100 partitions of 16 KiB", _fetched(100), 18, False),
        Row("Metadata, 10 partitions", _metadata(10), 13, False),
        Row("Metadata, 5,000 partitions", _metadata(5000), 13, False),
    ]


def _asked() -> Message:
    return MetadataRequest(topics=[MetadataRequestTopic(name="orders")])


def _produce(count: int) -> Message:
    data = [PartitionProduceData(index=each, records=BATCH) for each in range(count)]
    topics = [TopicProduceData(topic_id=TOPIC_ID, partition_data=data)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)


def _produced(count: int) -> Message:
    answers = [PartitionProduceResponse(index=each, base_offset=10**9) for each in range(count)]
    topic = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=answers)
    return ProduceResponse(responses=[topic])


def _fetch(count: int) -> Message:
    partitions = [
        FetchPartition(partition=each, fetch_offset=10**9, partition_max_bytes=2**20)
        for each in range(count)
    ]
    topics = [FetchTopic(topic_id=TOPIC_ID, partitions=partitions)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics)


def _fetched(count: int) -> Message:
    partitions = [
        PartitionData(
            partition_index=each, high_watermark=10**9, last_stable_offset=10**9, records=BATCH
        )
        for each in range(count)
    ]
    return FetchResponse(
        responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)]
    )


def _metadata(count: int) -> Message:
    partitions = [
        MetadataResponsePartition(
            partition_index=each,
            leader_id=1,
            leader_epoch=0,
            replica_nodes=[1, 2, 3],
            isr_nodes=[1],
        )
        for each in range(count)
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each, host="gateway", port=9092) for each in range(3)
        ],
        cluster_id="riacho",
        topics=[MetadataResponseTopic(name="orders", topic_id=TOPIC_ID, partitions=partitions)],
    )


def main() -> None:
    for title, is_request in (("read", True), ("write", False)):
        print(f"\n{title + ', us a message':<36} {'ours':>10} {'kio':>10} {'ratio':>7}")
        for row in rows():
            if row.is_request is is_request:
                ours_us, kio_us = measured(*_calls(row))
                ratio = kio_us / ours_us
                print(f"{row.name:<36} {ours_us:>10.1f} {kio_us:>10.1f} {ratio:>6.1f}x")


def _calls(row: Row) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what we do, and what kio does with the same message."""
    name = type(row.message).__name__
    kind = EntityType.request if row.is_request else EntityType.response
    kio_type = getattr(load_payload_module(row.message.KEY, row.version, kind), name)
    body = b"".join(encode(row.message, row.version))
    read = entity_reader(kio_type)
    if row.is_request:
        view = memoryview(body)
        return lambda: decode(type(row.message), row.version, view), lambda: read(body, 0)
    theirs, _ = read(body, 0)
    write = entity_writer(kio_type)
    return (
        lambda: encode_response(row.message.KEY, row.version, 1, row.message),
        lambda: write(io.BytesIO(), theirs),
    )


def measured(*calls: Callable[[], Any]) -> list[float]:
    """Return microseconds of CPU of each; they take turns, so that a busy moment hits all."""
    counts = [_count(call) for call in calls]
    best_s = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for number, (call, count) in enumerate(zip(calls, counts, strict=True)):
            began = time.process_time()
            for _ in range(count):
                call()
            best_s[number] = min(best_s[number], (time.process_time() - began) / count)
    return [each * 1e6 for each in best_s]


def _count(call: Callable[[], Any]) -> int:
    """Return how many calls take a round."""
    call()
    began = time.process_time()
    for _ in range(5):
        call()
    return max(1, int(ROUND_S / ((time.process_time() - began) / 5 + 1e-9)))


if __name__ == "__main__":
    main()
