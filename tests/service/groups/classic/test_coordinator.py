"""Members that meet through one gateway or several, and what happens if one of them dies."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from service.groups.classic import combining
from service.groups.classic.coordinator import IdRequired, Leaving
from service.groups.classic.rounds import Claimant
from service.groups.classic.shape import Phase
from service.groups.state import Group, Member
from storage import keys
from storage.errors import (
    GroupFull,
    IllegalGeneration,
    InconsistentGroup,
    InstanceFenced,
    InvalidSessionTimeout,
    RebalanceInProgress,
    StoreUnavailable,
    UnknownMember,
)
from tests.service.groups.classic.makers import again, classic, joining
from tests.service.groups.classic.meeting import (
    BEAT_S,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    Meeting,
    virtually,
)

Test = Callable[..., Coroutine[Any, Any, None]]


def on_virtual_time(test: Test) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        virtually(test(*args, **kwargs))

    return run


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def group_of(meeting: Meeting) -> Group:
    return (await meeting.gateway().read(GROUP)).group


async def settled(*clients: Client) -> None:
    """Let all clients join one round, and fetch their shares."""
    joins = [asyncio.create_task(client.join()) for client in clients]
    await asyncio.gather(*joins)
    await asyncio.gather(*(client.sync() for client in clients))


async def meet_again(first: Client, *others: Client) -> None:
    """Let the first, who leads or is new, begin a round, and the others join it."""
    begun = asyncio.create_task(first.join())

    async def follow(client: Client) -> None:
        await client.beat_until(RebalanceInProgress)
        await client.join()

    await asyncio.gather(begun, *map(follow, others))


async def together(meeting: Meeting, count: int) -> list[Client]:
    """Return members of one generation, each at another gateway if there are enough."""
    gateways = meeting.gateways
    clients = [
        Client(gateways[number % len(gateways)].classic, f"c{number}") for number in range(count)
    ]
    await clients[0].settle()
    for number in range(1, count):
        await meet_again(clients[number], *clients[:number])
        await asyncio.gather(*(client.sync() for client in clients[: number + 1]))
    return clients


@on_virtual_time
async def test_a_member_is_told_its_id_and_then_meets_itself() -> None:
    meeting = Meeting()
    first = await meeting.classic.join(GROUP, joining(""))
    assert isinstance(first, IdRequired)
    assert (await meeting.gateway().read(GROUP)).version is None

    client = Client(meeting.classic, member_id=first.member_id)

    assert await client.settle() == b"c"
    assert client.last is not None
    assert (client.last.generation, client.last.leader) == (1, first.member_id)
    await client.beat()
    assert (await group_of(meeting)).state == "Stable"


@on_virtual_time
async def test_old_clients_and_static_members_need_no_id_first() -> None:
    meeting = Meeting()
    old = await meeting.classic.join("old", joining(""), needs_id=False)
    static = await meeting.classic.join(GROUP, joining("", instance_id="one"))
    assert not isinstance(old, IdRequired)
    assert not isinstance(static, IdRequired)


@on_virtual_time
async def test_members_that_start_together_meet_in_one_round() -> None:
    meeting = Meeting()
    clients = [Client(meeting.classic, f"c{number}") for number in range(5)]

    await settled(*clients)

    assert {client.last.generation for client in clients if client.last} == {1}
    assert [client.share for client in clients] == [b"c0", b"c1", b"c2", b"c3", b"c4"]


@on_virtual_time
async def test_the_first_round_waits_for_more_members() -> None:
    meeting = Meeting(initial_delay_ms=3_000)
    clients = [Client(meeting.classic, f"c{number}") for number in range(3)]
    began_s = now_s()

    async def late(client: Client, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await client.join()

    await asyncio.gather(*(late(client, 2.0 * n) for n, client in enumerate(clients)))

    assert {client.last.generation for client in clients if client.last} == {1}
    assert 7.0 <= now_s() - began_s < 10


@pytest.mark.parametrize("gateways", [1, 3])
@on_virtual_time
async def test_a_rebalance_through_any_gateways(gateways: int) -> None:
    meeting = Meeting(gateways)

    clients = await together(meeting, 4)

    assert [client.share for client in clients] == [b"c0", b"c1", b"c2", b"c3"]
    group = await group_of(meeting)
    assert list(group.members) == [*classic(group).members]
    assert classic(group).phase is Phase.STABLE


@on_virtual_time
async def test_a_hundred_members_at_one_gateway_are_few_writes() -> None:
    meeting = Meeting()
    clients = [Client(meeting.classic, f"c{number}") for number in range(100)]
    await settled(*clients)
    before = meeting.counts.calls["written group"]

    await asyncio.gather(*(client.join() for client in clients))
    await asyncio.gather(*(client.sync() for client in clients))

    assert meeting.counts.calls["written group"] - before <= 6
    assert {client.last.generation for client in clients if client.last} == {2}


@on_virtual_time
async def test_the_round_ends_without_a_member_that_does_not_come() -> None:
    meeting = Meeting(2)
    clients = await together(meeting, 2)
    lazy, other = clients
    new = Client(meeting.classic, "new")
    began_s = now_s()

    beats = asyncio.create_task(lazy.beat_until(UnknownMember))
    await meet_again(new, other)

    assert REBALANCE_MS / 1000 <= now_s() - began_s < REBALANCE_MS / 1000 + 5
    assert set((await group_of(meeting)).members) == {new.member_id, other.member_id}
    await beats


@on_virtual_time
async def test_a_dead_member_is_missed_by_those_who_wait_for_it() -> None:
    meeting = Meeting(2)
    _, other = await together(meeting, 2)
    new = Client(meeting.classic, "new", rebalance_ms=300_000)
    began_s = now_s()

    await meet_again(new, other)

    assert now_s() - began_s < 3 * SESSION_MS / 1000


@on_virtual_time
async def test_a_silent_member_is_missed_by_those_who_send_heartbeats() -> None:
    meeting = Meeting(2)
    dead, other = await together(meeting, 2)
    began_s = now_s()

    await other.beat_until(RebalanceInProgress)

    assert SESSION_MS / 1000 <= now_s() - began_s < 3 * SESSION_MS / 1000
    assert await other.settle() == b"c1"
    with pytest.raises(UnknownMember):
        await dead.beat()
    with pytest.raises(UnknownMember):
        await dead.join()


@on_virtual_time
async def test_nobody_expires_while_it_waits() -> None:
    meeting = Meeting(2)
    busy, other = await together(meeting, 2)
    new = Client(meeting.classic, "new", rebalance_ms=100_000)
    waiting = asyncio.create_task(meet_again(new, other))
    until_s = now_s() + 5 * SESSION_MS / 1000
    while now_s() < until_s:
        await busy.beat_until(RebalanceInProgress)
        await asyncio.sleep(BEAT_S)

    await busy.join()

    await waiting
    assert len((await group_of(meeting)).members) == 3


@on_virtual_time
async def test_a_leader_that_dies_before_it_assigns_is_replaced() -> None:
    meeting = Meeting(2)
    clients = await together(meeting, 2)
    await meet_again(*clients)
    follower = clients[1]

    with pytest.raises(RebalanceInProgress):
        await follower.sync()

    assert await follower.settle() == b"c1"
    assert follower.last is not None
    assert follower.last.leader == follower.member_id


@on_virtual_time
async def test_a_leader_that_lives_and_does_not_assign_is_replaced() -> None:
    meeting = Meeting(2)
    leader, follower = await together(meeting, 2)
    await meet_again(leader, follower)
    began_s = now_s()

    beats = asyncio.create_task(leader.beat_until(UnknownMember))
    with pytest.raises(RebalanceInProgress):
        await follower.sync()

    assert now_s() - began_s >= REBALANCE_MS / 1000
    await beats


@on_virtual_time
async def test_a_gateway_that_dies_while_members_wait_takes_nothing_with_it() -> None:
    meeting = Meeting(2)
    clients = await together(meeting, 2)
    new = Client(meeting.gateways[0].classic, "new")
    joined = asyncio.create_task(new.join())
    await clients[1].beat_until(RebalanceInProgress)
    waiting = asyncio.create_task(clients[1].join())
    await asyncio.sleep(1)
    joined.cancel()

    # Both go on at another gateway, under the id that they have.
    new.classic = clients[0].classic = meeting.gateways[1].classic
    await asyncio.gather(new.join(), clients[0].join(), waiting)

    assert {c.last.generation for c in [*clients, new] if c.last} == {3}
    assert len((await group_of(meeting)).members) == 3


@on_virtual_time
async def test_lost_replies_change_nothing() -> None:
    meeting = Meeting()
    client = Client(meeting.classic)
    for fault in ("reply lost", "request lost"):
        meeting.metadata.faults = [fault]  # type: ignore[list-item]
        await client.join()
        meeting.metadata.faults = [fault]  # type: ignore[list-item]
        assert await client.sync() == b"c"
    meeting.metadata.faults = ["reply lost"]
    left = await meeting.classic.leave(GROUP, [Leaving(client.member_id)])
    assert [error for _, error in left] == [None]
    assert (await group_of(meeting)).members == {}


@on_virtual_time
async def test_a_static_leader_that_comes_back_after_a_lost_reply_begins_no_round() -> None:
    meeting = Meeting()
    old, other = Client(meeting.classic, "s", "one"), Client(meeting.classic, "o", "two")
    await old.settle()
    await meet_again(other, old)
    await asyncio.gather(old.sync(), other.sync())
    new = Client(meeting.classic, "s", "one")
    meeting.metadata.faults = ["reply lost"]

    reply = await new.join()

    assert (reply.generation, reply.is_assigned, reply.leader) == (2, True, new.member_id)
    assert await new.sync() == b"s"
    await other.beat()
    with pytest.raises(InstanceFenced):
        await old.beat()


@on_virtual_time
async def test_members_leave_by_either_name() -> None:
    meeting = Meeting(2)
    first, other = await together(meeting, 2)
    left = await meeting.classic.leave(
        GROUP,
        [
            Leaving(first.member_id),
            Leaving(first.member_id),
            Leaving("nobody"),
            Leaving("", "nobody"),
            Leaving(other.member_id, "nobody"),
        ],
    )
    assert [type(error) for _, error in left] == [
        type(None), type(None), UnknownMember, UnknownMember, UnknownMember
    ]  # fmt: skip
    static = Client(meeting.classic, "s", "one")
    await meet_again(static, other)

    left = await meeting.classic.leave(GROUP, [Leaving("", "one"), Leaving(other.member_id)])

    assert [error for _, error in left] == [None, None]
    assert (await group_of(meeting)).state == "Empty"
    assert not await meeting.metadata.list(keys.group_members(GROUP))


@on_virtual_time
async def test_heartbeats_are_written_now_and_then_and_read_once() -> None:
    meeting = Meeting()
    clients = [Client(meeting.classic, f"c{number}", session_ms=60_000) for number in range(10)]
    await settled(*clients)
    meeting.counts.calls.clear()
    until_s = now_s() + 60
    while now_s() < until_s:
        await asyncio.gather(*(client.beat() for client in clients))
        await asyncio.sleep(1)

    assert 10 * 5 <= meeting.counts.calls["written member"] <= 10 * 7
    assert meeting.counts.calls["written group"] == 0
    assert meeting.counts.calls["reads"] < 60 + 10 * 7 + 40


@on_virtual_time
async def test_a_refusal_is_never_of_an_old_state() -> None:
    meeting = Meeting(2)
    one, two = (gateway.classic for gateway in meeting.gateways)
    client = Client(one)
    await client.settle()
    with pytest.raises(IllegalGeneration):
        await two.heartbeat(GROUP, Claimant(member_id=client.member_id, generation=9))
    await client.settle()

    client.classic = two

    await client.beat()
    assert await client.sync() == b"c"


@on_virtual_time
async def test_a_table_that_does_not_answer_is_an_error_that_passes() -> None:
    meeting = Meeting()
    client = Client(meeting.classic)
    await client.settle()
    await asyncio.sleep(SESSION_MS / 1000 / 2)
    meeting.metadata.faults = ["refused"] * 3
    with pytest.raises(StoreUnavailable):
        await client.beat()
    meeting.metadata.faults = []
    await client.beat()


@on_virtual_time
async def test_one_that_is_too_large_does_not_keep_others_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meeting = Meeting()
    chance = meeting.chance.randbytes(400_000)
    large = joining("", metadata=chance)
    small = [Client(meeting.classic, f"c{number}") for number in range(3)]
    for client in small:
        client.member_id = ""

    results = await asyncio.gather(
        meeting.classic.join(GROUP, large, needs_id=False),
        *(client.join() for client in small),
        return_exceptions=True,
    )

    assert isinstance(results[0], GroupFull)
    assert not any(isinstance(result, Exception) for result in results[1:])
    monkeypatch.setattr(combining, "AT_ONCE_MAX", 1)
    with pytest.raises(GroupFull):
        await meeting.classic.join(GROUP, joining("", metadata=bytes(9_000_000)))


@on_virtual_time
async def test_what_is_refused_at_once() -> None:
    meeting = Meeting()
    for session_ms in (5_999, 1_800_001):
        with pytest.raises(InvalidSessionTimeout):
            await meeting.classic.join(GROUP, joining("", session_ms=session_ms))
    with pytest.raises(UnknownMember):
        await meeting.classic.join(GROUP, again("made-up"))
    with pytest.raises(InconsistentGroup):
        await meeting.classic.join(GROUP, joining("", protocol_type=""))
    with pytest.raises(UnknownMember):
        await meeting.classic.heartbeat("none", Claimant(member_id="a", generation=1))
    left = await meeting.classic.leave("none", [Leaving("a")])
    assert [type(error) for _, error in left] == [UnknownMember]


@on_virtual_time
async def test_the_kind_of_a_group_changes_only_while_it_is_empty() -> None:
    meeting = Meeting()
    gateway = meeting.gateways[0]
    await gateway._items._topics.create("t", partitions=1)
    native = Member(topics=("t",), session_timeout_ms=SESSION_MS)
    client = Client(meeting.classic)
    await client.settle()
    with pytest.raises(InconsistentGroup):
        await gateway.join(GROUP, native, None)
    with pytest.raises(UnknownMember):
        await gateway.heartbeat(GROUP, client.member_id, 1, None)
    await gateway.leave(GROUP, client.member_id)

    beat = await gateway.join(GROUP, native, None)

    assert ((await group_of(meeting)).kind, beat.generation) == ("native", 3)
    with pytest.raises(InconsistentGroup):
        await client.classic.join(GROUP, joining(""))
    await gateway.leave(GROUP, beat.member_id)
    client.member_id = ""
    assert (await client.join()).generation == 5


@on_virtual_time
async def test_many_who_are_removed_at_once_leave_no_items_behind() -> None:
    meeting = Meeting(session_ms_min=100)
    clients = [Client(meeting.classic, f"c{number}", rebalance_ms=5_000) for number in range(120)]
    await settled(*clients)
    lone = Client(meeting.classic, "lone", rebalance_ms=5_000)

    async def rest_lives() -> None:
        await asyncio.gather(*(client.beat_until(UnknownMember) for client in clients))

    beats = asyncio.create_task(rest_lives())
    await lone.settle()
    await beats

    assert list((await group_of(meeting)).members) == [lone.member_id]
    until_s = now_s() + 3 * SESSION_MS / 1000
    while now_s() < until_s:
        await lone.beat()
        await asyncio.sleep(BEAT_S)
    found = await meeting.metadata.list(keys.group_members(GROUP))
    assert [key for key, _ in found] == [keys.member(GROUP, lone.member_id)]
