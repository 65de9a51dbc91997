"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from collections.abc import Sequence

import pytest

from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from service.kafka.protocol.notation import NO_UUID
from service.security.acls import Operation, ResourceType
from service.security.caller import ANYONE, Caller
from storage.errors import UnknownTopicOrPartition
from tests.service.kafka.handlers.admin.place import BrokerUnderTest, Place, Someone, may

pytestmark = pytest.mark.anyio


def new(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assigned: Sequence[tuple[int, list[int]]] = (),
    **config: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assigned
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ],
    )


async def created(
    broker: BrokerUnderTest, *topics: CreatableTopic, caller: Caller = ANYONE, dry_run: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=dry_run)
    found: list[CreatableTopicResult] = (await broker.answer(request, caller)).topics
    return found


async def test_a_topic_is_created_as_asked_and_shown_with_its_settings() -> None:
    broker = await Place().broker()

    [result] = await created(broker, new("t", 3, retention_ms="5000", flush_ms="1"))

    topic = await broker.gateway.topics.read("t")
    assert (result.error_code, result.error_message) == (0, None)
    assert result.topic_id == topic.topic_id
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    shown = {each.name: (each.value, each.config_source) for each in result.configs or ()}
    assert shown["retention.ms"] == ("5000", 1)
    assert shown["flush.ms"] == ("1", 1)
    assert shown["cleanup.policy"] == ("delete", 5)


async def test_defaults_are_those_of_the_settings() -> None:
    place = Place("ab", kafka_num_partitions=4, kafka_replication_factor=2)

    [result] = await created(await place.broker(), new("t", -1, -1))

    assert (result.num_partitions, result.replication_factor) == (4, 2)


async def test_more_replicas_than_zones_become_as_many_as_there_are() -> None:
    broker = await Place().broker()

    [result, more] = await created(
        broker,
        new("t", 1, 3, min_insync_replicas="2"),
        new("u", 1, 3, min_insync_replicas="4"),
    )

    assert (result.error_code, result.replication_factor) == (0, 1)
    assert (more.error_code, more.replication_factor) == (0, 1)
    assert {c.name: c.value for c in more.configs or ()}["min.insync.replicas"] == "4"
    for name, given in (("t", 2), ("u", 4)):
        topic = await broker.gateway.topics.read(name)
        assert (topic.config.in_sync_min, topic.in_sync_min) == (given, 1)


async def test_validation_creates_nothing() -> None:
    broker = await Place().broker()

    [good, bad] = await created(broker, new("t", 2), new("u", x="1"), dry_run=True)

    assert (good.error_code, good.topic_id, good.num_partitions) == (0, NO_UUID, 2)
    assert bad.error_code == ErrorCode.INVALID_CONFIG
    assert await broker.gateway.topics.all() == []


@pytest.mark.parametrize(
    ("topic", "code", "text"),
    [
        (new("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "is not a topic name"),
        (new(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "cannot be named"),
        (new("t", 0), ErrorCode.INVALID_PARTITIONS, "one partition or more"),
        (new("t", 10_001), ErrorCode.INVALID_PARTITIONS, "from 1 to 10000"),
        (new("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "one replica or more"),
        (new("t", retention_m="1"), ErrorCode.INVALID_CONFIG, "did you mean 'retention.ms'"),
        (new("t", retention_ms="x"), ErrorCode.INVALID_CONFIG, "retention.ms must be a whole"),
        (new("t", preallocate="maybe"), ErrorCode.INVALID_CONFIG, "preallocate must be one of"),
        (new("t", retention_ms=None), ErrorCode.INVALID_CONFIG, "has no value"),
        (new("t", 1, 1, [(0, [1])]), ErrorCode.INVALID_REQUEST, "not both"),
        (new("t", -1, -1, [(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "from 0 on"),
        (new("t", -1, -1, [(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "each once"),
        (new("t", -1, -1, [(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "each once"),
        (new("t", -1, -1, [(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "same"),
    ],
)
async def test_what_is_wrong_is_refused_with_kafkas_code(
    topic: CreatableTopic, code: ErrorCode, text: str
) -> None:
    [result] = await created(await Place().broker(), topic)

    assert (result.error_code, result.topic_id) == (code, NO_UUID)
    assert text in (result.error_message or "")


async def test_assignments_say_how_many_partitions_and_replicas() -> None:
    [result] = await created(
        await Place("ab").broker(), new("t", -1, -1, [(1, [3, 1]), (0, [1, 2]), (2, [1, 2])])
    )

    assert (result.num_partitions, result.replication_factor) == (3, 2)


async def test_a_name_is_taken_once() -> None:
    broker = await Place().broker()

    [twice, first] = await created(broker, new("t"), new("t"), new("u"))
    [again] = await created(broker, new("u"))

    assert (twice.name, twice.error_code) == ("t", ErrorCode.INVALID_REQUEST)
    assert (first.name, first.error_code) == ("u", 0)
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_callers_create_and_delete_what_they_may() -> None:
    broker = await Place().broker()
    some = Someone(
        [
            may(Operation.CREATE, ResourceType.TOPIC, "mine"),
            may(Operation.DELETE, ResourceType.TOPIC, "mine"),
        ]
    )

    [mine, other] = await created(broker, new("mine"), new("other"), caller=some.caller)
    assert (mine.error_code, mine.topic_config_error_code) == (0, 29)
    assert (mine.num_partitions, mine.configs) == (-1, [])
    assert other.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    await created(broker, new("other"))
    other_id = (await broker.gateway.topics.read("other")).topic_id
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name="mine"),
            DeleteTopicState(name="other"),
            DeleteTopicState(topic_id=other_id),
        ]
    )
    results = (await broker.answer(request, some.caller)).responses

    assert [(each.name, each.error_code) for each in results] == [
        ("mine", 0),
        ("other", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert "'other'" not in results[2].error_message
    assert some.changes == [("CREATE", "TOPIC", "mine"), ("DELETE", "TOPIC", "mine")]


async def test_tenants_name_topics_without_their_prefix() -> None:
    broker = await Place().broker()
    tenant = Someone(prefix="acme.", is_super=True).caller

    [result] = await created(broker, new("t"), caller=tenant)
    [empty] = await created(broker, new(""), caller=tenant)
    [again] = await created(broker, new("t"), caller=tenant)

    assert (result.name, result.error_code) == ("t", 0)
    assert [topic.name for topic in await broker.gateway.topics.all()] == ["acme.t"]
    assert empty.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert again.error_message == "topic 't' exists already"


async def test_topics_are_deleted_by_name_and_by_id() -> None:
    broker = await Place().broker()
    results = await created(broker, new("a"), new("b"), new("c"))

    old = await broker.answer(DeleteTopicsRequest(topic_names=["a", "zzz"]), version=5)
    states = [
        DeleteTopicState(topic_id=results[1].topic_id),
        DeleteTopicState(topic_id=bytes(15) + b"1"),
        DeleteTopicState(),
        DeleteTopicState(name="c"),
        DeleteTopicState(name="c"),
    ]
    answer = await broker.answer(DeleteTopicsRequest(topics=states))

    assert [(each.name, each.error_code) for each in old.responses] == [
        ("a", 0),
        ("zzz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [(each.name, each.error_code) for each in answer.responses] == [
        ("b", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.INVALID_REQUEST),
        ("c", ErrorCode.INVALID_REQUEST),
    ]
    assert [topic.name for topic in await broker.gateway.topics.all()] == ["c"]


async def test_a_topic_made_anew_is_not_deleted_by_the_id_of_the_old_one() -> None:
    broker = await Place().broker()
    topic = await broker.gateway.topics.create("t")

    with pytest.raises(UnknownTopicOrPartition, match="another identifier"):
        await broker.gateway.topics.delete("t", only_id=bytes(16))
    await broker.gateway.topics.delete("t", only_id=topic.topic_id)


async def test_partitions_are_added() -> None:
    broker = await Place().broker()
    await created(broker, new("a"), new("b", 2), new("c"), new("d"))
    one = [CreatePartitionsAssignment(broker_ids=[1])]
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name="a", count=3, assignments=None),
            CreatePartitionsTopic(name="b", count=2, assignments=None),
            CreatePartitionsTopic(name="c", count=2, assignments=one),
            CreatePartitionsTopic(name="d", count=3, assignments=one),
            CreatePartitionsTopic(name="zzz", count=3, assignments=None),
        ]
    )

    request.validate_only = True
    checked = await broker.answer(request)
    assert [(await broker.gateway.topics.read(n)).partition_count for n in "ac"] == [1, 1]
    request.validate_only = False
    answer = await broker.answer(request)

    assert checked == answer
    assert [(each.name, each.error_code) for each in answer.results] == [
        ("a", 0),
        ("b", ErrorCode.INVALID_PARTITIONS),
        ("c", 0),
        ("d", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("zzz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [(await broker.gateway.topics.read(n)).partition_count for n in "abcd"] == [3, 2, 2, 1]


async def test_records_are_deleted_up_to_an_offset() -> None:
    broker = await Place().broker()
    await created(broker, new("t", 3), new("compacted", cleanup_policy="compact"))
    for partition in range(3):
        await broker.produce("t", b"1", b"2", b"3", partition=partition)
    wanted: list[tuple[str, list[tuple[int, int]]]] = [
        ("t", [(0, 2), (1, -1), (2, 4), (3, 0), (0, 2)]),
        ("t", [(2, -2)]),
        ("compacted", [(0, -1)]),
        ("zzz", [(0, -1)]),
    ]

    answer = await broker.answer(
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsPartition(partition_index=partition, offset=offset)
                        for partition, offset in offsets
                    ],
                )
                for name, offsets in wanted
            ]
        )
    )

    found = [
        (each.name, p.partition_index, p.low_watermark, p.error_code)
        for each in answer.topics
        for p in each.partitions
    ]
    assert found == [
        ("t", 0, 2, 0),
        ("t", 1, 3, 0),
        ("t", 2, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 3, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("compacted", 0, -1, ErrorCode.POLICY_VIOLATION),
        ("zzz", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
