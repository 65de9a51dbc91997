"""The gateway without HTTP: several of them over the same stores, in this process."""

import asyncio
import itertools
import random

import pyarrow as pa
import pytest

from service.log.gateway import FetchResult, Gateway, Position, Wait
from service.settings import Settings
from service.world.clock import World
from storage import keys
from storage.errors import (
    Contended,
    Corrupt,
    HeadMissing,
    InvalidRecord,
    InvalidRequest,
    ObjectMissing,
    OffsetOutOfRange,
    StoreUnavailable,
    UnknownTopicOrPartition,
)
from storage.formats.records import record_batch
from storage.head import head as heads
from storage.reading.reader import Budget
from storage.stores.metadata import Delete, Put
from storage.zones.zones import Zones
from tests.storage.helpers.faults import FaultyMetadata, TestObjects
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import Clock, HandClock, new_metadata, turns

pytestmark = pytest.mark.anyio

ALL = Budget(records_max=10**6, bytes_max=10**9)
NOW = Wait()
LONG = Wait(max_wait_s=3600)
SEEDS = itertools.count()


class Cloud:
    """The stores that all gateways share."""

    def __init__(self) -> None:
        self.metadata = FaultyMetadata(new_metadata())
        self.objects = TestObjects()

    def gateway(self, clock: Clock | None = None, **settings: object) -> Gateway:
        clock = clock or Clock()
        chance = random.Random(next(SEEDS))
        world = World(
            now_ms=clock.now_ms,
            monotonic_s=clock.monotonic_s,
            sleep=clock.sleep,
            random=chance.random,
            random_bytes=chance.randbytes,
        )
        given = Settings.model_validate({"linger_max_ms": 3_600_000, **settings})
        return Gateway(given, Zones({"a": self.objects}), self.metadata, world)


async def produce(gateway: Gateway, *values: bytes, partition: int = 0) -> int:
    batch = batch_of(*values)
    placed = await gateway.produce("t", batch, batch.nbytes, partition)
    return placed[partition][0]


async def fetch(
    gateway: Gateway, offset: int, wait: Wait = NOW, budget: Budget = ALL, partition: int = 0
) -> FetchResult:
    return await gateway.fetch("t", partition, Position(offset=offset), budget, wait)


def values_of(result: FetchResult) -> list[bytes]:
    return [v for _, batch in result.fetched.batches(10**9) for v in batch.column(2).to_pylist()]


async def is_done(task: "asyncio.Task[FetchResult]") -> bool:
    await turns()
    return task.done()


# Producing and fetching


async def test_what_one_gateway_acknowledged_every_gateway_reads() -> None:
    cloud = Cloud()
    several = [cloud.gateway() for _ in range(3)]
    await several[0].topics.create("t")

    for number in range(12):
        assert await produce(several[number % 3], b"%d" % number) == number
        for gateway in several:
            result = await fetch(gateway, number)
            assert values_of(result) == [b"%d" % number]
            assert result.high_watermark == number + 1
    assert values_of(await fetch(several[0], 0)) == [b"%d" % n for n in range(12)]


async def test_a_fetch_that_reaches_the_end_of_an_old_view_looks_again() -> None:
    cloud = Cloud()
    ours, theirs = cloud.gateway(), cloud.gateway()
    await ours.topics.create("t")
    await produce(ours, b"0")
    await fetch(ours, 0)
    await produce(theirs, b"1")

    result = await fetch(ours, 0)

    assert result.high_watermark == 2


async def test_records_are_spread_and_keys_keep_their_partition() -> None:
    cloud = Cloud()
    gateway = cloud.gateway()
    await gateway.topics.create("t", partitions=4)
    batch = record_batch(range(40), [b"k%d" % (n % 5) for n in range(40)], [b""] * 40)

    first = await gateway.produce("t", batch, batch.nbytes, None)
    second = await cloud.gateway().produce("t", batch, batch.nbytes, None)

    assert sum(count for _, count in first.values()) == 40
    assert {p: count for p, (_, count) in first.items()} == {
        p: base for p, (base, _) in second.items()
    }


async def test_produce_later_chooses_now_and_writes_when_called() -> None:
    gateway = Cloud().gateway()
    await gateway.topics.create("t", partitions=2)
    batch = batch_of(b"a", b"b")

    counts, append = await gateway.produce_later("t", batch, batch.nbytes, 1)
    assert counts == {1: 2}
    assert (await fetch(gateway, 0, partition=1)).high_watermark == 0
    await append()

    assert values_of(await fetch(gateway, 0, partition=1)) == [b"a", b"b"]


async def test_a_compacted_topic_wants_keys_and_says_which_record_has_none() -> None:
    gateway = Cloud().gateway()
    await gateway.topics.create("t", config={"cleanup.policy": "compact"})
    batch = record_batch([0, 0], [b"k", None], [b"", b""])

    with pytest.raises(InvalidRecord, match=r"records\[1\]: .* needs a key"):
        await gateway.produce("t", batch, batch.nbytes, None)


async def test_log_append_time_is_the_gateways() -> None:
    clock = Clock()
    gateway = Cloud().gateway(clock)
    await gateway.topics.create("t", config={"message.timestamp.type": "LogAppendTime"})
    batch = batch_of(b"a", stamps=[5])
    await gateway.produce("t", batch, batch.nbytes, 0)

    [(_, stored)] = (await fetch(gateway, 0)).fetched.batches(10**9)

    assert stored.column(0).to_pylist() == [clock.now_ms()]


async def test_tailing_what_this_gateway_writes_reads_no_object() -> None:
    cloud = Cloud()
    gateway = cloud.gateway()
    await gateway.topics.create("t")

    for number in range(20):
        offset = await produce(gateway, b"%d" % number)
        assert values_of(await fetch(gateway, offset)) == [b"%d" % number]

    assert cloud.objects.calls["get_ranges"] == gateway.reader.store_reads == 0


async def test_readers_of_another_gateway_share_each_read() -> None:
    cloud = Cloud()
    writer, reader = cloud.gateway(), cloud.gateway()
    await writer.topics.create("t")
    await produce(writer, b"a")
    cloud.objects.read_gate = asyncio.Event()

    reading = [asyncio.create_task(fetch(reader, 0)) for _ in range(10)]
    await turns()
    reading[0].cancel()
    await turns()
    cloud.objects.read_gate.set()
    results = await asyncio.gather(*reading[1:])

    assert [values_of(each) for each in results] == [[b"a"]] * 9
    assert cloud.objects.calls["get_ranges"] == 1


async def test_damage_and_loss_are_reported_apart() -> None:
    cloud = Cloud()
    writer = cloud.gateway()
    await writer.topics.create("t")
    await produce(writer, b"a")
    [segment] = cloud.objects.names(".seg")

    cloud.objects.damage(segment, 12)
    with pytest.raises(Corrupt):
        await fetch(cloud.gateway(), 0)
    await cloud.objects.lose(segment)
    with pytest.raises(ObjectMissing):
        await fetch(cloud.gateway(), 0)


async def test_when_the_bucket_is_away_nothing_is_written_and_all_is_well_afterwards() -> None:
    cloud = Cloud()
    gateway = cloud.gateway()
    await gateway.topics.create("t")
    cloud.objects.failing_puts = 1

    with pytest.raises(StoreUnavailable):
        await produce(gateway, b"lost")

    assert await produce(gateway, b"a") == 0
    assert values_of(await fetch(gateway, 0)) == [b"a"]


# Positions


async def test_positions_in_time() -> None:
    cloud = Cloud()
    gateway = cloud.gateway()
    await gateway.topics.create("t")
    for stamps in ([-5, 10], [0, 30], [20, 40]):
        batch = batch_of(b"x", b"y", stamps=stamps)
        await gateway.produce("t", batch, batch.nbytes, 0)

    expected = {"earliest": (0, -1), "latest": (6, -1), 0: (1, 10), 11: (3, 30), 31: (5, 40)}
    for at, offset in expected.items():
        assert await gateway.offset_at("t", 0, at) == offset  # type: ignore[arg-type]
    assert await gateway.offset_at("t", 0, 41) == (6, -1)
    result = await gateway.fetch("t", 0, Position(at=0), ALL, NOW)
    assert result.fetched.start_offset == 1
    result = await gateway.fetch("t", 0, Position(at="latest"), ALL, NOW)
    assert (result.fetched.start_offset, values_of(result)) == (6, [])
    assert len(values_of(await gateway.fetch("t", 0, Position(), ALL, NOW))) == 6


async def test_offsets_outside_the_log_are_refused_by_what_the_log_is_now() -> None:
    cloud = Cloud()
    ours, theirs = cloud.gateway(), cloud.gateway()
    await ours.topics.create("t")
    await produce(ours, b"0")

    with pytest.raises(OffsetOutOfRange, match="offset 2 is outside"):
        await fetch(ours, 2)
    await produce(theirs, b"1")
    assert values_of(await fetch(ours, 2)) == []


async def test_locates_the_stored_ranges_of_a_stretch() -> None:
    gateway = Cloud().gateway()
    await gateway.topics.create("t")
    for number in range(5):
        await produce(gateway, b"%d" % number, b"x")

    found = await gateway.locate("t", 0, 3, 7)
    assert [entry.base_offset for entry in found.entries] == [2, 4, 6]
    assert (found.head.next_offsets, found.local, found.next_offset) == ((10,), 0, 8)
    assert len((await gateway.locate("t", 0, None, None)).entries) == 5
    assert (await gateway.locate("t", 0, 10, None)).entries == []
    assert (await gateway.locate("t", 0, 1, None, 2)).next_offset == 4
    with pytest.raises(InvalidRequest, match="end: 2 is before offset 3"):
        await gateway.locate("t", 0, 3, 2)


async def test_partitions_say_where_they_begin_end_and_live() -> None:
    cloud = Cloud()
    gateway = cloud.gateway()
    await gateway.topics.create("t", partitions=3, config={"lane.partitions": 2})
    await produce(gateway, b"a", b"b", partition=2)

    infos = await gateway.partitions("t")

    assert [(i.partition, i.high_watermark, i.log_start_offset) for i in infos] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 2, 0),
    ]
    assert {i.leader for i in infos} == {"a"}
    assert infos[0].replicas == infos[0].isr == ["a"]
    assert infos[2].size_bytes > 0


# Waiting


async def test_a_fetch_at_the_end_waits_for_a_commit_of_its_gateway() -> None:
    gateway = Cloud().gateway(HandClock())
    await gateway.topics.create("t", partitions=2)
    waiting = asyncio.create_task(fetch(gateway, 0, LONG))
    assert not await is_done(waiting)

    await produce(gateway, b"other", partition=1)
    assert not await is_done(waiting)
    await produce(gateway, b"a")

    assert await is_done(waiting)
    assert values_of(await waiting) == [b"a"]


async def test_a_fetch_at_the_end_notices_a_commit_of_another_gateway() -> None:
    cloud, clock = Cloud(), HandClock()
    ours, theirs = cloud.gateway(clock, head_poll_ms=50), cloud.gateway()
    await theirs.topics.create("t")
    waiting = asyncio.create_task(fetch(ours, 0, LONG))
    await turns()
    await produce(theirs, b"a")

    await clock.advance(0.049)
    assert not await is_done(waiting)
    await clock.advance(0.001)

    assert await is_done(waiting)
    assert values_of(await waiting) == [b"a"]


async def test_a_fetch_waits_for_as_many_bytes_as_it_wants() -> None:
    gateway = Cloud().gateway(HandClock())
    await gateway.topics.create("t")
    await produce(gateway, b"a")
    small = (await fetch(gateway, 0)).fetched.size_bytes

    wait = Wait(min_bytes=2 * small + 1, max_wait_s=3600)
    waiting = asyncio.create_task(fetch(gateway, 0, wait))
    await produce(gateway, b"b")
    assert not await is_done(waiting)
    await produce(gateway, b"c")

    assert await is_done(waiting)
    assert values_of(await waiting) == [b"a", b"b", b"c"]
    assert values_of(await fetch(gateway, 3, Wait(min_bytes=0, max_wait_s=3600))) == []


async def test_a_fetch_that_read_too_little_reads_again_if_more_came_meanwhile() -> None:
    cloud, clock = Cloud(), HandClock()
    ours, theirs = cloud.gateway(clock, head_poll_ms=50), cloud.gateway()
    await ours.topics.create("t")
    await produce(ours, b"a")
    small = (await fetch(ours, 0)).fetched.size_bytes
    await produce(theirs, b"b")

    waiting = asyncio.create_task(fetch(ours, 0, Wait(min_bytes=3 * small, max_wait_s=3600)))
    assert not await is_done(waiting)
    await produce(theirs, b"c")
    await clock.advance(0.05)

    assert await is_done(waiting)
    assert values_of(await waiting) == [b"a", b"b", b"c"]


async def test_a_fetch_that_has_all_the_records_it_wants_does_not_wait_for_bytes() -> None:
    gateway = Cloud().gateway(HandClock())
    await gateway.topics.create("t")
    await produce(gateway, b"a", b"b")

    wait, budget = Wait(min_bytes=10**6, max_wait_s=3600), Budget(records_max=2, bytes_max=10**9)
    waiting = asyncio.create_task(fetch(gateway, 0, wait, budget))

    assert await is_done(waiting)
    assert values_of(await waiting) == [b"a", b"b"]


async def test_a_fetch_that_waited_long_enough_comes_back_with_what_there_is() -> None:
    gateway = Cloud().gateway()
    await gateway.topics.create("t")
    await produce(gateway, b"a")

    result = await fetch(gateway, 0, Wait(min_bytes=10**6, max_wait_s=0))

    assert values_of(result) == [b"a"]


async def test_waiting_readers_are_answered_when_the_gateway_drains() -> None:
    gateway = Cloud().gateway(HandClock())
    await gateway.topics.create("t")
    waiting = [asyncio.create_task(fetch(gateway, 0, LONG)) for _ in range(3)]
    await turns()

    gateway.drain()

    for each in waiting:
        assert await is_done(each)
        assert values_of(await each) == []
    late = asyncio.create_task(fetch(gateway, 0, LONG))
    assert await is_done(late)


async def test_closing_answers_what_is_held() -> None:
    cloud = Cloud()
    gateway = cloud.gateway(HandClock())
    await gateway.topics.create("t")
    waiting = asyncio.create_task(fetch(gateway, 0, LONG))
    await turns()
    cloud.objects.hold_puts = True
    producing = asyncio.create_task(produce(gateway, b"a"))
    await turns()

    closing = asyncio.create_task(gateway.aclose())
    await turns()
    assert not closing.done()
    cloud.objects.held[0].set()
    await closing

    assert await producing == 0
    assert await is_done(waiting)


async def test_several_lanes_are_waited_for_at_once() -> None:
    gateway = Cloud().gateway(HandClock())
    await gateway.topics.create("t", partitions=3, config={"lane.partitions": 1})
    watched = [(await fetch(gateway, 0, partition=p)).watch for p in range(3)]
    waiting = asyncio.create_task(gateway.changed(watched, 3600))
    await turns()
    assert not waiting.done()

    await produce(gateway, b"a", partition=1)
    await turns()

    assert waiting.done()
    await gateway.changed(watched, 3600)


# Topics that change under a gateway that has not heard of it


async def test_a_topic_deleted_elsewhere_is_unknown_here_and_forgotten() -> None:
    cloud = Cloud()
    ours, theirs = cloud.gateway(), cloud.gateway()
    await ours.topics.create("t")
    await produce(ours, b"a")
    batch = batch_of(b"spread")
    await ours.produce("t", batch, batch.nbytes, None)
    await theirs.topics.delete("t")

    with pytest.raises(UnknownTopicOrPartition, match="no topic 't'"):
        await produce(ours, b"b")

    assert not ours.lanes._kept
    assert not ours._spreaders
    with pytest.raises(UnknownTopicOrPartition):
        await fetch(ours, 0)


async def test_a_topic_recreated_elsewhere_is_written_and_read_at_once() -> None:
    cloud = Cloud()
    ours, theirs = cloud.gateway(), cloud.gateway()
    await ours.topics.create("t")
    await produce(ours, b"old")
    await theirs.topics.delete("t")
    await theirs.topics.create("t")

    assert await produce(ours, b"new") == 0
    assert values_of(await fetch(ours, 0)) == values_of(await fetch(theirs, 0)) == [b"new"]


async def test_partitions_added_elsewhere_are_written_and_read_at_once() -> None:
    cloud = Cloud()
    ours, theirs = cloud.gateway(), cloud.gateway()
    await ours.topics.create("t", partitions=1)
    await produce(ours, b"a")
    await theirs.topics.alter("t", partitions=70)

    for partition in (1, 63, 64, 69):
        assert await produce(ours, b"b", partition=partition) == 0
        assert values_of(await fetch(theirs, 0, partition=partition)) == [b"b"]
    with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 69, not 70"):
        await produce(ours, b"c", partition=70)


async def test_widening_keeps_the_order_of_what_is_in_the_air() -> None:
    cloud = Cloud()
    ours = cloud.gateway(batch_bytes_max=1)
    theirs = cloud.gateway()
    await ours.topics.create("t", partitions=1)
    await produce(ours, b"0")
    cloud.objects.hold_puts = True
    first = asyncio.create_task(produce(ours, b"1"))
    await turns()
    await theirs.topics.alter("t", partitions=2)
    # Makes the gateway notice that the topic has changed.
    elsewhere = asyncio.create_task(produce(ours, b"x", partition=1))
    await turns()
    second = asyncio.create_task(produce(ours, b"2"))
    await turns()

    for gate in reversed(cloud.objects.held):
        gate.set()
        await turns()

    assert [await first, await second, await elsewhere] == [1, 2, 0]


async def test_a_reader_that_waits_on_a_deleted_topic_gets_an_error() -> None:
    cloud, clock = Cloud(), HandClock()
    ours, theirs = cloud.gateway(clock), cloud.gateway()
    await ours.topics.create("t")
    waiting = asyncio.create_task(fetch(ours, 0, LONG))
    await turns()
    await theirs.topics.delete("t")

    await clock.advance(0.05)

    assert await is_done(waiting)
    with pytest.raises(UnknownTopicOrPartition):
        await waiting


async def test_a_partition_that_is_not_there_yet_or_any_more_is_no_crash() -> None:
    cloud = Cloud()
    gateway = cloud.gateway()
    topic = await gateway.topics.create("t", partitions=2)
    key = keys.head(topic.topic_id, 0)
    item = await cloud.metadata.get(key)
    assert item is not None
    narrow = heads.create(topic.topic_id, 0, 1, ["a"])
    await cloud.metadata.transact([Put(key, heads.encode(narrow), item.version)])

    with pytest.raises(Contended, match="being added"):
        await fetch(gateway, 0, partition=1)
    with pytest.raises(Contended, match="being added"):
        await gateway.partitions("t")
    item = await cloud.metadata.get(key)
    assert item is not None
    await cloud.metadata.transact([Delete(key, item.version)])
    with pytest.raises(HeadMissing, match="exists, but the metadata table has lost"):
        await produce(gateway, b"a")
    with pytest.raises(HeadMissing):
        await fetch(gateway, 0)
    with pytest.raises(HeadMissing):  # A new head would say that nothing was ever written.
        await gateway.topics.alter("t", partitions=3)
    await cloud.gateway().topics.delete("t")
    with pytest.raises(UnknownTopicOrPartition):
        await produce(gateway, b"a")


@pytest.mark.parametrize("seed", range(4))
async def test_a_long_random_run_of_several_gateways_is_what_a_list_would_be(seed: int) -> None:
    chance = random.Random(seed)
    cloud = Cloud()
    several = [cloud.gateway(slice_cache_bytes=chance.choice([1, 2000, 10**6])) for _ in range(3)]
    await several[0].topics.create("t", partitions=3, config={"lane.partitions": 2})
    model: dict[int, list[bytes]] = {p: [] for p in range(3)}

    for step in range(150):
        gateway, partition = chance.choice(several), chance.randrange(3)
        if chance.random() < 0.6:
            values = [chance.randbytes(chance.randint(0, 30)) for _ in range(chance.randint(1, 4))]
            assert await produce(gateway, *values, partition=partition) == len(model[partition])
            model[partition] += values
            continue
        offset = chance.randint(0, len(model[partition]))
        budget = Budget(
            records_max=chance.choice([1, 5, 1000]), bytes_max=chance.choice([1, 10**6])
        )
        result = await fetch(gateway, offset, NOW, budget, partition)
        got = values_of(result)
        assert got == model[partition][offset : offset + len(got)], step
        assert result.high_watermark >= offset + len(got)
        assert got or offset == len(model[partition])


async def test_records_go_where_each_of_them_asks_to_go() -> None:
    gateway = Cloud().gateway()
    await gateway.topics.create("t", partitions=5)
    batch: pa.RecordBatch = batch_of(*(b"%d" % n for n in range(100)))

    placed = await gateway.produce("t", batch, batch.nbytes, [n % 5 for n in range(100)])

    assert placed == dict.fromkeys(range(5), (0, 20))
    for partition in range(5):
        values = values_of(await fetch(gateway, 0, partition=partition))
        assert values == [b"%d" % n for n in range(partition, 100, 5)]
