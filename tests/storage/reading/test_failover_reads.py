"""Reading a lane while its zones fail, in every way a zone can fail."""

import random
from pathlib import Path

import pytest

from storage import keys
from storage.errors import Corrupt, NotEnoughReplicas, ObjectMissing, StoreUnavailable
from storage.head import head as heads
from storage.head import replication
from tests.storage.helpers.failing_zones import Mode
from tests.storage.helpers.replicated import ReplicatedLane

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "directory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "directory" else None


@pytest.mark.parametrize("mode", ["denied", "full", "hanging", "slow"])
@pytest.mark.parametrize("name", ["a", "b", "c"])
async def test_every_record_is_read_while_a_zone_fails(
    mode: Mode, name: str, root: Path | None
) -> None:
    lane = ReplicatedLane(root=root)
    await lane.fill(12, rolls=0.3)

    lane.zones[name].mode = mode

    assert await lane.read(0) == lane.values[0]
    assert await lane.read(1) == lane.values[1]


async def test_every_record_is_read_after_a_zone_was_wiped(root: Path | None) -> None:
    lane = ReplicatedLane(root=root)
    await lane.fill(12, rolls=0.3)

    await lane.zones["a"].wipe()

    assert await lane.read(0) == lane.values[0]
    assert lane.zones.health["a"].missing > 0


@pytest.mark.parametrize("seed", range(5))
async def test_every_record_is_read_while_each_slice_has_one_good_copy(seed: int) -> None:
    """No zone has an undamaged copy of the whole object."""
    lane, chance = ReplicatedLane("ab"), random.Random(seed)
    object_id = await lane.append(*(b"%d" % n + bytes(300_000) for n in range(4)))
    entries = list(lane.head.runs[0].slices)
    assert len(entries) > 1
    position = lane.head.runs[0].position
    for number, piece in enumerate(entries):
        name = "ab"[number % 2]
        await lane.zones[name].damage(
            keys.hot_segment(object_id), position + chance.randrange(piece.length)
        )
        position += piece.length

    assert await lane.read() == lane.values[0]


async def test_zones_that_joined_the_isr_later_are_read_although_no_entry_names_them() -> None:
    lane = ReplicatedLane()
    lane.head = replication.without_zones(lane.head, 0b100)
    await lane.fill(12, rolls=0.3)
    for key in await lane.zones["a"].keys():
        await lane.zones["c"].put(key, [await lane.zones["a"].get(key)])

    lane.zones["a"].mode = lane.zones["b"].mode = "denied"

    assert await lane.read(0) == lane.values[0]


async def test_a_record_held_only_by_a_failed_zone_is_unavailable_and_never_skipped() -> None:
    lane = ReplicatedLane()
    await lane.append(b"everywhere")
    await lane.append(b"only there", zones="a")
    await lane.append(b"everywhere")

    lane.zones["a"].mode = "denied"
    with pytest.raises(StoreUnavailable, match="denied"):
        await lane.read()
    lane.zones["a"].mode = "ok"
    assert await lane.read() == lane.values[0]
    await lane.zones["a"].wipe()
    with pytest.raises(ObjectMissing):
        await lane.read()


async def test_a_slice_damaged_in_every_zone_is_corrupt() -> None:
    lane = ReplicatedLane("ab")
    object_id = await lane.append(b"a")
    for name in "ab":
        await lane.zones[name].damage(keys.hot_segment(object_id), 20)

    with pytest.raises(Corrupt, match="slice at 8"):
        await lane.read()


async def test_only_the_leader_is_read() -> None:
    lane = ReplicatedLane()
    for partition in (0, 1):
        await lane.append(b"x", partition=partition)
        await lane.read(partition)

    assert [len(lane.zones[name].reads) for name in "abc"] == [1, 1, 0]


async def test_a_roll_writes_to_zones_outside_the_isr_but_waits_only_for_the_isr() -> None:
    lane = ReplicatedLane()
    lane.head = replication.without_zones(lane.head, 0b100)
    await lane.append(b"a")
    roll = await lane.catalog.roll(lane.head)
    assert roll.zones & 0b011 == 0b011
    assert set(lane.zones["c"].puts) == {key for key in lane.zones["a"].puts if "/index/" in key}

    lane.zones["c"].mode = "hanging"
    roll = await lane.catalog.roll(lane.head)
    assert roll.zones == 0b011
    lane.zones["b"].mode = "full"
    roll = await lane.catalog.roll(lane.head)
    assert roll.zones == 0b001, "which cannot count before b has left the ISR"
    lane.zones["a"].mode = "full"
    with pytest.raises(StoreUnavailable):
        await lane.catalog.roll(lane.head)
    await lane.zones.close()


async def test_a_run_not_yet_in_every_zone_in_sync_stays_in_the_head() -> None:
    lane = ReplicatedLane()
    await lane.append(b"0", b"1")
    on_its_way = await lane.append(b"2", zones="a")
    await lane.append(b"3", b"4", partition=1)
    await lane.append(b"5")

    roll = await lane.catalog.roll(lane.head)
    assert roll.run_count == 1
    lane.head = heads.drop_runs(lane.head, 1, roll.new_root)
    assert lane.head.runs[0].object_id == on_its_way
    for partition in (0, 1):
        assert await lane.read(partition) == lane.values[partition]
    with pytest.raises(NotEnoughReplicas):
        await lane.catalog.roll(lane.head)

    # Either the run reaches the other zones, or they leave the ISR.
    copied = replication.with_copies(lane.head, {on_its_way: 0b111})
    assert (await lane.catalog.roll(copied)).run_count == 4
    lane.head = replication.without_laggards(lane.head)
    assert lane.head.isr == 0b001
    assert (await lane.catalog.roll(lane.head)).run_count == 4
    assert replication.without_laggards(copied) is copied


async def test_a_run_held_only_outside_the_isr_does_not_block_rolls() -> None:
    lane = ReplicatedLane()
    await lane.append(b"only there", zones="a")
    lane.head = replication.without_zones(lane.head, 0b001)
    await lane.append(b"later")
    await lane.roll()

    assert lane.head.runs == ()
    assert await lane.read() == lane.values[0]
