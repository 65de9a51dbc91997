"""The wrong requests. There are a topic "t" with two partitions and nothing in it, and a topic
"compacted"; nothing else: no groups, no transactions.
"""

import struct
from collections.abc import Generator
from typing import Any

from crc32c import crc32c

from service.kafka.protocol.apis import Api
from service.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from service.kafka.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from service.kafka.protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from service.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from service.kafka.protocol.messages.transactions import InitProducerIdRequest
from tests.service.kafka.cluster import batch
from tests.service.kafka.recorded.asked import Ask, Raw, Talk
from tests.service.kafka.recorded.cases_admin import ADMIN
from tests.service.kafka.recorded.cases_groups import GROUPS
from tests.service.kafka.recorded.cases_members import MEMBERS

NO_TOPIC = b"\x01" * 16


def produce(
    records: bytes | None,
    *,
    version: int = 12,
    topic: str = "t",
    partition: int = 0,
    acks: int = -1,
    topic_id: bytes = NO_TOPIC,
) -> Ask:
    data = [PartitionProduceData(index=partition, records=records)]
    request = ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)],
    )
    return Ask(version, request)


def fetch(
    offset: int = 0,
    *,
    version: int = 12,
    topic: str = "t",
    partition: int = 0,
    epoch: int = -1,
    session: int = 0,
) -> Ask:
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        current_leader_epoch=epoch,
        partition_max_bytes=1000,
    )
    topics = [FetchTopic(topic=topic, topic_id=NO_TOPIC, partitions=[wanted])]
    return Ask(
        version,
        FetchRequest(
            replica_id=-1,
            min_bytes=0,
            max_bytes=1000,
            session_id=session,
            session_epoch=1 if session else -1,
            topics=topics,
        ),
    )


def list_offsets(timestamp: int = -1, topic: str = "t", partition: int = 0, epoch: int = -1) -> Ask:
    wanted = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
    )
    topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
    return Ask(9, ListOffsetsRequest(replica_id=-1, topics=topics))


def epoch_end(topic: str = "t", current: int = -1) -> Ask:
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=0)
    topics = [OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    return Ask(4, OffsetForLeaderEpochRequest(topics=topics))


def metadata(name: str | None = None, topic_id: bytes = bytes(16)) -> Ask:
    topics = [MetadataRequestTopic(name=name, topic_id=topic_id)]
    return Ask(12, MetadataRequest(topics=topics, allow_auto_topic_creation=False))


def sealed(data: bytes) -> bytes:
    """Return a batch with the checksum that its bytes have now."""
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def changed(at: int, value: bytes) -> bytes:
    """Return a batch of which bytes are others, with a right checksum."""
    data = batch(b"v")
    return sealed(data[:at] + value + data[at + len(value) :])


def numbered(*batches: tuple[int, int]) -> Talk:
    """Return what a producer with a new id says, in batches with these epochs and sequences."""

    def talk() -> Generator[Ask, Any, None]:
        new_id = yield NEW_ID
        for epoch, sequence in batches:
            yield produce(batch(b"v", producer=(new_id.producer_id, epoch, sequence)))

    return talk


NEW_ID = Ask(4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))


def topic_partitions(name: str) -> Ask:
    wanted = DescribeTopicPartitionsTopicRequest(name=name)
    return Ask(0, DescribeTopicPartitionsRequest(topics=[wanted]))


DATA: dict[str, Ask] = {
    "metadata, no such topic": metadata("none"),
    "metadata, a name that no topic can have": metadata("a b"),
    "metadata, no such topic id": metadata(topic_id=NO_TOPIC),
    "describe partitions, no such topic": topic_partitions("none"),
    "produce, no such topic": produce(batch(b"v"), topic="none"),
    "produce, no such topic id": produce(batch(b"v"), version=13),
    "produce, no such partition": produce(batch(b"v"), partition=9),
    "produce, a negative partition": produce(batch(b"v"), partition=-1),
    "produce, acks 2": produce(batch(b"v"), acks=2),
    "produce, a wrong checksum": produce(batch(b"v")[:-1] + b"x"),
    "produce, two batches": produce(batch(b"v") * 2),
    "produce, cut": produce(batch(b"v")[:-3]),
    "produce, magic 1": produce(changed(16, b"\x01")),
    "produce, magic 3": produce(changed(16, b"\x03")),
    "produce, a control batch": produce(changed(22, b"\x20")),
    "produce, more records than it says": produce(changed(57, b"\0\0\0\x02")),
    "produce, a last offset that is none": produce(changed(23, b"\0\0\0\x05")),
    "produce, an unknown codec": produce(changed(22, b"\x07")),
    "produce, no key in a compacted topic": produce(batch(b"v", keys=[None]), topic="compacted"),
    "fetch, no such topic": fetch(topic="none"),
    "fetch, no such topic id": fetch(version=13),
    "fetch, no such partition": fetch(partition=9),
    "fetch, behind the end": fetch(100),
    "fetch, a negative offset": fetch(-1),
    "fetch, an unknown epoch": fetch(epoch=99),
    "fetch, an unknown session": fetch(session=77),
    "list offsets, no such topic": list_offsets(topic="none"),
    "list offsets, no such partition": list_offsets(partition=9),
    "list offsets, an unknown epoch": list_offsets(epoch=99),
    "epochs, no such topic": epoch_end("none"),
    "epochs, an unknown epoch": epoch_end(current=99),
    "producer id, an empty transactional id": Ask(
        4, InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    ),
}

NUMBERED: dict[str, Talk] = {
    "producer, a gap in sequences": numbered((0, 0), (0, 7)),
    "producer, a new epoch that begins late": numbered((0, 0), (1, 3)),
    "producer, a new epoch": numbered((0, 0), (1, 0)),
    "producer, an old epoch": numbered((0, 0), (1, 0), (0, 1)),
    "producer, a repeated batch": numbered((0, 0), (0, 0)),
    "producer, a repeated batch after another": numbered((0, 0), (0, 1), (0, 0)),
    "producer, an old batch": numbered(*((0, each) for each in range(8)), (0, 0)),
    "producer, begins in the middle": numbered((0, 5)),
}

RAW: dict[str, Raw] = {
    "an API that does not exist": Raw(999, 0, b""),
    "a version that does not exist": Raw(Api.METADATA, 99, b""),
    "produce, version 2": Raw(Api.PRODUCE, 2, b"\xff\xff\0\0\0\0\0\0\0\0"),
    "metadata, an array that is too long": Raw(Api.METADATA, 12, b"\xff\xff\xff\xff\x0f"),
    "metadata, cut": Raw(Api.METADATA, 12, b"\x03"),
    "metadata, null where there is none": Raw(Api.METADATA, 0, b"\xff\xff\xff\xff"),
    "find coordinator, null instead of a key": Raw(Api.FIND_COORDINATOR, 0, b"\xff\xff"),
    "a name that is no text": Raw(Api.FIND_COORDINATOR, 0, b"\x00\x05ab"),
}

CASES: dict[str, Ask | Talk] = {**DATA, **NUMBERED, **GROUPS, **MEMBERS, **ADMIN}
