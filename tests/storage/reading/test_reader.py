"""Reading, compared with a plain list of records, with as few reads as possible."""

import asyncio
import random

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import keys
from storage.errors import Corrupt, ObjectMissing, OffsetOutOfRange, StoreUnavailable
from storage.formats.records import record_batch
from storage.head import head as heads
from storage.head.head import Head
from storage.lanes import building as writer
from storage.lanes.building import LanePart
from storage.reading.catalog import Catalog
from storage.reading.reader import Budget, Fetched, LogReader, rows_within
from storage.zones.zones import Zones
from tests.examples import few
from tests.storage.helpers.faults import TestObjects
from tests.storage.helpers.logs import BATCHES, batch_of
from tests.storage.helpers.worlds import TOPIC_ID, new_ids, turns

pytestmark = pytest.mark.anyio

ALL = Budget(records_max=10**9, bytes_max=10**9)


class Log:
    """Two partitions in memory, stored, and also as plain lists of values and timestamps."""

    def __init__(self, *, cache_bytes: int = 1 << 20) -> None:
        self.objects = TestObjects()
        self.new_id = new_ids()
        zones = Zones({"a": self.objects})
        self.catalog = Catalog(zones, self.new_id, 1 << 20)
        self.reader = LogReader(zones, self.catalog, cache_bytes)
        self.head: Head = heads.create(TOPIC_ID, 0, 2, ["a"])
        self.rows: list[list[dict[str, object]]] = [[], []]

    async def append(self, *parts: tuple[int, pa.RecordBatch]) -> bytes:
        """Write one object with a slice for each of `parts`; return its identifier."""
        object_id = self.new_id()
        built = writer.build(
            object_id,
            [
                LanePart(
                    topic_id=TOPIC_ID,
                    first_partition=0,
                    codec="lz4",
                    zones=1,
                    batches=[(p, [batch], batch.nbytes) for p, batch in parts],
                )
            ],
        )
        await self.objects.put(keys.hot_segment(object_id), built.pieces)
        self.head = heads.append(self.head, built.runs)
        for partition, batch in parts:
            self.rows[partition] += batch.to_pylist()
        return object_id

    async def roll(self) -> None:
        roll = await self.catalog.roll(self.head)
        self.head = heads.drop_runs(self.head, len(self.head.runs), roll.new_root)

    def hide(self, partition: int, offset: int) -> None:
        starts = list(self.head.log_starts)
        starts[partition] = offset
        self.head = msgspec.structs.replace(self.head, log_starts=tuple(starts))

    async def fetch(self, partition: int, offset: int, budget: Budget = ALL) -> Fetched:
        return await self.reader.fetch(self.head, partition, offset, budget)


def rows_of(fetched: Fetched, bytes_max: int = 10**9) -> list[tuple[int, dict[str, object]]]:
    return [
        (offset, record)
        for offsets, batch in fetched.batches(bytes_max)
        for offset, record in zip(offsets, batch.to_pylist(), strict=True)
    ]


async def random_log(seed: int, appends: int = 60, cache_bytes: int = 1 << 20) -> Log:
    chance, log = random.Random(seed), Log(cache_bytes=cache_bytes)
    for number in range(appends):
        parts = []
        for partition in chance.sample([0, 1], chance.randint(1, 2)):
            count = chance.randint(1, 6)
            stamps = [number * 10 + chance.randint(-30, 30) for _ in range(count)]
            values = [chance.randbytes(chance.randint(0, 50)) for _ in range(count)]
            parts.append((partition, batch_of(*values, stamps=stamps)))
        await log.append(*parts)
        if chance.random() < 0.1:
            await log.roll()
    return log


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cache_bytes", [0, 300, 1 << 20])
async def test_a_fetch_with_any_offset_and_budget_returns_the_records_of_a_plain_list(
    seed: int, cache_bytes: int
) -> None:
    chance = random.Random(seed)
    log = await random_log(seed, cache_bytes=cache_bytes)

    for _ in range(150):
        partition = chance.randrange(2)
        rows = log.rows[partition]
        offset = chance.randint(0, len(rows))
        budget = Budget(
            records_max=chance.choice([1, 2, 7, 10**6]), bytes_max=chance.choice([0, 1, 500, 10**6])
        )
        fetched = await log.fetch(partition, offset, budget)
        got = rows_of(fetched, budget.bytes_max)

        assert got == list(enumerate(rows))[offset : offset + len(got)]
        assert len(got) <= budget.records_max
        assert got or offset == len(rows)
        assert fetched.end_offset <= min(len(rows), offset + budget.records_max)
        whole = rows_of(fetched)
        assert fetched.end_offset == offset + len(whole)


async def test_fetching_from_each_end_offset_reads_every_record_once() -> None:
    log = await random_log(5)
    offset, got = 0, []

    while offset < len(log.rows[0]):
        fetched = await log.fetch(0, offset, Budget(records_max=5, bytes_max=400))
        got += rows_of(fetched)
        offset = fetched.end_offset

    assert [record for _, record in got] == log.rows[0]


async def test_offsets_outside_the_log_are_refused() -> None:
    log = Log()
    await log.append((0, batch_of(b"a", b"b", b"c")))
    log.hide(0, 2)

    for offset in (-1, 0, 1, 4):
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is outside"):
            await log.fetch(0, offset)
        with pytest.raises(OffsetOutOfRange):
            await log.reader.locate(log.head, 0, offset, 9)
    assert [offset for offset, _ in rows_of(await log.fetch(0, 2))] == [2]
    assert rows_of(await log.fetch(0, 3)) == []
    assert await log.reader.locate(log.head, 0, 3, 9) == ([], 3)
    assert rows_of(await log.fetch(1, 0)) == []


async def test_readers_of_the_same_slices_share_one_read() -> None:
    log = Log()
    await log.append((0, batch_of(b"a")), (1, batch_of(b"b")))
    log.objects.read_gate = asyncio.Event()

    reading = [asyncio.create_task(log.fetch(0, 0)) for _ in range(8)]
    await turns()
    log.objects.read_gate.set()
    got = await asyncio.gather(*reading)

    assert [rows_of(each) for each in got] == [[(0, log.rows[0][0])]] * 8
    assert log.objects.calls["get_ranges"] == log.reader.store_reads == 1
    await log.fetch(0, 0)
    assert log.objects.calls["get_ranges"] == 1


async def test_slices_of_one_object_are_read_together() -> None:
    log = Log()
    for number in range(3):
        await log.append(*((0, batch_of(b"%d %d" % (number, n))) for n in range(4)))

    fetched = await log.fetch(0, 0)

    assert len(fetched.slices) == 12
    assert log.objects.calls["get_ranges"] == 3


async def test_cancelling_one_reader_does_not_fail_the_others() -> None:
    log = Log()
    await log.append((0, batch_of(b"a")), (0, batch_of(b"b")))
    log.objects.read_gate = asyncio.Event()
    first = asyncio.create_task(log.fetch(0, 0))
    await turns()
    others = [asyncio.create_task(log.fetch(0, n)) for n in (0, 1)]
    await turns()

    first.cancel()
    await turns()
    log.objects.read_gate.set()

    assert [len(rows_of(each)) for each in await asyncio.gather(*others)] == [2, 1]
    assert log.objects.calls["get_ranges"] == 1


async def test_a_failed_read_fails_every_waiting_reader_and_is_retried_later() -> None:
    log = Log()
    await log.append((0, batch_of(b"a")))
    log.objects.failing_reads = 1

    reading = [asyncio.create_task(log.fetch(0, 0)) for _ in range(3)]
    results = await asyncio.gather(*reading, return_exceptions=True)

    assert [type(each) for each in results] == [StoreUnavailable] * 3
    assert len(rows_of(await log.fetch(0, 0))) == 1


async def test_slices_that_this_process_wrote_are_not_read_from_the_store() -> None:
    log = Log()
    object_id = await log.append((0, batch_of(b"a")))
    [entry] = heads.inline_entries(log.head, 0)
    body = await log.objects.get(keys.hot_segment(object_id))

    log.reader.remember(
        object_id, entry.position, body[entry.position : entry.position + entry.length]
    )

    assert len(rows_of(await log.fetch(0, 0))) == 1
    assert log.reader.store_reads == 0


async def test_a_cached_slice_keeps_only_its_own_bytes_alive() -> None:
    flush = bytearray(1000)
    reader = Log().reader

    reader.remember(bytes(16), 8, memoryview(flush)[8:20])

    flush.clear()  # Fails while a view of it exists.
    assert reader.cache.size_bytes == 12


async def test_damaged_and_lost_objects_raise_different_errors_and_are_not_cached() -> None:
    log = Log()
    object_id = await log.append((0, batch_of(b"a")))
    key = keys.hot_segment(object_id)
    log.objects.damage(key, 20)

    with pytest.raises(Corrupt, match="slice at 8"):
        await log.fetch(0, 0)
    log.objects.damage(key, 20)  # Flips the bit back.
    assert len(rows_of(await log.fetch(0, 0))) == 1

    other = Log()
    await other.objects.lose(keys.hot_segment(await other.append((0, batch_of(b"a")))))
    with pytest.raises(ObjectMissing):
        await other.fetch(0, 0)


@pytest.mark.parametrize("seed", range(3))
async def test_the_first_offset_since_a_timestamp_is_that_of_a_plain_list(seed: int) -> None:
    log = await random_log(seed)

    for hidden in (0, 1, 7, 50, len(log.rows[0])):
        log.hide(0, hidden)
        visible = [(n, row["timestamp"]) for n, row in enumerate(log.rows[0])][hidden:]
        for moment in range(-40, 650, 7):
            expected = next(
                ((n, stamp) for n, stamp in visible if stamp >= moment),  # type: ignore[operator]
                (len(log.rows[0]), -1),
            )
            assert await log.reader.offset_at(log.head, 0, moment) == expected


async def test_a_late_timestamp_before_the_log_start_does_not_hide_later_records() -> None:
    log = Log()
    await log.append((0, batch_of(b"late", b"early", stamps=[900, 1])))
    await log.append((0, batch_of(b"later", stamps=[950])))
    log.hide(0, 1)

    assert await log.reader.offset_at(log.head, 0, 800) == (2, 950)


@few
@given(BATCHES, st.integers(0, 400))
def test_rows_within_a_budget_are_all_rows_if_the_batch_fits(
    batch: pa.RecordBatch, bytes_max: int
) -> None:
    count = rows_within(batch, bytes_max)

    assert 0 <= count <= batch.num_rows
    if batch.nbytes <= bytes_max:
        assert count == batch.num_rows


def test_a_budget_cuts_inside_a_slice() -> None:
    batch = record_batch(range(100), [None] * 100, [bytes(1000)] * 100)

    assert 8 <= rows_within(batch, 10_000) <= 10
    assert rows_within(batch, 0) == 0
