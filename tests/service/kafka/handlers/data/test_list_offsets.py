"""ListOffsets, OffsetForLeaderEpoch and InitProducerId."""

from typing import Any

import pyarrow as pa
import pytest

from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from service.kafka.protocol.messages.transactions import InitProducerIdRequest
from service.security.caller import ANYONE, Caller
from storage.formats.records import RECORD_SCHEMA
from tests.service.kafka.callers import ALLOW, caller_with
from tests.service.kafka.cluster import KafkaGateway, kafka_gateway

pytestmark = pytest.mark.anyio


async def append(gateway: KafkaGateway, *stamps: int) -> None:
    """Append records with these timestamps to t, each in a batch of its own."""
    for stamp in stamps:
        columns = [[stamp], [b"k"], [b"v"], [None]]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, RECORD_SCHEMA, strict=True)],
            schema=RECORD_SCHEMA,
        )
        await gateway.gateway.produce("t", batch, batch.nbytes, 0)


async def offset(
    gateway: KafkaGateway,
    timestamp: int,
    *,
    version: int = 11,
    topic: str = "t",
    partition: int = 0,
    epoch: int = -1,
    caller: Caller = ANYONE,
) -> tuple[int, int, int]:
    wanted = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
    )
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    answer: Any = await gateway.call(version, request, caller=caller)
    [found] = answer.topics[0].partitions
    return found.error_code, found.offset, found.timestamp


async def test_places_have_names_of_negative_numbers() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        await append(gateway, 100, 300, 200)

        assert await offset(gateway, -1) == (0, 3, -1)
        assert await offset(gateway, -2) == (0, 0, -1)
        assert await offset(gateway, -3) == (0, 1, 300)
        assert await offset(gateway, -4) == (0, 0, -1)
        assert await offset(gateway, -5) == (0, -1, -1)
        assert await offset(gateway, -6) == (0, -1, -1)
        assert await offset(gateway, -3, version=6) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)


async def test_a_moment_is_the_first_record_since_then() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        await append(gateway, 100, 300, 200)

        assert await offset(gateway, 0) == (0, 0, 100)
        assert await offset(gateway, 101) == (0, 1, 300)
        assert await offset(gateway, 300) == (0, 1, 300)
        assert await offset(gateway, 301) == (0, -1, -1)


async def test_the_largest_timestamp_may_be_anywhere() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        assert await offset(gateway, -3) == (0, -1, -1)
        await append(gateway, 5, 7, 7, 6)
        assert await offset(gateway, -3) == (0, 1, 7)
        await append(gateway, gateway.gateway.world.now_ms() * 1000)
        assert (await offset(gateway, -3))[1] == 4
        await append(gateway, 8)
        assert (await offset(gateway, -3))[1] == 4


async def test_what_is_not_there_has_its_code() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1
        assert await offset(gateway, -1, topic="none") == unknown
        assert await offset(gateway, -5, partition=1) == unknown
        assert await offset(gateway, -1, partition=-1) == unknown
        assert (await offset(gateway, -1, epoch=3))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        denied = caller_with(ALLOW("READ", "TOPIC", "other"))
        code, _, _ = await offset(gateway, -1, caller=denied)
        assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        describer = caller_with(ALLOW("DESCRIBE", "TOPIC", "t"))
        assert await offset(gateway, -1, caller=describer) == (0, 0, -1)


async def test_the_only_epoch_ends_at_the_end_of_the_log() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        await append(gateway, 1, 2)

        async def end(epoch: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
            wanted = OffsetForLeaderPartition(
                partition=partition, leader_epoch=epoch, current_leader_epoch=current
            )
            topics = [OffsetForLeaderTopic(topic="t", partitions=[wanted])]
            answer = await gateway.call(4, OffsetForLeaderEpochRequest(topics=topics))
            [found] = answer.topics[0].partitions
            return found.error_code, found.leader_epoch, found.end_offset

        assert await end(0) == (0, 0, 2)
        assert await end(1) == (0, -1, -1)
        assert await end(0, current=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert await end(0, partition=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


async def test_producers_get_new_ids() -> None:
    async with kafka_gateway() as gateway:
        ids = set()
        for version, known in ((0, -1), (4, -1), (5, 2)):
            request = InitProducerIdRequest(transactional_id=None, producer_id=known)
            answer = await gateway.call(version, request)
            assert (answer.error_code, answer.producer_epoch) == (0, 0)
            ids.add(answer.producer_id)
        assert len(ids) == 3

        answer = await gateway.call(4, InitProducerIdRequest(transactional_id=""))
        assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


async def test_an_id_needs_a_right_to_write_something() -> None:
    reader = caller_with(ALLOW("READ", "TOPIC", "*"))
    writer = caller_with(ALLOW("WRITE", "TOPIC", "t"))
    async with kafka_gateway() as gateway:
        plain = InitProducerIdRequest(transactional_id=None)
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert (await gateway.call(4, plain, caller=reader)).error_code == code
        assert (await gateway.call(4, plain, caller=writer)).error_code == 0
        named = InitProducerIdRequest(transactional_id="x")
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await gateway.call(4, named, caller=writer)).error_code == code
