"""fsck: finds every kind of damage, in the zone where it is, and nothing in a healthy lane."""

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from storage.formats import index
from storage.formats.segment_list import Segment, SegmentList
from storage.head import head as heads
from storage.head import replication
from storage.head.head import Head
from storage.maintenance.fsck import LaneReport, check_lane, check_steadily
from storage.reading import catalog as catalogs
from tests.storage.helpers.compacted_lane import CompactedLane
from tests.storage.helpers.replicated import ReplicatedLane

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def small_fanout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 3)


async def filled(root: Path | None = None) -> ReplicatedLane:
    lane = ReplicatedLane(root=root)
    await lane.fill(40, rolls=0.4)
    return lane


async def referenced(lane: ReplicatedLane, ending: str) -> list[str]:
    """Return the keys that the lane refers to: those that fsck misses in a wiped zone."""
    report = await check_lane(lane.zones, lane.head)
    assert report.is_ok
    await lane.zones["c"].wipe()
    lost = await check_lane(lane.zones, lane.head)
    for finding in lost.findings:
        await lane.zones["c"].put(finding.key, [await lane.zones["a"].inner.get(finding.key)])
    return sorted({each.key for each in lost.findings if each.key.endswith(ending)})


def problems(report: LaneReport) -> list[tuple[str, str | None, str]]:
    return [(each.problem, each.zone, each.key) for each in report.findings]


@pytest.mark.parametrize("kind", ["memory", "directory"])
async def test_a_healthy_lane_has_no_findings(kind: str, tmp_path: Path) -> None:
    lane = await filled(tmp_path if kind == "directory" else None)
    seen: list[int] = []

    report = await check_lane(lane.zones, lane.head, seen=seen.append)

    assert report.is_ok
    assert report.findings == []
    assert {zone.objects for zone in report.zones.values()} == {sum(seen)}
    assert len({zone.size_bytes for zone in report.zones.values()}) == 1
    assert list(report.zones) == ["a", "b", "c"]


@pytest.mark.parametrize("ending", [".seg", ".page", ".root", ".node"])
async def test_a_missing_truncated_or_damaged_copy_is_found_in_its_zone(ending: str) -> None:
    lane = await filled()
    key = random.Random(1).choice(await referenced(lane, ending))
    store = lane.zones["b"]
    whole = await store.inner.get(key)

    await store.inner.delete([key])
    assert problems(await check_lane(lane.zones, lane.head)) == [("missing", "b", key)]
    await store.replace(key, whole[:-3])
    assert problems(await check_lane(lane.zones, lane.head)) == [("size", "b", key)]
    await store.replace(key, whole)
    await store.damage(key, 20)
    assert problems(await check_lane(lane.zones, lane.head)) == [("checksum", "b", key)]
    assert (await check_lane(lane.zones, lane.head, sizes_only=True)).is_ok
    await store.replace(key, whole)
    assert (await check_lane(lane.zones, lane.head)).is_ok


async def test_an_index_object_missing_everywhere_is_reported_together_with_the_gap() -> None:
    lane = await filled()
    key = (await referenced(lane, ".page"))[0]
    for name in "abc":
        await lane.zones[name].inner.delete([key])

    report = await check_lane(lane.zones, lane.head)

    assert not report.is_ok
    assert ("index", None, key) in problems(report)
    assert report.problems["offsets"] >= 1


async def test_a_zone_out_of_reach_is_reported() -> None:
    lane = await filled()
    lane.zones["b"].mode = "denied"

    report = await check_lane(lane.zones, lane.head)

    assert {(each.problem, each.zone) for each in report.findings} == {("unreachable", "b")}
    lane.zones["a"].mode = lane.zones["c"].mode = "denied"
    nothing = await check_lane(lane.zones, lane.head)
    assert [(each.problem, each.zone) for each in nothing.findings] == [("unreachable", None)]


async def test_a_zone_that_hangs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.maintenance.fsck.CALL_S_MAX", 0.01)
    lane = ReplicatedLane()
    await lane.append(b"a")
    lane.zones["b"].mode = "hanging"

    report = await check_lane(lane.zones, lane.head)

    assert [(each.problem, each.zone) for each in report.findings] == [("unreachable", "b")]


async def test_objects_that_a_zone_outside_the_isr_lacks_are_no_problem() -> None:
    lane = await filled()
    lane.head = replication.without_zones(lane.head, 0b010)
    await lane.append(b"later")

    report = await check_lane(lane.zones, lane.head)

    assert report.is_ok
    assert [(each.problem, each.zone) for each in report.findings] == [("behind", "b")]


@pytest.mark.parametrize("by", [-1, 1])
async def test_offsets_that_are_not_dense_are_found(by: int) -> None:
    lane = await filled()
    ends = list(lane.head.next_offsets)
    ends[0] += by
    lane.head = msgspec.structs.replace(lane.head, next_offsets=tuple(ends))

    report = await check_lane(lane.zones, lane.head)

    assert report.problems["offsets"] >= 1


async def test_a_log_start_inside_an_entry_is_no_problem() -> None:
    lane = ReplicatedLane()
    await lane.append(b"a", b"b", b"c")
    await lane.roll()
    await lane.append(b"d")

    for start in range(5):
        lane.hide(0, start)
        assert (await check_lane(lane.zones, lane.head)).is_ok, start


async def test_reports_add_up() -> None:
    lane = await filled()
    await lane.zones["b"].wipe()
    one = await check_lane(lane.zones, lane.head)
    total = LaneReport()
    for _ in range(3):
        total.add(one)

    assert total.problems["missing"] == 3 * one.problems["missing"] > 0
    assert total.zones["b"].problems == total.problems
    assert total.zones["a"].objects == 3 * one.zones["a"].objects
    assert total.entries == 3 * one.entries


async def test_objects_replaced_and_swept_during_the_check_are_not_reported() -> None:
    lane = await filled()
    old, new = lane.head, heads.create(lane.head.topic_id, 0, 2, ["a", "b", "c"])
    reads: list[Head | None] = [old, new, new]
    for name in "abc":
        await lane.zones[name].wipe()

    async def read() -> Head | None:
        return reads.pop(0)

    assert (await check_steadily(lane.zones, read)).is_ok
    reads[:] = [old, old]
    assert not (await check_steadily(lane.zones, read)).is_ok
    reads[:] = [None]
    assert (await check_steadily(lane.zones, read)).is_ok


async def compacted_lane(root: Path | None = None) -> CompactedLane:
    lane = CompactedLane(root=root)
    await lane.fill(40, rolls=0.4)
    await lane.roll()
    await lane.compact(0, keep=lambda offset: offset % 3 == 0)
    await lane.compact(1)
    await lane.fill(10, seed=1, rolls=0.3)
    return lane


async def segments_of(lane: CompactedLane, partition: int = 0) -> SegmentList:
    return await lane.catalog.segment_list(lane.head, partition)


async def with_list(lane: CompactedLane, segments: Sequence[Segment], covers: int) -> None:
    members = index.with_covered(await lane.catalog.root(lane.head), 0, covers)
    listed = {0: SegmentList(tuple(segments))}
    saved = await lane.catalog.save_root(lane.head, members, listed)
    lane.head = msgspec.structs.replace(lane.head, root=saved.new_root)


@pytest.mark.parametrize("kind", ["memory", "directory"])
async def test_offsets_that_compaction_removed_are_not_reported_as_a_gap(
    kind: str, tmp_path: Path
) -> None:
    lane = await compacted_lane(tmp_path if kind == "directory" else None)

    assert (await check_lane(lane.zones, lane.head)).findings == []
    lane.hide(0, 25)
    assert (await check_lane(lane.zones, lane.head)).findings == []
    lane.hide(0, lane.head.next_offsets[0])
    assert (await check_lane(lane.zones, lane.head)).findings == []


async def test_a_partition_whose_records_were_all_compacted_away_has_no_findings() -> None:
    lane = CompactedLane()
    await lane.append(b"a", b"b")
    await lane.roll()
    assert await lane.compact(0, keep=lambda _: False) == []

    assert (await check_lane(lane.zones, lane.head)).findings == []
    await lane.append(b"c")
    assert (await check_lane(lane.zones, lane.head)).findings == []


async def test_every_damaged_byte_of_a_compacted_segment_is_found() -> None:
    lane = CompactedLane()
    await lane.append(*[b"value"] * 8)
    await lane.roll()
    [segment] = await lane.compact()
    key = segment.key(lane.head.topic_id)

    for position in range(segment.size_bytes):
        await lane.zones["b"].damage(key, position)
        found = problems(await check_lane(lane.zones, lane.head))
        assert found == [("checksum", "b", key)], position
        await lane.zones["b"].damage(key, position)
    assert (await check_lane(lane.zones, lane.head)).is_ok


@pytest.mark.parametrize("ending", [".parquet", ".segments"])
async def test_a_missing_or_truncated_compacted_segment_or_list_is_found(
    ending: str,
) -> None:
    lane = await compacted_lane()
    key = random.Random(1).choice(await referenced(lane, ending))
    whole = await lane.zones["b"].inner.get(key)

    await lane.zones["b"].inner.delete([key])
    assert problems(await check_lane(lane.zones, lane.head)) == [("missing", "b", key)]
    await lane.zones["b"].replace(key, whole[:-1])
    assert problems(await check_lane(lane.zones, lane.head)) == [("size", "b", key)]


async def test_a_segment_whose_offsets_differ_from_the_list_is_found() -> None:
    lane = await compacted_lane()
    [first, *rest] = (await segments_of(lane)).segments
    covers = (await lane.catalog.root(lane.head)).covered(0)
    longer = msgspec.structs.replace(first, start_offset=first.start_offset + 1, first_offset=3)
    for name in "abc":
        body = await lane.zones[name].inner.get(first.key(lane.head.topic_id))
        await lane.zones[name].inner.put(longer.key(lane.head.topic_id), [body])
    await with_list(lane, [longer, *rest], covers)

    report = await check_lane(lane.zones, lane.head)

    assert {each.problem for each in report.findings} == {"checksum"}
    assert {each.zone for each in report.findings} == {"a", "b", "c"}
    assert "not as listed" in report.findings[0].detail


async def test_segments_out_of_order_or_beyond_the_covered_offsets_are_found() -> None:
    lane = await compacted_lane()
    segments = (await segments_of(lane)).segments
    covers = (await lane.catalog.root(lane.head)).covered(0)

    for wrong in ([segments[1], segments[0]], [segments[0], segments[0]]):
        await with_list(lane, wrong, covers)
        report = await check_lane(lane.zones, lane.head)
        assert {each.problem for each in report.findings} == {"offsets"}
    await with_list(lane, segments, covers - 1)
    report = await check_lane(lane.zones, lane.head)
    assert {each.problem for each in report.findings} == {"offsets"}
    await with_list(lane, segments, covers)
    assert (await check_lane(lane.zones, lane.head)).is_ok


async def test_a_gap_between_compacted_segments_and_slices_is_found() -> None:
    lane = CompactedLane()
    for values in ([b"a", b"b"], [b"c", b"d"]):
        await lane.append(*values)
        await lane.roll()
    members = await lane.catalog.root(lane.head)

    for covers, is_ok in ((0, True), (1, False), (2, True), (3, False), (4, True)):
        root = index.with_covered(members, 0, covers)
        saved = await lane.catalog.save_root(lane.head, root, {})
        lane.head = msgspec.structs.replace(lane.head, root=saved.new_root)
        assert (await check_lane(lane.zones, lane.head)).is_ok == is_ok, covers
