"""Members one by one: how they are named, counted, remembered and refused."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from service.groups import coordinator, state
from service.groups.coordinator import (
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
    TOPICS_AGE_MAX_S,
    Beat,
    Coordinator,
)
from service.groups.state import Member
from storage import keys
from storage.errors import GroupNotEmpty, InconsistentGroup, InvalidRequest, UnknownMember
from storage.stores.metadata import Delete, Put
from tests.service.groups.cluster import (
    GROUP,
    SESSION_MS,
    Cluster,
    Gateway,
    follow,
    group_of,
    member,
    with_topic,
)

pytestmark = pytest.mark.anyio

LOOK_S = SESSION_MS / 1000 / 5 + 0.1
"""After this long a look at the members is due."""


async def join(gateway: Gateway, about: Member | None = None, assignor: str | None = None) -> Beat:
    return await gateway.coordinator.join(GROUP, about or member(), assignor)


async def beat_item(cluster: Cluster, beat: Beat) -> list[int]:
    item = await cluster.metadata.get(keys.member(GROUP, beat.member_id))
    assert item is not None
    stored: list[int] = msgspec.msgpack.decode(item.value)
    return stored


async def rewrite(cluster: Cluster, change: Callable[[state.Group], state.Group]) -> None:
    """Put another group in the place of what is stored."""
    item = await cluster.metadata.get(keys.group(GROUP))
    assert item is not None
    value = state.encode(change(state.decode(item.value)))
    await cluster.metadata.transact([Put(keys.group(GROUP), value, item.version)])


# Names and numbers


@pytest.mark.parametrize(
    ("about", "prefix"),
    [
        (member(instance_id="é x", client="c"), "--x-"),
        (member(client="c 1"), "c-1-"),
        (member(), "member-"),
        (member(client="c" * 70), "c" * 64 + "-"),
    ],
)
async def test_a_member_is_named_for_who_it_is(about: Member, prefix: str) -> None:
    beat = await join(await with_topic(Cluster()), about)
    assert beat.member_id[: len(prefix)] == prefix
    assert len(beat.member_id) == len(prefix) + 16


async def test_every_beat_is_counted_with_its_generation() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await join(gateway)
    assert await beat_item(cluster, beat) == [0, 0]

    await follow(gateway, beat)
    assert await beat_item(cluster, beat) == [1, 1]
    await follow(gateway, beat)
    assert await beat_item(cluster, beat) == [2, 1]


@pytest.mark.parametrize("session_ms", [SESSION_TIMEOUT_MS_MIN, SESSION_TIMEOUT_MS_MAX])
async def test_the_shortest_and_the_longest_session_are_taken(session_ms: int) -> None:
    beat = await join(await with_topic(Cluster()), member(session_ms=session_ms))
    assert beat.session_timeout_ms == session_ms


async def test_a_group_takes_as_many_as_it_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "MEMBERS_MAX", 2)
    gateway = await with_topic(Cluster())
    await join(gateway)
    await join(gateway)
    with pytest.raises(InconsistentGroup):
        await join(gateway)


async def test_who_names_the_assignor_that_there_is_may_join() -> None:
    gateway = await with_topic(Cluster())
    await join(gateway, None, "range")
    await join(gateway, None, "range")
    assert len((await group_of(gateway)).members) == 2


# Who is refused


async def test_names_that_cannot_be_are_refused_without_a_look() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    cluster.metadata.calls.clear()

    with pytest.raises(InvalidRequest):
        await gateway.coordinator.join("a\0b", member(), None)
    with pytest.raises(UnknownMember, match="group 'g' has no member 'a/b'"):
        await gateway.coordinator.heartbeat(GROUP, "a/b", 1, None)

    assert not cluster.metadata.calls


async def test_the_group_and_the_member_are_named() -> None:
    gateway = await with_topic(Cluster())
    await join(gateway)
    known = await gateway.coordinator.read(GROUP)

    with pytest.raises(UnknownMember, match="group 'g' has no member 'nobody'"):
        await gateway.coordinator.heartbeat(GROUP, "nobody", 1, None)
    with pytest.raises(UnknownMember, match="group 'g' has no member 'nobody'"):
        await gateway.coordinator.leave(GROUP, "nobody")
    with pytest.raises(UnknownMember, match="group 'g' has no member 'nobody'"):
        Coordinator.check(known, GROUP, "nobody", 1)


async def test_a_member_without_an_item_has_to_join_again() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await join(gateway)
    key = keys.member(GROUP, beat.member_id)
    item = await cluster.metadata.get(key)
    assert item is not None
    await cluster.metadata.transact([Delete(key, item.version)])

    with pytest.raises(UnknownMember):
        await follow(gateway, beat)


async def test_an_item_without_a_member_is_not_beaten() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await join(gateway)
    await rewrite(cluster, lambda group: state.leave(group, [beat.member_id], {"t": 4}))

    with pytest.raises(UnknownMember):
        await follow(gateway, beat)

    assert await beat_item(cluster, beat) == [0, 0]


def removing(elsewhere: Gateway, beat: Beat) -> Callable[[], Awaitable[None]]:
    async def remove() -> None:
        await elsewhere.coordinator.leave(GROUP, beat.member_id)

    return remove


@pytest.mark.parametrize("is_beat_lost", [True, False])
async def test_a_member_removed_while_it_beats_gets_unknown_member(is_beat_lost: bool) -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    old = await join(gateway)
    await join(gateway)
    old = await follow(gateway, old)
    # The beat is the first write, and what was given up the second.
    cluster.metadata.faults = ["request lost"] if is_beat_lost else ["none", "request lost"]
    cluster.metadata.before_unknown = removing(elsewhere, old)

    with pytest.raises(UnknownMember, match=f"group 'g' has no member '{old.member_id}'"):
        await follow(gateway, old)


async def test_a_member_removed_just_before_it_beats_gets_unknown_member() -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    beat = await join(gateway)
    item = await cluster.metadata.get(keys.member(GROUP, beat.member_id))
    assert item is not None
    await elsewhere.coordinator.leave(GROUP, beat.member_id)

    with pytest.raises(UnknownMember, match=f"group 'g' has no member '{beat.member_id}'"):
        await gateway.coordinator._beats.store(GROUP, beat.member_id, item, 1)


# Who is silent


async def test_joining_ends_the_sessions_of_the_silent() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    await join(gateway)
    for _ in range(8):
        cluster.now_s += LOOK_S
        last = await join(gateway, member(instance_id="x"))

    assert set((await group_of(gateway)).members) == {last.member_id}


async def test_a_group_of_the_silent_can_be_deleted_in_the_end() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    await join(gateway)
    refused = 0
    for _ in range(10):
        cluster.now_s += LOOK_S
        try:
            await gateway.coordinator.delete(GROUP)
            break
        except GroupNotEmpty:
            refused += 1

    assert 4 <= refused < 10


async def test_a_group_deleted_without_an_answer_was_deleted() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster)
    beat = await join(gateway)
    await gateway.coordinator.leave(GROUP, beat.member_id)
    cluster.metadata.faults = ["reply lost"]

    assert await gateway.coordinator.delete(GROUP) is True


async def test_nothing_is_kept_of_groups_that_are_gone() -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster), cluster.gateway()
    for group in ("gone", GROUP):
        beat = await gateway.coordinator.join(group, member(), None)
        await follow(gateway, beat, group)
        if group == "gone":
            await elsewhere.coordinator.leave(group, beat.member_id)
            await elsewhere.coordinator.delete(group)

    await gateway.coordinator.tick()

    assert set(gateway.coordinator._current) == {GROUP}
    assert set(gateway.coordinator._session_expiry._seen) == {GROUP}


# Topics that change


async def test_joining_and_leaving_look_at_the_topics_as_they_are_now() -> None:
    cluster = Cluster()
    gateway, elsewhere = await with_topic(cluster, 4), cluster.gateway()
    beat = await join(gateway)
    await elsewhere.topics.alter("t", partitions=5)
    await join(gateway)
    assert (await group_of(gateway)).counts == {"t": 5}

    await elsewhere.topics.alter("t", partitions=6)
    await gateway.coordinator.leave(GROUP, beat.member_id)
    assert (await group_of(gateway)).counts == {"t": 6}


async def test_what_another_gateway_found_a_moment_ago_is_not_undone() -> None:
    cluster = Cluster()
    gateway, behind = await with_topic(cluster, 4), cluster.gateway()
    beat = await join(gateway)
    await follow(behind, beat)  # Now it remembers four partitions.
    await gateway.topics.alter("t", partitions=5)
    newcomer = await join(gateway)

    assert (await follow(behind, beat)).generation == newcomer.generation
    assert (await group_of(gateway)).counts == {"t": 5}


async def test_a_group_found_right_is_looked_at_again_when_the_topics_change() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster, 4)
    beat = await follow(gateway, await join(gateway))
    await gateway.topics.alter("t", partitions=5)
    cluster.now_s += TOPICS_AGE_MAX_S + 0.1

    assert (await follow(gateway, beat)).generation == beat.generation + 1


async def test_a_group_found_right_is_looked_at_again_when_it_changes() -> None:
    cluster = Cluster()
    gateway = await with_topic(cluster, 4)
    beat = await follow(gateway, await join(gateway))
    await rewrite(cluster, lambda group: msgspec.structs.replace(group, counts={"t": 3}))

    assert (await follow(gateway, beat)).generation == beat.generation + 1
