"""Joining, beating and leaving, through any gateway, with stores that fail."""

import asyncio
from typing import Any

import pytest

from service.groups import state
from service.groups.beats import BEAT_ATTEMPTS_MAX
from service.groups.classic.rounds import MEMBERS_MAX
from service.groups.coordinator import TOPICS_AGE_MAX_S, Beat
from service.groups.patterns import PATTERN_CHARS_MAX
from service.groups.state import Member
from storage import keys
from storage.errors import (
    Corrupt,
    GroupNotEmpty,
    IllegalGeneration,
    InconsistentGroup,
    InvalidRequest,
    OutcomeUnknown,
    StoreUnavailable,
    UnknownGroup,
    UnknownMember,
)
from storage.stores.metadata import Put
from tests.service.groups.cluster import (
    GROUP,
    SESSION_MS,
    Cluster,
    CountingMetadata,
    Gateway,
    follow,
    group_of,
    matching,
    member,
    places,
    settled,
    with_topic,
)
from tests.storage.helpers.worlds import new_metadata

pytestmark = pytest.mark.anyio


async def join(gateway: Gateway, about: Member | None = None, assignor: str | None = None) -> Beat:
    return await gateway.coordinator.join(GROUP, about or member(), assignor)


async def test_the_first_member_has_everything_at_once() -> None:
    gateway = await with_topic(Cluster())
    beat = await join(gateway)

    assert beat.generation == 1
    assert beat.assignment == places(4)
    assert beat.revoke == []


async def test_a_partition_moves_only_after_it_was_given_up() -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    old = await join(gateway)
    new = await join(elsewhere)
    assert new.assignment == []

    # The old owner has not heard of it; then it hears, and still reads; then it has stopped.
    old = await follow(gateway, old)
    assert (old.generation, len(old.assignment), len(old.revoke)) == (2, 2, 2)
    assert (await follow(elsewhere, new)).assignment == []
    both = [*old.assignment, *old.revoke]
    old = await gateway.coordinator.heartbeat(GROUP, old.member_id, 2, both)
    assert (await follow(elsewhere, new)).assignment == []
    old = await follow(gateway, old)
    new = await follow(elsewhere, new)

    assert old.revoke == []
    assert sorted([*old.assignment, *new.assignment]) == places(4)


async def test_a_beat_of_an_older_generation_gives_nothing_up() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    old = await join(gateway)
    new = await join(gateway)
    for _ in range(3):
        told = await gateway.coordinator.heartbeat(GROUP, old.member_id, old.generation, [])

    assert len(told.revoke) == 2
    assert (await follow(gateway, new)).assignment == []


async def test_a_beat_that_does_not_say_what_it_owns_gives_nothing_up() -> None:
    gateway = await with_topic(Cluster())
    old = await join(gateway)
    await join(gateway)
    told = await gateway.coordinator.heartbeat(GROUP, old.member_id, 2, None)

    assert len(told.revoke) == 2


async def test_who_finds_nothing_left_waits_and_takes_over() -> None:
    gateway = await with_topic(Cluster(), 2)
    beats = await settled(gateway, *[await join(gateway) for _ in range(3)])
    assert sorted(len(beat.assignment) for beat in beats) == [0, 1, 1]

    [leaver, *_] = [beat for beat in beats if beat.assignment]
    await gateway.coordinator.leave(GROUP, leaver.member_id)
    rest = await settled(gateway, *[beat for beat in beats if beat is not leaver])
    assert [len(beat.assignment) for beat in rest] == [1, 1]


async def test_a_static_member_comes_back_and_nobody_notices() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beats = await settled(
        gateway, await join(gateway, member(instance_id="x")), await join(gateway)
    )
    again = await join(cluster.gateway(), member(instance_id="x"))

    assert again.generation == beats[0].generation
    assert again.assignment == beats[0].assignment
    assert again.member_id != beats[0].member_id
    assert (await follow(gateway, beats[1])).generation == beats[1].generation
    with pytest.raises(UnknownMember):
        await follow(gateway, beats[0])
    assert len(await cluster.metadata.list(f"member/{GROUP}/")) == 2


async def test_a_static_member_that_wants_something_else_is_a_change() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    await gateway.topics.create("u", partitions=1)
    first = await join(gateway, member("t", instance_id="x"))
    again = await join(gateway, member("u", "t", instance_id="x"))
    same = await join(gateway, member("t", "u", instance_id="x"))

    assert again.generation == first.generation + 1 == same.generation
    assert same.assignment == [*places(4), ("u", 0)]


async def test_a_static_member_alone_may_change_the_assignor() -> None:
    gateway = await with_topic(Cluster())
    await join(gateway, member(instance_id="x"))
    await join(gateway, member(instance_id="x"), "range")

    assert (await group_of(gateway)).assignor == "range"


async def test_new_partitions_and_topics_are_found() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster, 2)
    by_name, by_pattern = (
        await join(gateway, member("t", "later")),
        await join(gateway, matching("l.*")),
    )
    await gateway.topics.alter("t", partitions=3)
    await gateway.topics.create("later", partitions=1)
    await gateway.topics.create("other", partitions=1)
    cluster.now_s += TOPICS_AGE_MAX_S + 0.1
    by_name, by_pattern = await settled(gateway, by_name, by_pattern)

    assert sorted([*by_name.assignment, *by_pattern.assignment]) == [("later", 0), *places(3)]
    assert by_pattern.assignment == [("later", 0)]


async def test_a_topic_that_is_deleted_is_given_up() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster, 2)
    beat = await join(gateway, matching(".*"))
    await gateway.topics.delete("t")
    cluster.now_s += TOPICS_AGE_MAX_S + 0.1
    beat = await follow(gateway, beat)

    assert (beat.assignment, beat.revoke) == ([], places(2))


async def test_a_gateway_that_remembers_old_topics_does_not_undo_what_another_found() -> None:
    cluster = Cluster()
    gateway, behind = await with_topic(cluster, 2), cluster.gateway()
    beat = await join(gateway)
    beat = await follow(behind, beat)  # Now it remembers two partitions.
    await gateway.topics.alter("t", partitions=3)
    cluster.now_s += TOPICS_AGE_MAX_S - 1
    newcomer = await join(gateway)  # A join always looks.
    told = await follow(behind, beat)

    assert told.generation == newcomer.generation
    [told, newcomer] = await settled(behind, told, newcomer)
    assert sorted([*told.assignment, *newcomer.assignment]) == places(3)
    assert told.generation == 2


@pytest.mark.parametrize("count", [1, 10, 100])
async def test_a_quiet_heartbeat_is_one_read_and_one_write(count: int) -> None:
    counting = CountingMetadata(new_metadata())
    cluster = Cluster(counting)
    gateway = await with_topic(cluster, 200)
    beats = [await join(gateway) for _ in range(count)]
    beats = await settled(gateway, *beats)
    assert (await group_of(gateway)).state == "Stable"

    counting.calls.clear()
    beats = await settled(gateway, *beats, rounds=1)
    assert counting.calls["reads"] == counting.calls["writes"] == count
    assert counting.calls["lists"] == counting.calls["written group"] == 0
    assert counting.calls["read items"] == 3 * count
    assert counting.calls["written bytes"] <= 4 * count

    # Over a session in which each beats three times: besides, five looks and two lists of topics.
    counting.calls.clear()
    for _ in range(3):
        cluster.now_s += SESSION_MS / 1000 / 3
        beats = await settled(gateway, *beats, rounds=1)
    assert counting.calls["reads"] - 3 * count <= 5
    assert counting.calls["writes"] - 3 * count <= 5
    assert counting.calls["lists"] <= 5 + 2
    assert counting.calls["written group"] == 0
    # Each look reads all members: in a session, five times what their beats wrote in a third.
    assert counting.calls["read items"] <= 3 * 3 * count + 5 * (count + 2) + 2


async def test_many_join_at_once_through_many_gateways() -> None:
    cluster = Cluster()
    first = await with_topic(cluster, 20)
    gateways = [first, cluster.gateway(), cluster.gateway()]
    beats = await asyncio.gather(*(join(gateways[n % 3]) for n in range(12)))
    for _ in range(3):
        beats = await asyncio.gather(
            *(follow(gateways[n % 3], beat) for n, beat in enumerate(beats))
        )

    assert sorted(p for beat in beats for p in beat.assignment) == places(20)
    assert {len(beat.assignment) for beat in beats} == {1, 2}


async def test_calls_of_one_gateway_do_not_race_with_each_other() -> None:
    counting = CountingMetadata(new_metadata())
    gateway = await with_topic(Cluster(counting), 100)
    counting.calls.clear()
    await asyncio.gather(*(join(gateway) for _ in range(50)))

    assert counting.calls["written group"] == 50


# Answers that are lost

LOST = pytest.mark.parametrize("fault", ["request lost", "reply lost"])


@LOST
async def test_a_lost_answer_does_not_make_two_members(fault: Any) -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    cluster.metadata.faults = [fault]
    beat = await join(gateway)

    assert set((await group_of(gateway)).members) == {beat.member_id}
    assert beat.generation == 1


@LOST
async def test_a_lost_answer_gives_up_once(fault: Any) -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    old, new = await join(gateway), await join(gateway)
    old = await follow(gateway, old)
    cluster.metadata.faults = ["none", fault]
    old = await follow(gateway, old)

    assert (old.generation, old.revoke) == (2, [])
    assert len((await follow(gateway, new)).assignment) == 2


@LOST
async def test_a_lost_answer_to_a_beat_is_no_error(fault: Any) -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await join(gateway)
    await follow(gateway, beat)
    cluster.metadata.faults = [fault]

    assert await follow(gateway, beat) == beat
    assert await follow(gateway, beat) == beat


async def test_a_beat_that_is_not_written_is_not_acknowledged() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await join(gateway)
    await follow(gateway, beat)
    cluster.metadata.faults = ["request lost"] * BEAT_ATTEMPTS_MAX

    with pytest.raises(OutcomeUnknown, match="send it again"):
        await follow(gateway, beat)

    assert await follow(gateway, beat) == beat


@LOST
async def test_a_lost_answer_to_leaving_is_no_error(fault: Any) -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await join(gateway)
    cluster.metadata.faults = [fault]
    await gateway.coordinator.leave(GROUP, beat.member_id)

    assert (await group_of(gateway)).state == "Empty"
    assert await cluster.metadata.list(f"member/{GROUP}/") == []


@LOST
async def test_a_lost_answer_to_deleting_is_no_error(fault: Any) -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await join(gateway)
    await gateway.coordinator.leave(GROUP, beat.member_id)
    cluster.metadata.faults = [fault]
    await gateway.coordinator.delete(GROUP)

    for collection in ("group/", f"member/{GROUP}/", f"offset/{GROUP}/", "watch/"):
        assert await cluster.metadata.list(collection) == []


async def test_what_may_have_happened_is_never_called_undone() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    cluster.metadata.faults = ["reply lost"]
    cluster.metadata.before_unknown = fail_next_gets(cluster)

    with pytest.raises(OutcomeUnknown, match=r"group 'g' may have changed: no connection"):
        await join(gateway)


def fail_next_gets(cluster: Cluster) -> Any:
    async def fail() -> None:
        cluster.metadata.failing_gets = 1

    return fail


async def test_what_certainly_did_not_happen_says_so() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    cluster.metadata.faults = ["refused"]

    with pytest.raises(StoreUnavailable):
        await join(gateway)
    assert (await group_of(gateway)).members == {}


async def test_stores_that_never_answer_are_given_up_on() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    cluster.metadata.next_fault = lambda: "request lost"

    with pytest.raises(OutcomeUnknown, match=r"may have changed; look before trying again"):
        await join(gateway)


async def test_a_member_removed_during_its_beat_gets_unknown_member() -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    beat = await join(gateway)
    get_many = cluster.metadata.get_many

    async def get_many_then_remove(wanted: Any) -> Any:
        items = await get_many(wanted)
        cluster.metadata.get_many = get_many  # type: ignore[method-assign]
        await elsewhere.coordinator.leave(GROUP, beat.member_id)
        return items

    cluster.metadata.get_many = get_many_then_remove  # type: ignore[method-assign]
    with pytest.raises(UnknownMember):
        await follow(gateway, beat)


# What is refused, and what the error says

BAD = [
    (Member(session_timeout_ms=SESSION_MS), None, "give topics or topics_pattern: one of them"),
    (Member(topics=("t",), pattern="t", session_timeout_ms=SESSION_MS), None, "and not both"),
    (matching("("), None, "topics_pattern: not a regular expression"),
    (matching("a{1001}"), None, "topics_pattern: not a regular expression"),
    (matching("a" * (PATTERN_CHARS_MAX + 1)), None, "1001 characters, the limit is 1000"),
    (member(session_ms=999), None, "session_timeout_ms: must be from 1000 to 1800000, not 999"),
    (member(session_ms=1_800_001), None, "session_timeout_ms: must be from 1000 to 1800000"),
    (member(), "best", "assignor: must be one of sticky, range, roundrobin, not 'best'"),
]


@pytest.mark.parametrize(("about", "assignor", "message"), BAD)
async def test_a_bad_request_says_what_is_wrong(
    about: Member, assignor: str | None, message: str
) -> None:
    gateway = await with_topic(Cluster())
    with pytest.raises(InvalidRequest, match=message):
        await join(gateway, about, assignor)


@pytest.mark.parametrize("name", ["", "a\nb", "ä" * 125, "x" * 250, "\ud800"])
async def test_a_group_needs_a_name_that_can_be_a_key(name: str) -> None:
    gateway = await with_topic(Cluster())
    with pytest.raises(InvalidRequest, match="cannot name a group: use 1 to 249 bytes"):
        await gateway.coordinator.join(name, member(), None)
    with pytest.raises(InvalidRequest):
        await gateway.coordinator.heartbeat(name, "m", 0, None)


@pytest.mark.parametrize("name", ["nobody", "a/b", "x" * 5000])
async def test_an_unknown_member_must_join(name: str) -> None:
    gateway = await with_topic(Cluster())
    await join(gateway)
    for call in (
        gateway.coordinator.heartbeat(GROUP, name, 1, None),
        gateway.coordinator.leave(GROUP, name),
    ):
        with pytest.raises(UnknownMember, match=r"has no member .*join again"):
            await call


async def test_a_generation_from_the_future_is_refused() -> None:
    gateway = await with_topic(Cluster())
    beat = await join(gateway)
    with pytest.raises(IllegalGeneration, match="generation 9 is not there yet, the group is at 1"):
        await gateway.coordinator.heartbeat(GROUP, beat.member_id, 9, None)


async def test_members_must_agree_on_the_assignor() -> None:
    gateway = await with_topic(Cluster())
    await join(gateway, None, "range")
    await join(gateway)  # Who does not say takes what there is.
    with pytest.raises(InconsistentGroup, match="assigns by range, not by sticky; all members"):
        await join(gateway, None, "sticky")


async def test_a_group_has_a_largest_size() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    members = {f"m{n}": member() for n in range(MEMBERS_MAX)}
    value = state.encode(state.Group(generation=1, members=members, counts={"t": 4}))
    await cluster.metadata.transact([Put(keys.group(GROUP), value, None)])

    with pytest.raises(InconsistentGroup, match="has 1000 members, which is the limit"):
        await join(gateway)


async def test_a_group_that_outgrows_its_item_is_refused_and_stays_as_it_was() -> None:
    gateway = await with_topic(Cluster())
    await join(gateway)
    many = tuple(f"{n:0249}" for n in range(2000))

    with pytest.raises(InvalidRequest, match=r"would take \d+ bytes, the limit is 380000: use"):
        await join(gateway, member(*many))
    assert len((await group_of(gateway)).members) == 1


async def test_only_a_group_without_members_can_be_deleted() -> None:
    gateway = await with_topic(Cluster())
    beat = await join(gateway)
    with pytest.raises(GroupNotEmpty, match="group 'g' has 1 members; stop them first"):
        await gateway.coordinator.delete(GROUP)
    await gateway.coordinator.leave(GROUP, beat.member_id)
    await gateway.coordinator.delete(GROUP)
    with pytest.raises(UnknownGroup, match="there is no group 'g'"):
        await gateway.coordinator.delete(GROUP)


async def test_a_damaged_group_is_noticed() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    await cluster.metadata.transact([Put(keys.group(GROUP), b"rubbish", None)])
    with pytest.raises(Corrupt):
        await join(gateway)


def test_a_group_says_what_it_is_doing() -> None:
    group = state.Group()
    assert group.state == "Empty"
    group = state.join(group, "a", member(), {"t": 2})
    assert group.state == "Stable"
    group = state.join(group, "b", member(), {"t": 2})
    assert group.state == "PreparingRebalance"
    assert state.release(group, "a", group.assignment("a"), group.generation).state == "Stable"
    assert state.decode(state.encode(group)) == group
