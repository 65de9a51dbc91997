"""Pruning removes dead pages and segments from a root, while rolls go on and zones fail."""

import random
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from storage import keys
from storage.formats import index
from storage.head import head as heads
from storage.maintenance import trimming
from storage.maintenance.fsck import check_lane
from storage.maintenance.pruning import Pruned, prune
from storage.maintenance.retention import Policy
from storage.maintenance.trimming import Trimming
from storage.reading import catalog as catalogs
from storage.reading.catalog import Catalog
from storage.stores.metadata import Op, Put
from tests.storage.helpers.compacted_lane import CompactedLane
from tests.storage.helpers.faults import Fault, FaultyMetadata
from tests.storage.helpers.worlds import TOPIC_ID, new_ids, new_metadata

pytestmark = pytest.mark.anyio

KEY = keys.head(TOPIC_ID, 0)


@pytest.fixture(autouse=True)
def small_fanout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 3)


class StoredLane(CompactedLane):
    """A lane whose head is also stored in a table."""

    def __init__(self, names: str = "ab") -> None:
        super().__init__(names)
        self.table = new_metadata()
        self.metadata = FaultyMetadata(self.table)

    async def save(self) -> None:
        item = await self.table.get(KEY)
        version = None if item is None else item.version
        await self.table.transact([Put(KEY, heads.encode(self.head), version)])

    async def load(self) -> None:
        item = await self.table.get(KEY)
        assert item is not None
        self.head = heads.decode(item.value)

    async def prune(self) -> Pruned:
        pruned = await prune(self.metadata, self.catalog, KEY)
        await self.load()
        return pruned

    async def trim(self, before: Mapping[int, int | None]) -> None:
        plan = Trimming(self.catalog).deleting(before)
        await trimming.trim(self.metadata, KEY, plan)
        await self.load()

    async def check(self) -> None:
        report = await check_lane(self.zones, self.head)
        assert report.is_ok, report.findings
        for partition, values in enumerate(self.values):
            start = self.head.log_starts[partition]
            catalog = Catalog(self.zones, self.new_id, 0)
            position, ends = start, []
            while found := await catalog.after(self.head, partition, position):
                ends += [entry.end_offset for entry in found]
                position = ends[-1]
            assert (ends[-1] if ends else start) == len(values)
            assert ends == sorted(set(ends))


async def rolled(appends: int = 40) -> StoredLane:
    lane = StoredLane()
    await lane.fill(appends)
    if lane.head.runs:
        await lane.roll()
    await lane.save()
    return lane


async def test_pages_without_live_entries_are_removed_from_the_root() -> None:
    lane = await rolled()
    await lane.append(b"last")
    await lane.save()
    assert await lane.prune() == Pruned(0, 0)
    commits = lane.head.commits
    before = len((await lane.catalog.root(lane.head)).in_order())

    await lane.trim({0: len(lane.values[0]) - 1, 1: None})
    pruned = await lane.prune()

    assert pruned == Pruned(before, 0)
    assert (await lane.catalog.root(lane.head)).in_order() == []
    assert lane.head.commits == commits + 2
    await lane.check()
    assert await lane.prune() == Pruned(0, 0)
    await lane.fill(30, seed=4)
    await lane.check()


async def test_segments_without_live_records_are_removed_from_their_lists() -> None:
    lane = await rolled(60)
    segments = await lane.compact(0)
    await lane.save()
    assert len(segments) > 2

    await lane.trim({0: segments[1].end_offset - 1})
    assert await lane.prune() == Pruned(0, 1)
    assert list((await lane.catalog.segment_list(lane.head, 0)).segments) == segments[1:]
    await lane.check()
    await lane.trim({0: None})
    assert (await lane.prune()).segments == len(segments) - 1
    assert (await lane.catalog.root(lane.head)).segment_list(0) == b""
    await lane.check()


async def test_compacted_records_expire_by_age_one_row_group_after_the_other() -> None:
    lane = StoredLane()
    for number in range(30):
        # One record each, stamped 0, so that only records appended later are young.
        await lane.append(b"%d" % number)
        if number % 7 == 0:
            await lane.roll()
    await lane.roll()
    await lane.compact(0, lambda offset: offset % 2 == 0)
    young = await lane.append(b"young", b"younger")
    [run] = [run for run in lane.head.runs if run.object_id == young]
    later = msgspec.structs.replace(run, base_ms=1000)
    lane.head = msgspec.structs.replace(lane.head, runs=(later,))
    await lane.save()

    plan = Trimming(lane.catalog).expiring(Policy(age_ms_max=10), 500)
    await trimming.trim(lane.metadata, KEY, plan)
    await lane.load()

    assert lane.head.log_starts[0] == 30
    assert (await lane.prune()).segments > 0


@pytest.mark.parametrize("fault", ["request lost", "reply lost"])
async def test_a_prune_whose_reply_is_lost_takes_effect(fault: Fault) -> None:
    lane = await rolled()
    await lane.trim({0: None, 1: None})
    lane.metadata.faults = [fault]

    assert (await lane.prune()).members > 0
    assert (await lane.catalog.root(lane.head)).in_order() == []


async def test_a_concurrent_roll_is_not_lost() -> None:
    lane = await rolled()
    await lane.trim({0: None, 1: None})
    chance = random.Random(1)

    class Racing(FaultyMetadata):
        rolls = 3

        async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
            if self.rolls:
                self.rolls -= 1
                await lane.load()
                await lane.append(b"new", partition=chance.randrange(2))
                await lane.roll()
                await lane.save()
            return await super().transact(ops)

    lane.metadata = Racing(lane.table)
    await lane.prune()

    await lane.check()
    root = await lane.catalog.root(lane.head)
    assert index.live_members(root, lane.head.log_starts) == root


async def test_a_root_that_a_zone_in_sync_lacks_is_not_committed() -> None:
    lane = await rolled()
    await lane.trim({0: None, 1: None})
    lane.zones["b"].mode = "full"
    before = lane.head.root

    assert await lane.prune() == Pruned(0, 0)
    assert lane.head.root == before
    lane.zones["b"].mode = "ok"
    assert (await lane.prune()).members > 0


async def test_a_missing_lane_has_nothing_to_prune() -> None:
    lane = StoredLane()
    catalog = Catalog(lane.zones, new_ids(1), 0)

    assert await prune(lane.table, catalog, KEY) == Pruned(0, 0)
