"""Metadata and its two younger calls: what is shown, created and refused."""

import pytest

from service.kafka.brokers.brokers import LIVE_AGE_S
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from service.world.clock import World, real_world
from storage.stores.memory import MemoryMetadata, MemoryObjects
from tests.service.kafka.callers import ALLOW, caller_with
from tests.service.kafka.cluster import KafkaGateway, kafka_gateway

pytestmark = pytest.mark.anyio


async def of_topics(
    gateway: KafkaGateway, *names: str, version: int = 12, creates: bool = True
) -> list[MetadataResponseTopic]:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=creates)
    found: list[MetadataResponseTopic] = (await gateway.call(version, request)).topics
    return found


async def test_brokers_are_shown_with_the_controller_and_the_cluster() -> None:
    async with kafka_gateway(port=19092, kafka_zone="x") as gateway:
        for version in range(14):
            answer = await gateway.call(version, MetadataRequest(topics=[]))

            [broker] = answer.brokers
            assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", 19092)
            assert broker.rack == "x"
            assert (answer.controller_id, len(answer.cluster_id)) == (1, 22)


async def test_all_topics_are_asked_for_in_two_ways() -> None:
    async with kafka_gateway() as gateway:
        for name in ("b", "a"):
            await gateway.gateway.topics.create(name, partitions=2)

        for version, topics in ((0, []), (1, None), (13, None)):
            answer = await gateway.call(version, MetadataRequest(topics=topics))
            assert [topic.name for topic in answer.topics] == ["a", "b"]
        assert (await gateway.call(1, MetadataRequest(topics=[]))).topics == []


async def test_a_topic_is_created_and_shown_at_once() -> None:
    async with kafka_gateway(kafka_num_partitions=3) as gateway:
        [topic] = await of_topics(gateway, "new")

        assert topic.error_code == ErrorCode.NONE
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        assert {(p.leader_id, p.leader_epoch) for p in topic.partitions} == {(1, 0)}
        assert {(*p.replica_nodes, *p.isr_nodes) for p in topic.partitions} == {(1, 1)}
        found = await gateway.gateway.topics.read("new")
        assert topic.topic_id == found.topic_id


async def test_a_topic_that_two_clients_ask_for_at_once_is_created_once() -> None:
    async with kafka_gateway() as gateway:
        topics = await of_topics(gateway, "new", "other", "new")

        assert [(t.name, t.error_code) for t in topics] == [("new", 0), ("other", 0)]


@pytest.mark.parametrize(("setting", "asks"), [(True, False), (False, True)])
async def test_a_topic_is_created_only_if_gateway_and_client_want_it(
    setting: bool, asks: bool
) -> None:
    async with kafka_gateway(kafka_auto_create=setting) as gateway:
        [topic] = await of_topics(gateway, "new", creates=asks)

        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await gateway.gateway.topics.all() == []


async def test_a_name_that_no_topic_can_have_is_invalid() -> None:
    async with kafka_gateway() as gateway:
        for name in ("", "..", "a/b", "x" * 250):
            for creates in (True, False):
                [topic] = await of_topics(gateway, name, creates=creates)
                assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_topics_are_found_by_id_from_version_12_on() -> None:
    async with kafka_gateway() as gateway:
        made = await gateway.gateway.topics.create("t")
        by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=made.topic_id)])

        [topic] = (await gateway.call(12, by_id)).topics
        assert (topic.name, topic.topic_id, topic.error_code) == ("t", made.topic_id, 0)
        [topic] = (await gateway.call(11, by_id)).topics
        assert topic.error_code == ErrorCode.INVALID_REQUEST

        await gateway.gateway.topics.delete("t")
        await gateway.gateway.topics.create("t")
        [topic] = (await gateway.call(13, by_id)).topics
        assert (topic.name, topic.topic_id) == (None, made.topic_id)
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_only_topics_that_may_be_described_are_shown() -> None:
    caller = caller_with(ALLOW("READ", "TOPIC", "mine"))
    async with kafka_gateway() as gateway:
        made = [await gateway.gateway.topics.create(name) for name in ("mine", "other")]

        everything = await gateway.call(12, MetadataRequest(topics=None), caller=caller)
        assert [topic.name for topic in everything.topics] == ["mine"]
        named = MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in ("other", "none")])
        codes = [t.error_code for t in (await gateway.call(12, named, caller=caller)).topics]
        assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
        by_id = [MetadataRequestTopic(name=None, topic_id=made[1].topic_id)]
        [topic] = (await gateway.call(12, MetadataRequest(topics=by_id), caller=caller)).topics
        assert (topic.name, topic.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_creating_needs_a_right_of_its_own() -> None:
    reader = caller_with(ALLOW("READ", "TOPIC", "*"))
    creator = caller_with(ALLOW("DESCRIBE", "TOPIC", "*"), ALLOW("CREATE", "CLUSTER", ""))
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    async with kafka_gateway() as gateway:
        [topic] = (await gateway.call(9, request, caller=reader)).topics
        assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        [topic] = (await gateway.call(9, request, caller=creator)).topics
        assert topic.error_code == ErrorCode.NONE


async def test_a_tenant_sees_its_own_names() -> None:
    caller = caller_with(name_prefix="acme.", is_super=True)
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("other")
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        [topic] = (await gateway.call(9, request, caller=caller)).topics
        assert topic.name == "t"
        assert [each.name for each in await gateway.gateway.topics.all()] == ["acme.t", "other"]
        everything = await gateway.call(9, MetadataRequest(topics=None), caller=caller)
        assert [each.name for each in everything.topics] == ["t"]


async def test_rights_are_shown_as_bits_if_they_are_asked_for() -> None:
    caller = caller_with(ALLOW("WRITE", "TOPIC", "t"), ALLOW("DESCRIBE", "CLUSTER", ""))
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    async with kafka_gateway() as gateway:
        await gateway.gateway.topics.create("t")
        answer = await gateway.call(8, request, caller=caller)
        assert answer.topics[0].topic_authorized_operations == 1 << 4 | 1 << 8
        assert answer.cluster_authorized_operations == 1 << 8
        quiet = await gateway.call(8, MetadataRequest(topics=[]))
        assert quiet.cluster_authorized_operations == -(2**31)


def shared_world(now_s: list[float]) -> World:
    real = real_world()
    return World(
        now_ms=real.now_ms,
        monotonic_s=lambda: now_s[0],
        sleep=real.sleep,
        random=real.random,
        random_bytes=real.random_bytes,
    )


async def test_two_gateways_share_the_lanes_and_name_the_same_leaders() -> None:
    now_s = [0.0]
    world = shared_world(now_s)
    stores = MemoryMetadata(world.new_version), MemoryObjects()
    async with (
        kafka_gateway(*stores, world=world, port=1, kafka_zone="x") as one,
        kafka_gateway(*stores, world=world, port=2, kafka_zone="y") as two,
    ):
        await one.gateway.topics.create("t", partitions=64, config={"lane.partitions": 4})
        now_s[0] += LIVE_AGE_S + 0.1

        [mine], [theirs] = await of_topics(one, "t"), await of_topics(two, "t")
        assert mine == theirs
        assert {p.leader_id for p in mine.partitions} == {1, 2}
        for p in mine.partitions:
            first = mine.partitions[p.partition_index // 4 * 4]
            assert p.leader_id == first.leader_id

        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        [zoned] = (await one.call(9, request, client_id="etl,zone=y")).topics
        assert {p.leader_id for p in zoned.partitions} == {2}


async def test_one_leader_for_all_that_a_client_does() -> None:
    world = real_world()
    stores = MemoryMetadata(world.new_version), MemoryObjects()
    async with (
        kafka_gateway(*stores, port=1, kafka_leaders="one") as one,
        kafka_gateway(*stores, port=2, kafka_leaders="one"),
    ):
        await one.gateway.topics.create("t", partitions=64, config={"lane.partitions": 4})
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        led = set()
        for client in range(20):
            [topic] = (await one.call(9, request, client_id=f"c{client}")).topics
            [leader] = {p.leader_id for p in topic.partitions}
            led.add(leader)
        assert led == {1, 2}


async def test_the_cluster_is_described() -> None:
    async with kafka_gateway() as gateway:
        answer = await gateway.call(2, DescribeClusterRequest())
        assert [b.broker_id for b in answer.brokers] == [answer.controller_id] == [1]
        assert answer.cluster_id == gateway.brokers.cluster_id
        assert answer.cluster_authorized_operations == -(2**31)
        controllers = await gateway.call(1, DescribeClusterRequest(endpoint_type=2))
        assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        unknown = await gateway.call(1, DescribeClusterRequest(endpoint_type=9))
        assert unknown.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


async def test_partitions_are_described_page_by_page() -> None:
    async with kafka_gateway() as gateway:
        for name, partitions in (("a", 3), ("b", 2), ("c", 1)):
            await gateway.gateway.topics.create(name, partitions=partitions)
        seen, cursor, pages = list[tuple[str, int]](), None, 0
        while pages == 0 or cursor is not None:
            answer = await gateway.call(
                0, DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
            )
            found = [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
            assert len(found) <= 2
            seen, cursor, pages = seen + found, answer.next_cursor, pages + 1
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]

        named = [DescribeTopicPartitionsTopicRequest(name=n) for n in ("none", "b", "b", "a/")]
        cursor = DescribeTopicPartitionsCursor(topic_name="b", partition_index=1)
        answer = await gateway.call(0, DescribeTopicPartitionsRequest(topics=named, cursor=cursor))
        assert [(t.name, t.error_code) for t in answer.topics] == [("b", 0), ("none", 3)]
        assert [p.partition_index for p in answer.topics[0].partitions] == [1]
