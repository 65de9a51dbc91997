"""Views of a head: never older than allowed, never going back, and waking who waits."""

import asyncio

import pytest

from storage import keys
from storage.errors import StoreUnavailable, UnknownTopicOrPartition
from storage.head import head as heads
from storage.lanes.lane import Lane
from storage.lanes.watch import LaneView
from storage.stores.metadata import Delete, Versioned
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import (
    TOPIC_ID,
    Clock,
    HandClock,
    create_lane,
    new_metadata,
    new_runtime,
    turns,
)

pytestmark = pytest.mark.anyio

HEAD_KEY = keys.head(TOPIC_ID, 0)


class GatedReads(FaultyMetadata):
    """A table whose reads are answered when the test says so, as of when they began."""

    def __init__(self) -> None:
        super().__init__(new_metadata())
        self.gates: list[asyncio.Event] = []

    async def get(self, key: str) -> Versioned | None:
        found = await super().get(key)
        gate = asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        return found


async def append(lane: Lane, object_id: bytes = bytes(16)) -> None:
    ticket = lane.enqueue()
    ticket.ready(run_of(object_id, {0: 1}))
    await ticket.committed


async def ended(waiting: "asyncio.Task[None]") -> bool:
    await turns()
    return waiting.done()


async def test_a_view_that_is_young_enough_is_not_read_again() -> None:
    metadata, clock = FaultyMetadata(new_metadata()), Clock()
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata, clock=clock))

    first = await lane.view(5)
    clock.now_s += 5
    assert await lane.view(5) is first
    assert metadata.calls["get"] == 1

    clock.now_s += 0.1
    assert (await lane.view(5)).read_began_s == clock.now_s
    assert metadata.calls["get"] == 2


async def test_a_view_of_now_sees_every_commit_that_was_answered_before() -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata)
    ours, theirs = (Lane(TOPIC_ID, 0, new_runtime(metadata, seed=n)) for n in range(2))
    await ours.view(0)

    for number in range(1, 20):
        await append(theirs, number.to_bytes(16))
        assert (await ours.view(0)).head.next_offsets == (number,)


async def test_a_read_that_began_before_the_call_does_not_answer_it() -> None:
    metadata = GatedReads()
    await create_lane(metadata)
    theirs = Lane(TOPIC_ID, 0, new_runtime(metadata.inner, seed=1))
    ours = Lane(TOPIC_ID, 0, new_runtime(metadata))
    early = asyncio.create_task(ours.view(0))
    await turns()

    await append(theirs)
    late = [asyncio.create_task(ours.view(0)) for _ in range(3)]
    await turns()
    metadata.gates[0].set()
    await turns()
    metadata.gates[1].set()

    assert (await early).head.next_offsets == (0,)
    assert [view.head.next_offsets for view in await asyncio.gather(*late)] == [(1,)] * 3
    assert len(metadata.gates) == 2  # The three shared one read.


async def test_who_hangs_up_does_not_end_the_read_of_others() -> None:
    metadata = GatedReads()
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata))
    first, second = (asyncio.create_task(lane.view(0)) for _ in range(2))
    await turns()

    first.cancel()
    await turns()
    metadata.gates[0].set()

    assert (await second).head.commits == 0


async def test_a_failed_read_fails_those_who_wait_and_nobody_later() -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata))
    metadata.failing_gets = 1

    with pytest.raises(StoreUnavailable):
        await lane.view(0)
    assert (await lane.view(0)).head.commits == 0


async def test_what_is_known_never_goes_back() -> None:
    metadata = GatedReads()
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata))
    reading = asyncio.create_task(lane.view(0))
    await turns()
    metadata.gates[0].set()
    await reading

    slow = asyncio.create_task(lane.view(0))
    await turns()
    await append(lane)
    metadata.gates[1].set()

    assert (await slow).head.commits == 1
    assert (await lane.view(60)).head.commits == 1


async def test_a_deleted_topic_is_unknown_and_wakes_who_waits() -> None:
    metadata, clock = FaultyMetadata(new_metadata()), HandClock()
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata, clock=clock))
    view = await lane.view(0)
    waiting = asyncio.create_task(lane.watched.changed(view, 60))
    await metadata.transact([Delete(HEAD_KEY, view.version)])

    await clock.advance(0.05)

    assert await ended(waiting)
    with pytest.raises(UnknownTopicOrPartition):
        await lane.view(60)


async def watched(clock: HandClock) -> tuple[FaultyMetadata, Lane, LaneView]:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata, clock=clock))
    return metadata, lane, await lane.view(0)


async def test_a_commit_of_this_process_wakes_at_once() -> None:
    _, lane, view = await watched(HandClock())
    waiting = [asyncio.create_task(lane.watched.changed(view, 60)) for _ in range(3)]
    await turns()

    await append(lane)

    for each in waiting:
        assert await ended(each)


async def test_a_commit_of_another_process_wakes_within_the_poll() -> None:
    clock = HandClock()
    metadata, lane, view = await watched(clock)
    waiting = asyncio.create_task(lane.watched.changed(view, 60))
    await turns()
    await append(Lane(TOPIC_ID, 0, new_runtime(metadata, seed=1)))

    await clock.advance(0.049)
    assert not await ended(waiting)
    await clock.advance(0.001)
    assert await ended(waiting)


async def test_all_who_wait_share_one_poll_which_ends_with_them() -> None:
    clock = HandClock()
    metadata, lane, view = await watched(clock)
    metadata.calls.clear()
    waiting = [asyncio.create_task(lane.watched.changed(view, 60)) for _ in range(10)]

    for _ in range(3):
        await clock.advance(0.05)
    assert metadata.calls["get"] == 3

    for each in waiting:
        each.cancel()
    for _ in range(5):
        await clock.advance(0.05)
    assert metadata.calls["get"] <= 4
    again = asyncio.create_task(lane.watched.changed(view, 60))
    await clock.advance(0.05)
    assert metadata.calls["get"] <= 5
    again.cancel()


async def test_a_poll_survives_a_store_that_is_away_for_a_while() -> None:
    clock = HandClock()
    metadata, lane, view = await watched(clock)
    waiting = asyncio.create_task(lane.watched.changed(view, 60))
    await turns()
    metadata.failing_gets = 3
    await append(Lane(TOPIC_ID, 0, new_runtime(metadata.inner, seed=1)))

    for _ in range(3):
        await clock.advance(0.05)
    assert not await ended(waiting)
    await clock.advance(0.05)
    assert await ended(waiting)


async def test_does_not_wait_for_what_has_happened_already() -> None:
    _, lane, view = await watched(HandClock())
    await append(lane)

    await asyncio.wait_for(lane.watched.changed(view, 60), 10)


async def test_waits_no_longer_than_asked() -> None:
    _, lane, view = await watched(HandClock())

    await lane.watched.changed(view, 0)

    assert (await lane.view(60)) is view


async def test_wake_lets_those_who_wait_look_again() -> None:
    _, lane, view = await watched(HandClock())
    waiting = asyncio.create_task(lane.watched.changed(view, 60))
    await turns()

    lane.watched.wake()

    assert await ended(waiting)


async def test_a_head_is_decoded_once_for_each_version() -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata))

    first, second = await lane.view(0), await lane.view(0)

    assert first.head is second.head
    assert first.head == heads.create(TOPIC_ID, 0, 1, ["a"])
