"""ConsumerGroupHeartbeat: members of KIP-848 in the groups of HTTP."""

from typing import Any

import pytest

from service.groups.consumers.members import LEAVES, STEPS_ASIDE
from service.kafka.protocol.apis import Api
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from tests.service.groups.cluster import GROUP, Cluster, follow, group_of, member, with_topic
from tests.service.kafka.handlers.groups.door import Consumer, Door

pytestmark = pytest.mark.anyio


async def new_door(partitions: int = 4) -> Door:
    cluster = Cluster()
    return Door(cluster, await with_topic(cluster, partitions))


async def settled(door: Door, *consumers: Consumer, rounds: int = 4) -> None:
    for _ in range(rounds):
        for one in consumers:
            response = await one.beat(door)
            assert response.error_code == ErrorCode.NONE, response.error_message


def numbers(consumer: Consumer) -> list[int]:
    return [partition for _, partition in consumer.owned]


async def test_the_first_member_gets_everything() -> None:
    door = await new_door()
    one = Consumer("one")

    response = await one.beat(door)

    assert (response.member_id, response.member_epoch) == ("one", 1)
    assert response.heartbeat_interval_ms == 5_000
    assert numbers(one) == [0, 1, 2, 3]


async def test_partitions_move_once_they_are_given_up() -> None:
    door = await new_door()
    one, two = Consumer("one"), Consumer("two")
    await one.beat(door)

    joined = await two.beat(door)
    assert (joined.member_epoch, numbers(two)) == (2, [])
    assert joined.heartbeat_interval_ms == 1_000  # It waits for what the other holds.

    await one.beat(door)
    assert (one.epoch, len(one.owned)) == (2, 2)
    await two.beat(door)
    assert numbers(two) == []  # One has not said yet that it reads them no more.
    await one.beat(door)
    await two.beat(door)
    assert sorted(numbers(one) + numbers(two)) == [0, 1, 2, 3]


async def test_a_null_list_says_the_same_as_the_last_one() -> None:
    door = await new_door()
    one, two = Consumer("one"), Consumer("two")
    await one.beat(door)
    await two.beat(door)
    await one.beat(door)

    await one.ask(door, topic_partitions=None)

    assert len((await group_of(door.gateway)).revocations("one")) == 2


async def test_what_was_given_up_in_an_older_epoch_counts() -> None:
    door = await new_door(6)
    one, two, three = Consumer("one"), Consumer("two"), Consumer("three", subscribed_topic_names=[])
    await one.beat(door)
    await two.beat(door)
    await one.beat(door)  # Told to keep 3 of 6.
    await three.beat(door)  # Another generation, which takes nothing from one.

    await one.beat(door)  # It names the epoch before.

    assert (await group_of(door.gateway)).revocations("one") == []


async def test_a_member_of_http_and_one_of_kafka_share() -> None:
    door = await new_door()
    one = Consumer("one")
    await one.beat(door)
    beat = await door.gateway.coordinator.join(GROUP, member(), None)
    for _ in range(3):
        await settled(door, one, rounds=1)
        beat = await follow(door.gateway, beat)

    shares = [number for _, number in beat.assignment]
    assert sorted(shares + numbers(one)) == [0, 1, 2, 3]
    assert len(shares) == 2


async def test_a_repeated_join_is_one_member() -> None:
    door = await new_door()
    one = Consumer("one")
    await one.ask(door)
    await one.beat(door)

    group = await group_of(door.gateway)
    assert (list(group.members), group.generation) == (["one"], 1)


async def test_a_group_makes_ids_for_members_of_version_0() -> None:
    door = await new_door()
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )

    response = await door.ask(Api.CONSUMER_GROUP_HEARTBEAT, 0, request)

    assert response.error_code == ErrorCode.NONE
    assert len(response.member_id) == 22


async def test_subscriptions_change_with_a_heartbeat() -> None:
    door = await new_door()
    await door.gateway.topics.create("u", partitions=1)
    one = Consumer("one")
    await one.beat(door)

    await one.beat(door, subscribed_topic_names=["t", "u"])
    assert ("u", 0) in one.owned
    await one.beat(door, subscribed_topic_names=[], subscribed_topic_regex="u.*")
    assert one.owned == [("u", 0)]
    assert (await group_of(door.gateway)).generation == 3


async def test_names_and_a_pattern_add_up() -> None:
    door = await new_door(1)
    await door.gateway.topics.create("u", partitions=1)
    one = Consumer("one", subscribed_topic_regex="[u]")

    await one.beat(door)

    assert one.owned == [("t", 0), ("u", 0)]


async def test_a_member_that_leaves_holds_nothing() -> None:
    door = await new_door()
    one, two = Consumer("one"), Consumer("two")
    await settled(door, one, two)

    left = await one.ask(door, member_epoch=LEAVES)
    await two.beat(door)

    assert (left.member_id, left.member_epoch, left.assignment) == ("one", -1, None)
    assert numbers(two) == [0, 1, 2, 3]
    again = await one.ask(door)
    assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_that_steps_aside_keeps_its_share() -> None:
    door = await new_door()
    one, two = Consumer("one", instance_id="i"), Consumer("two")
    await settled(door, one, two)
    epoch = two.epoch

    await one.ask(door, member_epoch=STEPS_ASIDE, instance_id="i")
    assert (await one.ask(door)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    back = Consumer("back", instance_id="i")
    response = await back.beat(door)

    assert (response.member_epoch, numbers(back)) == (epoch, numbers(one))
    gone = await one.ask(door, instance_id="i", member_epoch=epoch)
    assert gone.error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_an_instance_that_is_there_is_not_replaced() -> None:
    door = await new_door()
    await Consumer("one", instance_id="i").beat(door)

    response = await Consumer("two", instance_id="i").beat(door)

    assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID


async def test_who_gives_up_too_slowly_is_removed() -> None:
    door = await new_door()
    slow, two = Consumer("slow", rebalance_timeout_ms=4_000), Consumer("two")
    await slow.beat(door)
    await two.beat(door)
    for _ in range(6):
        door.cluster.now_s += 2.1
        await two.beat(door)
        response = await slow.ask(door, topic_partitions=None)
    await two.beat(door)

    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert numbers(two) == [0, 1, 2, 3]


async def test_who_is_silent_is_removed() -> None:
    door = await new_door()
    silent, two = Consumer("silent"), Consumer("two")
    await settled(door, silent, two)
    for _ in range(12):
        door.cluster.now_s += 2.1
        await two.beat(door)

    assert numbers(two) == [0, 1, 2, 3]


async def test_beats_are_written_a_few_times_in_a_session() -> None:
    door = await new_door()
    one = Consumer("one")
    await settled(door, one)
    door.cluster.metadata.calls.clear()
    for _ in range(10):
        door.cluster.now_s += 0.5
        await one.beat(door)

    # Three beats, and a look for silent members every two seconds.
    assert door.cluster.metadata.calls["transact"] <= 6


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": "a\0b"}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x" * 300}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (
            {
                "topic_partitions": [
                    ConsumerGroupHeartbeatTopicPartitions(topic_id=b"x" * 16, partitions=[0])
                ]
            },
            ErrorCode.INVALID_REQUEST,
        ),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"server_assignor": "cargo"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
async def test_requests_that_make_no_sense_are_refused(fields: Any, code: ErrorCode) -> None:
    door = await new_door()

    response = await Consumer("one").ask(door, **fields)

    assert response.error_code == code, response.error_message
    assert (await group_of(door.gateway)).members == {}


async def test_an_epoch_of_the_future_is_fenced() -> None:
    door = await new_door()
    one = Consumer("one")
    await one.beat(door)

    response = await one.ask(door, member_epoch=99)

    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH


async def test_any_printable_name_is_a_group() -> None:
    door = await new_door()
    one = Consumer("a/b c%é")

    response = await one.beat(door, group_id="a/b: c%2F é")

    assert response.error_code == ErrorCode.NONE
    assert list(await door.gateway.coordinator.all()) == ["a/b: c%2F é"]
    again = await one.beat(door, group_id="a/b: c%2F é")
    assert again.error_code == ErrorCode.NONE
