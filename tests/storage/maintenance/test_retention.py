"""Retention by age and by size, and how log starts move while others write."""

import asyncio
import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import keys
from storage.errors import Contended, OffsetOutOfRange
from storage.formats.entries import Entry, Kind
from storage.head import head as heads
from storage.head.head import Head
from storage.maintenance import trimming
from storage.maintenance.retention import Policy, expired, policy_of
from storage.maintenance.trimming import Trimmed, Trimming
from storage.reading import catalog as catalogs
from storage.reading.catalog import Catalog
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Op, Put
from storage.topics.config import TopicConfig
from tests.storage.helpers.faults import Fault, FaultyMetadata
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.replicated import ReplicatedLane
from tests.storage.helpers.worlds import TOPIC_ID, new_ids, new_metadata

KEY = keys.head(TOPIC_ID, 0)
DAY_MS = 86_400_000


def entry(end_offset: int, length: int, max_ms: int, count: int = 1) -> Entry:
    return Entry(0, end_offset, count, Kind.ARROW, b"o" * 16, 0, length, 0, max_ms, 0, 1)


def kept(
    log: Sequence[Entry], policy: Policy, now_ms: int, size_bytes: int | None = None
) -> list[int]:
    total = sum(each.length for each in log) if size_bytes is None else size_bytes
    end = log[-1].end_offset if log else 0
    going = expired(log, policy, size_bytes=total, end_offset=end, now_ms=now_ms)
    return [each.end_offset for each in log[len(going) :]]


def test_the_policy_follows_the_settings_of_the_topic() -> None:
    assert policy_of(TopicConfig({})) == Policy(age_ms_max=7 * DAY_MS)
    assert policy_of(TopicConfig({"retention.ms": "-1"})) is None
    assert policy_of(TopicConfig({"cleanup.policy": "compact"})) is None
    both = TopicConfig({"cleanup.policy": "compact,delete", "retention.bytes": "9"})
    assert policy_of(both) == Policy(age_ms_max=7 * DAY_MS, size_bytes_min=9)


def test_a_young_record_protects_all_records_after_it() -> None:
    log = [entry(1, 10, 100), entry(2, 10, 200), entry(3, 10, 100), entry(4, 10, 300)]

    assert kept(log, Policy(age_ms_max=50), 150) == [1, 2, 3, 4]
    assert kept(log, Policy(age_ms_max=50), 151) == [2, 3, 4]
    assert kept(log, Policy(age_ms_max=50), 251) == [4]
    assert kept(log, Policy(age_ms_max=50), 351) == []
    assert kept(log, Policy(age_ms_max=0), 300) == [4]


def test_retention_by_size_leaves_at_least_retention_bytes() -> None:
    log = [entry(n, 10, 0) for n in range(1, 6)]

    assert kept(log, Policy(size_bytes_min=50), 0) == [1, 2, 3, 4, 5]
    assert kept(log, Policy(size_bytes_min=41), 0) == [1, 2, 3, 4, 5]
    assert kept(log, Policy(size_bytes_min=40), 0) == [2, 3, 4, 5]
    assert kept(log, Policy(size_bytes_min=11), 0) == [4, 5]
    assert kept(log, Policy(size_bytes_min=0), 0) == [5]


def test_age_and_size_both_apply() -> None:
    log = [entry(1, 10, 500), entry(2, 10, 100), entry(3, 10, 500), entry(4, 10, 500)]

    assert kept(log, Policy(age_ms_max=100, size_bytes_min=30), 300) == [3, 4]


class Lane:
    """One lane in a table, with runs but without their objects: no test here reads records."""

    def __init__(self, partitions: int = 1, metadata: MemoryMetadata | None = None) -> None:
        self._written = ReplicatedLane("a", partitions=partitions)
        self.catalog = Catalog(self._written.zones, new_ids(7), 1 << 20)
        self.table = metadata or new_metadata()
        self.metadata = FaultyMetadata(self.table)
        self.head = self._written.head
        self.logs: list[list[Entry]] = [[] for _ in range(partitions)]
        self._ids = new_ids(9)

    async def save(self) -> None:
        item = await self.table.get(KEY)
        version = None if item is None else item.version
        await self.table.transact([Put(KEY, heads.encode(self.head), version)])

    async def load(self) -> Head:
        item = await self.table.get(KEY)
        assert item is not None
        self.head = heads.decode(item.value)
        return self.head

    async def append(self, stamps: Mapping[int, Sequence[int]]) -> None:
        """Add one run, 10 bytes a record, with these timestamps by partition."""
        counts = {p: len(each) for p, each in stamps.items()}
        spans = {p: (min(each), max(each)) for p, each in stamps.items()}
        self.head = heads.append(self.head, [run_of(self._ids(), counts, spans)])
        for entry in heads.all_entries(self.head):
            log = self.logs[entry.partition]
            if not log or entry.end_offset > log[-1].end_offset:
                log.append(entry)
        await self.save()

    async def roll(self) -> None:
        roll = await self.catalog.roll(self.head)
        self.head = heads.drop_runs(self.head, len(self.head.runs), roll.new_root)
        await self.save()

    async def expire(self, policy: Policy, now_ms: int) -> list[Trimmed]:
        plan = Trimming(self.catalog).expiring(policy, now_ms)
        told: list[Trimmed] = []
        await trimming.trim(self.metadata, KEY, plan, report=told.extend)
        await self.load()
        return told

    async def delete(self, before: Mapping[int, int | None]) -> None:
        await trimming.trim(self.metadata, KEY, Trimming(self.catalog).deleting(before))
        await self.load()

    def check_sizes(self) -> None:
        """Check that the sizes in the head are those of the live entries."""
        for p, log in enumerate(self.logs):
            live = [each for each in log if each.end_offset > self.head.log_starts[p]]
            assert self.head.sizes[p] == sum(each.length for each in live)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.dictionaries(
                st.integers(0, 1), st.lists(st.integers(0, 100), min_size=1, max_size=3), min_size=1
            ),
        ),
        st.tuples(st.just("roll"), st.none()),
        st.tuples(st.just("age"), st.integers(0, 100)),
        st.tuples(st.just("size"), st.integers(0, 200)),
        st.tuples(st.just("delete"), st.tuples(st.integers(0, 1), st.integers(0, 40))),
    ),
    max_size=30,
)


@given(STEPS, st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_log_starts_after_any_history_agree_with_a_plain_list(
    steps: list[tuple[str, object]], at_once: int
) -> None:
    async def play() -> None:
        lane = Lane(partitions=2)
        await lane.save()
        starts = [0, 0]
        for name, value in steps:
            match name, value:
                case "append", dict(stamps):
                    await lane.append(stamps)
                case "roll", _:
                    if lane.head.runs:
                        await lane.roll()
                case "age", int(now_ms):
                    await lane.expire(Policy(age_ms_max=20), now_ms)
                    starts = [aged(lane.logs[p], starts[p], now_ms - 20) for p in range(2)]
                case "size", int(size_bytes):
                    await lane.expire(Policy(size_bytes_min=size_bytes), 0)
                    starts = [cut(lane.logs[p], starts[p], size_bytes) for p in range(2)]
                case "delete", (int(p), int(offset)):
                    offset = min(offset, lane.head.next_offsets[p])
                    await lane.delete({p: offset})
                    starts[p] = max(starts[p], offset)
            assert lane.head.log_starts == tuple(starts)
            lane.check_sizes()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogs, "FANOUT", 3)
        patch.setattr(trimming, "STEP_ENTRIES_MAX", at_once)
        asyncio.run(play())


def aged(log: Sequence[Entry], start: int, limit_ms: int) -> int:
    for each in log:
        if each.end_offset <= start:
            continue
        if each.max_ms >= limit_ms:
            return start
        start = each.end_offset
    return start


def cut(log: Sequence[Entry], start: int, size_bytes: int) -> int:
    live = [each for each in log if each.end_offset > start]
    while len(live) > 1 and sum(each.length for each in live[1:]) >= size_bytes:
        start = live.pop(0).end_offset
    return start


pytest_async = pytest.mark.anyio


@pytest_async
async def test_a_dry_run_predicts_the_log_starts_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trimming, "STEP_ENTRIES_MAX", 4)
    lane = Lane(partitions=2)
    for number in range(20):
        await lane.append({number % 2: [number]})
    before = await lane.load()
    plan = Trimming(lane.catalog).expiring(Policy(age_ms_max=5), 20)

    head, foreseen = await trimming.foresee(before, plan)

    assert await lane.load() == before
    told = await lane.expire(Policy(age_ms_max=5), 20)
    assert (head.log_starts, head.sizes) == (lane.head.log_starts, lane.head.sizes)
    assert len(told) > len(foreseen) == 2
    assert [(each.before, each.after, each.size_bytes) for each in foreseen] == [
        (0, 8, 80),
        (0, 7, 70),
    ]


@pytest_async
async def test_trimming_succeeds_while_appends_and_rolls_go_on() -> None:
    lane = Lane()
    chance = random.Random(3)
    for number in range(200):
        await lane.append({0: [number]})

    class Racing(FaultyMetadata):
        """A table in which another writer is often faster."""

        async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
            if chance.random() < 0.7:
                await lane.load()
                await lane.append({0: [1000]})
                if chance.random() < 0.5:
                    await lane.roll()
            return await super().transact(ops)

    lane.metadata = Racing(lane.table)
    told = await lane.expire(Policy(age_ms_max=50), 200)

    assert lane.head.log_starts == (150,)
    assert sum(each.offsets for each in told) == 150
    lane.check_sizes()


@pytest_async
@pytest.mark.parametrize("fault", ["request lost", "reply lost"])
async def test_a_trim_whose_reply_is_lost_takes_effect(fault: Fault) -> None:
    lane = Lane()
    for number in range(10):
        await lane.append({0: [number]})
    lane.metadata.faults = [fault]

    await lane.expire(Policy(age_ms_max=0), 5)

    assert lane.head.log_starts == (5,)
    lane.check_sizes()


@pytest_async
async def test_a_log_start_never_moves_back_or_beyond_the_end() -> None:
    lane = Lane()
    for _ in range(4):
        await lane.append({0: [0, 0, 0]})
    await lane.delete({0: 5})
    assert (lane.head.log_starts, lane.head.sizes) == ((5,), (90,))

    await lane.delete({0: 4})
    assert (lane.head.log_starts, lane.head.sizes) == ((5,), (90,))
    with pytest.raises(OffsetOutOfRange):
        await lane.delete({0: 13})
    await lane.delete({0: None})
    assert (lane.head.log_starts, lane.head.sizes) == ((12,), (0,))
    await lane.append({0: [0]})
    assert lane.head.sizes == (10,)


@pytest_async
async def test_deleting_everything_keeps_records_appended_during_the_delete() -> None:
    lane = Lane()
    await lane.append({0: [0, 0]})

    class Faster(FaultyMetadata):
        async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
            if len(lane.logs[0]) == 1:
                await lane.append({0: [7]})
            return await super().transact(ops)

    lane.metadata = Faster(lane.table)
    await lane.delete({0: None})

    assert (lane.head.log_starts, lane.head.sizes) == ((2,), (10,))


@pytest_async
async def test_a_trim_whose_index_always_changes_is_contended() -> None:
    lane = Lane()
    await lane.append({0: [0, 0]})

    class Rolling(FaultyMetadata):
        async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
            await lane.load()
            await lane.append({0: [0]})
            await lane.roll()
            return await super().transact(ops)

    lane.metadata = Rolling(lane.table)
    with pytest.raises(Contended):
        await lane.delete({0: 1})


@pytest_async
async def test_a_missing_lane_has_nothing_to_trim() -> None:
    lane = Lane()

    plan = Trimming(lane.catalog).deleting({0: None})

    assert await trimming.trim(lane.table, KEY, plan) is None
