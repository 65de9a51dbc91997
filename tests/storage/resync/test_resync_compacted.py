"""Bringing a zone up to date with compacted segments: copied through a file, always verified."""

from pathlib import Path

import pytest

from storage.errors import StoreUnavailable
from storage.formats.segment_list import Segment
from storage.head import replication
from storage.head.replication import lacks, with_zone
from storage.maintenance.fsck import check_lane
from storage.resync import segment_copies
from storage.resync.memory import ResyncMemory
from storage.resync.resync import Rate, Resync, ResyncProgress
from tests.storage.helpers.compacted_lane import CompactedLane
from tests.storage.helpers.worlds import TOPIC_ID, Clock

pytestmark = pytest.mark.anyio

FOREVER = 1e18


@pytest.fixture(params=["memory", "directory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "zones" if request.param == "directory" else None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "copies"
    folder.mkdir()
    return folder


def resync_of(lane: CompactedLane, folder: Path) -> Resync:
    clock = Clock()
    rate = Rate(1e9, clock.monotonic_s, clock.sleep)
    return Resync(
        lane.zones, rate=rate, copies_at_once=4, monotonic_s=clock.monotonic_s, folder=folder
    )


def out_of_sync(lane: CompactedLane, name: str) -> int:
    number = lane.head.zones.index(name)
    lane.head = replication.without_zones(lane.head, 1 << number)
    return number


async def compacted_lane(root: Path | None = None) -> tuple[CompactedLane, list[Segment]]:
    lane = CompactedLane(root=root)
    await lane.fill(40, rolls=0.3)
    await lane.roll()
    segments = await lane.compact(0)
    return lane, segments


def parquet(keys: list[str]) -> list[str]:
    return sorted(key for key in keys if key.endswith(".parquet"))


async def test_a_returning_zone_gets_only_the_segments_it_missed(
    root: Path | None, folder: Path
) -> None:
    lane, old = await compacted_lane(root)
    number = out_of_sync(lane, "c")
    await lane.fill(40, seed=1, rolls=0.3)
    await lane.roll()
    new = await lane.compact(0)
    lane.zones["c"].puts.clear()
    known, progress = ResyncMemory(), ResyncProgress()

    assert lacks(lane.head, number, known.held(lane.head))
    assert await resync_of(lane, folder).lane(lane.head, "c", known, progress, FOREVER)

    assert old
    assert parquet(lane.zones["c"].puts) == sorted(each.key(TOPIC_ID) for each in new)
    assert progress.lost == 0
    assert progress.objects_copied == len(lane.zones["c"].puts)
    lane.head = with_zone(lane.head, number, known.held(lane.head))
    assert (await check_lane(lane.zones, lane.head)).findings == []
    assert list(folder.iterdir()) == []


async def test_a_wiped_zone_gets_the_segments_but_not_the_slices_they_replaced(
    root: Path | None, folder: Path
) -> None:
    lane, _ = await compacted_lane(root)
    await lane.compact(1)
    number = out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    known, progress = ResyncMemory(trusts_commits=False), ResyncProgress()

    assert await resync_of(lane, folder).lane(lane.head, "c", known, progress, FOREVER)

    assert not [key for key in await lane.zones["c"].keys() if "/hot/" in key]
    lane.head = with_zone(lane.head, number, known.held(lane.head))
    assert (await check_lane(lane.zones, lane.head)).findings == []


async def test_a_segment_is_copied_one_row_group_at_a_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_copies, "PIECE_BYTES", 1)
    lane, [first, *_] = await compacted_lane()
    out_of_sync(lane, "c")
    footer = await lane.catalog.footer(lane.head, first)
    await lane.zones["c"].wipe()
    lane.zones["a"].reads.clear()

    known = ResyncMemory(trusts_commits=False)
    await resync_of(lane, folder).lane(lane.head, "c", known, ResyncProgress(), FOREVER)

    # One read of the footer, and one of each row group.
    reads = lane.zones["a"].reads.count(first.key(TOPIC_ID))
    assert reads == 1 + len(footer.row_groups) > 2


async def test_each_row_group_is_copied_from_a_zone_with_an_undamaged_copy(folder: Path) -> None:
    lane, segments = await compacted_lane()
    out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    key = segments[0].key(TOPIC_ID)
    whole = await lane.zones["a"].inner.get(key)
    await lane.zones["a"].damage(key, 10)
    await lane.zones["b"].damage(key, -1)

    progress = ResyncProgress()
    known = ResyncMemory(trusts_commits=False)
    await resync_of(lane, folder).lane(lane.head, "c", known, progress, FOREVER)

    assert progress.lost == 0
    assert await lane.zones["c"].inner.get(key) == whole


async def test_a_segment_of_the_wrong_size_is_replaced(folder: Path) -> None:
    lane, segments = await compacted_lane()
    out_of_sync(lane, "c")
    key = segments[0].key(TOPIC_ID)
    whole = await lane.zones["a"].inner.get(key)
    await lane.zones["c"].replace(key, whole[:-1])

    progress = ResyncProgress()
    known = ResyncMemory(trusts_commits=False)
    await resync_of(lane, folder).lane(lane.head, "c", known, progress, FOREVER)

    assert (progress.replaced, progress.objects_copied) == (1, 1)
    assert await lane.zones["c"].inner.get(key) == whole


async def test_a_segment_damaged_in_every_zone_is_lost_and_does_not_keep_the_zone_out(
    folder: Path,
) -> None:
    lane, segments = await compacted_lane()
    number = out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    key = segments[0].key(TOPIC_ID)
    for name in "ab":
        await lane.zones[name].damage(key, 10)

    known, progress = ResyncMemory(trusts_commits=False), ResyncProgress()
    assert await resync_of(lane, folder).lane(lane.head, "c", known, progress, FOREVER)

    assert progress.lost_keys == [key]
    assert not lacks(lane.head, number, known.held(lane.head))


async def test_no_segment_is_lost_while_a_zone_that_may_hold_it_is_out_of_reach(
    folder: Path,
) -> None:
    lane, segments = await compacted_lane()
    out_of_sync(lane, "c")
    await lane.zones["c"].wipe()
    lane.zones["b"].mode = "denied"
    await lane.zones["a"].damage(segments[0].key(TOPIC_ID), 10)

    progress = ResyncProgress()
    known = ResyncMemory(trusts_commits=False)
    with pytest.raises(StoreUnavailable):
        await resync_of(lane, folder).lane(lane.head, "c", known, progress, FOREVER)

    assert progress.lost == 0
    lane.zones["b"].mode = "ok"
    assert await resync_of(lane, folder).lane(lane.head, "c", known, progress, FOREVER)
    assert progress.lost == 0
    assert list(folder.iterdir()) == []
