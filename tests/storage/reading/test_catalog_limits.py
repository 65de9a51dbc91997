"""The reads of a lookup, the growth of the index, and the runs that a roll leaves in the head."""

import msgspec
import pytest

from storage.errors import NotEnoughReplicas
from storage.formats.index import Members
from storage.formats.segment_list import Cleaned, SegmentList
from storage.head import head as heads
from storage.head.head import Head
from storage.reading import catalog as catalogs
from storage.reading.catalog import Catalog
from storage.zones.zones import Zones
from tests.storage.helpers.faults import TestObjects
from tests.storage.helpers.logs import batch_of, run_of
from tests.storage.helpers.worlds import TOPIC_ID, new_ids, turns
from tests.storage.reading.test_catalog import ModelledLane
from tests.storage.reading.test_compacted_reads import CompactedLog

pytestmark = pytest.mark.anyio


async def rolled(runs: int, partitions: int = 1) -> ModelledLane:
    lane = ModelledLane(partitions)
    for _ in range(runs):
        lane.append({0: 2})
    await lane.roll()
    return lane


async def reads_of(lane: ModelledLane, catalog: Catalog, offset: int = 0) -> int:
    before = lane.objects.calls["get"]
    await lane.check_after(catalog, 0, offset)
    return lane.objects.calls["get"] - before


async def test_index_objects_written_by_a_roll_are_cached() -> None:
    lane = await rolled(9)

    assert await reads_of(lane, lane.catalog) == 0


async def page_bytes(lane: ModelledLane) -> int:
    root = await lane.catalog.root(lane.head)
    [ref] = root.in_order()
    return (await lane.catalog._page(lane.head, ref.object_id)).size_bytes


@pytest.mark.parametrize(("less", "reads"), [(0, 0), (1, 1)])
async def test_a_page_is_cached_if_it_fits_into_a_quarter_of_the_cache(
    less: int, reads: int
) -> None:
    lane = await rolled(100)
    catalog = lane.cold(4 * await page_bytes(lane) - less)

    assert await reads_of(lane, catalog) == 2
    assert await reads_of(lane, catalog) == reads


@pytest.mark.parametrize(("less", "reads"), [(0, 0), (1, 1)])
async def test_a_root_is_cached_if_it_fits_into_a_quarter_of_the_cache(
    less: int, reads: int
) -> None:
    lane = await rolled(1, partitions=3)
    root_bytes = 64 + 3 * 64
    assert await page_bytes(lane) < root_bytes - less
    catalog = lane.cold(4 * root_bytes - less)

    assert await reads_of(lane, catalog) == 2
    assert await reads_of(lane, catalog) == reads


async def compacted() -> CompactedLog:
    """Return a log of three row groups of one record: one in the first segment, two in another."""
    log = CompactedLog()
    log.compactor.row_group_bytes = 1
    await log.append((0, batch_of(b"a", b"b", b"c", stamps=[10, 20, 30])))
    await log.compact(0, 3, set(), [1])
    return log


@pytest.mark.parametrize(
    ("timestamp_ms", "offset", "end_offset"),
    [(5, 0, 1), (10, 0, 1), (11, 0, 2), (20, 0, 2), (21, 0, 3), (5, 1, 2), (5, 2, 3), (30, 2, 3)],
)
async def test_a_lookup_by_time_opens_only_the_segment_with_the_timestamp(
    timestamp_ms: int, offset: int, end_offset: int
) -> None:
    log = await compacted()
    catalog = Catalog(Zones({"a": log.objects}), log.new_id, 1 << 20)
    log.objects.calls.clear()

    found = await catalog.since(log.head, 0, timestamp_ms, offset)

    assert found is not None
    assert (found.end_offset, log.objects.calls["get_ranges"]) == (end_offset, 1)


@pytest.mark.parametrize(("less", "reads"), [(0, 1), (1, 2)])
async def test_a_footer_is_cached_if_it_fits_into_a_quarter_of_the_cache(
    less: int, reads: int
) -> None:
    log = await compacted()
    [segment, _] = (await log.catalog.segment_list(log.head, 0)).segments
    cache_bytes = 4 * 4 * segment.footer_bytes - less
    catalog = Catalog(Zones({"a": log.objects}), log.new_id, cache_bytes)
    log.objects.calls.clear()

    for _ in range(2):
        await catalog.footer(log.head, segment)

    assert log.objects.calls["get_ranges"] == reads


@pytest.mark.parametrize(("less", "reads"), [(0, 0), (1, 1)])
async def test_a_segment_list_is_cached_if_it_fits_into_a_quarter_of_the_cache(
    less: int, reads: int
) -> None:
    log = await compacted()
    catalog = Catalog(Zones({"a": log.objects}), log.new_id, 4 * 512 * 3 - less)

    assert len((await catalog.segment_list(log.head, 0)).segments) == 2
    log.objects.calls.clear()
    await catalog.segment_list(log.head, 0)

    assert log.objects.calls["get"] == reads


async def test_a_segment_list_is_cached_when_it_is_saved() -> None:
    log = await compacted()
    log.objects.calls.clear()

    assert len((await log.catalog.segment_list(log.head, 0)).segments) == 2
    assert log.objects.calls["get"] == 0


async def test_cleaned_offsets_are_saved_even_if_no_segment_is_left() -> None:
    lane = await rolled(1)
    cleaned = SegmentList(cleaned=(Cleaned(2, 5),))

    saved = await lane.catalog.save_root(lane.head, Members(), {0: cleaned})

    head = msgspec.structs.replace(lane.head, root=saved.new_root)
    assert await lane.cold().segment_list(head, 0) == cleaned


async def test_entries_in_the_head_are_found_without_reading_the_index() -> None:
    lane = await rolled(3)
    lane.append({0: 2}, {0: (7, 7)})
    catalog = lane.cold()

    assert heads.inline_start(lane.head, 0) == 6
    assert await reads_of(lane, catalog, offset=6) == 0
    await lane.check_since(catalog, 0, 7, 6)
    assert lane.objects.calls["get"] == 0
    assert await reads_of(lane, catalog, offset=5) == 2


async def test_a_lookup_by_time_skips_pages_that_end_before_the_offset() -> None:
    lane = await rolled(3)
    lane.append({0: 2}, {0: (7, 7)})
    await lane.roll()
    catalog = lane.cold()

    await lane.check_since(catalog, 0, 0, 6)

    assert lane.objects.calls["get"] == 2, "the root, and the second page"


async def test_a_lookup_falls_through_to_the_head_if_the_index_is_empty() -> None:
    lane = await rolled(3)
    lane.append({0: 2}, {0: (7, 7)})
    saved = await lane.catalog.save_root(lane.head, Members(), {})
    head = msgspec.structs.replace(lane.head, root=saved.new_root)

    inline = heads.inline_entries(head, 0)
    assert await lane.catalog.after(head, 0, 0) == inline
    assert await lane.catalog.since(head, 0, 7, 0) == inline[0]


async def test_fanout_members_become_one_of_the_next_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 4)
    lane = ModelledLane(1)
    for number in range(1, 4**3 + 6):
        lane.append({0: 1})
        await lane.roll()

        root = await lane.catalog.root(lane.head)
        levels = [len(root.level(level)) for level in range(4)]
        assert levels == [number // 4**level % 4 for level in range(4)]
        assert sum(ref.entry_count for ref in root.in_order()) == number


async def test_a_merged_page_lists_only_live_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 4)
    lane = ModelledLane(1)
    for _ in range(4):
        lane.append({0: 1})
        lane.hide(0, 2)
        await lane.roll()

    [ref] = (await lane.catalog.root(lane.head)).in_order()
    assert ref.entry_count == 2


async def test_a_head_without_runs_is_rolled_into_a_root() -> None:
    lane = ModelledLane(1)

    await lane.roll()

    assert lane.head.root


# Zones


def head_in_zones(*held: int) -> Head:
    """Return a head in zones a, b and c with a run for each mask of zones in `held`."""
    head = heads.create(TOPIC_ID, 0, 1, list("abc"))
    runs = [run_of(n.to_bytes(16), {0: n + 1}) for n in range(len(held))]
    zoned = [msgspec.structs.replace(r, zones=z) for r, z in zip(runs, held, strict=True)]
    return heads.append(head, zoned)


def catalog_in(stores: dict[str, TestObjects]) -> Catalog:
    return Catalog(Zones(stores), new_ids(), 1 << 20)


async def test_a_run_not_yet_in_every_zone_stays_in_the_head_with_all_later_runs() -> None:
    catalog = catalog_in({name: TestObjects() for name in "abc"})
    head = head_in_zones(0b111, 0b111, 0b011, 0b111)

    roll = await catalog.roll(head)

    new = roll.applied_to(head)
    assert new is not None
    assert (roll.run_count, new.runs) == (2, head.runs[2:])
    [ref] = (await catalog.root(new)).in_order()
    assert (ref.ends, ref.entry_count) == ((3,), 2)
    entries = await catalog.after(new, 0, 0)
    assert [entry.end_offset for entry in entries + await catalog.after(new, 0, 3)] == [1, 3, 6, 10]


async def test_nothing_is_rolled_while_the_oldest_run_is_not_in_every_zone() -> None:
    catalog = catalog_in({name: TestObjects() for name in "abc"})

    with pytest.raises(NotEnoughReplicas):
        await catalog.roll(head_in_zones(0b011, 0b111))


async def test_a_roll_reports_the_zones_that_hold_all_its_objects() -> None:
    stores = {name: TestObjects() for name in "abc"}
    stores["b"].failing_puts = 1

    roll = await catalog_in(stores).roll(head_in_zones(0b111))

    assert roll.zones == 0b101


async def test_a_roll_writes_the_index_to_zones_outside_the_isr_too() -> None:
    stores = {name: TestObjects() for name in "abc"}
    head = msgspec.structs.replace(head_in_zones(0b111), isr=0b011)

    await catalog_in(stores).roll(head)
    await turns()

    assert sorted(stores["c"].names()) == sorted(stores["a"].names()) != []
