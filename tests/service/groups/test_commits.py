"""Offsets as items: how many are written, how they are listed, and when exactly they go."""

from typing import Any

import pytest

from service.groups import coordinator
from service.groups import offsets as module
from service.groups.offsets import Committer
from storage import keys
from storage.errors import (
    IllegalGeneration,
    InvalidRequest,
    UnknownMember,
    UnknownTopicOrPartition,
)
from tests.service.groups.cluster import (
    GROUP,
    Cluster,
    CountingMetadata,
    Gateway,
    follow,
    places,
    with_topic,
)
from tests.service.groups.test_offsets import (
    DAY_MS,
    WEEK_S,
    at,
    by,
    commit,
    joined,
    offsets,
)
from tests.storage.helpers.worlds import new_metadata

pytestmark = pytest.mark.anyio

NOBODY = Committer(member_id="nobody", generation=1)


async def with_lanes(cluster: Cluster, count: int) -> Gateway:
    """Return a gateway of the cluster, which now has a topic with so many lanes."""
    gateway = cluster.gateway()
    await gateway.topics.create("t", partitions=count, config={"lane.partitions": 1})
    return gateway


# As part of something else


async def test_a_plan_says_how_many_items_it_takes_and_takes_them() -> None:
    cluster = Cluster()
    gateway = await with_lanes(cluster, 3)
    await commit(gateway, at(1), at(2, 1), at(3, 2))
    planned = await gateway.offsets.planned(GROUP, [at(5), at(6, 1)], None)

    ops = await gateway.offsets.ops(planned)
    await cluster.metadata.transact(ops)

    assert len(ops) == planned.op_count == 3
    assert await offsets(gateway) == {("t", 0): 5, ("t", 1): 6, ("t", 2): 3}


async def test_a_plan_is_for_those_who_may_commit() -> None:
    gateway = await with_topic(Cluster())
    beat = await joined(gateway)

    planned = await gateway.offsets.planned(GROUP, [at(5)], NOBODY)
    with pytest.raises(UnknownMember, match="group 'g' has no member 'nobody'"):
        await gateway.offsets.ops(planned)

    planned = await gateway.offsets.planned(GROUP, [at(5)], by(beat))
    assert len(await gateway.offsets.ops(planned)) == 2


# What is refused


async def test_a_group_needs_a_name_that_can_be_a_key() -> None:
    gateway = await with_topic(Cluster())
    with pytest.raises(InvalidRequest):
        await gateway.offsets.planned("a\0b", [at(5)], None)
    with pytest.raises(InvalidRequest):
        await gateway.offsets.read("a\0b")


async def test_a_partition_that_is_not_there_is_reported_first() -> None:
    gateway = await with_topic(Cluster(), 4)
    with pytest.raises(UnknownTopicOrPartition):
        await commit(gateway, at(-1, 4))


async def test_offsets_may_fill_an_item_to_the_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    await commit(gateway, at(5))
    item = await cluster.metadata.get(keys.group_offsets(GROUP, "t", 0))
    assert item is not None

    monkeypatch.setattr(module, "VALUE_BYTES_MAX", len(item.value))
    await commit(gateway, at(6))
    with pytest.raises(InvalidRequest, match="use shorter metadata"):
        await commit(gateway, at(7, metadata="x"))


async def test_a_commit_that_lost_a_race_and_then_its_partitions_is_refused_for_certain() -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    beat = await joined(gateway)
    get_many = cluster.metadata.get_many

    async def get_many_then_race(wanted: Any) -> Any:
        items = await get_many(wanted)
        cluster.metadata.get_many = get_many  # type: ignore[method-assign]
        await commit(elsewhere, at(5, 1), beat=beat)
        await joined(elsewhere)
        return items

    cluster.metadata.get_many = get_many_then_race  # type: ignore[method-assign]
    with pytest.raises(IllegalGeneration):
        await commit(gateway, at(5), beat=beat)

    assert await offsets(gateway) == {("t", 1): 5}


# Lists


async def test_all_items_are_listed_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.stores.metadata.LISTED_AT_ONCE", 2)
    counting = CountingMetadata(new_metadata())
    gateway = await with_lanes(Cluster(counting), 5)
    await commit(gateway, *(at(partition, partition) for partition in range(5)))
    counting.calls.clear()

    assert await offsets(gateway) == {place: place[1] for place in places(5)}
    assert counting.calls["lists"] == 3


# When they go


async def test_a_group_is_kept_for_the_newest_of_its_offsets() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    await commit(gateway, at(5))
    cluster.now_s += WEEK_S
    await commit(gateway, at(6, 1))
    cluster.now_s += 1
    assert await gateway.offsets.expire(7 * DAY_MS) == 0

    cluster.now_s += WEEK_S
    assert await gateway.offsets.expire(7 * DAY_MS) == 1


async def test_nothing_of_many_items_goes_while_one_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "TRANSACT_OPS_MAX", 4)  # So two of them at once.
    cluster = Cluster()
    gateway = await with_lanes(cluster, 3)
    await commit(gateway, at(5), at(5, 1))
    cluster.now_s += WEEK_S + 1
    await commit(gateway, at(5, 2))

    assert await gateway.offsets.expire(7 * DAY_MS) == 0
    assert len(await offsets(gateway)) == 3


async def test_offsets_are_kept_as_long_as_promised_and_not_longer() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    await commit(gateway, at(5))
    cluster.now_s += WEEK_S
    assert await gateway.offsets.expire(7 * DAY_MS) == 0

    cluster.now_s += 0.002
    assert await gateway.offsets.expire(7 * DAY_MS) == 1


async def test_a_group_is_kept_as_long_after_it_had_members() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await follow(gateway, await joined(gateway))
    await gateway.coordinator.leave(GROUP, beat.member_id)
    cluster.now_s += WEEK_S
    assert await gateway.offsets.expire(7 * DAY_MS) == 0

    cluster.now_s += 0.002
    assert await gateway.offsets.expire(7 * DAY_MS) == 1


async def test_a_group_with_members_is_passed_over_and_others_are_not() -> None:
    counting = CountingMetadata(new_metadata())
    cluster = Cluster(counting)
    gateway = await with_topic(cluster)
    beat = await joined(gateway)
    await commit(gateway, at(5), beat=beat)
    cluster.now_s += 2 * WEEK_S
    counting.calls.clear()
    assert await gateway.offsets.expire(7 * DAY_MS) == 0
    assert counting.calls["lists"] == 1, "its offsets are not even looked at"

    await gateway.offsets.commit("h", [at(5)], None)
    cluster.now_s += 2 * WEEK_S
    assert await gateway.offsets.expire(7 * DAY_MS) == 1
    assert set(await gateway.coordinator.all()) == {GROUP}
