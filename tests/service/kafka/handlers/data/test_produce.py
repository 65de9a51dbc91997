"""Produce: offsets, codes for each partition, producers that are forgotten, and the order."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from service.kafka.call import Peer
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from service.log.gateway import Position, Wait
from service.security.caller import ANYONE, Caller
from service.security.quotas.buckets import Limited, Unlimited
from service.world.clock import real_world
from storage.errors import BadBatch, QuotaExceeded, StoreUnavailable
from storage.formats.kafka import layout
from storage.formats.kafka.encoding import encode
from storage.formats.partitions import PartitionNumber
from storage.formats.records import record_batch
from storage.reading.reader import Budget
from storage.stores.memory import MemoryMetadata, MemoryObjects
from tests.service.kafka.callers import ALLOW, caller_with
from tests.service.kafka.cluster import KafkaGateway, batch, kafka_gateway

pytestmark = pytest.mark.anyio


def request_of(
    *parts: tuple[int, bytes | None],
    topic: str = "t",
    acks: int = -1,
    transaction: str | None = None,
) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in parts]
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        transactional_id=transaction,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


async def produce(
    gateway: KafkaGateway,
    *parts: tuple[int, bytes | None],
    version: int = 12,
    caller: Caller = ANYONE,
    peer: Peer | None = None,
    **given: Any,
) -> list[PartitionProduceResponse]:
    answer = await gateway.call(version, request_of(*parts, **given), caller=caller, peer=peer)
    found: list[PartitionProduceResponse] = answer.responses[0].partition_responses
    return found


async def one(gateway: KafkaGateway, records: bytes | None, **given: Any) -> tuple[int, int]:
    [answer] = await produce(gateway, (0, records), **given)
    return answer.error_code, answer.base_offset


async def values(gateway: KafkaGateway, partition: int = 0) -> list[bytes | None]:
    result = await gateway.gateway.fetch(
        "t",
        PartitionNumber(partition),
        Position(offset=0),
        Budget(records_max=10_000, bytes_max=10**8),
        Wait(),
    )
    found: list[bytes | None] = []
    for _, records in result.fetched.batches(10**8):
        found += records.column(2).to_pylist()
    return found


async def new_id(gateway: KafkaGateway) -> int:
    return await gateway.parts.producer_ids.plain()


async def test_every_partition_has_its_own_answer() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", partitions=3)

        found = await produce(
            gateway, (0, batch(b"a", b"b")), (2, batch(b"c")), (7, batch(b"d")), (1, b"rubbish")
        )

        assert [(p.index, p.error_code, p.base_offset) for p in found] == [
            (0, 0, 0),
            (2, 0, 0),
            (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (1, ErrorCode.CORRUPT_MESSAGE, -1),
        ]
        assert await one(gateway, batch(b"e")) == (0, 2)
        assert await values(gateway) == [b"a", b"b", b"e"]
        assert {p.log_start_offset for p in found[:2]} == {0}
        assert all(p.log_append_time_ms == -1 for p in found)


async def test_a_topic_that_is_not_there() -> None:
    async with kafka_gateway() as gateway:
        assert await one(gateway, batch(b"a")) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await one(gateway, batch(b"a"), topic="a/b") == (17, -1)
        assert await one(gateway, batch(b"a"), version=13) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)


async def test_topics_are_named_by_id_from_version_13_on() -> None:
    async with kafka_gateway() as gateway:
        topic = await gateway.gateway.topics.create("t")
        request = request_of((0, batch(b"a")), topic="")
        request.topic_data[0].topic_id = topic.topic_id

        answer = await gateway.call(13, request)

        assert answer.responses[0].topic_id == topic.topic_id
        assert answer.responses[0].partition_responses[0].base_offset == 0
        assert await values(gateway) == [b"a"]


@pytest.mark.parametrize("acks", [2, -2])
async def test_only_three_ways_to_acknowledge(acks: int) -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        refused = ErrorCode.INVALID_REQUIRED_ACKS
        assert await one(gateway, batch(b"a"), acks=acks) == (refused, -1)


async def test_acks_0_has_no_answer_and_an_error_closes_the_connection() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")

        assert await gateway.call(9, request_of((0, batch(b"a")), acks=0)) is None
        assert await values(gateway) == [b"a"]
        with pytest.raises(BadBatch):
            await gateway.call(9, request_of((0, b"rubbish"), acks=0))


def damaged(records: bytes, at: int = -1) -> bytes:
    changed = bytearray(records)
    changed[at] ^= 1
    return bytes(changed)


def old(records: bytes) -> bytes:
    changed = bytearray(records)
    changed[layout.MAGIC_AT] = 1
    return bytes(changed)


async def test_what_cannot_be_stored_is_refused_with_kafkas_code() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", config={"max.message.bytes": 100})
        cases: Sequence[tuple[bytes | None, ErrorCode]] = (
            (None, ErrorCode.INVALID_RECORD),
            (b"", ErrorCode.INVALID_RECORD),
            (damaged(batch(b"a")), ErrorCode.CORRUPT_MESSAGE),
            (batch(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE),
            (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
            (old(batch(b"a")), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
            (batch(b"a" * 101), ErrorCode.MESSAGE_TOO_LARGE),
        )
        for records, code in cases:
            [answer] = await produce(gateway, (0, records))
            assert answer.error_code == code, code
            assert answer.error_message
            assert answer.record_errors == []
        assert await values(gateway) == []


async def test_a_batch_of_too_many_records_is_refused_before_it_is_unpacked() -> None:
    data = batch(b"a")
    header = layout.BatchHeader._make(layout.BATCH_HEADER.unpack_from(data))
    many = header._replace(records=2_000_000, last_delta=1_999_999)
    records = layout.sealed(many, data[layout.HEADER_BYTES :])
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        assert (await one(gateway, bytes(records)))[0] == ErrorCode.MESSAGE_TOO_LARGE


async def test_a_small_batch_may_unpack_to_much_and_not_to_too_much() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        size = gateway.gateway.settings.decompressed_bytes_max
        for count, code in ((2, ErrorCode.NONE), (size // 10**6 + 1, ErrorCode.MESSAGE_TOO_LARGE)):
            records = record_batch([1] * count, [None] * count, [bytes(10**6)] * count)
            data = bytes(encode(records, base_offset=0, codec="zstd"))
            assert len(data) < 32 * 1024
            assert (await one(gateway, data))[0] == code


async def test_a_compacted_topic_needs_keys() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", config={"cleanup.policy": "compact"})
        for count in (3, 100):
            keys = [None if index % 2 else b"k" for index in range(count)]

            [refused] = await produce(gateway, (0, batch(*[b"a"] * count, keys=keys)))

            assert refused.error_code == ErrorCode.INVALID_RECORD
            named = [each.batch_index for each in refused.record_errors]
            assert named == [*range(1, count, 2)]
            [text] = {each.batch_index_error_message for each in refused.record_errors}
            assert "every record needs a key" in str(text)
        assert await one(gateway, batch(b"a")) == (0, 0)


async def test_the_time_of_appending_is_told_where_it_is_kept() -> None:
    async with kafka_gateway() as gateway:
        config = {"message.timestamp.type": "LogAppendTime"}
        await gateway.gateway.topics.create("t", config=config)
        before_ms = gateway.gateway.world.now_ms()
        [answer] = await produce(gateway, (0, batch(b"a")))
        assert before_ms <= answer.log_append_time_ms <= gateway.gateway.world.now_ms()


async def test_a_batch_that_is_sent_again_has_the_same_offset() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        pid = await new_id(gateway)
        first, second = batch(b"a", producer=(pid, 0, 0)), batch(b"b", producer=(pid, 0, 1))
        for _ in range(2):
            assert await one(gateway, first) == (0, 0)
        assert await one(gateway, second) == (0, 1)
        assert await one(gateway, first) == (0, 0)
        assert await values(gateway) == [b"a", b"b"]

        gap = batch(b"c", producer=(pid, 0, 9))
        assert (await one(gateway, gap))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await one(gateway, batch(b"c", producer=(pid, 1, 0))) == (0, 2)
        assert (await one(gateway, second))[0] == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_forgotten_producer_is_told_to_begin_anew() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        pid = await new_id(gateway)
        for _ in range(2):
            [answer] = await produce(gateway, (0, batch(b"a", producer=(pid, 0, 7))))
            assert answer.error_code == ErrorCode.UNKNOWN_PRODUCER_ID
            assert answer.log_start_offset == 0
        assert await one(gateway, batch(b"a", producer=(pid, 1, 0))) == (0, 0)
        never = batch(b"a", producer=(pid + 10**9, 0, 0))
        assert (await one(gateway, never))[0] == ErrorCode.UNKNOWN_PRODUCER_ID


class Flaky(MemoryObjects):
    """A bucket that refuses some writes."""

    refuses = 0

    async def put(self, key: str, body: Any) -> None:
        if self.refuses:
            self.refuses -= 1
            raise StoreUnavailable("no connection to the bucket")
        await super().put(key, body)


async def test_a_batch_behind_one_that_failed_is_out_of_order_and_not_forgotten() -> None:
    objects = Flaky()
    async with kafka_gateway(objects=objects, table_batch_bytes_max=0) as gateway:
        await gateway.gateway.topics.create("t")
        pid = await new_id(gateway)
        objects.refuses = 10
        first, second, third = (batch(b"%d" % n, producer=(pid, 0, n)) for n in range(3))
        assert (await one(gateway, first))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        objects.refuses = 0

        for later in (second, third):
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert (await one(gateway, later))[0] == code
        assert [await one(gateway, each) for each in (first, second, third)] == [
            (0, 0),
            (0, 1),
            (0, 2),
        ]


async def test_requests_of_a_connection_are_appended_in_the_order_of_arrival() -> None:
    """Large batches are checked in a thread, small ones at once: they must not overtake."""
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        sent = [b"%d" % n + b"x" * (400_000 if n % 4 == 0 else 10) for n in range(12)]
        found = await asyncio.gather(*(one(gateway, batch(value)) for value in sent))
        assert found == [(0, n) for n in range(len(sent))]
        assert await values(gateway) == sent


async def test_connections_do_not_wait_for_each_other() -> None:
    class Slow(Unlimited):
        """A quota that one caller has used up."""

        async def admit_produce(self, caller: Limited, size_bytes: int) -> None:
            await held.wait()

    held = asyncio.Event()
    slow = caller_with(is_super=True, quotas=Slow())
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        waiting = asyncio.ensure_future(one(gateway, batch(b"a"), caller=slow, peer=Peer()))
        await asyncio.sleep(0)
        assert await one(gateway, batch(b"b")) == (0, 0)
        held.set()
        assert await waiting == (0, 1)


async def test_a_caller_waits_for_its_quota_and_is_refused_if_that_takes_too_long() -> None:
    class UsedUp(Unlimited):
        async def admit_produce(self, caller: Limited, size_bytes: int) -> None:
            if waits:
                raise QuotaExceeded("used up", waits.pop())

    waits = [1, 1]
    caller = caller_with(is_super=True, quotas=UsedUp())
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        assert await one(gateway, batch(b"a"), caller=caller) == (0, 0)
        assert not waits
        waits = [3_600_000]
        answer = await gateway.call(9, request_of((0, batch(b"a"))), caller=caller)
        assert answer.throttle_time_ms == 3_600_000
        [part] = answer.responses[0].partition_responses
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_writing_needs_a_right() -> None:
    caller = caller_with(ALLOW("READ", "TOPIC", "t"))
    writer = caller_with(ALLOW("WRITE", "TOPIC", "t"))
    async with kafka_gateway() as gateway:
        topic = await gateway.gateway.topics.create("t")
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await one(gateway, batch(b"a"), caller=caller) == (denied, -1)
        by_id = request_of((0, batch(b"a")))
        by_id.topic_data[0].topic_id = topic.topic_id
        answer = await gateway.call(13, by_id, caller=caller)
        assert answer.responses[0].partition_responses[0].error_code == denied
        assert await one(gateway, batch(b"a"), caller=writer) == (0, 0)
        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await one(gateway, batch(b"a"), caller=writer, transaction="x") == (denied, -1)


async def test_a_batch_of_a_transaction_that_nobody_began_is_refused() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        records = batch(b"a", producer=(1, 0, 0), is_transactional=True)
        found = await one(gateway, records, transaction="x")
        assert found == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)


async def test_a_gateway_that_stops_names_another_leader() -> None:
    stores = MemoryMetadata(real_world().new_version), MemoryObjects()
    async with (
        kafka_gateway(*stores, port=1) as one_of_two,
        kafka_gateway(*stores, port=2),
    ):
        await one_of_two.gateway.topics.create("t")
        one_of_two.gateway.drain()
        one_of_two.brokers.leave()
        answer = await one_of_two.call(10, request_of((0, batch(b"a"))))
        [part] = answer.responses[0].partition_responses
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_requests_of_a_connection_keep_their_order_however_many_partitions_they_have() -> (
    None
):
    """A request for several partitions is appended before the next, which is for one of them."""
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", partitions=2, replication_factor=1, config={})
        parts = [(0, batch(b"a0")), (1, batch(b"a1"))]
        first = asyncio.create_task(produce(gateway, *parts, peer=gateway.peer))
        others = [
            asyncio.create_task(produce(gateway, (n, batch(b"b%d" % n)), peer=gateway.peer))
            for n in range(2)
        ]

        assert [(part.index, part.base_offset) for part in await first] == [(0, 0), (1, 0)]
        assert [(await other)[0].base_offset for other in others] == [1, 1]
