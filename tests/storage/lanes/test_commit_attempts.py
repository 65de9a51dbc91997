"""What a commit costs: one write if nobody else commits, and no wait that helps nobody."""

from collections.abc import Mapping, Sequence

import pytest

from storage.errors import Contended
from storage.lanes.commits import Offer
from storage.lanes.lane import Lane
from storage.lanes.watch import COMMIT_S_MAX
from storage.stores.metadata import Check, Op, Put
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.rivals import Rival
from tests.storage.helpers.worlds import TOPIC_ID, Clock, create_lane, new_metadata, new_runtime

pytestmark = pytest.mark.anyio

FENCE = "txn/copier"


class CountingClock(Clock):
    """A clock that knows how often somebody slept."""

    sleeps = 0

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        await super().sleep(seconds)


async def rivals() -> tuple[Lane, Rival, CountingClock]:
    """Return a lane that knows its head, and whoever else may commit to it."""
    table, clock = Rival(new_metadata()), CountingClock()
    await create_lane(table.inner)
    lane = Lane(TOPIC_ID, 0, new_runtime(table, clock=clock))
    await commit(lane, 1)
    table.calls.clear()
    return lane, table, clock


async def commit(lane: Lane, number: int) -> int:
    ticket = lane.enqueue()
    ticket.ready(run_of(number.to_bytes(16), {0: 1}))
    return (await ticket.committed)[0]


async def test_who_is_alone_reads_the_head_no_more() -> None:
    lane, table, clock = await rivals()

    assert [await commit(lane, number) for number in (2, 3)] == [1, 2]

    assert (table.calls["get"], table.calls["transact"], clock.sleeps) == (0, 2, 0)


async def test_one_race_lost_is_no_reason_to_wait_or_to_read() -> None:
    lane, table, clock = await rivals()
    table.races = 1

    assert await commit(lane, 2) == 2

    assert (table.calls["get"], table.calls["transact"], clock.sleeps) == (0, 2, 0)


async def test_who_loses_twice_waits_and_then_looks() -> None:
    lane, table, clock = await rivals()
    table.races = 3

    assert await commit(lane, 2) == 4

    assert (table.calls["get"], table.calls["transact"], clock.sleeps) == (2, 4, 2)


async def test_on_a_crowded_head_even_the_first_attempt_waits_and_looks() -> None:
    lane, table, clock = await rivals()
    table.races = 4
    await commit(lane, 2)
    table.calls.clear()
    clock.sleeps = 0

    assert await commit(lane, 3) == 6

    assert (table.calls["get"], table.calls["transact"], clock.sleeps) == (1, 1, 1)


async def test_a_commit_that_landed_unseen_waits_for_nothing() -> None:
    lane, table, clock = await rivals()
    table.races, table.faults = 2, ["none", "none", "reply lost"]

    assert await commit(lane, 2) == 3

    # It waited for the second of two races it lost, and not for its own commit.
    assert (table.calls["transact"], clock.sleeps) == (3, 1)


async def test_a_writer_that_never_wins_fails_in_time() -> None:
    lane, table, clock = await rivals()
    table.races = 1_000_000
    began_s = clock.now_s

    with pytest.raises(Contended, match="send it again"):
        await commit(lane, 2)

    assert COMMIT_S_MAX < clock.now_s - began_s < COMMIT_S_MAX + 2


class FencedLater(Rival):
    """Where others commit first, and then change what the second attempt is conditional on."""

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        if self.calls["transact"] == 1:
            await self.inner.transact([Put(FENCE, b"newer", None)])
        return await super().transact(ops)


async def test_a_fence_that_fails_is_reported_at_once() -> None:
    table, clock = FencedLater(new_metadata(), races=1), CountingClock()
    await create_lane(table.inner)
    lane = Lane(TOPIC_ID, 0, new_runtime(table, clock=clock))
    ticket = lane.enqueue()
    ticket.ready(Offer(run_of(bytes(16), {0: 1}), checks=(Check(FENCE, None),)))

    with pytest.raises(Contended, match="the producer changed"):
        await ticket.committed

    assert (table.calls["transact"], clock.sleeps) == (2, 0)
