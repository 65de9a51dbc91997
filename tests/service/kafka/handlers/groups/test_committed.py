"""OffsetCommit, OffsetFetch and OffsetDelete: the same offsets as those of HTTP."""

from typing import Any

import pytest

from service.groups.offsets import Commit
from service.kafka.protocol.apis import Api
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from storage.formats.partitions import PartitionNumber
from tests.service.groups.cluster import GROUP, TOPIC, Cluster, follow, member, with_topic
from tests.service.kafka.handlers.groups.door import Consumer, Door

pytestmark = pytest.mark.anyio

P0 = PartitionNumber(0)


async def new_door(partitions: int = 2) -> Door:
    cluster = Cluster()
    return Door(cluster, await with_topic(cluster, partitions))


async def commit(
    door: Door,
    offsets: dict[int, int],
    *,
    version: int = 9,
    topic: str = TOPIC,
    metadata: str | None = "",
    **who: Any,
) -> list[int]:
    """Return the code of each partition."""
    ids = (await door.gateway.coordinator.topics()).ids
    request = OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            OffsetCommitRequestTopic(
                name=topic if version < 10 else "",
                topic_id=ids.get(topic, b"?" * 16) if version >= 10 else bytes(16),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=7,
                        committed_metadata=metadata,
                    )
                    for partition, offset in offsets.items()
                ],
            )
        ],
        **who,
    )
    response = await door.ask(Api.OFFSET_COMMIT, version, request)
    return [each.error_code for each in response.topics[0].partitions]


async def fetch(door: Door, *partitions: int, **who: Any) -> Any:
    """Return what version 9 replies about the group."""
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(partitions))]
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics if partitions else None, **who)
    response = await door.ask(Api.OFFSET_FETCH, 9, OffsetFetchRequest(groups=[group]))
    return response.groups[0]


def offsets_of(topic: Any) -> dict[int, int]:
    return {each.partition_index: each.committed_offset for each in topic.partitions}


async def test_what_is_committed_is_fetched_with_all_it_says() -> None:
    door = await new_door()

    assert await commit(door, {0: 5}, metadata="mine") == [ErrorCode.NONE]

    [topic] = (await fetch(door, 0, 1)).topics
    first, second = topic.partitions
    assert (first.committed_offset, first.metadata, first.committed_leader_epoch) == (5, "mine", 7)
    assert (second.committed_offset, second.metadata, second.error_code) == (-1, "", 0)


async def test_kafka_and_http_commit_the_same_offsets() -> None:
    door = await new_door()
    await commit(door, {0: 5}, metadata=None)
    [one] = await door.gateway.offsets.read(GROUP)
    assert (one.partition, one.offset, one.metadata) == (0, 5, "")

    await door.gateway.offsets.commit(GROUP, [Commit(topic=TOPIC, partition=P0, offset=9)], None)

    [topic] = (await fetch(door)).topics
    assert offsets_of(topic) == {0: 9}


async def test_all_offsets_are_those_of_topics_that_are_new_too() -> None:
    door = await new_door()
    await door.gateway.coordinator.topics()
    await door.gateway.topics.create("new", partitions=1)
    await commit(door, {0: 5}, topic="new")

    [topic] = (await fetch(door)).topics

    assert (topic.name, offsets_of(topic)) == ("new", {0: 5})


async def test_topics_are_named_by_id_from_version_10() -> None:
    door = await new_door()
    assert await commit(door, {0: 5}, version=10) == [ErrorCode.NONE]
    assert await commit(door, {0: 5}, version=10, topic="?") == [ErrorCode.UNKNOWN_TOPIC_ID]
    topic_id = (await door.gateway.topics.get(TOPIC)).topic_id
    asked = [
        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0]),
        OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[0]),
    ]
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=asked)

    response = await door.ask(Api.OFFSET_FETCH, 10, OffsetFetchRequest(groups=[group]))

    known, unknown = response.groups[0].topics
    assert (bytes(known.topic_id), offsets_of(known)) == (topic_id, {0: 5})
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_each_partition_has_a_code_of_its_own() -> None:
    door = await new_door()

    codes = await commit(door, {0: 5, 1: -1, 2: 5, -1: 5})

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, unknown, unknown]
    assert await commit(door, {0: 1}, topic="none") == [unknown]
    too_large = [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert await commit(door, {0: 1}, metadata="x" * 4097) == too_large


async def test_only_members_commit_while_there_are_any() -> None:
    door = await new_door()
    one = Consumer("one")
    await one.beat(door)

    who = {"member_id": "one", "generation_id_or_member_epoch": 1}
    assert await commit(door, {0: 5}, **who) == [ErrorCode.NONE]
    assert await commit(door, {0: 5}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await commit(door, {0: 5}, **{**who, "member_id": "two"}) == [
        ErrorCode.UNKNOWN_MEMBER_ID
    ]
    who["generation_id_or_member_epoch"] = 2
    assert await commit(door, {0: 5}, **who) == [ErrorCode.STALE_MEMBER_EPOCH]


async def test_an_older_epoch_may_commit_what_it_has_had_ever_since() -> None:
    door = await new_door(4)
    one, two = Consumer("one"), Consumer("two")
    await one.beat(door)
    await two.beat(door)  # Generation 2: one holds two that it must give up, and may commit them.

    who = {"member_id": "one", "generation_id_or_member_epoch": 1}
    assert await commit(door, {0: 5, 1: 5, 2: 5, 3: 5}, **who) == [ErrorCode.NONE] * 4
    await one.beat(door)
    await one.beat(door)
    lost = next(p for p in range(4) if (TOPIC, p) not in one.owned)
    who["generation_id_or_member_epoch"] = 2
    assert await commit(door, {lost: 6}, **who) == [ErrorCode.STALE_MEMBER_EPOCH]

    await two.ask(door, member_epoch=-1)  # Generation 3: one has everything again.
    kept = one.owned[0][1]
    assert await commit(door, {kept: 6}, **who) == [ErrorCode.NONE]
    assert await commit(door, {lost: 6}, **who) == [ErrorCode.STALE_MEMBER_EPOCH]
    await one.beat(door)
    who["generation_id_or_member_epoch"] = 3
    assert await commit(door, {lost: 6}, **who) == [ErrorCode.NONE]


async def test_a_member_of_http_is_none_of_kafka() -> None:
    door = await new_door()
    beat = await door.gateway.coordinator.join(GROUP, member(), None)
    beat = await follow(door.gateway, beat)

    who = {"member_id": beat.member_id, "generation_id_or_member_epoch": beat.generation}
    assert await commit(door, {0: 5}, **who) == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_a_group_that_is_not_there_has_no_members() -> None:
    door = await new_door()

    who = {"member_id": "one", "generation_id_or_member_epoch": 1}
    assert await commit(door, {0: 5}, version=9, **who) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert await commit(door, {0: 5}, version=8, **who) == [ErrorCode.ILLEGAL_GENERATION]


async def test_versions_before_8_ask_for_one_group() -> None:
    door = await new_door()
    await commit(door, {0: 5})
    topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])]

    some = await door.ask(Api.OFFSET_FETCH, 7, OffsetFetchRequest(group_id=GROUP, topics=topics))
    everything = await door.ask(
        Api.OFFSET_FETCH, 7, OffsetFetchRequest(group_id=GROUP, topics=None)
    )

    assert offsets_of(some.topics[0]) == {0: 5, 1: -1}
    assert offsets_of(everything.topics[0]) == {0: 5}


async def test_a_member_that_asks_must_be_one() -> None:
    door = await new_door()
    await Consumer("one").beat(door)

    async def code(member_id: str, epoch: int) -> int:
        return int((await fetch(door, 0, member_id=member_id, member_epoch=epoch)).error_code)

    assert await code("one", 1) == ErrorCode.NONE
    assert await code("two", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await code("one", 2) == ErrorCode.STALE_MEMBER_EPOCH


async def delete(door: Door, *partitions: int, topic: str = TOPIC) -> Any:
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in partitions],
            )
        ],
    )
    return await door.ask(Api.OFFSET_DELETE, 0, request)


async def test_offsets_of_what_nobody_reads_are_deleted() -> None:
    door = await new_door()
    assert (await delete(door, 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    await commit(door, {0: 5, 1: 6})

    response = await delete(door, 0, 9)

    codes = [each.error_code for each in response.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert offsets_of((await fetch(door)).topics[0]) == {1: 6}


async def test_offsets_of_what_is_read_stay() -> None:
    door = await new_door()
    await commit(door, {0: 5})
    await Consumer("one").beat(door)

    response = await delete(door, 0)

    [each] = response.topics[0].partitions
    assert each.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
