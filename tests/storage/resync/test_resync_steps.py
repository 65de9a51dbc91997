"""Bringing a zone up to date in steps: each makes progress, even if zones are slow."""

import pytest

from storage.errors import StoreUnavailable
from storage.head import replication
from storage.head.replication import lacks, with_zone
from storage.resync.memory import ResyncMemory
from storage.resync.resync import Rate, Resync, ResyncProgress
from storage.stores.objects import ObjectStore
from tests.storage.helpers.replicated import ReplicatedLane
from tests.storage.helpers.worlds import Clock

pytestmark = pytest.mark.anyio

CALL_S = 0.1
STEP_S = 1.0
OBJECTS = 150
"""More objects, on one shelf, than any step has time for."""

FOREVER = 1e18


class Slow:
    """Steps of a re-sync over zones in which a look-up of an object takes time."""

    def __init__(self, lane: ReplicatedLane) -> None:
        self.lane = lane
        self.clock = Clock()
        rate = Rate(1e9, self.clock.monotonic_s, self.clock.sleep)
        self._resync = Resync(
            lane.zones, rate=rate, copies_at_once=4, monotonic_s=self.clock.monotonic_s
        )
        for zone in lane.zones.failing.values():
            self._slow_down(zone.inner)

    def _slow_down(self, store: ObjectStore) -> None:
        size = store.size

        async def slow_size(key: str) -> int:
            await self.clock.sleep(CALL_S)
            return await size(key)

        store.size = slow_size  # type: ignore[method-assign]

    async def step(
        self, name: str, known: ResyncMemory, progress: ResyncProgress, *, seconds: float = STEP_S
    ) -> bool:
        until_s = self.clock.now_s + seconds
        return await self._resync.lane(self.lane.head, name, known, progress, until_s)

    async def steps(self, name: str, known: ResyncMemory, progress: ResyncProgress) -> int:
        """Return how many steps it took, each of which must deal with something new."""
        for number in range(OBJECTS):
            before = len(known.objects) + len(known.out_of_reach)
            if await self.step(name, known, progress):
                return number + 1
            after = len(known.objects) + len(known.out_of_reach)
            assert after > before, f"step {number} got nowhere after {before} objects"
        pytest.fail("it never ends")


def leave(lane: ReplicatedLane, name: str) -> int:
    number = lane.head.zones.index(name)
    lane.head = replication.without_zones(lane.head, 1 << number)
    return number


async def return_of(lane: ReplicatedLane, name: str) -> None:
    """Bring a zone up to date in one step, and add it to the ISR."""
    clock, known = Clock(), ResyncMemory()
    rate = Rate(1e9, clock.monotonic_s, clock.sleep)
    resync = Resync(lane.zones, rate=rate, copies_at_once=4, monotonic_s=clock.monotonic_s)
    assert await resync.lane(lane.head, name, known, ResyncProgress(), FOREVER)
    number = lane.head.zones.index(name)
    lane.head = with_zone(lane.head, number, known.held(lane.head))


async def check_alone(lane: ReplicatedLane, name: str) -> None:
    for other, zone in lane.zones.failing.items():
        zone.mode = "ok" if other == name else "denied"
    for partition, values in enumerate(lane.values):
        assert await lane.read(partition) == values


async def left_to_one_that_was_away(*, rolled: bool) -> ReplicatedLane:
    """Return a lane whose only zone in sync, a, got most objects later from other zones."""
    lane = ReplicatedLane()
    leave(lane, "a")
    for number in range(OBJECTS):
        await lane.append(b"%d" % number)
    if rolled:
        await lane.roll()
    await return_of(lane, "a")
    leave(lane, "b")
    leave(lane, "c")
    return lane


@pytest.mark.parametrize("rolled", [False, True])
async def test_zones_catch_up_from_a_leader_that_was_away_itself(rolled: bool) -> None:
    lane = await left_to_one_that_was_away(rolled=rolled)
    slow = Slow(lane)

    for name in "bc":
        known, progress = ResyncMemory(), ResyncProgress()
        await slow.steps(name, known, progress)
        # Each object that a may lack is looked up there once.
        assert progress.objects_checked <= OBJECTS + 5
        assert progress.objects_copied == 0
        number = lane.head.zones.index(name)
        lane.head = with_zone(lane.head, number, known.held(lane.head))

    for name in "abc":
        await check_alone(lane, name)


async def test_objects_only_in_a_failed_leader_do_not_hold_up_a_slow_zone() -> None:
    lane = ReplicatedLane()
    for number in range(OBJECTS):
        await lane.append(b"%d" % number, zones="a")
    leave(lane, "a")
    third = leave(lane, "c")
    await lane.roll()
    lane.zones["a"].mode = "denied"
    known, progress = ResyncMemory(), ResyncProgress()

    await Slow(lane).steps("c", known, progress)

    assert progress.out_of_reach == OBJECTS
    assert not lacks(lane.head, third, known.held(lane.head))


@pytest.mark.parametrize("rolled", [False, True])
async def test_objects_of_a_zone_that_returned_in_between_are_compared_again(rolled: bool) -> None:
    lane = ReplicatedLane()
    await lane.append(b"only in a", zones="a")
    leave(lane, "a")
    third = leave(lane, "c")
    if rolled:
        await lane.roll()
    lane.zones["a"].mode = "denied"
    slow, known, progress = Slow(lane), ResyncMemory(), ResyncProgress()
    assert await slow.step("c", known, progress)
    assert progress.out_of_reach == 1
    assert not known.is_outdated(lane.head)
    assert not lacks(lane.head, third, known.held(lane.head))

    lane.zones["a"].mode = "ok"
    await return_of(lane, "a")
    assert known.is_outdated(lane.head), "what a has was not compared"
    assert await slow.step("c", known, progress)
    assert not known.is_outdated(lane.head)

    lane.head = with_zone(lane.head, third, known.held(lane.head))
    await check_alone(lane, "c")


async def test_a_step_without_time_left_still_makes_progress() -> None:
    lane = ReplicatedLane()
    await lane.fill(OBJECTS)
    leave(lane, "c")
    await lane.zones["c"].wipe()
    slow, known, progress = Slow(lane), ResyncMemory(trusts_commits=False), ResyncProgress()

    copied = -1
    while not await slow.step("c", known, progress, seconds=0.0):
        assert progress.objects_copied > copied
        copied = progress.objects_copied

    await check_alone(lane, "c")


async def test_objects_already_copied_are_not_checked_again_after_a_failure() -> None:
    lane = ReplicatedLane()
    await lane.fill(40, rolls=0)
    leave(lane, "c")
    await lane.zones["c"].wipe()
    target, known, progress = lane.zones["c"], ResyncMemory(trusts_commits=False), ResyncProgress()
    put, refused = target.inner.put, set[str]()

    async def failing_put(key: str, body: object) -> None:
        if len(refused) < 3 and key not in refused:
            refused.add(key)
            raise StoreUnavailable("not now")
        await put(key, body)  # type: ignore[arg-type]

    target.inner.put = failing_put  # type: ignore[method-assign]
    slow = Slow(lane)
    with pytest.raises(StoreUnavailable):
        await slow.step("c", known, progress, seconds=FOREVER)
    assert await slow.step("c", known, progress, seconds=FOREVER)

    assert progress.objects_checked == 40 + len(refused)
    await check_alone(lane, "c")


@pytest.mark.parametrize("rolled", [False, True])
async def test_masks_of_a_wiped_zone_are_trusted_only_for_commits_after_the_wipe(
    rolled: bool,
) -> None:
    lane = ReplicatedLane()
    await lane.append(b"before")
    third = leave(lane, "c")
    await lane.zones["c"].wipe()
    await lane.append(b"on its way when c was wiped", zones="abc")
    await lane.zones["c"].wipe()
    slow, known, progress = Slow(lane), ResyncMemory(trusts_commits=False), ResyncProgress()
    known.believe_after(lane.head)
    for number in range(OBJECTS):
        await lane.append(b"%d" % number, partition=number % 2, zones="abc")
    await lane.append(b"c was too slow", zones="ab")
    if rolled:
        await lane.roll()
    lane.zones["c"].sizes.clear()

    await slow.steps("c", known, progress)

    looked_for = [key for key in lane.zones["c"].sizes if "/hot/" in key]
    assert len(looked_for) == 3
    lane.head = with_zone(lane.head, third, known.held(lane.head))
    await check_alone(lane, "c")
