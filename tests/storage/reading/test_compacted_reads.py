"""Reading compacted logs, compared with a list of the surviving records."""

import asyncio
import random
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest

from storage.errors import Corrupt, ObjectMissing, OffsetOutOfRange
from storage.formats.compacted import SCHEMA, decode_row_group
from storage.formats.entries import Entry, Kind
from storage.formats.index import IndexRef, Members, live_members
from storage.reading import catalog as catalogs
from storage.reading.catalog import ENTRIES_MAX, Catalog
from storage.reading.reader import Budget, LogReader
from storage.zones.zones import Zones
from tests.storage.helpers.compacted_logs import Compactor, Stretch, batch_of_rows, rolled, swapped
from tests.storage.helpers.faults import TestObjects
from tests.storage.helpers.logs import batch_of
from tests.storage.reading.test_reader import ALL, Log, rows_of

pytestmark = pytest.mark.anyio

BUDGETS = [
    Budget(records_max=records, bytes_max=size)
    for records, size in [(1, 10**6), (3, 10**6), (10**6, 1), (10**6, 150), (10**6, 10**6), (5, 60)]
]


class CompactedLog(Log):
    """A partly compacted log; `survivors` returns the records that are left."""

    def __init__(self, *, cache_bytes: int = 1 << 20) -> None:
        super().__init__(cache_bytes=cache_bytes)
        self.gone: list[set[int]] = [set(), set()]
        self.compactor = Compactor(
            zones=Zones({"a": self.objects}), catalog=self.catalog, new_id=self.new_id
        )

    def survivors(self, partition: int) -> list[tuple[int, dict[str, object]]]:
        start = self.head.log_starts[partition]
        return [
            (offset, row)
            for offset, row in enumerate(self.rows[partition])
            if offset >= start and offset not in self.gone[partition]
        ]

    async def compact(
        self, partition: int, covers: int, gone: set[int], bounds: Sequence[int]
    ) -> None:
        """Compact up to `covers` into segments that end at `bounds`; drop the offsets in `gone`."""
        self.gone[partition] |= gone
        rows = [row for row in self.survivors(partition) if row[0] < covers]
        edges = [self.head.log_starts[partition], *bounds, covers]
        stretches = [
            Stretch(start=a, end=b, rows=[row for row in rows if a <= row[0] < b])
            for a, b in pairwise(edges)
            if a < b
        ]
        self.head = await rolled(self.catalog, self.head)
        saved = await self.compactor.save(self.head, partition, stretches, covers)
        self.head = swapped(self.head, saved)

    async def entry_ends(self, partition: int) -> list[int]:
        """Return where hot entries end: a compaction must end at one of these offsets."""
        start, end = self.head.log_starts[partition], self.head.next_offsets[partition]
        found, _ = await self.reader.locate(self.head, partition, start, end, 10**6)
        return [entry.end_offset for entry in found]

    def cold(self) -> LogReader:
        zones = Zones({"a": self.objects})
        return LogReader(zones, Catalog(zones, self.new_id, 1 << 20), 1 << 20)


async def random_compacted_log(seed: int, cache_bytes: int = 1 << 20) -> CompactedLog:
    chance, log = random.Random(seed), CompactedLog(cache_bytes=cache_bytes)
    for number in range(70):
        parts = []
        for partition in chance.sample([0, 1], chance.randint(1, 2)):
            count = chance.randint(1, 6)
            stamps = [number * 10 + chance.randint(-30, 30) for _ in range(count)]
            values = [chance.randbytes(chance.randint(0, 50)) for _ in range(count)]
            parts.append((partition, batch_of(*values, stamps=stamps)))
        await log.append(*parts)
        if chance.random() < 0.3:
            await log.roll()
        if chance.random() < 0.1:
            await compact_some(log, chance)
    return log


async def compact_some(log: CompactedLog, chance: random.Random) -> None:
    partition = chance.randrange(2)
    ends = await log.entry_ends(partition)
    if not ends:
        return
    covers = chance.choice(ends)
    root = await log.catalog.root(log.head)
    covers = max(covers, root.covered(partition))
    share = chance.choice([0.0, 0.3, 0.9, 1.0])
    start = log.head.log_starts[partition]
    gone = {offset for offset in range(start, covers) if chance.random() < share}
    bounds = sorted(chance.choices(range(start, covers + 1), k=chance.randint(0, 4)))
    log.compactor.row_group_bytes = chance.choice([1, 150, 1 << 20])
    await log.compact(partition, covers, gone, bounds)
    if chance.random() < 0.5:
        log.hide(partition, chance.randint(start, covers))


@pytest.mark.parametrize("seed", range(6))
async def test_a_fetch_with_any_offset_and_budget_returns_the_survivors(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 2 + seed % 4)
    log = await random_compacted_log(seed, cache_bytes=[0, 2000, 1 << 20][seed % 3])

    for partition in range(2):
        survivors = log.survivors(partition)
        start, end = log.head.log_starts[partition], log.head.next_offsets[partition]
        for offset in range(start, end + 1, 1 if seed < 2 else 3):
            expected = [row for row in survivors if row[0] >= offset]
            for budget in BUDGETS:
                await check_fetch(log, partition, offset, budget, expected)
        for offset in (start - 1, end + 1):
            with pytest.raises(OffsetOutOfRange):
                await log.fetch(partition, offset)


async def check_fetch(
    log: CompactedLog,
    partition: int,
    offset: int,
    budget: Budget,
    expected: list[tuple[int, dict[str, object]]],
) -> None:
    fetched = await log.fetch(partition, offset, budget)
    got = rows_of(fetched)
    end = log.head.next_offsets[partition]

    assert got == expected[: len(got)]
    assert len(got) == fetched.record_count <= budget.records_max
    assert got or not expected
    # Nothing before the start of the next fetch is left out, and each fetch makes progress.
    assert [row for row in expected if row[0] < fetched.end_offset] == got
    assert offset < fetched.end_offset <= end or offset == end == fetched.end_offset
    assert got or fetched.end_offset == end

    cut = fetched.batches(budget.bytes_max)
    offsets = [number for numbers, _ in cut for number in numbers]
    assert offsets == [number for number, _ in expected[: len(offsets)]]
    assert bool(offsets) == bool(expected)
    next_offset = fetched.end_of(cut)
    assert [number for number, _ in expected if number < next_offset] == offsets


@pytest.mark.parametrize("seed", range(6))
async def test_a_lookup_by_any_timestamp_finds_the_first_survivor(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 3)
    log = await random_compacted_log(seed)

    for reader in (log.reader, log.cold()):
        for partition in range(2):
            survivors = [(o, row["timestamp"]) for o, row in log.survivors(partition)]
            for moment in range(-40, 760, 7):
                late = [(o, stamp) for o, stamp in survivors if stamp >= moment]  # type: ignore[operator]
                end = (log.head.next_offsets[partition], -1)
                found = await reader.offset_at(log.head, partition, moment)
                assert found == (late[0] if late else end)


@pytest.mark.parametrize("seed", range(6))
async def test_every_survivor_can_be_located(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 3)
    log = await random_compacted_log(seed)

    for partition in range(2):
        start, end = log.head.log_starts[partition], log.head.next_offsets[partition]
        covers = (await log.catalog.root(log.head)).covered(partition)
        whole, reached = await log.reader.locate(log.head, partition, start, end, 10**6)
        assert reached == end
        assert all(a.end_offset <= b.start_offset for a, b in pairwise(whole))
        assert {entry.kind for entry in whole if entry.end_offset <= covers} <= {Kind.PARQUET}
        assert {entry.kind for entry in whole if entry.end_offset > covers} <= {Kind.ARROW}
        counted = sum(entry.record_count for entry in whole)
        assert counted >= len(log.survivors(partition))
        for offset, _ in log.survivors(partition):
            assert [e for e in whole if e.start_offset <= offset < e.end_offset], offset
        assert await paged(log, partition, start, end, 3) == whole


async def paged(log: CompactedLog, partition: int, start: int, end: int, limit: int) -> list[Entry]:
    found: list[Entry] = []
    while start < end:
        entries, reached = await log.reader.locate(log.head, partition, start, end, limit)
        assert len(entries) <= limit
        assert reached > start
        found += entries
        start = reached
    return found


async def sparse_log(
    records: int = 200, *, step: int = 3, row_group_bytes: int = 400
) -> CompactedLog:
    """Return a log whose first partition keeps every third record, ten in a row group."""
    log = CompactedLog()
    values = [b"%020d" % number for number in range(records)]
    await log.append((0, batch_of(*values, stamps=list(range(records)))))
    log.compactor.row_group_bytes = row_group_bytes
    await log.compact(0, records, {n for n in range(records) if n % step}, [records // 2])
    return log


async def test_a_small_fetch_reads_the_footer_once_and_one_row_group() -> None:
    log = await sparse_log()
    reader = log.cold()
    log.objects.calls.clear()

    few = Budget(records_max=2, bytes_max=10**6)
    assert [o for o, _ in rows_of(await reader.fetch(log.head, 0, 40, few))] == [42, 45]
    # The root and the list of segments; the footer, and the row group.
    assert log.objects.calls["get"] == 2
    assert log.objects.calls["get_ranges"] == 2

    assert [o for o, _ in rows_of(await reader.fetch(log.head, 0, 43, few))] == [45, 48]
    assert log.objects.calls["get_ranges"] == 2
    await reader.fetch(log.head, 0, 90, few)
    assert log.objects.calls["get_ranges"] == 3


async def test_concurrent_readers_of_a_row_group_share_one_read() -> None:
    log = await sparse_log()
    reader = log.cold()
    few = Budget(records_max=2, bytes_max=10**6)

    fetches = [reader.fetch(log.head, 0, offset, few) for offset in (0, 3, 6, 0)]
    found = await asyncio.gather(*fetches)

    assert [fetched.slices[0].base_offset for fetched in found] == [0] * 4
    assert reader.store_reads == 1


async def test_a_large_row_group_is_cut_into_slices() -> None:
    log = CompactedLog(cache_bytes=1 << 23)
    values = [random.Random(number).randbytes(4000) for number in range(600)]
    await log.append((0, batch_of(*values)))
    await log.compact(0, 600, {5, 6, 300}, [])

    fetched = await log.fetch(0, 0, Budget(records_max=10**6, bytes_max=600_000))

    assert 2 <= len(fetched.slices) <= 3
    assert all(len(piece.data) < 400_000 for piece in fetched.slices)
    # A slice without gaps carries no offsets.
    assert [piece.offsets is None for piece in fetched.slices][:2] == [False, True]
    assert log.reader.store_reads == 1
    await log.fetch(0, fetched.end_offset)
    assert log.reader.store_reads == 1


async def test_a_fetch_skips_offsets_compacted_away_up_to_the_end() -> None:
    log = CompactedLog()
    await log.append((0, batch_of(*[b"x"] * 10)))
    await log.compact(0, 10, set(range(4, 10)), [])

    assert [o for o, _ in rows_of(await log.fetch(0, 2))] == [2, 3]
    assert (await log.fetch(0, 2)).end_offset == 10
    assert (await log.fetch(0, 6)).end_offset == 10

    await log.compact(0, 10, set(range(10)), [])
    nothing = await log.fetch(0, 0)
    assert (nothing.end_offset, nothing.slices) == (10, [])
    await log.append((0, batch_of(b"new")))
    assert [o for o, _ in rows_of(await log.fetch(0, 0))] == [10]


async def test_a_damaged_or_lost_segment_is_read_from_another_zone() -> None:
    log = await sparse_log()
    other = TestObjects()
    for key in log.objects.names():
        await other.put(key, [await log.objects.get(key)])
    [first, second] = (await log.catalog.segment_list(log.head, 0)).segments
    log.objects.damage(first.key(log.head.topic_id), 30)
    await log.objects.lose(second.key(log.head.topic_id))

    alone = log.cold()
    with pytest.raises(Corrupt, match=r"row group at 4 of .* is damaged"):
        await alone.fetch(log.head, 0, 0, ALL)
    with pytest.raises(ObjectMissing):
        await alone.fetch(log.head, 0, 150, ALL)

    zones = Zones({"a": log.objects, "b": other})
    both = LogReader(zones, Catalog(zones, log.new_id, 1 << 20), 1 << 20)
    head = msgspec.structs.replace(log.head, zones=("a", "b"), replicas=(0, 1), isr=3)
    assert rows_of(await both.fetch(head, 0, 0, ALL)) == log.survivors(0)


async def test_a_damaged_footer_is_corrupt() -> None:
    log = await sparse_log()
    [first, _] = (await log.catalog.segment_list(log.head, 0)).segments
    log.objects.damage(first.key(log.head.topic_id), first.size_bytes - 20)

    with pytest.raises(Corrupt, match=r"the footer of .* is damaged"):
        await log.cold().fetch(log.head, 0, 0, ALL)


async def test_located_row_groups_can_be_read_and_decoded() -> None:
    log = await sparse_log()
    found, _ = await log.reader.locate(log.head, 0, 0, 200)
    entry = found[3]
    assert entry.segment is not None

    [data] = await log.objects.get_ranges(
        entry.segment.key(log.head.topic_id), [(entry.position, entry.position + entry.length)]
    )
    footer = await log.catalog.footer(log.head, entry.segment)
    batch = decode_row_group(footer, entry.row_group, data)

    assert batch.schema == SCHEMA
    kept = [row for row in log.survivors(0) if entry.start_offset <= row[0] < entry.end_offset]
    assert batch == batch_of_rows(kept)
    assert len(kept) == entry.record_count


async def test_a_roll_keeps_the_segment_lists_and_drops_covered_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 3)
    log = CompactedLog()
    for _ in range(2):
        await log.append((0, batch_of(b"a", b"b")), (1, batch_of(b"c")))
        await log.roll()
    await log.compact(0, 4, {1}, [])
    await log.append((0, batch_of(b"d")), (1, batch_of(b"e")))
    before = await log.catalog.root(log.head)

    await log.roll()

    root = await log.catalog.root(log.head)
    assert (root.covers, root.compacted) == (before.covers, before.compacted)
    [page] = root.in_order()
    # Two of six entries are covered: partition 1 keeps its three, and partition 0 its last.
    assert page.entry_count == 4
    assert [o for o, _ in rows_of(await log.fetch(0, 0))] == [0, 2, 3, 4]
    assert [o for o, _ in rows_of(await log.fetch(1, 0))] == [0, 1, 2]


async def test_a_merge_without_live_entries_leaves_no_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalogs, "FANOUT", 3)
    log = CompactedLog()
    for _ in range(3):
        await log.append((0, batch_of(b"a", b"b")))
        if log.head.next_offsets[0] < 6:
            await log.roll()
    log.hide(0, 6)

    await log.roll()

    assert (await log.catalog.root(log.head)).in_order() == []
    await log.append((0, batch_of(b"c")))
    assert [o for o, _ in rows_of(await log.fetch(0, 6))] == [6]


async def test_a_rewritten_root_omits_pages_without_live_entries() -> None:
    log = CompactedLog()
    for _ in range(4):
        await log.append((0, batch_of(b"a", b"b")))
        await log.roll()
    await log.append((1, batch_of(b"x")))
    await log.roll()

    await log.compact(0, 6, {0, 1}, [])

    root = await log.catalog.root(log.head)
    assert [ref.ends for ref in root.in_order()] == [(8, 0), (8, 1)]
    assert [o for o, _ in rows_of(await log.fetch(0, 0))] == [2, 3, 4, 5, 6, 7]


def ref(*ends: int) -> IndexRef:
    return IndexRef(
        object_id=bytes(ends), is_page=True, entry_count=1, ends=ends, newest_ms=(0,) * len(ends)
    )


def test_a_member_is_live_if_a_partition_has_live_entries_in_it() -> None:
    old, middle, new = ref(3), ref(3, 5), ref(9, 5)
    members = Members(((middle, new), (old,)))

    assert live_members(members, (0, 0)) == members
    assert live_members(members, (3, 0)).in_order() == [middle, new]
    assert live_members(members, (3, 5)).in_order() == [new]
    assert live_members(members, (9, 5)).in_order() == []
    covered = msgspec.structs.replace(members, covers=(9,))
    # The newest member has no entry of the second partition: its end is that of the one before.
    assert live_members(covered, (0, 0)).in_order() == [middle]


async def test_a_saved_root_takes_effect_only_when_a_head_names_it() -> None:
    log = CompactedLog()
    await log.append((0, batch_of(b"a", b"b", b"c")))
    await log.roll()
    head = log.head
    root = await log.catalog.root(head)

    saved = await log.compactor.save(
        head, 0, [Stretch(start=0, end=3, rows=log.survivors(0)[:1])], 3
    )

    assert await log.catalog.root(head) == root
    assert (saved.old_root, saved.zones) == (head.root, 1)
    assert [o for o, _ in rows_of(await log.fetch(0, 0))] == [0, 1, 2]
    log.head = swapped(head, saved)
    assert [o for o, _ in rows_of(await log.fetch(0, 0))] == [0]


async def test_one_lookup_returns_row_groups_up_to_its_limit() -> None:
    log = await sparse_log(1800, row_group_bytes=1)

    assert len(await log.catalog.after(log.head, 0, 0)) == ENTRIES_MAX
    assert len(await log.catalog.after(log.head, 0, 0, 5)) == 5
