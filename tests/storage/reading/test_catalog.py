"""The catalog, compared with a plain list: every offset and timestamp, after many rolls."""

import asyncio
import random
from bisect import bisect_right

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, ObjectMissing, StoreUnavailable
from storage.formats.entries import Entry
from storage.head import head as heads
from storage.head.head import Head
from storage.reading import catalog as catalogs
from storage.reading.catalog import ENTRIES_MAX, Catalog, zone_names
from storage.zones.zones import Zones
from tests.examples import few
from tests.storage.helpers.faults import TestObjects
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import TOPIC_ID, new_ids

pytestmark = pytest.mark.anyio


class ModelledLane:
    """A head with its index objects, and all its entries in plain lists."""

    def __init__(self, partitions: int, *, cache_bytes: int = 1 << 20, seed: int = 0) -> None:
        self.objects = TestObjects()
        self.new_id = new_ids(seed)
        self.catalog = self.cold(cache_bytes)
        self.head = heads.create(TOPIC_ID, 3, partitions, ["a"])
        self.entries: list[list[Entry]] = [[] for _ in range(partitions)]

    def cold(self, cache_bytes: int = 1 << 20) -> Catalog:
        """Return another catalog over the same objects, with an empty cache."""
        return Catalog(Zones({"a": self.objects}), self.new_id, cache_bytes)

    def append(
        self, counts: dict[int, int], stamps: dict[int, tuple[int, int]] | None = None
    ) -> None:
        before = {p: len(heads.inline_entries(self.head, p)) for p in counts}
        self.head = heads.append(self.head, [run_of(self.new_id(), counts, stamps)])
        for p in counts:
            self.entries[p] += heads.inline_entries(self.head, p)[before[p] :]

    def widen(self) -> None:
        self.head = heads.widen(self.head, self.head.partition_count + 1)
        self.entries.append([])

    async def roll(self) -> None:
        roll = await self.catalog.roll(self.head)
        assert roll.old_root == self.head.root
        count = roll.run_count - (self.head.run_count - len(self.head.runs))
        self.head = heads.drop_runs(self.head, count, roll.new_root)

    def hide(self, partition: int, offset: int) -> None:
        starts = list(self.head.log_starts)
        starts[partition] = offset
        self.head = msgspec.structs.replace(self.head, log_starts=tuple(starts))

    async def check_after(self, catalog: Catalog, partition: int, offset: int) -> None:
        own = self.entries[partition]
        first = bisect_right(own, offset, key=lambda entry: entry.end_offset)
        found = await catalog.after(self.head, partition, offset)
        assert found == own[first : first + len(found)]
        assert 1 <= len(found) <= ENTRIES_MAX or first == len(own)

    async def check_since(self, catalog: Catalog, partition: int, moment: int, offset: int) -> None:
        expected = next(
            (e for e in self.entries[partition] if e.max_ms >= moment and e.end_offset > offset),
            None,
        )
        assert await catalog.since(self.head, partition, moment, offset) == expected


STEPS = st.lists(
    st.one_of(
        st.just("roll"),
        st.just("widen"),
        st.dictionaries(
            st.integers(0, 4),
            st.tuples(st.integers(1, 9), st.integers(0, 50), st.integers(0, 10)),
            min_size=1,
            max_size=3,
        ),
    ),
    max_size=60,
)


@few
@given(STEPS, st.sampled_from([2, 3]))
def test_every_offset_and_timestamp_is_found_after_any_history(
    steps: list[str | dict[int, tuple[int, int, int]]], fanout: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogs, "FANOUT", fanout)
        asyncio.run(check_history(steps))


async def check_history(steps: list[str | dict[int, tuple[int, int, int]]]) -> None:
    lane = ModelledLane(2)
    for step in steps:
        if step == "roll":
            await lane.roll()
        elif step == "widen":
            lane.widen()
        elif isinstance(step, dict):
            counts = {p % lane.head.partition_count: each[0] for p, each in step.items()}
            stamps = {
                p % lane.head.partition_count: (low, low + span)
                for p, (_, low, span) in step.items()
            }
            lane.append(counts, stamps)
    cold = lane.cold()
    for partition in range(lane.head.partition_count):
        for offset in range(lane.head.next_offsets[partition]):
            await lane.check_after(cold, partition, offset)
        for moment in range(0, 62, 3):
            for offset in (0, lane.head.next_offsets[partition] // 2):
                await lane.check_since(cold, partition, moment, offset)


async def test_a_lookup_after_thousands_of_rolls_takes_at_most_four_reads() -> None:
    chance = random.Random(7)
    lane = ModelledLane(3)
    for number in range(5000):
        if number == 2000:
            lane.widen()
        partition = chance.randrange(lane.head.partition_count)
        # Clocks differ: timestamps rise, and sometimes go back a little.
        low = number * 10 - chance.choice([0, 0, 0, 500])
        lane.append({partition: chance.randint(1, 5)}, {partition: (low, low + 5)})
        await lane.roll()

    assert len(heads.encode(lane.head)) < 300
    for partition in range(4):
        ends = lane.head.next_offsets[partition]
        for offset in [0, 1, ends - 1, *(chance.randrange(ends) for _ in range(100))]:
            await lane.check_after(lane.catalog, partition, offset)
            moment = chance.randrange(-10, 51_000)
            await lane.check_since(lane.catalog, partition, moment, chance.choice([0, offset]))
        lane.objects.calls.clear()
        await lane.check_after(lane.cold(), partition, ends // 2)
        # Root, node, node, page.
        assert lane.objects.calls["get"] <= 4


async def test_a_roll_writes_a_page_and_a_root_and_sometimes_merges() -> None:
    lane = ModelledLane(1)
    for _ in range(40 * 32):
        lane.append({0: 1})
        await lane.roll()

    # Of the pages, 40 were only written as part of a merge; one level of nodes was made.
    assert lane.objects.calls["put"] == 2 * 40 * 32 + 1


async def test_a_catalog_without_a_cache_rolls_and_reads() -> None:
    lane = ModelledLane(1, cache_bytes=0)
    for _ in range(70):
        lane.append({0: 2})
        await lane.roll()

    for offset in range(140):
        await lane.check_after(lane.catalog, 0, offset)


async def test_a_roll_of_a_head_that_grew_drops_only_the_runs_it_lists() -> None:
    lane = ModelledLane(2)
    lane.append({0: 3, 1: 1})
    roll = await lane.catalog.roll(lane.head)
    lane.append({1: 4})
    lane.append({0: 2})

    lane.head = heads.drop_runs(lane.head, roll.run_count, roll.new_root)

    assert len(lane.head.runs) == 2
    for partition, offset in [(0, 0), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1), (1, 4)]:
        await lane.check_after(lane.catalog, partition, offset)


async def test_a_lookup_by_time_ignores_entries_before_the_given_offset() -> None:
    lane = ModelledLane(1)
    for number in range(6):
        lane.append({0: 10}, {0: (number * 100, number * 100 + 50)})
        if number == 2:
            await lane.roll()

    for offset in (0, 9, 10, 25, 30, 35, 59, 60):
        for moment in (-5, 0, 50, 51, 250, 251, 550, 551):
            await lane.check_since(lane.catalog, 0, moment, offset)


async def test_a_failed_roll_leaves_the_index_unchanged() -> None:
    lane = ModelledLane(1)
    lane.append({0: 1})
    await lane.roll()
    lane.append({0: 1})
    lane.objects.failing_puts = 1

    with pytest.raises(StoreUnavailable):
        await lane.catalog.roll(lane.head)

    for offset in (0, 1):
        await lane.check_after(lane.cold(), 0, offset)
    await lane.roll()
    await lane.check_after(lane.cold(), 0, 0)


async def test_a_lost_or_damaged_index_object_is_reported() -> None:
    lane = ModelledLane(1)
    lane.append({0: 1})
    await lane.roll()
    [root], [page] = lane.objects.names(".root"), lane.objects.names(".page")

    lane.objects.damage(page, 20)
    with pytest.raises(Corrupt, match="RPG1"):
        await lane.cold().after(lane.head, 0, 0)
    await lane.objects.lose(root)
    with pytest.raises(ObjectMissing):
        await lane.cold().after(lane.head, 0, 0)


def test_zone_names_list_replicas_first() -> None:
    head: Head = msgspec.structs.replace(
        heads.create(TOPIC_ID, 0, 1, ["a", "b", "c"]), replicas=(2, 0)
    )

    assert zone_names(head, 0b111) == ["c", "a", "b"]
    assert zone_names(head, 0b010) == ["b"]
    assert zone_names(head, 0) == []
