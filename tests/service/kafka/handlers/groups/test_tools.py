"""What tools ask of groups: describe, list and delete."""

from typing import Any

import pytest

from service.groups.classic import consumers
from service.kafka.protocol.apis import Api
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from service.kafka.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tests.service.groups.cluster import GROUP, TOPIC, Cluster, member, with_topic
from tests.service.kafka.handlers.groups.door import Consumer, Door

pytestmark = pytest.mark.anyio


async def new_door() -> Door:
    cluster = Cluster()
    return Door(cluster, await with_topic(cluster, 2))


async def described(door: Door, group: str = GROUP) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    return (await door.ask(Api.CONSUMER_GROUP_DESCRIBE, 1, request)).groups[0]


async def described_as_classic(door: Door, version: int, group: str = GROUP) -> Any:
    request = DescribeGroupsRequest(groups=[group])
    return (await door.ask(Api.DESCRIBE_GROUPS, version, request)).groups[0]


async def listed(door: Door, **filters: Any) -> list[tuple[str, str, str, str]]:
    response = await door.ask(Api.LIST_GROUPS, 5, ListGroupsRequest(**filters))
    return [
        (one.group_id, one.protocol_type, one.group_state, one.group_type)
        for one in response.groups
    ]


async def test_a_group_is_described_with_its_members() -> None:
    door = await new_door()
    await Consumer("one", instance_id="i", rack_id="r").beat(door)

    group = await described(door)

    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    assert group.authorized_operations == 0b1101_0100_1000
    [one] = group.members
    assert (one.member_id, one.instance_id, one.rack_id) == ("one", "i", "r")
    assert (one.client_id, one.client_host, one.member_epoch) == ("client", "/10.0.0.1", 1)
    assert (one.subscribed_topic_names, one.member_type) == ([TOPIC], 1)
    [places] = one.assignment.topic_partitions
    assert (places.topic_name, places.partitions) == (TOPIC, [0, 1])
    assert places.topic_id == (await door.gateway.topics.get(TOPIC)).topic_id


async def test_a_group_reconciles_until_what_is_held_is_free() -> None:
    door = await new_door()
    one = Consumer("one")
    await one.beat(door)
    await Consumer("two").beat(door)

    group = await described(door)
    assert (group.group_state, [each.member_epoch for each in group.members]) == (
        "Reconciling",
        [1, 2],
    )
    await one.beat(door)
    await one.beat(door)
    assert (await described(door)).group_state == "Stable"


async def test_a_group_of_http_is_described_as_a_classic_one_too() -> None:
    door = await new_door()
    beat = await door.gateway.coordinator.join(GROUP, member(), None)

    group = await described_as_classic(door, 5)

    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "sticky",
    )
    [one] = group.members
    assert one.member_id == beat.member_id
    assert consumers.subscribed(one.member_metadata) == [TOPIC]
    assert consumers.assigned(one.member_assignment) == [(TOPIC, 0), (TOPIC, 1)]


async def test_a_group_that_is_not_there_is_dead() -> None:
    door = await new_door()

    assert (await described(door)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    old, new = await described_as_classic(door, 5), await described_as_classic(door, 6)
    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


async def test_groups_are_listed_by_state_and_type() -> None:
    door = await new_door()
    one = Consumer("one")
    await one.beat(door)
    await one.beat(door, group_id="an other", member_epoch=0, **one.fields, topic_partitions=[])
    await one.ask(door, group_id="an other", member_epoch=-1)

    mine, other = (
        (GROUP, "consumer", "Stable", "consumer"),
        ("an other", "consumer", "Empty", "consumer"),
    )
    assert await listed(door) == [other, mine]
    assert await listed(door, states_filter=["stable"]) == [mine]
    assert await listed(door, states_filter=["Empty", "Dead"]) == [other]
    assert await listed(door, types_filter=["classic"]) == []
    assert await listed(door, types_filter=["Consumer"]) == [other, mine]


async def test_groups_without_members_are_deleted() -> None:
    door = await new_door()
    one = Consumer("one")
    await one.beat(door)

    async def codes(*groups: str) -> list[int]:
        request = DeleteGroupsRequest(groups_names=list(groups))
        response = await door.ask(Api.DELETE_GROUPS, 2, request)
        return [each.error_code for each in response.results]

    assert await codes(GROUP, "none", GROUP) == [
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    await one.ask(door, member_epoch=-1)
    assert await codes(GROUP) == [ErrorCode.NONE]
    assert await listed(door) == []
