"""Producers of partitions, and transactions."""

from typing import Any

import pytest

from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from service.log.lane_buffers import Claims
from service.security.acls import Operation, ResourceType
from service.transactions.state import Ref
from storage.head.producers import Claim
from tests.service.kafka.handlers.admin.place import BrokerUnderTest, Place, Someone, may
from tests.storage.helpers.logs import batch_of

pytestmark = pytest.mark.anyio


async def begun(broker: BrokerUnderTest, name: str, timeout_ms: int = 60_000) -> Ref:
    return (await broker.parts.transactions.begin(name, timeout_ms, None)).ref


async def listed(broker: BrokerUnderTest, caller: Any = None, **ask: Any) -> list[tuple[str, str]]:
    request = ListTransactionsRequest(**ask)
    answer = await (broker.answer(request, caller) if caller else broker.answer(request))
    assert answer.error_code == 0
    return [(each.transactional_id, each.transaction_state) for each in answer.transaction_states]


async def test_producers_are_those_that_wrote_last() -> None:
    broker = await Place().broker()
    topic = await broker.gateway.topics.create("t", partitions=2)
    batch = batch_of(b"1", b"2", b"3")
    claims = Claims(by_partition={1: Claim(1, 8, 2, 0, 3)})
    await broker.gateway.batcher.append(topic, {1: batch}, batch.nbytes, claims)
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersTopicRequest(name="t", partition_indexes=[0, 1, 2]),
            DescribeProducersTopicRequest(name="zzz", partition_indexes=[0]),
        ]
    )

    answer = await broker.answer(request)

    found = [
        (topic.name, each.partition_index, each.error_code, len(each.active_producers))
        for topic in answer.topics
        for each in topic.partitions
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == [("t", 0, 0, 0), ("t", 1, 0, 1), ("t", 2, unknown, 0), ("zzz", 0, unknown, 0)]
    [producer] = answer.topics[0].partitions[1].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (8, 2, 2)
    assert producer.current_txn_start_offset == -1
    refused = await broker.answer(request, Someone().caller)
    assert refused.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_transactions_are_described_in_kafkas_words() -> None:
    broker = await Place().broker()
    await broker.gateway.topics.create("t", partitions=2)
    opened, done, dropped = [await begun(broker, name) for name in ("open", "done", "dropped")]
    for ref in (opened, done):
        batch = batch_of(b"1")
        await broker.parts.staging.stage(str(ref), "t", batch, batch.nbytes, 1)
    await broker.parts.transactions.commit(done, None)
    await broker.parts.transactions.abort(dropped)
    await broker.parts.transactions.init("fresh")
    names = ["open", "done", "dropped", "fresh", "zzz", ""]

    answer = await broker.answer(DescribeTransactionsRequest(transactional_ids=names))

    shown = {each.transactional_id: each for each in answer.transaction_states}
    assert {name: (each.error_code, each.transaction_state) for name, each in shown.items()} == {
        "open": (0, "Ongoing"),
        "done": (0, "CompleteCommit"),
        "dropped": (0, "CompleteAbort"),
        "fresh": (0, "Empty"),
        "zzz": (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ""),
        "": (ErrorCode.INVALID_REQUEST, ""),
    }
    ongoing = shown["open"]
    assert (ongoing.producer_id, ongoing.producer_epoch) == (opened.producer_id, opened.epoch)
    assert ongoing.transaction_timeout_ms == 60_000
    assert [(each.topic, each.partitions) for each in ongoing.topics] == [("t", [1])]
    assert shown["done"].transaction_start_time_ms == -1


async def test_transactions_are_listed_by_state_producer_duration_and_name() -> None:
    place = Place()
    broker = await place.broker()
    old = await begun(broker, "old")
    place.clock.now_s += 30
    await begun(broker, "new")
    await broker.parts.transactions.init("fresh")

    everything = [("fresh", "Empty"), ("new", "Ongoing"), ("old", "Ongoing")]
    assert sorted(await listed(broker)) == everything
    assert await listed(broker, state_filters=["Empty", "Odd"]) == [("fresh", "Empty")]
    assert await listed(broker, state_filters=["Odd"]) == []
    assert await listed(broker, producer_id_filters=[old.producer_id]) == [("old", "Ongoing")]
    assert await listed(broker, duration_filter=20_000) == [("old", "Ongoing")]
    assert await listed(broker, transactional_id_pattern="n.*") == [("new", "Ongoing")]
    odd = await broker.answer(ListTransactionsRequest(state_filters=["Odd", "Dead"]))
    assert odd.unknown_state_filters == ["Odd"]
    wrong = await broker.answer(ListTransactionsRequest(transactional_id_pattern="("))
    assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_each_transaction_is_listed_by_one_broker() -> None:
    place = Place()
    brokers = [await place.broker(port) for port in (9092, 9093)]
    place.clock.now_s += 60
    for broker in brokers:
        await broker.parts.registry.beat()
    for number in range(20):
        await brokers[0].parts.transactions.init(f"x{number}")

    found = [await listed(broker) for broker in brokers]

    assert all(found)
    assert len({name for each in found for name, _ in each}) == sum(map(len, found)) == 20


async def test_callers_see_what_they_may_describe() -> None:
    broker = await Place().broker()
    await begun(broker, "mine")
    await begun(broker, "other")
    caller = Someone([may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "mine")]).caller

    assert await listed(broker, caller) == [("mine", "Ongoing")]
    request = DescribeTransactionsRequest(transactional_ids=["mine", "other"])
    answer = await broker.answer(request, caller)
    assert [each.error_code for each in answer.transaction_states] == [0, 53]


async def test_tenants_see_their_own_transactions_by_their_names() -> None:
    broker = await Place().broker()
    await begun(broker, "acme.x")
    await begun(broker, "x")
    tenant = Someone(prefix="acme.", is_super=True).caller

    assert await listed(broker, tenant, transactional_id_pattern="x") == [("x", "Ongoing")]
