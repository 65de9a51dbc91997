"""Sessions end by silence that somebody measured, never by what a clock says."""

import pytest

from service.groups import sessions, state
from service.groups.coordinator import Beat
from service.groups.sessions import Watch
from service.groups.state import Group
from storage import keys
from storage.errors import Corrupt, UnknownMember
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

INTERVAL_MS = SESSION_MS // sessions.LOOKS


def group_with(*names: str, session_ms: int = SESSION_MS) -> Group:
    group = Group()
    for name in names:
        group = state.join(group, name, member(session_ms=session_ms), {"t": 1})
    return group


def test_silence_adds_up_to_the_end() -> None:
    group, watch = group_with("m"), Watch()
    ends = []
    for number in range(8):
        passed_ms = INTERVAL_MS if number else 0
        watch, over = sessions.look(watch, group, {"m": "v1"}, passed_ms, 0)
        ends.append(over)

    assert ends == [[]] * 5 + [["m"]] * 3


def test_a_beat_restarts_the_session() -> None:
    group = group_with("m")
    watch = Watch(idle={"m": ("v1", SESSION_MS - 1)})
    watch, over = sessions.look(watch, group, {"m": "v2"}, INTERVAL_MS, 0)

    assert over == []
    assert watch.idle == {"m": ("v2", 0)}


def test_one_look_counts_for_little_however_long_nobody_looked() -> None:
    watch = Watch(idle={"m": ("v1", 0)})
    watch, over = sessions.look(watch, group_with("m"), {"m": "v1"}, 10**9, 0)

    assert over == []
    assert watch.idle == {"m": ("v1", INTERVAL_MS * 3 // 2)}


def test_a_member_without_an_item_is_silent() -> None:
    watch = Watch(idle={"m": ("", SESSION_MS)})
    _, over = sessions.look(watch, group_with("m"), {}, INTERVAL_MS, 0)

    assert over == ["m"]


def test_who_is_gone_is_forgotten_and_the_shortest_session_sets_the_pace() -> None:
    watch = Watch(idle={"gone": ("v1", 0)})
    watch, _ = sessions.look(watch, group_with("m"), {"m": "v1"}, 0, 7)

    assert watch == Watch(looked_ms=7, idle={"m": ("v1", 0)})
    assert sessions.interval_ms(group_with("m", session_ms=1001)) == 201
    assert sessions.interval_ms(Group()) == 6000


def test_a_damaged_watch_is_noticed() -> None:
    assert sessions.decode(sessions.encode(Watch(looked_ms=3))) == Watch(looked_ms=3)
    with pytest.raises(Corrupt):
        sessions.decode(sessions.encode(Watch())[:-1])


async def two_members(cluster: Cluster) -> tuple[Gateway, Beat, Beat]:
    gateway = await with_topic(cluster)
    dead = await gateway.coordinator.join(GROUP, member(), None)
    alive = await gateway.coordinator.join(GROUP, member(), None)
    return gateway, dead, await follow(gateway, alive)


async def test_the_next_call_of_any_member_notices_an_ended_session() -> None:
    cluster = Cluster()
    gateway, dead, alive = await two_members(cluster)
    for _ in range(sessions.LOOKS):
        assert set((await group_of(gateway)).members) == {dead.member_id, alive.member_id}
        cluster.now_s += INTERVAL_MS / 1000
        alive = await follow(gateway, alive)

    # The very answer of the call that noticed it says so.
    assert len(alive.assignment) == 4
    with pytest.raises(UnknownMember, match=r"its session ended or it left; join again"):
        await follow(gateway, dead)


async def test_the_tick_notices_when_nobody_calls() -> None:
    cluster = Cluster()
    gateway, *_ = await two_members(cluster)
    for _ in range(10):
        cluster.now_s += INTERVAL_MS / 1000
        await gateway.coordinator.tick()

    assert (await group_of(gateway)).state == "Empty"


async def test_clocks_that_disagree_end_nothing_early() -> None:
    cluster = Cluster()
    first, quiet, busy = await two_members(cluster)
    # The more minutes they are apart, the more often each believes that it is late.
    gateways = [first, *(cluster.gateway(skew) for skew in (300_000, -300_000, 120_000))]
    for _ in range(9):
        cluster.now_s += 0.95
        for number, gateway in enumerate(gateways):
            gateway.skew_ms = -gateway.skew_ms + number
            busy = await follow(gateway, busy)
    assert quiet.member_id in (await group_of(first)).members

    for _ in range(12):
        cluster.now_s += 0.95
        for gateway in gateways:
            busy = await follow(gateway, busy)
    assert set((await group_of(first)).members) == {busy.member_id}


async def test_a_clock_that_jumps_back_does_not_keep_a_session_alive() -> None:
    cluster = Cluster()
    gateway, _, alive = await two_members(cluster)
    for number in range(6):
        cluster.now_s += INTERVAL_MS / 1000
        gateway.skew_ms = -100_000 * number
        alive = await follow(gateway, alive)

    assert set((await group_of(gateway)).members) == {alive.member_id}


async def test_gateways_that_never_live_for_long_look_when_no_clock_can_deny_it() -> None:
    cluster = Cluster()
    gateway, dead, _ = await two_members(cluster)
    for _ in range(5):
        cluster.now_s += SESSION_MS / 1000
        await cluster.gateway().coordinator.tick()
    assert dead.member_id in (await group_of(gateway)).members

    for _ in range(6):
        cluster.now_s += (INTERVAL_MS + sessions.SKEW_MS_MAX) / 1000
        await cluster.gateway().coordinator.tick()
    assert (await group_of(gateway)).state == "Empty"


async def test_after_a_time_when_nobody_was_reached_everyone_can_come_back() -> None:
    cluster = Cluster()
    gateway, one, other = await two_members(cluster)
    cluster.now_s += SESSION_MS / 1000 / 3
    one = await follow(gateway, one)
    # The gateway stood still for minutes, and so did all its members' calls.
    cluster.now_s += 300
    await gateway.coordinator.tick()
    other = await follow(gateway, other)
    cluster.now_s += SESSION_MS / 1000 / 3
    await gateway.coordinator.tick()

    one = await follow(gateway, one)
    assert set((await group_of(gateway)).members) == {one.member_id, other.member_id}


async def test_a_beat_in_the_last_instant_keeps_the_session() -> None:
    cluster = Cluster()
    gateway, late, alive = await two_members(cluster)
    other = cluster.gateway()
    for _ in range(sessions.LOOKS - 1):
        cluster.now_s += INTERVAL_MS / 1000
        alive = await follow(gateway, alive)
    cluster.now_s += INTERVAL_MS / 1000
    items = await cluster.metadata.get_many([keys.member(GROUP, late.member_id)])
    late = await follow(other, late)
    # What the look saw before is not what is there now: the removal fails as a whole.
    lookout = gateway.coordinator._session_expiry
    stale = {late.member_id: items[keys.member(GROUP, late.member_id)]}
    assert not await lookout._end(GROUP, [late.member_id], stale, Watch())

    assert late.member_id in (await group_of(gateway)).members


async def test_one_broken_group_does_not_keep_the_tick_from_the_others() -> None:
    cluster = Cluster()
    gateway, *_ = await two_members(cluster)
    await gateway.coordinator.join("a-broken-one", member(), None)
    beat = await gateway.coordinator.join("another", member(), None)
    await follow(gateway, beat, "another")
    for _ in range(10):
        cluster.now_s += INTERVAL_MS / 1000
        cluster.metadata.failing_gets = 1  # The first one it asks for.
        await gateway.coordinator.tick()

    assert (await group_of(gateway, "another")).state == "Empty"
