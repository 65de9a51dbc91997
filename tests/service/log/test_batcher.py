"""The batcher's promises. Time never decides a result: gates and sizes do."""

import asyncio
import random
from collections.abc import Mapping, Sequence

import pytest

from service.log.batcher import Batcher, BatchLimits
from storage.errors import (
    OutcomeUnknown,
    RiachoError,
    ShuttingDown,
    StoreUnavailable,
    UnknownTopicOrPartition,
)
from storage.formats import segments
from storage.lanes.lane import Lanes
from storage.reading.reader import Budget, LogReader
from storage.stores.metadata import Op, Versioned
from storage.topics.topics import Topic, Topics
from storage.zones.zones import Zones
from tests.storage.helpers.faults import FaultyMetadata, TestObjects, random_faults
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import Clock, new_ids, new_metadata, new_runtime, turns

pytestmark = pytest.mark.anyio

NEVER_S = 3600.0


class LaneGates(FaultyMetadata):
    """A table that keeps reads or commits of some lanes waiting, and fails commits of others."""

    def __init__(self) -> None:
        super().__init__(new_metadata())
        self.read_gates: dict[str, asyncio.Event] = {}
        self.commit_gates: dict[str, asyncio.Event] = {}
        self.refused: set[str] = set()

    async def get(self, key: str) -> Versioned | None:
        found = await super().get(key)
        if key[-5:] in self.read_gates:
            await self.read_gates[key[-5:]].wait()
        return found

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        lane = ops[0].key[-5:]
        if lane in self.commit_gates:
            await self.commit_gates[lane].wait()
        if lane in self.refused:
            raise StoreUnavailable("throttled")
        return await super().transact(ops)


class Stage:
    """A batcher on memory stores, and a way to read back what it wrote."""

    def __init__(
        self,
        *,
        batch_bytes_max: int = 1 << 30,
        linger_min_s: float = 0.0,
        linger_max_s: float = NEVER_S,
        flights_max: int = 4,
        metadata: FaultyMetadata | None = None,
        seed: int = 0,
    ) -> None:
        self.metadata = metadata or LaneGates()
        self.objects = TestObjects()
        self.clock = Clock()
        zones = Zones({"a": self.objects})
        runtime = new_runtime(self.metadata, self.objects, clock=self.clock, seed=seed)
        self.lanes = Lanes(runtime)
        self.reader = LogReader(zones, runtime.catalog, 1 << 20)
        self.topics = Topics(
            self.metadata, ["a"], new_ids(seed + 1), self.clock.now_ms, self.clock.monotonic_s
        )
        limits = BatchLimits(
            batch_bytes_max=batch_bytes_max,
            linger_min_s=linger_min_s,
            linger_max_s=linger_max_s,
            flights_max=flights_max,
        )
        self.batcher = Batcher(zones, self.lanes, self.reader, limits, new_ids(seed + 2))

    async def topic(self, partitions: int = 1, lane_partitions: int = 1) -> Topic:
        config = {"lane.partitions": lane_partitions}
        return await self.topics.create("t", partitions=partitions, config=config)

    async def append(self, topic: Topic, parts: dict[int, list[bytes]]) -> dict[int, int]:
        batches = {p: batch_of(*values) for p, values in parts.items()}
        size_bytes = sum(len(value) for values in parts.values() for value in values)
        return await self.batcher.append(topic, batches, size_bytes)

    def start(self, topic: Topic, parts: dict[int, list[bytes]]) -> "asyncio.Task[dict[int, int]]":
        return asyncio.create_task(self.append(topic, parts))

    async def values(self, topic: Topic, partition: int = 0) -> list[bytes]:
        number, local = topic.lane_of(partition)
        head = (await self.lanes.lane(topic.topic_id, number).view(0)).head
        found: list[bytes] = []
        while len(found) < head.next_offsets[local]:
            budget = Budget(records_max=10**6, bytes_max=10**9)
            fetched = await self.reader.fetch(head, local, len(found), budget)
            for _, batch in fetched.batches(10**9):
                found += batch.column(2).to_pylist()
        return found


async def test_what_arrives_together_shares_one_object_and_one_commit() -> None:
    stage = Stage()
    topic = await stage.topic(partitions=3, lane_partitions=3)
    stage.metadata.calls.clear()

    appends = [stage.start(topic, {n % 3: [b"%d" % n]}) for n in range(9)]
    bases = await asyncio.gather(*appends)

    assert bases == [{n % 3: n // 3} for n in range(9)]
    assert stage.objects.calls["put"] == stage.metadata.calls["transact"] == 1
    assert [await stage.values(topic, p) for p in range(3)] == [
        [b"0", b"3", b"6"],
        [b"1", b"4", b"7"],
        [b"2", b"5", b"8"],
    ]
    [name] = stage.objects.names(".seg")
    rows = segments.footer(await stage.objects.get(name))
    assert [(row.topic_id, row.partition, row.count) for row in rows] == [
        (topic.topic_id, p, 3) for p in range(3)
    ]


async def test_with_a_least_linger_arrivals_wait_for_company_though_nothing_is_in_the_air() -> None:
    stage = Stage(linger_min_s=0.02)
    topic = await stage.topic()

    first = stage.start(topic, {0: [b"a"]})
    for _ in range(20):
        await asyncio.sleep(0)
    waiting = stage.objects.calls["put"] == 0
    second = stage.start(topic, {0: [b"b"]})
    bases = await asyncio.gather(first, second)

    assert waiting
    assert bases == [{0: 0}, {0: 1}]
    assert stage.objects.calls["put"] == 1


async def test_the_least_linger_counts_also_if_it_is_longer_than_the_longest() -> None:
    stage = Stage(linger_min_s=NEVER_S, linger_max_s=0)
    topic = await stage.topic()
    append = stage.start(topic, {0: [b"a"]})
    for _ in range(20):
        await asyncio.sleep(0)
    waiting = stage.objects.calls["put"] == 0

    await stage.batcher.aclose()

    assert waiting
    assert await append == {0: 0}


async def test_closing_does_not_wait_for_company() -> None:
    stage = Stage(linger_min_s=NEVER_S)
    topic = await stage.topic()
    append = stage.start(topic, {0: [b"a"]})
    for _ in range(20):
        await asyncio.sleep(0)

    await stage.batcher.aclose()

    assert await append == {0: 0}


async def test_lanes_and_topics_share_an_object_too() -> None:
    stage = Stage()
    first = await stage.topic(partitions=2)
    second = await stage.topics.create("u")
    await stage.append(first, {0: [b"0"], 1: [b"0"]})
    await stage.append(second, {0: [b"0"]})
    stage.objects.calls.clear()

    bases = await asyncio.gather(
        stage.append(first, {1: [b"a", b"b"], 0: [b"c"]}), stage.append(second, {0: [b"d"]})
    )

    assert bases == [{1: 1, 0: 1}, {0: 1}]
    assert stage.objects.calls["put"] == 1
    assert await stage.values(first, 1) == [b"0", b"a", b"b"]
    assert await stage.values(second) == [b"0", b"d"]


async def test_nothing_to_append_is_done_at_once() -> None:
    stage = Stage()

    assert await stage.batcher.append(await stage.topic(), {}, 0) == {}
    assert stage.objects.calls["put"] == 0


async def test_alone_an_append_does_not_linger() -> None:
    stage = Stage(linger_max_s=NEVER_S)
    topic = await stage.topic()

    assert await asyncio.wait_for(stage.append(topic, {0: [b"a"]}), 10) == {0: 0}


async def test_while_a_flush_is_in_the_air_arrivals_gather_and_leave_when_it_lands() -> None:
    stage = Stage()
    topic = await stage.topic()
    stage.objects.hold_puts = True
    first = stage.start(topic, {0: [b"0"]})
    await turns()
    others = [stage.start(topic, {0: [b"%d" % n]}) for n in range(1, 6)]
    await turns()
    assert len(stage.objects.held) == 1

    stage.objects.held[0].set()
    await turns()
    assert await first == {0: 0}
    assert len(stage.objects.held) == 2
    stage.objects.held[1].set()

    assert await asyncio.gather(*others) == [{0: n} for n in range(1, 6)]


async def test_arrivals_do_not_wait_longer_than_the_linger() -> None:
    stage = Stage(linger_max_s=0)
    topic = await stage.topic()
    stage.objects.hold_puts = True
    stage.start(topic, {0: [b"0"]})
    await turns()

    stage.start(topic, {0: [b"1"]})
    await turns()

    assert len(stage.objects.held) == 2
    for gate in stage.objects.held:
        gate.set()
    await stage.batcher.aclose()


async def test_what_arrives_while_all_flights_are_in_the_air_shares_the_next() -> None:
    stage = Stage(linger_max_s=0, flights_max=2)
    topic = await stage.topic()
    stage.objects.hold_puts = True
    appends = []
    for number in range(6):
        appends.append(stage.start(topic, {0: [b"%d" % number]}))
        await turns()  # Each has lingered before the next one comes.
    assert len(stage.objects.held) == 2

    stage.objects.held[0].set()
    await turns()
    assert len(stage.objects.held) == 3
    for gate in stage.objects.held:
        gate.set()

    assert await asyncio.gather(*appends) == [{0: n} for n in range(6)]
    assert stage.batcher.flush_count == 3


async def test_a_full_batch_leaves_at_once_and_flights_are_bounded() -> None:
    stage = Stage(batch_bytes_max=10, flights_max=3)
    topic = await stage.topic()
    stage.objects.hold_puts = True

    appends = [stage.start(topic, {0: [b"%010d" % n]}) for n in range(7)]
    await turns()
    assert len(stage.objects.held) == 3

    for landed in range(7):
        stage.objects.held[landed].set()
        await turns()
        assert len(stage.objects.held) == min(7, landed + 4)
    assert await asyncio.gather(*appends) == [{0: n} for n in range(7)]
    assert stage.batcher.flush_count == 7


@pytest.mark.parametrize("seed", range(10))
async def test_puts_that_overtake_do_not_change_the_order_of_arrival(seed: int) -> None:
    chance = random.Random(seed)
    stage = Stage(batch_bytes_max=12, flights_max=4, seed=seed)
    topic = await stage.topic(partitions=4, lane_partitions=2)
    stage.objects.hold_puts = True
    appends, expected = [], {p: [] for p in range(4)}
    for number in range(60):
        parts = {}
        for partition in chance.sample(range(4), chance.randint(1, 3)):
            parts[partition] = [b"%d-%d" % (number, n) for n in range(chance.randint(1, 2))]
            expected[partition] += parts[partition]
        appends.append(stage.start(topic, parts))
        if chance.random() < 0.3:
            await turns(3)
        waiting = [gate for gate in stage.objects.held if not gate.is_set()]
        if waiting and chance.random() < 0.4:
            chance.choice(waiting).set()

    while not all(append.done() for append in appends):
        waiting = [gate for gate in stage.objects.held if not gate.is_set()]
        if waiting:
            chance.choice(waiting).set()
        await turns(5)

    for partition in range(4):
        assert await stage.values(topic, partition) == expected[partition]
    bases = [await append for append in appends]
    for partition in range(4):
        own = [base[partition] for base in bases if partition in base]
        assert own == sorted(own)


async def test_an_append_that_waits_for_one_head_is_not_overtaken_in_another_lane() -> None:
    stage = Stage()
    topic = await stage.topic(partitions=2)
    await stage.append(topic, {1: [b"0"]})
    assert isinstance(stage.metadata, LaneGates)
    gate = stage.metadata.read_gates["00000"] = asyncio.Event()

    first = stage.start(topic, {0: [b"a"], 1: [b"1"]})
    await turns()
    second = stage.start(topic, {1: [b"2"]})
    third = stage.start(topic, {1: [b"3"]})
    await turns()
    second.cancel()
    await turns()
    gate.set()
    await asyncio.gather(first, third)

    assert await stage.values(topic, 1) == [b"0", b"1", b"3"]
    assert stage.batcher._arriving._last == {}


async def test_heads_that_were_not_seen_lately_are_read_at_once() -> None:
    stage = Stage()
    topic = await stage.topic(partitions=6)
    assert isinstance(stage.metadata, LaneGates)
    gates = {f"{n:05d}": asyncio.Event() for n in range(6)}
    stage.metadata.read_gates = gates
    stage.metadata.calls.clear()

    append = stage.start(topic, {p: [b"a"] for p in range(6)})
    await turns()

    assert stage.metadata.calls["get"] == 6
    for gate in gates.values():
        gate.set()
    assert await append == dict.fromkeys(range(6), 0)
    assert await stage.append(topic, {p: [b"b"] for p in range(6)}) == dict.fromkeys(range(6), 1)
    assert stage.metadata.calls["get"] == 6


async def test_an_append_to_another_topic_does_not_wait_for_that_head() -> None:
    stage = Stage()
    topic, other = await stage.topic(), await stage.topics.create("u")
    await stage.append(other, {0: [b"0"]})
    assert isinstance(stage.metadata, LaneGates)
    gate = stage.metadata.read_gates["00000"] = asyncio.Event()
    blocked = stage.start(topic, {0: [b"a"]})
    await turns()

    assert await stage.append(other, {0: [b"1"]}) == {0: 1}

    gate.set()
    assert await blocked == {0: 0}


async def test_a_lane_that_is_slow_to_commit_does_not_hold_up_the_others() -> None:
    stage = Stage()
    topic = await stage.topic(partitions=2)
    assert isinstance(stage.metadata, LaneGates)
    gate = stage.metadata.commit_gates["00000"] = asyncio.Event()

    slow, quick = stage.start(topic, {0: [b"a"]}), stage.start(topic, {1: [b"b"]})
    await turns()

    assert quick.done()
    assert not slow.done()
    gate.set()
    assert await slow == {0: 0}


async def test_a_failed_put_writes_nothing_and_says_so() -> None:
    stage = Stage()
    topic = await stage.topic(partitions=2)
    stage.objects.failing_puts = 1

    appends = [stage.start(topic, {p: [b"lost"]}) for p in (0, 1)]
    results = await asyncio.gather(*appends, return_exceptions=True)

    assert [type(each) for each in results] == [StoreUnavailable] * 2
    assert await stage.append(topic, {0: [b"a"], 1: [b"b"]}) == {0: 0, 1: 0}
    assert await stage.values(topic, 0) == [b"a"]


async def test_a_failed_put_does_not_hold_up_those_behind_it() -> None:
    stage = Stage(batch_bytes_max=1, flights_max=3)
    topic = await stage.topic()
    stage.objects.hold_puts = True
    appends = [stage.start(topic, {0: [b"%d" % n]}) for n in range(3)]
    await turns()

    stage.objects.held[2].set()
    stage.objects.held[1].set()
    await turns()
    assert not any(append.done() for append in appends)
    stage.objects.failing_puts = 1
    stage.objects.held[0].set()

    results = await asyncio.gather(*appends, return_exceptions=True)
    assert isinstance(results[0], StoreUnavailable)
    assert results[1:] == [{0: 0}, {0: 1}]


@pytest.mark.parametrize("refused", ["00000", "00001"])
async def test_if_only_some_lanes_were_written_the_outcome_is_unknown(refused: str) -> None:
    stage = Stage()
    topic = await stage.topic(partitions=2)
    await stage.append(topic, {0: [b"0"], 1: [b"0"]})
    assert isinstance(stage.metadata, LaneGates)
    stage.metadata.refused = {refused}

    both = stage.start(topic, {0: [b"1"], 1: [b"1"]})
    one = stage.start(topic, {int(refused): [b"2"]})

    with pytest.raises(OutcomeUnknown, match="some partitions were written, others not: throttled"):
        await both
    with pytest.raises(StoreUnavailable):
        await one
    assert await stage.values(topic, 1 - int(refused)) == [b"0", b"1"]
    assert await stage.values(topic, int(refused)) == [b"0"]


async def test_if_no_lane_was_written_the_error_says_so() -> None:
    stage = Stage()
    topic = await stage.topic(partitions=2)
    await stage.append(topic, {0: [b"0"], 1: [b"0"]})
    assert isinstance(stage.metadata, LaneGates)
    stage.metadata.refused = {"00000", "00001"}

    with pytest.raises(StoreUnavailable):
        await stage.append(topic, {0: [b"1"], 1: [b"1"]})


async def test_a_caller_who_hangs_up_does_not_withdraw_the_record() -> None:
    stage = Stage()
    topic = await stage.topic()
    stage.objects.hold_puts = True
    impatient = stage.start(topic, {0: [b"a"]})
    patient = stage.start(topic, {0: [b"b"]})
    await turns()

    impatient.cancel()
    await turns()
    stage.objects.held[0].set()

    assert await patient == {0: 1}
    assert impatient.cancelled()
    assert await stage.values(topic) == [b"a", b"b"]


async def test_closing_answers_everything_and_takes_nothing_new() -> None:
    stage = Stage(batch_bytes_max=10, flights_max=1)
    topic = await stage.topic()
    stage.objects.hold_puts = True
    appends = [stage.start(topic, {0: [b"%010d" % n]}) for n in range(4)]
    appends.append(stage.start(topic, {0: [b"last"]}))
    await turns()

    closing = asyncio.create_task(stage.batcher.aclose())
    await turns()
    with pytest.raises(ShuttingDown):
        await stage.append(topic, {0: [b"too late"]})
    stage.objects.hold_puts = False
    stage.objects.held[0].set()
    await closing

    assert [append.done() for append in appends] == [True] * 5
    assert [await append for append in appends] == [{0: n} for n in range(5)]


async def test_an_append_to_a_deleted_topic_is_unknown_though_its_head_was_known() -> None:
    stage = Stage()
    topic = await stage.topic()
    await stage.append(topic, {0: [b"a"]})
    await stage.topics.delete("t")

    for _ in range(2):
        with pytest.raises(UnknownTopicOrPartition):
            await stage.append(topic, {0: [b"b"]})


async def test_a_partition_that_was_added_since_the_head_was_read_can_be_written() -> None:
    stage = Stage()
    topic = await stage.topic(partitions=1, lane_partitions=4)
    await stage.append(topic, {0: [b"a"]})

    wider = await stage.topics.alter("t", partitions=3)

    assert await stage.append(wider, {0: [b"b"], 2: [b"c"]}) == {0: 1, 2: 0}


async def test_large_flushes_are_encoded_off_the_loop_and_read_back_from_the_cache() -> None:
    stage = Stage()
    topic = await stage.topic()
    values = [bytes([n]) * 10_000 for n in range(50)]

    assert await stage.append(topic, {0: values}) == {0: 0}

    assert await stage.values(topic) == values
    assert stage.reader.store_reads == 0


@pytest.mark.parametrize("seed", range(15))
async def test_under_random_faults_every_outcome_is_reported_truly(seed: int) -> None:
    chance = random.Random(seed)
    table = FaultyMetadata(new_metadata())
    stage = Stage(batch_bytes_max=30, flights_max=3, metadata=table, seed=seed)
    topic = await stage.topic(partitions=4, lane_partitions=2)
    table.next_fault = random_faults(seed, 0.3)
    told: dict[tuple[int, bytes], int | RiachoError] = {}

    async def produce(number: int) -> None:
        parts = {p: [b"%d" % number] for p in chance.sample(range(4), chance.randint(1, 4))}
        try:
            bases = await stage.append(topic, parts)
        except RiachoError as error:
            told.update({(p, b"%d" % number): error for p in parts})
        else:
            told.update({(p, b"%d" % number): bases[p] for p in parts})

    waiting = []
    for number in range(80):
        stage.objects.failing_puts = chance.choice([0, 0, 0, 0, 1])
        waiting.append(asyncio.create_task(produce(number)))
        await turns(chance.choice([0, 1, 5]))
    await asyncio.gather(*waiting)
    await turns(200)
    table.next_fault = lambda: "none"

    stored = {p: await stage.values(topic, p) for p in range(4)}
    for values in stored.values():
        numbers = [int(value) for value in values]
        assert numbers == sorted(set(numbers))
    for (partition, value), outcome in told.items():
        if isinstance(outcome, int):
            assert stored[partition][outcome] == value
        elif not outcome.may_have_applied:
            assert value not in stored[partition]
