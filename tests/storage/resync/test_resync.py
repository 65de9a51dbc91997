"""Bringing a zone up to date, from any state, despite failures along the way."""

import asyncio
import random
from pathlib import Path

import pytest

from storage.errors import StoreUnavailable
from storage.head import replication
from storage.head.replication import lacks, with_zone
from storage.reading import catalog as catalogs
from storage.resync.memory import ResyncMemory
from storage.resync.resync import Rate, Resync, ResyncProgress
from tests.storage.helpers.replicated import ReplicatedLane
from tests.storage.helpers.worlds import Clock

pytestmark = pytest.mark.anyio

FOREVER = 1e18


@pytest.fixture(autouse=True)
def small_fanout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 3)


@pytest.fixture(params=["memory", "directory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "directory" else None


def resync_of(lane: ReplicatedLane, clock: Clock | None = None, bytes_per_s: float = 1e9) -> Resync:
    clock = clock or Clock()
    rate = Rate(bytes_per_s, clock.monotonic_s, clock.sleep)
    return Resync(lane.zones, rate=rate, copies_at_once=4, monotonic_s=clock.monotonic_s)


def out_of_sync(lane: ReplicatedLane, name: str) -> int:
    number = lane.head.zones.index(name)
    lane.head = replication.without_zones(lane.head, 1 << number)
    return number


async def check_alone(lane: ReplicatedLane, name: str) -> None:
    """Check that every record can be read when only this zone is left."""
    for other in lane.zones.failing.values():
        other.mode = "denied"
    lane.zones[name].mode = "ok"
    for partition, values in enumerate(lane.values):
        assert await lane.read(partition) == values


async def test_a_returning_zone_gets_only_the_objects_it_missed(
    root: Path | None,
) -> None:
    lane = ReplicatedLane(root=root)
    await lane.fill(30)
    number = out_of_sync(lane, "c")
    lane.zones["c"].mode = "denied"
    await lane.fill(20, seed=1)
    lane.zones["c"].mode = "ok"
    lane.zones["c"].puts.clear()
    known, progress = ResyncMemory(), ResyncProgress()

    assert lacks(lane.head, number, known.held(lane.head))
    assert await resync_of(lane).lane(lane.head, "c", known, progress, FOREVER)

    assert not lacks(lane.head, number, known.held(lane.head))
    hot = [key for key in lane.zones["c"].puts if "/hot/" in key]
    assert len(hot) == 20
    assert progress.objects_copied == len(lane.zones["c"].puts)
    assert progress.lost == 0
    lane.head = with_zone(lane.head, number, known.held(lane.head))
    await check_alone(lane, "c")


async def test_a_wiped_zone_gets_every_object_again(root: Path | None) -> None:
    lane = ReplicatedLane(root=root)
    await lane.fill(30)
    number = out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    known, progress = ResyncMemory(trusts_commits=False), ResyncProgress()

    assert await resync_of(lane).lane(lane.head, "c", known, progress, FOREVER)

    lane.head = with_zone(lane.head, number, known.held(lane.head))
    await check_alone(lane, "c")


async def test_masks_of_a_wiped_zone_are_trusted_only_for_later_runs() -> None:
    lane = ReplicatedLane()
    await lane.append(b"before")
    number = out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    known = ResyncMemory(trusts_commits=False)
    assert lacks(lane.head, number, known.held(lane.head))

    await resync_of(lane).lane(lane.head, "c", known, ResyncProgress(), FOREVER)
    held = known.held(lane.head)
    assert not lacks(lane.head, number, held)
    await lane.append(b"later", zones="abc")
    assert not lacks(lane.head, number, held)
    await lane.append(b"not there", zones="ab")
    assert lacks(lane.head, number, held)


async def test_an_object_of_the_right_size_is_not_copied_again() -> None:
    lane = ReplicatedLane()
    await lane.fill(30)
    out_of_sync(lane, "c")
    lane.zones["c"].puts.clear()
    progress = ResyncProgress()

    await resync_of(lane).lane(
        lane.head, "c", ResyncMemory(trusts_commits=False), progress, FOREVER
    )

    assert (lane.zones["c"].puts, progress.objects_copied) == ([], 0)
    assert progress.objects_checked > 30


async def test_a_copy_of_the_wrong_size_is_replaced() -> None:
    lane = ReplicatedLane()
    await lane.fill(10, rolls=0.3)
    out_of_sync(lane, "c")
    keys = sorted(await lane.zones["c"].keys())
    for key in keys:
        body = await lane.zones["c"].inner.get(key)
        await lane.zones["c"].replace(key, body[:-1] if "/hot/" in key else body + b"x")
    progress = ResyncProgress()

    await resync_of(lane).lane(
        lane.head, "c", ResyncMemory(trusts_commits=False), progress, FOREVER
    )

    assert progress.replaced == progress.objects_copied > 0
    await check_alone(lane, "c")


async def test_damaged_copies_are_never_copied() -> None:
    lane = ReplicatedLane()
    await lane.fill(20)
    number = out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    chance = random.Random(3)
    for key in sorted(await lane.zones["a"].keys()):
        # Each object is damaged in one of two zones, also in bytes that no entry refers to.
        name = chance.choice("ab")
        size = len(await lane.zones[name].inner.get(key))
        await lane.zones[name].damage(key, chance.randrange(size))
    known, progress = ResyncMemory(trusts_commits=False), ResyncProgress()

    assert await resync_of(lane).lane(lane.head, "c", known, progress, FOREVER)

    assert progress.lost == 0
    lane.head = with_zone(lane.head, number, known.held(lane.head))
    await check_alone(lane, "c")


async def test_an_object_in_no_zone_is_lost_unless_a_zone_cannot_be_asked() -> None:
    lane = ReplicatedLane()
    await lane.fill(5, rolls=0)
    gone = await lane.append(b"gone", zones="a")
    out_of_sync(lane, "c")
    key = f"{gone.hex()[-1]}/hot/{gone.hex()}.seg"
    lane.zones["a"].mode = "denied"
    with pytest.raises(StoreUnavailable):
        await resync_of(lane).lane(lane.head, "c", ResyncMemory(), ResyncProgress(), FOREVER)

    lane.zones["a"].mode = "ok"
    await lane.zones["a"].inner.delete([key])
    progress = ResyncProgress()

    assert await resync_of(lane).lane(lane.head, "c", ResyncMemory(), progress, FOREVER)
    assert (progress.lost, progress.lost_keys) == (1, [key])


async def test_a_resync_resumes_after_the_target_failed() -> None:
    lane = ReplicatedLane()
    await lane.fill(40)
    out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    target, known, progress = lane.zones["c"], ResyncMemory(trusts_commits=False), ResyncProgress()
    put, count = target.inner.put, 0

    async def failing_put(key: str, body: object) -> None:
        nonlocal count
        count += 1
        if count % 20 == 0:
            raise StoreUnavailable("no space left on device")
        await put(key, body)  # type: ignore[arg-type]

    target.inner.put = failing_put  # type: ignore[method-assign]
    attempts = 0
    while True:
        attempts += 1
        try:
            assert await resync_of(lane).lane(lane.head, "c", known, progress, FOREVER)
            break
        except StoreUnavailable:
            continue

    assert attempts > 1
    assert progress.objects_copied == len(await target.keys())
    await check_alone(lane, "c")


async def test_a_step_ends_at_its_deadline_and_the_next_continues() -> None:
    lane, clock = ReplicatedLane(), Clock()
    await lane.fill(60)
    out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    known, progress = ResyncMemory(trusts_commits=False), ResyncProgress()
    resync = resync_of(lane, clock, bytes_per_s=1000)

    steps = 1
    while not await resync.lane(lane.head, "c", known, progress, clock.now_s + 5):
        steps += 1

    assert steps > 3
    # A step does not check again what earlier steps have done.
    assert progress.objects_checked == progress.objects_copied == len(await lane.zones["c"].keys())
    await check_alone(lane, "c")


async def test_copies_are_made_at_the_configured_rate() -> None:
    lane, clock = ReplicatedLane(), Clock()
    await lane.fill(40)
    out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    progress, began_s = ResyncProgress(), clock.now_s

    await resync_of(lane, clock, 1000).lane(
        lane.head, "c", ResyncMemory(trusts_commits=False), progress, FOREVER
    )

    assert clock.now_s - began_s == pytest.approx(progress.bytes_copied / 1000, rel=0.1)


async def test_at_most_four_copies_are_made_at_once() -> None:
    lane = ReplicatedLane()
    await lane.fill(40, rolls=0)
    out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    at_once, most = 0, 0
    inner = lane.zones["c"].inner.put

    async def counting(key: str, body: object) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        for _ in range(5):
            await asyncio.sleep(0)
        at_once -= 1
        await inner(key, body)  # type: ignore[arg-type]

    lane.zones["c"].inner.put = counting  # type: ignore[method-assign]
    known = ResyncMemory(trusts_commits=False)

    await resync_of(lane).lane(lane.head, "c", known, ResyncProgress(), FOREVER)

    assert most == 4


@pytest.mark.parametrize("seed", range(5))
async def test_a_zone_catches_up_with_a_lane_that_is_written_all_the_time(seed: int) -> None:
    lane, known, progress = (
        ReplicatedLane(seed=seed),
        ResyncMemory(trusts_commits=False),
        ResyncProgress(),
    )
    await lane.fill(30, seed)
    number = out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    chance = random.Random(seed)

    for round_number in range(100):
        seen = lane.head
        assert await resync_of(lane).lane(seen, "c", known, progress, FOREVER)
        # Writers also write to the zone that catches up; mostly that succeeds.
        for n in range(chance.randint(0, 3)):
            zones = chance.choice(["abc", "abc", "ab"])
            await lane.append(b"%d %d" % (round_number, n), zones=zones)
        if chance.random() < 0.3:
            await lane.roll()
        if not lacks(lane.head, number, known.held(seen)):
            break
    else:
        pytest.fail("it never caught up")

    lane.head = with_zone(lane.head, number, known.held(seen))
    await check_alone(lane, "c")


@pytest.mark.parametrize("rolled", [False, True])
async def test_objects_only_in_a_failed_leader_block_no_zone_and_return_with_the_leader(
    rolled: bool,
) -> None:
    lane = ReplicatedLane()
    await lane.append(b"everywhere")
    await lane.append(b"only in a", zones="a")
    first, third = out_of_sync(lane, "a"), out_of_sync(lane, "c")
    lane.zones["a"].mode = "denied"
    await lane.append(b"only in b")
    if rolled:
        await lane.roll()

    # c need not have what those in sync do not have either.
    known, progress = ResyncMemory(), ResyncProgress()
    assert await resync_of(lane).lane(lane.head, "c", known, progress, FOREVER)
    assert (progress.out_of_reach, progress.lost) == (1, 0)
    lane.head = with_zone(lane.head, third, known.held(lane.head))
    with pytest.raises(StoreUnavailable):
        await lane.read()

    lane.zones["a"].mode = "ok"
    known, progress = ResyncMemory(), ResyncProgress()
    assert await resync_of(lane).lane(lane.head, "a", known, progress, FOREVER)
    lane.head = with_zone(lane.head, first, known.held(lane.head))
    for name in "abc":
        await check_alone(lane, name)


async def test_an_object_that_an_unreachable_zone_in_sync_may_hold_is_not_given_up() -> None:
    lane = ReplicatedLane()
    await lane.append(b"only in a", zones="a")
    out_of_sync(lane, "a")
    out_of_sync(lane, "c")
    lane.zones["a"].mode = lane.zones["b"].mode = "denied"

    with pytest.raises(StoreUnavailable):
        await resync_of(lane).lane(lane.head, "c", ResyncMemory(), ResyncProgress(), FOREVER)
