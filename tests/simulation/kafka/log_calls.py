"""Calls of Kafka's clients to the log: Produce, Fetch, DeleteRecords, CreatePartitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.kafka.handlers.data.fetch import WAITED_AGE_S
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from service.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from service.kafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from storage.errors import OffsetOutOfRange
from tests.simulation.kafka.connections import PASSING, KafkaClient
from tests.simulation.kafka.contents import Found, decoded

PRODUCE_BY_NAME: Final = 12
PRODUCE_BY_ID: Final = 13
FETCH_BY_NAME: Final = 12
FETCH_BY_ID: Final = 17
DELETE_RECORDS: Final = 2
CREATE_PARTITIONS: Final = 3
TIMEOUT_MS: Final = 30_000


class RefusedByKafka(Exception):
    """An error code instead of what was asked for."""

    def __init__(self, code: int) -> None:
        self.code = ErrorCode(code)
        super().__init__(self.code.name)

    @property
    def passes(self) -> bool:
        return self.code in PASSING


@dataclass(frozen=True)
class KafkaTopic:
    name: str
    topic_id: bytes


def produce_request(
    topic: KafkaTopic, batches: Mapping[int, bytes], acks: int, *, by_id: bool
) -> tuple[int, ProduceRequest]:
    """Return a request and its version."""
    data = TopicProduceData(
        **({"topic_id": topic.topic_id} if by_id else {"name": topic.name}),
        partition_data=[
            PartitionProduceData(index=index, records=records) for index, records in batches.items()
        ],
    )
    request = ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[data])
    return PRODUCE_BY_ID if by_id else PRODUCE_BY_NAME, request


def produced(response: Any) -> dict[int, tuple[ErrorCode, int]]:
    """Return the code and the base offset of each partition."""
    return {
        part.index: (ErrorCode(part.error_code), part.base_offset)
        for topic in response.responses
        for part in topic.partition_responses
    }


@dataclass(frozen=True)
class KafkaFetched:
    found: Sequence[Found]
    next_offset: int
    high_watermark: int
    log_start: int
    view_age_s: float
    """How old the ends may be."""


async def fetch(
    client: KafkaClient,
    topic: KafkaTopic,
    partition: int,
    offset: int,
    *,
    bytes_max: int,
    wait_s: float,
    by_id: bool,
) -> KafkaFetched:
    """Return the records of one partition, as a consumer of Kafka sees them.

    Raises `OffsetOutOfRange`, `RefusedByKafka` or `Lost`.
    """
    wanted = FetchTopic(
        **({"topic_id": topic.topic_id} if by_id else {"topic": topic.name}),
        partitions=[
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        ],
    )
    request = FetchRequest(
        max_wait_ms=int(wait_s * 1000),
        min_bytes=1 if wait_s else 0,
        max_bytes=1 << 24,
        isolation_level=offset % 2,
        topics=[wanted],
    )
    response = await client.call(FETCH_BY_ID if by_id else FETCH_BY_NAME, request, partition)
    if response.error_code:
        raise RefusedByKafka(response.error_code)
    [part] = response.responses[0].partitions
    if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRange(offset, part.log_start_offset, part.high_watermark)
    if part.error_code:
        raise RefusedByKafka(part.error_code)
    found, following = decoded(part.records or b"")
    # A fetch returns whole batches, from the one that holds the offset.
    return KafkaFetched(
        [each for each in found if each.offset >= offset],
        offset if following is None else max(offset, following),
        part.high_watermark,
        part.log_start_offset,
        WAITED_AGE_S if wait_s else 0.0,
    )


async def delete_records(client: KafkaClient, topic: str, partition: int, before: int) -> int:
    """Move the start of a partition; return where it is then."""
    wanted = DeleteRecordsTopic(
        name=topic,
        partitions=[DeleteRecordsPartition(partition_index=partition, offset=before)],
    )
    request = DeleteRecordsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
    response = await client.call(DELETE_RECORDS, request)
    [part] = response.topics[0].partitions
    if part.error_code:
        raise RefusedByKafka(part.error_code)
    return int(part.low_watermark)


async def create_partitions(client: KafkaClient, topic: str, count: int) -> None:
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
    response = await client.call(CREATE_PARTITIONS, request)
    if response.results[0].error_code:
        raise RefusedByKafka(response.results[0].error_code)
