"""Requests that come too early wait for those before them, but not for long."""

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from service.log import sequences
from service.log.sequences import (
    GAP_LOOKS,
    GAP_WAIT_S,
    LOOK_EVERY_S,
    NOTHING_SEEN,
    Sequences,
    _Arrived,
    _is_behind,
    _is_early,
    _look,
    already_written,
    past_gap,
)
from service.world.clock import World
from storage.errors import DuplicateSequence, InvalidProducerEpoch, OutOfOrderSequence
from storage.head.head import WindowPage
from storage.head.producers import SEQUENCES, Claim, Window
from storage.lanes.lane import LaneView
from storage.topics.topics import Topic
from tests.service.helpers.gateways import Cluster, Gateway
from tests.storage.helpers.worlds import Clock, turns

pytestmark = pytest.mark.anyio


def claim(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 2) -> Claim:
    return Claim(0, producer_id, epoch, sequence % SEQUENCES, count)


class Door:
    """Where requests wait for their turn, and the order in which they came through."""

    def __init__(self, topic: Topic, gateway: Gateway) -> None:
        self.topic = topic
        self.gateway = gateway
        self.sequences = Sequences(gateway.lanes)
        self.through: list[object] = []

    def come(self, claims: Mapping[int, Claim] | Claim) -> "asyncio.Task[None]":
        async def pass_through() -> None:
            await self.sequences.in_turn(
                self.topic, {0: claims} if isinstance(claims, Claim) else claims
            )
            self.through.append(claims)

        return asyncio.create_task(pass_through())


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let those who are early wait as long as it takes, so that only events decide."""
    monkeypatch.setattr(sequences, "GAP_WAIT_S", 1e9 * sequences.LOOK_EVERY_S)


async def new_door(partitions: int = 1) -> Door:
    cluster = Cluster()
    topic = await cluster.topic(partitions)
    door = Door(topic, cluster.gateway())
    for number in range(partitions):
        await door.gateway.lanes.lane(topic.topic_id, number).view(0)
    return door


# What is known of a producer

HALF = SEQUENCES // 2


@pytest.mark.parametrize(
    ("epoch", "following", "is_news"),
    [
        (NOTHING_SEEN, 0, True),
        (2, 100, True),
        (3, 5, True),
        (3, 6, True),
        (3, 7, False),
        (3, 8, False),
        (3, SEQUENCES - 1, True),
        (3, (7 - HALF + 1) % SEQUENCES, True),
        (3, (7 - HALF) % SEQUENCES, False),
        (4, 0, False),
    ],
)
async def test_a_head_tells_what_is_further_than_what_arrived(
    epoch: int, following: int, is_news: bool
) -> None:
    window = Window(2, 0, 3, 0, 7, (1, 6))
    arrived = _Arrived(epoch, following)
    moved = arrived.moved

    _look(arrived, await view_of(window), claim(9))

    assert moved.is_set() == is_news
    assert (arrived.epoch, arrived.next_sequence) == ((3, 7) if is_news else (epoch, following))


async def test_what_may_be_in_a_page_is_taken_for_granted() -> None:
    arrived = _Arrived(NOTHING_SEEN, 0)
    _look(arrived, await view_of(), claim(9, epoch=4))
    assert arrived.epoch == NOTHING_SEEN, "there are no pages"

    page = WindowPage(b"p", 0, 1, 2, 2)
    _look(arrived, await view_of(pages=(page,)), claim(9, epoch=4))
    assert (arrived.epoch, arrived.next_sequence) == (4, 9)


async def view_of(*windows: Window, pages: tuple[WindowPage, ...] = ()) -> LaneView:
    cluster = Cluster()
    topic = await cluster.topic()
    view = await cluster.gateway().lanes.lane(topic.topic_id, 0).view(0)
    head = msgspec.structs.replace(view.head, producers=windows, producer_pages=pages)
    return LaneView(head, view.version, view.read_began_s)


@pytest.mark.parametrize(
    ("came", "is_early", "is_behind"),
    [
        (claim(9, epoch=1), False, True),
        (claim(4, epoch=2), False, True),
        (claim(5, epoch=2), False, False),
        (claim(6, epoch=2), True, False),
        (claim(5 + HALF - 1, epoch=2), True, False),
        (claim(5 + HALF, epoch=2), False, False),
        (claim(5 + HALF + 1, epoch=2), False, True),
        (claim(0, epoch=3), False, False),
        (claim(1, epoch=3), True, False),
    ],
)
def test_a_claim_is_early_or_behind_or_next(came: Claim, is_early: bool, is_behind: bool) -> None:
    arrived = _Arrived(2, 5)
    assert _is_early(came, arrived) == is_early
    assert _is_behind(came, arrived) == is_behind


# In turn


async def test_who_is_early_waits_and_is_called_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "LOOK_EVERY_S", 3600.0)
    monkeypatch.setattr(sequences, "GAP_WAIT_S", 4 * 3600.0)
    door = await new_door()
    door.gateway.metadata.calls.clear()
    early = door.come(claim(1))
    await turns()
    assert not early.done()
    assert not door.gateway.metadata.calls, "the head was read a moment ago"

    door.come(claim(0))
    await turns()

    assert door.through == [claim(0), claim(1)]


async def test_who_is_early_waits_for_a_while() -> None:
    door = await new_door()
    early = door.come(claim(1))
    await turns()
    assert not early.done()

    door.come(claim(0))
    await early

    assert door.through == [claim(0), claim(1)]


@pytest.mark.usefixtures("patience")
async def test_requests_that_overtook_each_other_go_through_in_order() -> None:
    door = await new_door()
    batches = [claim(0, 3), claim(3, 2), claim(5), claim(6, 4)]

    tasks = [door.come(batch) for batch in reversed(batches)]
    await asyncio.gather(*tasks)

    assert door.through == batches


@pytest.mark.usefixtures("patience")
async def test_also_where_the_numbers_return_to_0() -> None:
    door = await new_door()
    await door.sequences.in_turn(door.topic, {0: claim(0)})
    # As if it had come that far.
    door.sequences._arrived[door.topic.topic_id, 0, 2].move(0, SEQUENCES - 2)

    batches = [claim(-2), claim(-1, 3), claim(2)]
    await asyncio.gather(*(door.come(batch) for batch in reversed(batches)))

    assert door.through == batches


@pytest.mark.usefixtures("patience")
async def test_also_after_a_new_epoch() -> None:
    door = await new_door()
    await door.sequences.in_turn(door.topic, {0: claim(0, 7)})

    batches = [claim(0, 3, epoch=1), claim(3, epoch=1), claim(4, epoch=1)]
    await asyncio.gather(*(door.come(batch) for batch in reversed(batches)))

    assert door.through == batches


async def test_what_was_sent_before_does_not_wait() -> None:
    door = await new_door()
    for batch in [claim(0, 3), claim(3), claim(4)]:
        await door.sequences.in_turn(door.topic, {0: batch})

    late = [claim(3), claim(0, 3), claim(0, 1, epoch=1), claim(4)]
    # And a copy does not make those wait that come next.
    for batch in [*late, claim(1, epoch=1)]:
        task = door.come(batch)
        await turns()
        assert task.done()


@pytest.mark.usefixtures("patience")
async def test_one_whose_predecessor_came_to_another_gateway_goes_through() -> None:
    cluster = Cluster()
    topic = await cluster.topic()
    door, other = Door(topic, cluster.gateway()), cluster.gateway()
    early = door.come(claim(2))
    await turns()
    assert not early.done()

    await other.append(topic, 2, {0: (0, [b"a", b"b"])})
    cluster.clock.now_s += 1  # What is known is old now.
    await early

    assert door.through == [claim(2)]


@pytest.mark.usefixtures("patience")
async def test_a_gateway_that_has_just_begun_knows_where_the_producer_is() -> None:
    cluster = Cluster()
    topic = await cluster.topic()
    other = cluster.gateway()
    for number in range(3):
        await other.append(topic, 2, {0: (number, [b"a"])})
    door = Door(topic, cluster.gateway())

    first = door.come(claim(4))
    await door.come(claim(3))
    await first

    assert door.through == [claim(3), claim(4)]


async def test_one_whose_predecessor_never_comes_goes_through_in_the_end() -> None:
    door = await new_door(partitions=20)

    await door.come(dict.fromkeys(range(20), claim(9)))
    # From then on the missing one is not waited for again.
    task = door.come({5: claim(10)})
    await turns()
    assert task.done()
    missing = door.come({5: claim(0)})
    await turns()
    assert missing.done()


@pytest.mark.usefixtures("patience")
async def test_who_waits_for_one_partition_is_not_overtaken_in_another() -> None:
    door = await new_door(partitions=2)
    both = {0: claim(0), 1: claim(1)}
    first = door.come(both)
    await turns()
    behind = door.come({0: claim(1)})
    await turns()
    assert not first.done()

    last = door.come({1: claim(0)})
    await asyncio.gather(first, behind, last)

    assert door.through == [{1: claim(0)}, both, {0: claim(1)}]


async def test_producers_do_not_wait_for_each_other() -> None:
    door = await new_door()
    door.come(claim(9, producer_id=4))

    await door.come(claim(0))

    assert door.through == [claim(0)]


async def test_so_many_producers_are_remembered_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "PRODUCERS_KEPT_MAX", 10)
    door = await new_door()

    for producer_id in range(2, 100):
        await door.come(claim(0, producer_id=producer_id))

    assert len(door.sequences._arrived) == 10


async def test_a_new_gateway_lets_through_at_once_what_the_head_says_is_next() -> None:
    cluster = Cluster()
    topic = await cluster.topic()
    await cluster.gateway().append(topic, 2, {0: (0, [b"a", b"b"])})
    door = Door(topic, cluster.gateway())

    task = door.come(claim(2))
    await turns()

    assert task.done()


async def test_a_head_that_is_known_for_a_while_is_read_again() -> None:
    cluster = Cluster()
    topic = await cluster.topic()
    door, other = Door(topic, cluster.gateway()), cluster.gateway()
    await door.gateway.lanes.lane(topic.topic_id, 0).view(0)
    await other.append(topic, 2, {0: (0, [b"a", b"b"])})
    cluster.clock.now_s += 2 * LOOK_EVERY_S

    task = door.come(claim(2))
    await turns()

    assert task.done()


async def test_those_who_came_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "PRODUCERS_KEPT_MAX", 2)
    door = await new_door()

    for producer_id, sequence in ((2, 0), (3, 0), (2, 1), (4, 0)):
        await door.come(claim(sequence, producer_id=producer_id))

    assert [producer_id for _, _, producer_id in door.sequences._arrived] == [2, 4]


async def test_with_windows_in_pages_nobody_waits_for_what_may_be_there() -> None:
    cluster = Cluster()
    topic = await cluster.topic()
    other = cluster.gateway()
    await asyncio.gather(*(other.append(topic, n, {0: (0, [b"a"])}) for n in range(2, 300)))
    await turns()
    door = Door(topic, cluster.gateway())
    view = await door.gateway.lanes.lane(topic.topic_id, 0).view(0)
    assert (2, 0) not in view.windows

    task = door.come(claim(1))
    await turns()

    assert task.done()


async def test_what_a_known_head_says_was_written_needs_no_write() -> None:
    cluster = Cluster()
    topic = await cluster.topic(partitions=2, lane_partitions=2)
    gateway = cluster.gateway()
    for number in range(7):
        await gateway.append(topic, 2, {1: (number, [b"a"])}, epoch=3)
    view = await gateway.lanes.lane(topic.topic_id, 0).view(0)
    views: dict[int, LaneView] = {0: view}

    def asked(sequence: int, epoch: int = 3) -> dict[int, int]:
        return already_written(topic, views, {1: Claim(1, 2, epoch, sequence, 1)})

    assert asked(4) == {1: 4}
    assert asked(7) == asked(9) == asked(0, epoch=4) == {}
    with pytest.raises(DuplicateSequence):
        asked(1)
    with pytest.raises(InvalidProducerEpoch):
        asked(7, epoch=2)
    assert already_written(topic, views, {0: Claim(0, 2, 3, 0, 1)}) == {}


@pytest.mark.parametrize("gaps", [0, 1, GAP_LOOKS])
async def test_a_gap_that_closes_in_time_is_not_seen(gaps: int) -> None:
    clock, retries = Clock(), list[bool]()
    began_s = clock.now_s

    async def attempt(is_retry: bool) -> str:
        retries.append(is_retry)
        if len(retries) <= gaps:
            raise OutOfOrderSequence("one is missing")
        return "done"

    assert await past_gap(world_of(clock), attempt) == "done"
    assert retries == [False, *[True] * gaps]
    assert clock.now_s - began_s == pytest.approx(gaps * GAP_WAIT_S / GAP_LOOKS)


async def test_a_gap_that_stays_is_reported_in_the_end() -> None:
    clock = Clock()
    began_s = clock.now_s

    async def attempt(_: bool) -> None:
        raise OutOfOrderSequence("one is missing")

    with pytest.raises(OutOfOrderSequence):
        await past_gap(world_of(clock), attempt)

    assert clock.now_s - began_s == pytest.approx(GAP_WAIT_S)


def world_of(clock: Clock) -> World:
    return World(
        now_ms=clock.now_ms,
        monotonic_s=clock.monotonic_s,
        sleep=clock.sleep,
        random=lambda: 0.5,
        random_bytes=bytes,
    )
