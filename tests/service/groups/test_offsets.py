"""Committed offsets: who may write them, what a lost answer means, and when they go."""

from contextlib import suppress
from typing import Any

import pytest

from service.groups.coordinator import Beat
from service.groups.offsets import METADATA_CHARS_MAX, Commit, Committer
from service.groups.upkeep import GroupUpkeep
from service.process.upkeep import EXPIRY_EVERY_S
from service.settings import Settings
from storage import keys
from storage.errors import (
    Corrupt,
    IllegalGeneration,
    InvalidRequest,
    OutcomeUnknown,
    StaleMemberEpoch,
    StoreUnavailable,
    UnknownMember,
    UnknownTopicOrPartition,
)
from storage.stores.metadata import TRANSACT_OPS_MAX, Put
from tests.service.groups.cluster import (
    GROUP,
    Cluster,
    Gateway,
    follow,
    member,
    places,
    with_topic,
)
from tests.service.groups.consumers.clients import ConsumerClient

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000
WEEK_S = 7 * 86_400
LOST = pytest.mark.parametrize("fault", ["request lost", "reply lost"])


def at(offset: int, partition: int = 0, topic: str = "t", metadata: str = "") -> Commit:
    return Commit(topic=topic, partition=partition, offset=offset, metadata=metadata)


def by(beat: Beat) -> Committer:
    return Committer(member_id=beat.member_id, generation=beat.generation)


async def commit(gateway: Gateway, *commits: Commit, beat: Beat | None = None) -> None:
    await gateway.offsets.commit(GROUP, commits, None if beat is None else by(beat))


async def offsets(gateway: Gateway) -> dict[tuple[str, int], int]:
    return {(c.topic, c.partition): c.offset for c in await gateway.offsets.read(GROUP)}


async def joined(gateway: Gateway) -> Beat:
    return await gateway.coordinator.join(GROUP, member(), None)


async def test_a_member_commits_and_any_gateway_knows() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await joined(gateway)
    await commit(gateway, at(5), at(7, 1, metadata="m"), beat=beat)
    await commit(gateway, at(6), beat=beat)

    found = await cluster.gateway().offsets.read(GROUP)
    assert [(c.partition, c.offset, c.metadata) for c in found] == [(0, 6, ""), (1, 7, "m")]
    some = await cluster.gateway().offsets.read_some(GROUP, [("t", 1), ("t", 2), ("gone", 0)])
    assert some == {("t", 1): 7}


async def test_a_group_without_members_can_be_written_from_outside() -> None:
    gateway = await with_topic(Cluster())
    await commit(gateway, at(5))

    assert await offsets(gateway) == {("t", 0): 5}
    assert set(await gateway.coordinator.all()) == {GROUP}


async def test_with_members_only_they_may_commit() -> None:
    gateway = await with_topic(Cluster())
    await joined(gateway)
    with pytest.raises(UnknownMember, match="has members, so only they may commit: give"):
        await commit(gateway, at(5))


async def test_a_stale_generation_may_not_commit() -> None:
    gateway = await with_topic(Cluster())
    old = await joined(gateway)
    new = await joined(gateway)
    with pytest.raises(IllegalGeneration, match=r"not the current one, which is 2; send a heart"):
        await commit(gateway, at(5), beat=old)

    # Once it has heard, it may still record what it is about to give up, and then no more.
    old = await follow(gateway, old)
    [_, partition] = old.revoke[0]
    await commit(gateway, at(5, partition), beat=old)
    with pytest.raises(IllegalGeneration, match=r"offsets\[0\]: t/\d is not assigned to"):
        await commit(gateway, at(5, partition), beat=new)
    old = await follow(gateway, old)
    with pytest.raises(IllegalGeneration, match="send a heartbeat to learn what is"):
        await commit(gateway, at(6, partition), beat=old)
    new = await follow(gateway, new)
    await commit(gateway, at(7, partition), beat=new)
    assert (await offsets(gateway))["t", partition] == 7


async def test_who_left_may_not_commit() -> None:
    gateway = await with_topic(Cluster())
    beat = await joined(gateway)
    await gateway.coordinator.leave(GROUP, beat.member_id)
    with pytest.raises(UnknownMember, match="join again"):
        await commit(gateway, at(5), beat=beat)


@LOST
async def test_a_lost_answer_is_no_error(fault: Any) -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await joined(gateway)
    cluster.metadata.faults = [fault]
    await commit(gateway, at(5), at(6, 1), beat=beat)

    assert await offsets(gateway) == {("t", 0): 5, ("t", 1): 6}


async def test_a_commit_that_was_made_is_not_refused_because_its_answer_was_lost() -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    beat = await joined(gateway)
    cluster.metadata.faults = ["reply lost"]
    cluster.metadata.before_unknown = lambda: rebalanced(elsewhere)
    await commit(gateway, at(5), beat=beat)

    assert await offsets(gateway) == {("t", 0): 5}


async def test_a_commit_that_was_not_made_is_refused_though_its_answer_was_lost() -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    beat = await joined(gateway)
    cluster.metadata.faults = ["request lost"]
    cluster.metadata.before_unknown = lambda: rebalanced(elsewhere)
    with pytest.raises(IllegalGeneration):
        await commit(gateway, at(5), beat=beat)


async def rebalanced(gateway: Gateway) -> None:
    await joined(gateway)


async def test_an_outcome_that_cannot_be_read_is_unknown() -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    beat = await joined(gateway)
    await commit(gateway, at(4, 1), beat=beat)

    async def something_else_and_rebalance() -> None:
        await commit(elsewhere, at(5, 1), beat=beat)
        await joined(elsewhere)

    cluster.metadata.faults = ["request lost"]
    cluster.metadata.before_unknown = something_else_and_rebalance
    with pytest.raises(
        OutcomeUnknown, match="the offsets of group 'g' may have changed: generation"
    ):
        await commit(gateway, at(5), beat=beat)


@LOST
async def test_a_commit_that_is_overtaken_does_not_turn_back(fault: Any) -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    beat = await joined(gateway)
    cluster.metadata.faults = [fault]
    cluster.metadata.before_unknown = lambda: commit(elsewhere, at(20), beat=beat)
    await commit(gateway, at(10), at(3, 1), beat=beat)

    assert await offsets(gateway) == {("t", 0): 20, ("t", 1): 3}


async def test_a_commit_of_an_older_epoch_that_comes_late_changes_nothing() -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    consumer = ConsumerClient("a")
    while ("t", 0) not in consumer.reads:
        await consumer.step(gateway)
    old = Committer(member_id="a", generation=consumer.epoch, is_kafka=True)
    await gateway.coordinator.join(GROUP, member(), None)
    await consumer.step(gateway)
    new = Committer(member_id="a", generation=consumer.epoch, is_kafka=True)
    assert new.generation > old.generation

    # It is what the member has had ever since, so the older epoch is as good for it.
    await gateway.offsets.commit(GROUP, [at(5)], old)
    assert await offsets(gateway) == {("t", 0): 5}
    await gateway.offsets.commit(GROUP, [at(20)], new)
    with pytest.raises(StaleMemberEpoch, match="a newer epoch than"):
        await elsewhere.offsets.commit(GROUP, [at(5)], old)
    assert await offsets(gateway) == {("t", 0): 20}
    await gateway.offsets.commit(GROUP, [at(10)], new)
    assert await offsets(gateway) == {("t", 0): 10}


@LOST
async def test_a_commit_of_a_newer_epoch_is_not_overtaken_by_an_older_one(fault: Any) -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    consumer = ConsumerClient("a")
    while ("t", 0) not in consumer.reads:
        await consumer.step(gateway)
    old = Committer(member_id="a", generation=consumer.epoch, is_kafka=True)
    await gateway.coordinator.join(GROUP, member(), None)
    await consumer.step(gateway)
    new = Committer(member_id="a", generation=consumer.epoch, is_kafka=True)
    cluster.metadata.faults = [fault]

    async def commit_late() -> None:
        with suppress(StaleMemberEpoch):
            await elsewhere.offsets.commit(GROUP, [at(5)], old)

    cluster.metadata.before_unknown = commit_late
    await gateway.offsets.commit(GROUP, [at(20)], new)

    assert await offsets(gateway) == {("t", 0): 20}


async def test_who_wants_to_may_turn_back() -> None:
    gateway = await with_topic(Cluster())
    await commit(gateway, at(20))
    await commit(gateway, at(10))

    assert await offsets(gateway) == {("t", 0): 10}


async def test_what_may_have_been_written_is_never_called_unwritten() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)

    async def fail() -> None:
        cluster.metadata.failing_gets = 1

    cluster.metadata.faults = ["reply lost"]
    cluster.metadata.before_unknown = fail
    with pytest.raises(OutcomeUnknown, match="the offsets of group 'g' may have changed"):
        await commit(gateway, at(5))
    cluster.metadata.faults = ["refused"]
    with pytest.raises(StoreUnavailable):
        await commit(gateway, at(6))
    assert await offsets(gateway) == {("t", 0): 5}


async def test_a_recreated_topic_has_no_offsets() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    await commit(gateway, at(5), at(6, 1))
    await gateway.topics.delete("t")
    assert await offsets(gateway) == {}
    await gateway.topics.create("t", partitions=1)

    assert await offsets(gateway) == {}
    assert await gateway.offsets.read_some(GROUP, places(2)) == {}
    await commit(gateway, at(1))
    assert await offsets(gateway) == {("t", 0): 1}


async def test_a_gateway_that_does_not_yet_know_a_new_partition_finds_out() -> None:
    cluster = Cluster()
    gateway, behind = await with_topic(cluster, 1), cluster.gateway()
    await commit(behind, at(1))  # Now it remembers one partition.
    await gateway.topics.alter("t", partitions=2)
    await commit(gateway, at(5, 1))

    assert await behind.offsets.read_some(GROUP, places(2)) == {("t", 0): 1, ("t", 1): 5}
    other = cluster.gateway()
    await commit(other, at(2))
    await gateway.topics.alter("t", partitions=3)
    await commit(other, at(7, 2))
    assert await offsets(behind) == {("t", 0): 2, ("t", 1): 5, ("t", 2): 7}


@pytest.mark.parametrize(
    ("commits", "error", "message"),
    [
        ([], InvalidRequest, "offsets: there are none; give at least one"),
        ([at(1), at(2)], InvalidRequest, r"offsets\[1\]: this partition is given twice"),
        ([at(-1)], InvalidRequest, r"offsets\[0\].offset: must be 0 or more"),
        ([at(1, 9)], UnknownTopicOrPartition, "has partitions 0 to 3, not 9"),
        ([at(1, topic="u")], UnknownTopicOrPartition, "there is no topic 'u'"),
        (
            [at(1, metadata="x" * (METADATA_CHARS_MAX + 1))],
            InvalidRequest,
            r"offsets\[0\].metadata: 4097 characters, the limit is 4096",
        ),
    ],
)
async def test_a_bad_commit_says_what_is_wrong(
    commits: list[Commit], error: type[Exception], message: str
) -> None:
    gateway = await with_topic(Cluster())
    with pytest.raises(error, match=message):
        await commit(gateway, *commits)


async def test_a_commit_has_a_largest_size() -> None:
    gateway = await with_topic(Cluster(), 64)
    long = "ä" * METADATA_CHARS_MAX
    with pytest.raises(InvalidRequest, match=r"would take \d+ bytes, .* use shorter metadata"):
        await commit(gateway, *(at(1, p, metadata=long) for p in range(64)))

    cluster = Cluster()
    gateway = cluster.gateway()
    await gateway.topics.create("t", partitions=99, config={"lane.partitions": 1})
    with pytest.raises(InvalidRequest, match="these are of 99 lanes, and one commit can cover 98"):
        await commit(gateway, *(at(1, p) for p in range(99)))
    await commit(gateway, *(at(1, p) for p in range(98)))


async def test_damaged_offsets_are_noticed() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    await cluster.metadata.transact([Put(keys.group_offsets(GROUP, "t", 0), b"rubbish", None)])
    with pytest.raises(Corrupt):
        await offsets(gateway)


# When they go


async def test_offsets_are_kept_from_when_the_group_was_last_seen() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await joined(gateway)
    await commit(gateway, at(5), beat=beat)
    for _ in range(30):  # Nothing to read for ten days, but it is there.
        cluster.now_s += DAY_MS / 1000 / 3
        try:
            beat = await follow(gateway, beat)
        except UnknownMember:
            beat = await joined(gateway)
    await gateway.coordinator.leave(GROUP, beat.member_id)
    cluster.now_s += 86_400
    assert await gateway.offsets.expire(7 * DAY_MS) == 0

    cluster.now_s += WEEK_S
    assert await gateway.offsets.expire(7 * DAY_MS) == 1
    assert await gateway.coordinator.all() == {}
    for collection in (f"offset/{GROUP}/", "watch/", f"member/{GROUP}/"):
        assert await cluster.metadata.list(collection) == []


async def test_a_group_with_members_keeps_its_offsets() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await joined(gateway)
    await commit(gateway, at(5), beat=beat)
    cluster.now_s += WEEK_S * 2

    assert await gateway.offsets.expire(7 * DAY_MS) == 0
    assert await offsets(gateway) == {("t", 0): 5}


async def test_a_commit_in_the_last_instant_keeps_the_group() -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    await commit(gateway, at(5))
    cluster.now_s += WEEK_S + 1
    listed = cluster.metadata.list

    async def list_then_commit(prefix: str, **options: Any) -> Any:
        page = await listed(prefix, **options)
        if prefix.startswith("offset/"):
            cluster.metadata.list = listed  # type: ignore[method-assign]
            await commit(elsewhere, at(6))
        return page

    cluster.metadata.list = list_then_commit  # type: ignore[method-assign]
    assert await gateway.offsets.expire(7 * DAY_MS) == 0
    assert await offsets(gateway) == {("t", 0): 6}


async def test_a_group_of_many_lanes_is_deleted_whole() -> None:
    cluster = Cluster()
    gateway = cluster.gateway()
    count = TRANSACT_OPS_MAX + 50
    await gateway.topics.create("t", partitions=count, config={"lane.partitions": 1})
    for start in range(0, count, 50):
        await commit(gateway, *(at(1, p) for p in range(start, start + 50)))
    await gateway.coordinator.delete(GROUP)

    assert await cluster.metadata.list(f"offset/{GROUP}/") == []
    assert await gateway.coordinator.all() == {}


async def test_upkeep_ends_sessions_each_time_and_forgets_once_an_hour() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await joined(gateway)
    await commit(gateway, at(5), beat=beat)
    world = gateway.coordinator._world
    upkeep = GroupUpkeep(gateway.coordinator, gateway.offsets, Settings(), world)
    for _ in range(8):
        cluster.now_s += 5
        await upkeep.tick()
    with pytest.raises(UnknownMember):
        await follow(gateway, beat)
    assert await offsets(gateway) == {("t", 0): 5}

    cluster.now_s += WEEK_S
    await upkeep.tick()
    assert await offsets(gateway) == {}
    await commit(gateway, at(1))
    cluster.now_s += EXPIRY_EVERY_S - 1
    await upkeep.tick()
    assert await offsets(gateway) == {("t", 0): 1}
