"""Fetch: whole batches, budgets, waits, and codes for each partition."""

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.memory_records import MemoryRecords

from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from service.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from service.security.caller import ANYONE, Caller
from service.security.quotas.buckets import Limited, Unlimited
from service.world.clock import real_world
from storage.errors import QuotaExceeded
from storage.formats.records import RECORD_SCHEMA
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import Versioned
from tests.service.kafka.callers import ALLOW, caller_with
from tests.service.kafka.cluster import KafkaGateway, batch, kafka_gateway

pytestmark = pytest.mark.anyio


def request_of(
    *parts: tuple[int, int],
    topic: str = "t",
    topic_id: bytes = bytes(16),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 10**7,
    partition_bytes: int = 10**6,
    epoch: int = -1,
    **given: Any,
) -> FetchRequest:
    wanted = [
        FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_bytes,
            current_leader_epoch=epoch,
        )
        for partition, offset in parts
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=wanted)],
        **given,
    )


async def fetch(
    gateway: KafkaGateway,
    *parts: tuple[int, int],
    version: int = 12,
    caller: Caller = ANYONE,
    **given: Any,
) -> list[PartitionData]:
    answer = await gateway.call(version, request_of(*parts, **given), caller=caller)
    found: list[PartitionData] = answer.responses[0].partitions
    return found


def records_of(part: PartitionData) -> list[tuple[int, bytes | None]]:
    """Return offsets and values, as another implementation reads them."""
    data = part.records
    whole = b"".join(data) if isinstance(data, list) else bytes(data or b"")
    found, batches = [], MemoryRecords(whole)
    while batches.has_next():
        one = batches.next_batch()
        assert one is not None
        assert one.validate_crc()
        found += [(record.offset, record.value) for record in one]
    return found


async def produce(gateway: KafkaGateway, *values: bytes, partition: int = 0, **given: Any) -> None:
    data = [PartitionProduceData(index=partition, records=batch(*values, **given))]
    topics = [TopicProduceData(name="t", partition_data=data)]
    answer = await gateway.call(9, ProduceRequest(acks=-1, topic_data=topics))
    assert answer.responses[0].partition_responses[0].error_code == 0


async def produce_arrow(gateway: KafkaGateway, *values: bytes) -> None:
    """Append as another door does."""
    columns = [[5] * len(values), [None] * len(values), [*values], [None] * len(values)]
    records = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, RECORD_SCHEMA, strict=True)],
        schema=RECORD_SCHEMA,
    )
    await gateway.gateway.produce("t", records, records.nbytes, 0)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def test_records_of_every_door_come_with_their_offsets() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        await produce(gateway, b"a", b"b")
        await produce_arrow(gateway, b"c", b"d")
        await produce(gateway, b"e", codec=1)

        for version in range(4, 13):
            [part] = await fetch(gateway, (0, 0), version=version)
            assert records_of(part) == list(enumerate([b"a", b"b", b"c", b"d", b"e"]))
            assert (part.high_watermark, part.last_stable_offset) == (5, 5)
            assert (part.log_start_offset, part.preferred_read_replica) == (0, -1)


async def test_a_fetch_begins_with_the_batch_that_holds_the_offset() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        await produce(gateway, b"a", b"b", b"c")
        await produce(gateway, b"d")

        [part] = await fetch(gateway, (0, 1))
        # Clients skip what they did not ask for.
        assert records_of(part) == list(enumerate([b"a", b"b", b"c", b"d"]))
        [part] = await fetch(gateway, (0, 3))
        assert records_of(part) == [(3, b"d")]
        [part] = await fetch(gateway, (0, 4))
        assert records_of(part) == []


async def test_a_batch_comes_whole_whatever_the_limits() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", partitions=2)
        for partition in (0, 1):
            await produce(gateway, b"a" * 100, b"b", partition=partition)
            await produce(gateway, b"c", partition=partition)

        for limits in ({"partition_bytes": 1}, {"max_bytes": 1}, {"max_bytes": 0}):
            [first, second] = await fetch(gateway, (0, 0), (1, 0), **limits)
            assert records_of(first) == [(0, b"a" * 100), (1, b"b")], limits
            assert (first.error_code, second.error_code) == (0, 0)
            assert second.high_watermark == 3
            assert len(records_of(second)) == (2 if "partition_bytes" in limits else 0)


async def test_each_partition_has_its_own_code() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", partitions=2)
        await produce(gateway, b"a")

        found = await fetch(gateway, (0, 0), (1, 5), (2, 0), (-1, 0), (0, -3))
        assert [part.error_code for part in found] == [
            0,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.OFFSET_OUT_OF_RANGE,
        ]
        assert (found[1].high_watermark, found[1].log_start_offset) == (0, 0)
        assert records_of(found[0]) == [(0, b"a")]
        [part] = await fetch(gateway, (0, 0), topic="none")
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        [part] = await fetch(gateway, (0, 0), epoch=1)
        assert part.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        [part] = await fetch(gateway, (0, 0), epoch=0)
        assert part.error_code == 0


async def test_topics_are_named_by_id_from_version_13_on() -> None:
    async with kafka_gateway() as gateway:
        topic = await gateway.gateway.topics.create("t")
        await produce(gateway, b"a")
        for version in range(13, 19):
            [part] = await fetch(gateway, (0, 0), version=version, topic_id=topic.topic_id)
            assert records_of(part) == [(0, b"a")]

        await gateway.gateway.topics.delete("t")
        await gateway.gateway.topics.create("t")
        [part] = await fetch(gateway, (0, 0), version=13, topic_id=topic.topic_id)
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_fetch_session_is_refused_politely() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        for session in ({"session_epoch": -1}, {"session_epoch": 0}):
            answer = await gateway.call(12, request_of((0, 0), **session))
            assert (answer.error_code, answer.session_id) == (0, 0)
        answer = await gateway.call(12, request_of((0, 0), session_id=7, session_epoch=1))
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        answer = await gateway.call(12, request_of((0, 0), session_epoch=1))
        assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_no_transaction_is_ever_open_for_readers() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        await produce(gateway, b"a")
        [part] = await fetch(gateway, (0, 0), isolation_level=1)
        assert part.aborted_transactions == []
        assert part.last_stable_offset == 1
        [part] = await fetch(gateway, (0, 0), isolation_level=0)
        assert part.aborted_transactions is None


async def test_old_clients_are_not_sent_zstd() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", config={"compression.type": "zstd"})
        await produce(gateway, b"a" * 1000)
        [part] = await fetch(gateway, (0, 0), version=9)
        assert part.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        [part] = await fetch(gateway, (0, 0), version=10)
        assert part.error_code == 0
        assert part.records


async def test_a_fetch_waits_for_records_in_any_of_its_partitions() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", partitions=3, config={"lane.partitions": 1})
        waiting = asyncio.ensure_future(fetch(gateway, (0, 0), (1, 0), (2, 0), max_wait_ms=60_000))
        lane = gateway.gateway.lanes.lane((await gateway.gateway.topics.get("t")).topic_id, 2)
        await until(lambda: bool(lane.watched._waiters))
        assert not waiting.done()
        await produce(gateway, b"a", partition=2)
        assert [len(records_of(part)) for part in await waiting] == [0, 0, 1]


async def test_a_fetch_waits_for_as_much_as_it_wants() -> None:
    async with kafka_gateway() as gateway:
        topic = await gateway.gateway.topics.create("t")
        await produce(gateway, b"a")
        waiting = asyncio.ensure_future(fetch(gateway, (0, 0), max_wait_ms=60_000, min_bytes=100))
        lane = gateway.gateway.lanes.lane(topic.topic_id, 0)
        await until(lambda: bool(lane.watched._waiters))
        await produce(gateway, bytes(range(200)))
        [part] = await waiting
        assert [offset for offset, _ in records_of(part)] == [0, 1]


async def test_a_record_that_comes_while_a_fetch_reads_ends_its_wait() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        await produce(gateway, b"a")
        waiting = asyncio.ensure_future(fetch(gateway, (0, 0), max_wait_ms=60_000, min_bytes=100))
        await produce(gateway, bytes(range(200)))
        [part] = await waiting
        assert records_of(part)[0] == (0, b"a")


async def test_a_fetch_that_finds_nothing_ends_in_time_and_knows_the_end() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t", partitions=2)
        await produce(gateway, b"a")
        found = await fetch(gateway, (0, 1), (1, 0), max_wait_ms=20)
        assert [(p.error_code, p.high_watermark, records_of(p)) for p in found] == [
            (0, 1, []),
            (0, 0, []),
        ]


async def test_a_wrong_partition_ends_the_wait_of_the_others() -> None:
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        found = await fetch(gateway, (0, 0), (9, 0), max_wait_ms=60_000)
        assert [p.error_code for p in found] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


class Counted(MemoryMetadata):
    """A table that counts what is read of heads."""

    reads = 0

    async def get(self, key: str) -> Versioned | None:
        self.reads += key.startswith("head/")
        return await super().get(key)


async def test_idle_readers_share_the_poll() -> None:
    metadata = Counted(real_world().new_version)
    async with kafka_gateway(metadata, head_poll_ms=100) as gateway:
        await gateway.gateway.topics.create("t", partitions=10)
        before = metadata.reads
        readers = [fetch(gateway, (n % 10, 0), max_wait_ms=300) for n in range(500)]
        found = await asyncio.gather(*readers)
        assert all(part.high_watermark == 0 for [part] in found)
        # All partitions are in one lane: a few reads at first, then one for each poll.
        assert metadata.reads - before < 50


async def test_a_gateway_that_stops_answers_and_sends_readers_away() -> None:
    async with kafka_gateway() as gateway:
        topic = await gateway.gateway.topics.create("t")
        waiting = asyncio.ensure_future(fetch(gateway, (0, 0), max_wait_ms=60_000))
        lane = gateway.gateway.lanes.lane(topic.topic_id, 0)
        await until(lambda: bool(lane.watched._waiters))
        gateway.gateway.drain()
        [part] = await waiting
        assert part.error_code == 0

        answer: FetchResponse = await gateway.call(16, request_of((0, 0), topic_id=topic.topic_id))
        [part] = answer.responses[0].partitions
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert part.current_leader is not None
        assert [each.node_id for each in answer.node_endpoints] == [part.current_leader.leader_id]


async def test_reading_needs_a_right() -> None:
    writer = caller_with(ALLOW("WRITE", "TOPIC", "t"))
    reader = caller_with(ALLOW("READ", "TOPIC", "t"))
    async with kafka_gateway() as gateway:
        topic = await gateway.gateway.topics.create("t")
        for version in (12, 13):
            given = {"version": version, "topic_id": topic.topic_id}
            [part] = await fetch(gateway, (0, 0), caller=writer, **given)
            assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            [part] = await fetch(gateway, (0, 0), caller=reader, **given)
            assert part.error_code == 0


async def test_a_right_that_is_taken_away_ends_at_the_end_of_the_wait() -> None:
    caller = caller_with(ALLOW("READ", "TOPIC", "t"))
    stranger = caller_with()

    async def renewed() -> Any:
        return stranger.identity, stranger._acls

    caller.renewed_by(renewed)
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        [part] = await fetch(gateway, (0, 0), caller=caller, max_wait_ms=20)
        assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_quota_that_is_used_up_answers_nothing_and_says_when() -> None:
    class UsedUp(Unlimited):
        async def admit_fetch(self, caller: Limited, size_bytes: int) -> None:
            raise QuotaExceeded("used up", 1234)

    caller = caller_with(is_super=True, quotas=UsedUp())
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        await produce(gateway, b"a")
        answer = await gateway.call(12, request_of((0, 0), max_wait_ms=1), caller=caller)
        assert answer.throttle_time_ms == 1234
        assert answer.responses[0].partitions[0].records == b""
        assert gateway.gateway.outgoing.held_bytes == 0


async def test_what_is_sent_counts_until_it_has_left() -> None:
    stores = MemoryMetadata(real_world().new_version), MemoryObjects()
    async with kafka_gateway(*stores) as gateway:
        await gateway.gateway.topics.create("t")
        await produce(gateway, b"a" * 1000)
        await fetch(gateway, (0, 0))
        assert gateway.gateway.outgoing.held_bytes == 0
