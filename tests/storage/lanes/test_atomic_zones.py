"""Commits to many lanes at once: their zones, their limits, and when they give up."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from storage import keys
from storage.errors import Contended, NotEnoughReplicas, StoreUnavailable, TransactionTooLarge
from storage.head import head as heads
from storage.head.changes import change_head
from storage.head.head import Head
from storage.lanes.atomic import AtomicCommits, LaneRuns, check_width, joined
from storage.lanes.lane import Lanes
from storage.lanes.watch import COMMIT_S_MAX
from storage.stores.metadata import TRANSACT_OPS_MAX, Op
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.rivals import Rival
from tests.storage.helpers.together import nothing_else
from tests.storage.helpers.worlds import TOPIC_ID, Clock, create_lane, new_metadata, new_runtime
from tests.storage.helpers.zoned import Zoned

pytestmark = pytest.mark.anyio

ONE, TWO = run_of(b"one", {0: 1}), run_of(b"two", {0: 1})


def test_what_one_part_of_a_lane_demands_holds_for_all_of_it() -> None:
    strict = LaneRuns(TOPIC_ID, 0, (ONE,), in_sync_min=2, is_old=True)
    easy = LaneRuns(TOPIC_ID, 0, (TWO,), in_sync_min=1, is_old=False)
    other = LaneRuns(TOPIC_ID, 1, (ONE,), in_sync_min=1, is_old=False)

    assert joined([strict, other, easy]) == [
        LaneRuns(TOPIC_ID, 0, (ONE, TWO), in_sync_min=2, is_old=True),
        other,
    ]
    assert joined([easy, strict]) == [
        LaneRuns(TOPIC_ID, 0, (TWO, ONE), in_sync_min=2, is_old=True),
    ]
    assert joined([easy, easy])[0].is_old is False


def test_lanes_and_other_items_share_one_limit() -> None:
    check_width(TRANSACT_OPS_MAX)
    check_width(TRANSACT_OPS_MAX - 3, other_ops=3)
    with pytest.raises(TransactionTooLarge):
        check_width(TRANSACT_OPS_MAX + 1)
    with pytest.raises(TransactionTooLarge):
        check_width(TRANSACT_OPS_MAX - 3, other_ops=4)


async def test_a_writer_that_never_wins_fails_in_time() -> None:
    table, clock = Rival(new_metadata(), races=1_000_000), Clock()
    await create_lane(table.inner)
    runtime = new_runtime(table, clock=clock)
    began_s = clock.now_s

    with pytest.raises(Contended, match="send it again"):
        await AtomicCommits(Lanes(runtime), runtime).commit(
            [LaneRuns(TOPIC_ID, 0, (ONE,))], nothing_else
        )

    assert COMMIT_S_MAX < clock.now_s - began_s < COMMIT_S_MAX + 2


async def test_once_an_attempt_cannot_land_any_more_a_refusal_is_certain() -> None:
    table = Rival(new_metadata())
    await create_lane(table.inner)
    runtime = new_runtime(table)
    table.faults = ["request lost", "refused"]

    async def others_commit() -> None:
        await table._commit(keys.head(TOPIC_ID, 0))

    table.before_unknown = others_commit
    with pytest.raises(StoreUnavailable):
        await AtomicCommits(Lanes(runtime), runtime).commit(
            [LaneRuns(TOPIC_ID, 0, (ONE,))], nothing_else
        )


def in_sync(zoned: Zoned, isr: int) -> LaneRuns:
    return LaneRuns(TOPIC_ID, 0, (msgspec.structs.replace(zoned.run, zones=isr),))


async def set_isr(zoned: Zoned, isr: int) -> None:
    """Change who is in sync, as another process would."""

    def changed(head: Head) -> Head:
        return msgspec.structs.replace(head, isr=isr)

    await change_head(zoned.metadata, keys.head(TOPIC_ID, 0), changed)


async def test_what_is_old_is_looked_for_before_it_is_committed() -> None:
    zoned = await Zoned().written()
    await zoned.stores["b"].inner.delete([zoned.key])
    atomic = AtomicCommits(zoned.lanes, zoned.runtime)

    await atomic.commit([LaneRuns(TOPIC_ID, 0, (zoned.run,), is_old=True)], nothing_else)

    assert (zoned.looks(), await zoned.holders()) == ("abc", "abc")


async def test_what_is_new_is_not_looked_for() -> None:
    zoned = await Zoned().written()

    await AtomicCommits(zoned.lanes, zoned.runtime).commit([in_sync(zoned, 0b111)], nothing_else)

    assert zoned.looks() == ""


async def test_zones_that_came_in_sync_meanwhile_count() -> None:
    zoned = await Zoned().written()
    await set_isr(zoned, 0b001)
    await zoned.lane.view(0)
    await set_isr(zoned, 0b011)
    part = LaneRuns(TOPIC_ID, 0, (zoned.run,), in_sync_min=2)

    await AtomicCommits(zoned.lanes, zoned.runtime).commit([part], nothing_else)

    assert (await zoned.lane.view(0)).head.next_offsets == (1,)


async def test_a_zone_that_failed_a_commit_leaves_with_the_next_one() -> None:
    zoned = await Zoned().written()
    zoned.stores["c"].mode = "full"
    run = msgspec.structs.replace(zoned.run, zones=0b011)
    part = LaneRuns(TOPIC_ID, 0, (run,), in_sync_min=3)
    with pytest.raises(NotEnoughReplicas):
        await AtomicCommits(zoned.lanes, zoned.runtime).commit([part], nothing_else)
    tries = len(zoned.stores["c"].puts)

    head = await zoned.committed(run)

    assert head.isr == 0b011
    assert len(zoned.stores["c"].puts) == tries, "it is not asked again"


async def test_zones_that_left_are_written_though_the_commit_is_refused() -> None:
    """Else no controller could let them in again, and every later commit would be refused."""
    zoned = await Zoned().written()
    before = (await zoned.lane.view(0)).head
    zoned.stores["c"].mode = "full"
    run = msgspec.structs.replace(zoned.run, zones=0b011)
    part = LaneRuns(TOPIC_ID, 0, (run,), in_sync_min=3)

    with pytest.raises(NotEnoughReplicas):
        await AtomicCommits(zoned.lanes, zoned.runtime).commit([part], nothing_else)

    item = await zoned.metadata.get(keys.head(TOPIC_ID, 0))
    assert item is not None
    head = heads.decode(item.value)
    assert (head.isr, head.leader_epoch) == (0b011, before.leader_epoch + 1)


async def test_news_of_zones_that_could_not_be_written_are_written_later() -> None:
    zoned = await Zoned().written()
    view = await zoned.lane.view(0)
    transact, refusals = zoned.metadata.transact, 3

    async def refusing(ops: Sequence[Op]) -> Mapping[str, str]:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise StoreUnavailable("throttled")
        return await transact(ops)

    zoned.metadata.transact = refusing  # type: ignore[method-assign]
    zoned.lane.upkeep.distrust(0b100, view.head.leader_epoch)
    while refusals or (await zoned.lane.view(0)).head.isr == 0b111:
        await zoned.clock.sleep(zoned.runtime.news_s)

    assert (await zoned.lane.view(0)).head.isr == 0b011
