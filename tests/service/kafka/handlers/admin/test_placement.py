"""Sizes of partitions, elections that nobody needs, and reassignments that there are none of."""

import pytest

from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.placement import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
)
from tests.service.kafka.handlers.admin.place import BrokerUnderTest, Place, Someone

pytestmark = pytest.mark.anyio

ALL = DescribeLogDirsRequest(topics=None)


async def sizes(
    broker: BrokerUnderTest, request: DescribeLogDirsRequest = ALL
) -> dict[tuple[str, int], int]:
    answer = await broker.answer(request)
    [directory] = answer.results
    assert (answer.error_code, directory.error_code, directory.log_dir) == (0, 0, "riacho")
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in directory.topics
        for each in topic.partitions
    }


async def test_every_partition_is_reported_once_by_all_brokers_together() -> None:
    place = Place()
    brokers = [await place.broker(port) for port in (9092, 9093, 9094)]
    place.clock.now_s += 60
    for broker in brokers:
        await broker.parts.registry.beat()
    await brokers[0].gateway.topics.create("t", partitions=20, config={"lane.partitions": 1})
    await brokers[0].produce("t", b"x" * 1000, partition=3)

    found = [await sizes(broker) for broker in brokers]

    together = {key: size for each in found for key, size in each.items()}
    assert sum(map(len, found)) == len(together) == 20
    assert together["t", 3] > together["t", 4] == 0


async def test_only_what_is_asked_for_is_reported() -> None:
    broker = await Place().broker()
    await broker.gateway.topics.create("t", partitions=3)
    await broker.gateway.topics.create("u")
    request = DescribeLogDirsRequest(
        topics=[
            DescribableLogDirTopic(topic="t", partitions=[0, 2, 9]),
            DescribableLogDirTopic(topic="zzz", partitions=[0]),
        ]
    )

    assert (await sizes(broker)).keys() == {("t", 0), ("t", 1), ("t", 2), ("u", 0)}
    assert (await sizes(broker, request)).keys() == {("t", 0), ("t", 2)}


async def test_no_election_is_needed() -> None:
    broker = await Place().broker()
    await broker.gateway.topics.create("t")
    named = [
        ElectLeadersTopicPartitions(topic="t", partitions=[0, 1]),
        ElectLeadersTopicPartitions(topic="zzz", partitions=[0]),
    ]

    answer = await broker.answer(ElectLeadersRequest(topic_partitions=named))
    of_all = await broker.answer(ElectLeadersRequest(topic_partitions=None))

    assert [
        (result.topic, each.partition_id, each.error_code)
        for result in answer.replica_election_results
        for each in result.partition_result
    ] == [
        ("t", 0, ErrorCode.ELECTION_NOT_NEEDED),
        ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("zzz", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert (of_all.error_code, of_all.replica_election_results) == (0, [])


async def test_nothing_is_being_reassigned() -> None:
    answer = await (await Place().broker()).answer(ListPartitionReassignmentsRequest())

    assert (answer.error_code, answer.topics) == (0, [])


async def test_these_calls_need_rights_on_the_cluster() -> None:
    broker = await Place().broker()
    caller = Someone().caller

    for request in (ALL, ElectLeadersRequest(), ListPartitionReassignmentsRequest()):
        answer = await broker.answer(request, caller)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
