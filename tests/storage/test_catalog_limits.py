"""What a lookup costs, how the index grows, and what a roll leaves in the head."""

import msgspec
import pytest

from storage import catalog as catalogs
from storage import head as heads
from storage.catalog import Catalog
from storage.errors import NotEnoughReplicas
from storage.head import Head
from storage.index import Members
from storage.zones import Zones
from tests.storage.faults import TestObjects
from tests.storage.logs import run_of
from tests.storage.test_catalog import ModelledLane
from tests.storage.worlds import TOPIC_ID, new_ids

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


async def test_who_rolled_need_not_read_what_it_wrote() -> None:
    lane = await rolled(9)

    assert await reads_of(lane, lane.catalog) == 0


async def page_bytes(lane: ModelledLane) -> int:
    root = await lane.catalog.root(lane.head)
    [ref] = root.in_order()
    return (await lane.catalog._page(lane.head, ref.object_id)).size_bytes


@pytest.mark.parametrize(("less", "reads"), [(0, 0), (1, 1)])
async def test_a_page_is_kept_if_it_fits_into_a_quarter_of_the_cache(less: int, reads: int) -> None:
    lane = await rolled(100)
    catalog = lane.cold(4 * await page_bytes(lane) - less)

    assert await reads_of(lane, catalog) == 2
    assert await reads_of(lane, catalog) == reads


@pytest.mark.parametrize(("less", "reads"), [(0, 0), (1, 1)])
async def test_a_root_is_kept_if_it_fits_into_a_quarter_of_the_cache(less: int, reads: int) -> None:
    lane = await rolled(1, partitions=3)
    root_bytes = 64 + 3 * 64
    assert await page_bytes(lane) < root_bytes - less
    catalog = lane.cold(4 * root_bytes - less)

    assert await reads_of(lane, catalog) == 2
    assert await reads_of(lane, catalog) == reads


async def test_what_is_in_the_head_is_found_without_the_index() -> None:
    lane = await rolled(3)
    lane.append({0: 2}, {0: (7, 7)})
    catalog = lane.cold()

    assert heads.inline_start(lane.head, 0) == 6
    assert await reads_of(lane, catalog, offset=6) == 0
    await lane.check_since(catalog, 0, 7, 6)
    assert lane.objects.calls["get"] == 0
    assert await reads_of(lane, catalog, offset=5) == 2


async def test_where_the_index_lists_nothing_any_more_the_head_is_looked_at() -> None:
    lane = await rolled(3)
    lane.append({0: 2}, {0: (7, 7)})
    saved = await lane.catalog.save_root(lane.head, Members(), {})
    head = msgspec.structs.replace(lane.head, root=saved.new_root)

    inline = heads.inline_entries(head, 0)
    assert await lane.catalog.after(head, 0, 0) == inline
    assert await lane.catalog.since(head, 0, 7, 0) == inline[0]


async def test_so_many_members_become_one_of_the_next_level(
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


async def test_a_merged_page_lists_only_what_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Return a head in zones a, b and c with runs that so many of them hold."""
    head = heads.create(TOPIC_ID, 0, 1, list("abc"))
    runs = [run_of(n.to_bytes(16), {0: n + 1}) for n in range(len(held))]
    zoned = [msgspec.structs.replace(r, zones=z) for r, z in zip(runs, held, strict=True)]
    return heads.append(head, zoned)


def catalog_in(stores: dict[str, TestObjects]) -> Catalog:
    return Catalog(Zones(stores), new_ids(), 1 << 20)


async def test_what_is_on_its_way_to_a_zone_stays_in_the_head_with_all_behind_it() -> None:
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


async def test_nothing_is_rolled_while_the_oldest_is_on_its_way() -> None:
    catalog = catalog_in({name: TestObjects() for name in "abc"})

    with pytest.raises(NotEnoughReplicas):
        await catalog.roll(head_in_zones(0b011, 0b111))


async def test_a_roll_tells_which_zones_hold_all_of_it() -> None:
    stores = {name: TestObjects() for name in "abc"}
    stores["b"].failing_puts = 1

    roll = await catalog_in(stores).roll(head_in_zones(0b111))

    assert roll.zones == 0b101
