"""Batches in the metadata table: written once, read, moved to a segment by a roll, removed."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from storage import keys
from storage.errors import (
    Corrupt,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    StoreUnavailable,
)
from storage.formats import segments
from storage.formats.entries import Entry, Kind
from storage.formats.index import Page
from storage.formats.zone_sets import EVERYWHERE
from storage.head import head as heads
from storage.head.changes import change_head
from storage.head.head import Head, Run
from storage.head.roots import Overtaken, Roll
from storage.lanes import building as writer
from storage.lanes.building import LanePart
from storage.lanes.lane import Lane, Lanes
from storage.maintenance.compaction.swap import Swapper
from storage.reading.catalog import Catalog
from storage.reading.reader import Budget, LogReader
from storage.reading.table_batches import WRITES_MAX, TableBatches, mentioned, old
from storage.resync.inventory import walk
from storage.stores.metadata import Delete, Op, Put, Versioned
from tests.storage.helpers.faults import Fault, FaultyMetadata, TestObjects
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import (
    TOPIC_ID,
    commit_run,
    create_lane,
    new_ids,
    new_metadata,
    new_runtime,
    turns,
)

pytestmark = pytest.mark.anyio

ALL = Budget(records_max=10**6, bytes_max=10**9)
LANE, FIRST_PARTITION = 1, 64


def built(object_id: bytes, *values: bytes, partition: int = 0) -> tuple[Run, bytes]:
    """Return a run that is in the table, and the bytes of its batch."""
    batch = batch_of(*values)
    part = LanePart(
        topic_id=TOPIC_ID,
        first_partition=FIRST_PARTITION,
        codec="lz4",
        zones=1,
        batches=[(partition, [batch], batch.nbytes)],
    )
    segment = writer.build(object_id, [part])
    run = msgspec.structs.replace(segment.runs[0], kind=int(Kind.TABLE), zones=EVERYWHERE)
    return run, b"".join(segment.pieces)


class World:
    """A table, a bucket, and a lane that several processes write to."""

    def __init__(self) -> None:
        self.metadata = FaultyMetadata(new_metadata())
        self.objects = TestObjects()
        self.batches = TableBatches(self.metadata)
        self.new_id = new_ids(99)
        self._seeds = iter(range(1, 1000))

    async def lane(self, inline_bytes_max: int = 10**6) -> Lane:
        """Return the lane as another process sees it."""
        runtime = new_runtime(self.metadata, self.objects, seed=next(self._seeds))
        runtime.inline_bytes_max = inline_bytes_max
        if await self.metadata.get(keys.head(TOPIC_ID, LANE)) is None:
            await create_lane(self.metadata, 2, LANE)
        return Lanes(runtime).lane(TOPIC_ID, LANE)

    async def written(self, *values: bytes, partition: int = 0) -> Run:
        run, segment = built(self.new_id(), *values, partition=partition)
        await self.batches.write(run.object_id, segment)
        return run

    async def append(self, lane: Lane, *values: bytes, partition: int = 0) -> int:
        run = await self.written(*values, partition=partition)
        bases = await commit_run(lane, run)
        return bases[partition]

    async def head(self) -> Head:
        item = await self.metadata.get(keys.head(TOPIC_ID, LANE))
        assert item is not None
        return heads.decode(item.value)

    def catalog(self) -> Catalog:
        runtime = new_runtime(self.metadata, self.objects, seed=next(self._seeds))
        return runtime.catalog

    def reader(self) -> LogReader:
        runtime = new_runtime(self.metadata, self.objects, seed=next(self._seeds))
        return LogReader(runtime.zones, runtime.catalog, 0)

    async def values(self, partition: int = 0) -> list[bytes]:
        head, found, offset = await self.head(), list[bytes](), 0
        while offset < head.next_offsets[partition]:
            fetched = await self.reader().fetch(head, partition, offset, ALL)
            for _, batch in fetched.batches(10**9):
                found += batch.column(2).to_pylist()
            offset = fetched.end_offset
        return found

    async def items(self) -> set[bytes]:
        return {batch.object_id async for some in old(self.metadata, 2**48) for batch in some}

    async def roll(self) -> Roll:
        """Roll as another process, and remove nothing."""
        roll = await self.catalog().roll(await self.head())
        await self.apply(roll)
        return roll

    async def apply(self, roll: Roll) -> None:
        def change(head: Head) -> Head:
            if head.root == roll.new_root:
                return head
            rolled = roll.applied_to(head)
            assert rolled is not None
            return heads.append(rolled, [])

        await change_head(self.metadata, keys.head(TOPIC_ID, LANE), change)


@pytest.mark.parametrize(
    "faults", [["reply lost"], ["request lost"], ["request lost", "reply lost", "request lost"]]
)
async def test_a_write_whose_reply_is_lost_is_repeated(faults: list[Fault]) -> None:
    world = World()
    world.metadata.faults = faults

    run = await world.written(b"a")

    assert await world.items() == {run.object_id}


async def test_a_write_that_is_never_answered_is_unavailable() -> None:
    world = World()
    world.metadata.faults = ["request lost"] * WRITES_MAX

    with pytest.raises(StoreUnavailable):
        await world.written(b"a")


async def test_a_name_cannot_be_used_twice() -> None:
    world = World()
    run = await world.written(b"a")
    _, other = built(run.object_id, b"b")

    with pytest.raises(ObjectExists):
        await world.batches.write(run.object_id, other)


async def test_slices_are_read_with_one_request_and_their_checksums_verified() -> None:
    world = World()
    lane = await world.lane()
    for number in range(5):
        await world.append(lane, b"%d" % number, partition=number % 2)
    world.metadata.calls.clear()
    head, reader = await world.head(), world.reader()

    fetched = await reader.fetch(head, 0, 0, ALL)

    assert fetched.record_count == 3
    assert world.metadata.calls["get_many"] == 1
    assert world.objects.calls["get_ranges"] == 0
    key = keys.table_batch(head.runs[0].object_id)
    item = await world.metadata.get(key)
    assert item is not None
    broken = bytearray(item.value)
    broken[head.runs[0].position + 3] ^= 1
    await world.metadata.transact([Put(key, bytes(broken), item.version)])
    with pytest.raises(Corrupt):
        await reader.fetch(head, 0, 0, ALL)
    await remove(world, head.runs[0])
    with pytest.raises(ObjectMissing):
        await reader.fetch(head, 0, 0, ALL)
    assert (await reader.fetch(head, 0, 1, ALL)).record_count == 2


async def remove(world: World, run: Run) -> None:
    key = keys.table_batch(run.object_id)
    item = await world.metadata.get(key)
    assert item is not None
    await world.metadata.transact([Delete(key, item.version)])


async def test_a_roll_moves_batches_of_the_table_into_one_segment() -> None:
    world = World()
    lane = await world.lane()
    written: list[list[bytes]] = [[], []]
    for number in range(7):
        written[number % 2].append(b"%d" % number)
        await world.append(lane, b"%d" % number, partition=number % 2)
    before = heads.all_entries(await world.head())

    roll = await world.catalog().roll(await world.head())
    [name] = world.objects.names(".seg")
    assert await world.values(0) == written[0], "nothing counts yet"
    await world.apply(roll)
    await world.batches.remove(roll.removals)

    assert await world.items() == set()
    assert [await world.values(p) for p in (0, 1)] == written
    [page] = world.objects.names(".page")
    entries = Page.decode(await world.objects.get(page)).entries()
    assert {(entry.kind, entry.zones) for entry in entries} == {(Kind.ARROW, 1)}
    assert [_without_place(entry) for entry in entries] == list(map(_without_place, before))
    rows = segments.footer(await world.objects.get(name))
    # Ordered by partition, so that a reader of one partition requests one range of bytes.
    assert [row.partition for row in rows] == [64, 64, 64, 64, 65, 65, 65]


def _without_place(entry: Entry) -> Entry:
    return entry._replace(kind=0, object_id=b"", position=0, zones=0)


async def test_a_roll_leaves_segments_that_are_in_the_bucket_already() -> None:
    world = World()
    lane = await world.lane()
    await world.append(lane, b"a")
    run, segment = built(world.new_id(), b"b")
    await world.objects.put(keys.hot_segment(run.object_id), [segment])
    run = msgspec.structs.replace(run, kind=int(Kind.ARROW), zones=1)
    await commit_run(lane, run)

    await world.roll()

    assert await world.values() == [b"a", b"b"]
    assert keys.hot_segment(run.object_id) in world.objects.names(".seg")
    assert len(world.objects.names(".seg")) == 2


async def test_a_roll_of_an_old_head_raises_overtaken() -> None:
    world = World()
    await world.append(await world.lane(), b"a")
    old_head = await world.head()
    roll = await world.roll()
    await world.batches.remove(roll.removals)

    with pytest.raises(Overtaken):
        await world.catalog().roll(old_head)


async def test_a_lost_item_affects_no_other_batch() -> None:
    world = World()
    lane = await world.lane()
    for value in (b"a", b"b", b"c"):
        await world.append(lane, value)
    await remove(world, (await world.head()).runs[1])

    await world.roll()

    head = await world.head()
    assert (head.runs, head.next_offsets) == ((), (3, 0))
    assert (await world.reader().fetch(head, 0, 0, ALL)).end_offset == 1
    with pytest.raises(ObjectMissing):
        await world.reader().fetch(head, 0, 1, ALL)
    assert (await world.reader().fetch(head, 0, 2, ALL)).end_offset == 3


async def test_a_roll_that_took_effect_removes_the_batches_it_moved() -> None:
    world = World()
    lane = await world.lane(inline_bytes_max=150)
    for number in range(20):
        await world.append(lane, b"%d" % number)
        await turns()

    head = await world.head()
    assert await world.items() == mentioned(head)
    assert len(head.runs) < 10
    assert await world.values() == [b"%d" % number for number in range(20)]


async def test_a_failed_removal_leaves_only_garbage() -> None:
    world = World()
    lane = await world.lane(inline_bytes_max=150)

    class Refusing(TableBatches):
        async def remove(self, batches: Sequence[Delete]) -> None:
            world.metadata.faults = ["refused", "request lost", "reply lost"]
            await super().remove(batches)
            world.metadata.faults = []

    lane._runtime.catalog.batches = Refusing(world.metadata)
    for number in range(9):
        await world.append(lane, b"%d" % number)
        await turns()

    assert await world.items() > mentioned(await world.head())
    assert await world.values() == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("fault", ["reply lost", "late"])
async def test_batches_are_removed_after_a_roll_whose_reply_was_lost(fault: Fault) -> None:
    world = World()
    lane = await world.lane(inline_bytes_max=100)
    for value in (b"a", b"b"):
        await world.append(lane, value)
    # The commit that crosses the limit starts the roll, whose own commit gets no reply.
    run = await world.written(b"c")
    world.metadata.faults = ["none", fault]
    await commit_run(lane, run)
    await turns(200)
    head = await world.head()
    assert (head.runs, len(await world.items())) == ((), 3)

    await world.append(lane, b"d")
    await turns()

    assert await world.items() == mentioned(await world.head())
    assert await world.values() == [b"a", b"b", b"c", b"d"]


async def test_a_commit_is_recognised_after_another_process_rolled_it() -> None:
    world = World()
    lane = await world.lane()
    await world.append(lane, b"a")

    async def rolled() -> None:
        roll = await world.roll()
        await world.batches.remove(roll.removals)

    run = await world.written(b"b")
    world.metadata.faults, world.metadata.before_unknown = ["reply lost"], rolled
    bases = await commit_run(lane, run)

    assert bases == {0: 1}
    assert await world.values() == [b"a", b"b"]


async def test_different_bytes_at_its_offset_are_not_mistaken_for_the_commit() -> None:
    world = World()
    lane, other = await world.lane(), await world.lane()
    await world.append(lane, b"a")

    async def overtake() -> None:
        await world.append(other, b"not b")
        await world.roll()

    run = await world.written(b"b")
    world.metadata.faults, world.metadata.before_unknown = ["request lost"], overtake
    bases = await commit_run(lane, run)

    assert bases == {0: 2}
    assert await world.values() == [b"a", b"not b", b"b"]


async def test_equal_rolled_bytes_at_its_offset_leave_the_outcome_unknown() -> None:
    world = World()
    lane, other = await world.lane(), await world.lane()

    async def overtake() -> None:
        await world.append(other, b"beat")
        await world.roll()

    run = await world.written(b"beat")
    world.metadata.faults, world.metadata.before_unknown = ["request lost"], overtake
    with pytest.raises(OutcomeUnknown):
        await commit_run(lane, run)

    assert await world.values() == [b"beat"]


async def test_equal_bytes_that_are_still_in_the_head_belong_to_the_other_process() -> None:
    world = World()
    lane, other = await world.lane(), await world.lane()

    async def overtake() -> None:
        await world.append(other, b"beat")

    run = await world.written(b"beat")
    world.metadata.faults, world.metadata.before_unknown = ["request lost"], overtake
    await commit_run(lane, run)

    assert await world.values() == [b"beat", b"beat"]


async def test_a_process_with_an_outdated_head_over_the_limit_can_append() -> None:
    world = World()
    stale = await world.lane(inline_bytes_max=20)
    other = await world.lane()
    for number in range(10):
        await world.append(other, b"%d" % number)
    await stale.view(0)
    roll = await world.roll()
    await world.batches.remove(roll.removals)

    await world.append(stale, b"last")

    assert await world.values() == [*(b"%d" % number for number in range(10)), b"last"]


@pytest.mark.parametrize("fault", ["none", "reply lost", "request lost", "refused"])
async def test_compaction_rolls_batches_of_the_table_and_removes_them(fault: Fault) -> None:
    world = World()
    lane = await world.lane()
    for number in range(3):
        await world.append(lane, b"%d" % number)
    swapper = _swapper(world)
    world.metadata.faults = [fault]

    try:
        head = await swapper.roll_all(keys.head(TOPIC_ID, LANE))
    except StoreUnavailable:
        assert fault == "refused"
        head = await swapper.roll_all(keys.head(TOPIC_ID, LANE))

    assert head.runs == ()
    assert await world.items() == set()
    assert await world.values() == [b"0", b"1", b"2"]


async def test_compaction_reads_the_head_again_if_a_roll_overtakes_it() -> None:
    world = World()
    lane = await world.lane()
    await world.append(lane, b"a")
    swapper = _swapper(world)
    overtaken = False

    class Slow(FaultyMetadata):
        async def get_many(self, names: Sequence[str]) -> dict[str, Versioned]:
            nonlocal overtaken
            if not overtaken:
                overtaken = True
                roll = await world.roll()
                await world.batches.remove(roll.removals)
                await world.append(lane, b"b")
            return await super().get_many(names)

    swapper.catalog.batches = TableBatches(Slow(world.metadata))
    head = await swapper.roll_all(keys.head(TOPIC_ID, LANE))

    assert (overtaken, head.runs) == (True, ())
    assert await world.values() == [b"a", b"b"]


def _swapper(world: World) -> Swapper:
    catalog = world.catalog()

    async def transact(ops: Sequence[Op]) -> Mapping[str, str]:
        return await world.metadata.transact(ops)

    return Swapper(catalog, catalog._zones, world.metadata, transact, asyncio.sleep, lambda: 0.5)


async def test_no_zone_is_asked_for_batches_in_the_table() -> None:
    world = World()
    lane = await world.lane()
    await world.append(lane, b"a", b"b")
    head = await world.head()

    shelves = [shelf async for shelf in walk(world.catalog()._zones, head)]

    [inline] = shelves
    assert (inline.references, len(inline.entries)) == ([], 1)


async def test_old_batches_are_listed_page_by_page() -> None:
    world = World()
    names = [number.to_bytes(6) + world.new_id()[6:] for number in range(300)]
    for name in names:
        # All names end with the same digit.
        await world.batches.write(name[:-1] + b"\x07", built(name[:-1] + b"\x07", b"x")[1])

    found = [batch async for some in old(world.metadata, 199) for batch in some]

    assert {int.from_bytes(batch.object_id[:6]) for batch in found} == set(range(200))
    assert all(batch.size_bytes > 100 for batch in found)
