"""Verification finds exactly the objects that a zone in sync lacks, and copies only those."""

import msgspec
import pytest

from storage.errors import StoreUnavailable
from storage.head import head as heads
from storage.head import replication
from storage.head.head import Head
from storage.maintenance.fsck import check_lane
from storage.resync import inventory
from storage.resync.resync import Rate, Resync
from storage.resync.verifying import Findings, LaneProgress, Verifier
from tests.storage.helpers.compacted_lane import CompactedLane
from tests.storage.helpers.worlds import Clock

pytestmark = pytest.mark.anyio

MANY = 10**6


class Verified:
    """A lane with inline, rolled and compacted entries, and its verifier."""

    def __init__(self, names: str = "abc") -> None:
        self.lane = CompactedLane(names)
        clock = Clock()
        rate = Rate(1e9, clock.monotonic_s, clock.sleep)
        resync = Resync(self.lane.zones, rate=rate, copies_at_once=4, monotonic_s=clock.monotonic_s)
        self.is_deleted = False
        self.verifier = Verifier(self.lane.zones, resync, self.read)
        self.found = Findings()

    async def read(self, _: str) -> Head | None:
        return None if self.is_deleted else self.lane.head

    async def fill(self) -> None:
        await self.lane.fill(30, rolls=0.3)
        await self.lane.roll()
        await self.lane.compact(0)
        await self.lane.fill(10, seed=1, rolls=0)

    async def verify(self, avoided: str = "") -> Findings:
        self.found = Findings()
        _, is_done = await self.verifier.step(LaneProgress("k"), MANY, self.found, avoided)
        assert is_done
        return self.found

    async def keys(self, zone: str = "a") -> list[str]:
        """Return the keys that the lane refers to."""
        report = await check_lane(self.lane.zones, self.lane.head)
        assert report.is_ok
        found = await self.lane.zones[zone].keys()
        return [key for key in sorted(found) if await self._is_named(key)]

    async def _is_named(self, key: str) -> bool:
        async for shelf in inventory.walk(self.lane.zones, self.lane.head):
            if any(ref.key == key for ref in shelf.references):
                return True
        return False

    async def check(self) -> None:
        report = await check_lane(self.lane.zones, self.lane.head)
        assert report.findings == []


async def filled(names: str = "abc") -> Verified:
    verified = Verified(names)
    await verified.fill()
    return verified


async def test_a_complete_lane_is_left_unchanged() -> None:
    verified = await filled()
    keys = await verified.keys()
    puts = [len(zone.puts) for zone in verified.lane.zones.failing.values()]

    found = await verified.verify()

    assert (found.objects, found.repaired, found.lost) == (len(keys), [], [])
    assert [len(zone.puts) for zone in verified.lane.zones.failing.values()] == puts


async def test_every_kind_of_object_is_copied_back() -> None:
    verified = await filled()
    keys = await verified.keys()
    kinds = {key.rpartition(".")[2] for key in keys}
    assert kinds == {"seg", "page", "root", "segments", "parquet"}

    await verified.lane.zones["b"].inner.delete(keys)
    found = await verified.verify()

    assert sorted(found.repaired) == [f"b: {key}" for key in keys]
    assert found.lost == []
    await verified.check()


@pytest.mark.parametrize("damaged", ["a", "b"])
async def test_of_two_copies_the_one_of_the_wrong_size_is_replaced(damaged: str) -> None:
    verified = await filled("ab")
    for key in await verified.keys():
        body = await verified.lane.zones[damaged].inner.get(key)
        await verified.lane.zones[damaged].replace(key, body[:-1])
        other = "ab".replace(damaged, "")
        before = await verified.lane.zones[other].inner.get(key)

        found = await verified.verify()

        assert (found.repaired, found.lost) == ([f"{damaged}: {key}"], [])
        assert await verified.lane.zones[other].inner.get(key) == before
    await verified.check()


async def test_an_object_that_no_zone_holds_is_reported_once() -> None:
    verified = await filled()
    [key, *_] = [key for key in await verified.keys() if key.endswith(".seg")]
    for name in "abc":
        await verified.lane.zones[name].inner.delete([key])

    found = await verified.verify()

    assert (found.repaired, found.lost) == ([], [key])


async def test_an_object_swept_during_the_check_is_not_reported() -> None:
    verified = await filled()
    lane = verified.lane
    [key, *_] = [key for key in await verified.keys() if key.endswith(".page")]
    size = lane.zones["b"].inner.size

    async def compacted_and_swept(asked: str) -> int:
        if asked == key:
            await lane.roll()
            for partition in range(2):
                await lane.compact(partition)
            for name in "bc":
                await lane.zones[name].inner.delete([key])
        return await size(asked)

    lane.zones["b"].inner.size = compacted_and_swept  # type: ignore[method-assign]
    found = await verified.verify()

    assert (found.repaired, found.lost) == ([], [])
    assert key not in await lane.zones["b"].keys()


async def test_a_zone_that_left_the_isr_during_the_check_is_not_repaired() -> None:
    verified = await filled()
    lane = verified.lane
    [key, *_] = [key for key in await verified.keys() if key.endswith(".page")]
    await lane.zones["b"].inner.delete([key])
    size = lane.zones["b"].inner.size

    async def leaves(asked: str) -> int:
        if asked == key:
            lane.head = replication.without_zones(lane.head, 0b010)
        return await size(asked)

    lane.zones["b"].inner.size = leaves  # type: ignore[method-assign]

    assert (await verified.verify()).repaired == []


async def test_a_run_that_its_writer_still_copies_is_left_to_the_writer() -> None:
    verified = await filled()
    await verified.lane.append(b"acks=1", zones="a")

    assert (await verified.verify()).repaired == []


@pytest.mark.parametrize("rolled", [False, True])
async def test_an_object_only_in_a_failed_leader_is_not_reported_as_lost(rolled: bool) -> None:
    verified = await filled()
    lane = verified.lane
    await lane.append(b"acks=1", zones="a")
    lane.head = replication.without_zones(lane.head, 0b001)
    if rolled:
        await lane.roll()

    found = await verified.verify()

    assert (found.repaired, found.lost) == ([], [])


async def test_steps_are_bounded_and_the_next_continues() -> None:
    verified = await filled()
    keys = await verified.keys()
    for key in keys:
        await verified.lane.zones["c"].inner.delete([key])
    progress, steps, is_done = LaneProgress("k"), 0, False
    while not is_done:
        asked = sum(len(zone.sizes) for zone in verified.lane.zones.failing.values())
        _, is_done = await verified.verifier.step(progress, 10, verified.found)
        steps += 1
        now_asked = sum(len(zone.sizes) for zone in verified.lane.zones.failing.values())
        # A chunk of 16 objects in 3 zones, and the copies of them.
        assert now_asked - asked <= 16 * 5

    assert steps > 2
    assert verified.found.objects == len(keys)
    assert len(verified.found.repaired) == len(keys)
    await verified.check()


async def test_lanes_with_one_zone_in_sync_or_deleted_are_skipped() -> None:
    verified = await filled()
    alone = msgspec.structs.replace(verified.lane.head, isr=0b001)
    verified.lane.head, whole = alone, verified.lane.head
    assert (await verified.verify()).objects == 0

    verified.lane.head, verified.is_deleted = whole, True
    assert (await verified.verify()).objects == 0


async def test_a_lane_with_a_failing_zone_in_its_isr_is_skipped() -> None:
    verified = await filled()
    with pytest.raises(StoreUnavailable, match="zone b"):
        await verified.verify(avoided="b")
    verified.lane.head = replication.without_zones(verified.lane.head, 0b010)

    assert (await verified.verify(avoided="b")).objects


async def test_a_zone_that_does_not_answer_is_not_treated_as_empty() -> None:
    verified = await filled()
    assert heads.inline_entries(verified.lane.head, 0)
    verified.lane.zones["c"].mode = "denied"

    with pytest.raises(StoreUnavailable):
        await verified.verify()
    assert verified.found.repaired == []
