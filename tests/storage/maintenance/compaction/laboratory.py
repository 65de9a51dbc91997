"""A whole deployment in one process; its topics are really written, compacted and read."""

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from storage import keys
from storage.cas import Transact
from storage.crypto.keyring import Keyring
from storage.formats.records import record_batch
from storage.head import head as heads
from storage.head.changes import change_head
from storage.head.head import Head
from storage.head.replication import zones_named
from storage.lanes import building as writer
from storage.lanes.building import LanePart
from storage.maintenance.compaction import job, tasks
from storage.maintenance.compaction.plan import MIB, CompactionOptions
from storage.maintenance.compaction.summary import Summary
from storage.maintenance.compaction.swap import Swapper
from storage.maintenance.compaction.typed import DataSchemas
from storage.reading.catalog import Catalog
from storage.reading.fetched import Budget
from storage.reading.reader import LogReader
from storage.stores.metadata import MetadataStore, Put
from storage.topics.config import TopicConfig
from storage.topics.items import Topic
from storage.zones.zones import Zones
from tests.storage.helpers.failing_zones import FailingZones
from tests.storage.helpers.worlds import new_ids, new_metadata

Record = tuple[bytes | None, bytes | None]
"""Key and value."""

Read = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""

SOME = Budget(records_max=50, bytes_max=10**9)
DAY_MS = 86_400_000


class TestWorld:
    """Time that a test moves, and random identifiers."""

    __test__ = False

    def __init__(self, seed: int = 0) -> None:
        self.now = 1_000_000_000_000
        self._new_id = new_ids(seed)

    @property
    def now_ms(self) -> Callable[[], int]:
        return lambda: self.now

    @property
    def random_bytes(self) -> Callable[[int], bytes]:
        return lambda size: self._new_id()[:size]

    def new_id(self) -> bytes:
        return self.now.to_bytes(6) + self._new_id()[6:]


@dataclass(frozen=True)
class TestStores:
    __test__ = False

    zones: Zones
    world: TestWorld
    keyring: Keyring | None = None
    schemas: DataSchemas | None = None


class LocalWork:
    """Tasks one after the other, in the test's own event loop."""

    def __init__(self, stores: TestStores, parallelism: int = 2) -> None:
        self.stores = stores
        self.parallelism = parallelism
        self.payloads: list[bytes] = []
        self.shuffles = 0
        self.before_result: Callable[[], Awaitable[None]] | None = None

    async def __call__(self, size_bytes: int) -> "LocalWork":
        return self

    async def run(self, payloads: Sequence[bytes]) -> AsyncIterator[tuple[int, bytes]]:
        for number, payload in reversed(list(enumerate(payloads))):
            self.payloads.append(payload)
            result = await tasks.run(self.stores, payload)
            await self._pause()
            yield number, result

    async def shuffle(self, payloads: Sequence[bytes]) -> AsyncIterator[tuple[int, bytes]]:
        self.shuffles += 1
        found = [b for p in payloads async for b in tasks.spread(self.stores, p)]
        buckets = _grouped(found)
        spread = [
            batch
            for bucket, table in buckets.items()
            async for batch in tasks.regroup(self.stores, bucket, table)
        ]
        for number, table in _grouped(spread).items():
            result = await tasks.gather(payloads, self.stores, number, table)
            await self._pause()
            yield number, result

    async def _pause(self) -> None:
        if self.before_result is not None:
            await self.before_result()


def _grouped(batches: Sequence[pa.RecordBatch]) -> dict[int, pa.Table]:
    groups: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for batch in batches:
        numbers = batch.column("group").to_pylist()
        for group in set(numbers):
            groups[group].append(batch.filter(pa.array([each == group for each in numbers])))
    return {group: pa.Table.from_batches(found) for group, found in groups.items()}


class Laboratory:
    def __init__(
        self,
        *,
        zones: str = "a",
        root: Path | None = None,
        metadata: MetadataStore | None = None,
        seed: int = 0,
    ) -> None:
        self.zones = FailingZones(zones, root)
        self.metadata = metadata or new_metadata()
        self.world = TestWorld(seed)
        self.chance = random.Random(seed)
        self.catalog = Catalog(self.zones, self.world.new_id, 1 << 24)
        self.work = LocalWork(TestStores(self.zones, self.world))
        self.appended: dict[tuple[str, int], list[Record]] = defaultdict(list)
        """By topic and partition: every record that was ever appended, at its offset."""

    async def create(
        self, name: str = "t", partitions: int = 1, *, lane_partitions: int = 64, **config: object
    ) -> Topic:
        given = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = Topic(
            name=name,
            topic_id=self.world.new_id(),
            partition_count=partitions,
            replication_factor=len(self.zones.names),
            config=TopicConfig(given),
            created_ms=0,
            version="",
            lane_partitions=lane_partitions,
        )
        for lane in topic.lanes:
            width = min(lane_partitions, partitions - lane * lane_partitions)
            head = heads.create(topic.topic_id, lane, width, self.zones.names)
            put = Put(keys.head(topic.topic_id, lane), heads.encode(head), None)
            await self.metadata.transact([put])
        return topic

    async def append(
        self, topic: Topic, records: Sequence[Record], partition: int = 0, zones: str | None = None
    ) -> None:
        """Write one object and commit it, as a gateway does."""
        await self.append_all(topic, {partition: records}, zones)

    async def append_all(
        self, topic: Topic, batches: Mapping[int, Sequence[Record]], zones: str | None = None
    ) -> None:
        """Write one object with records of several partitions of one lane, and commit it."""
        lane = topic.lane_of(min(batches))[0]
        first = lane * topic.lane_partitions
        head = await self.head(topic, lane)
        mask = head.isr if zones is None else zones_named(head, zones)
        parts = []
        for partition, records in batches.items():
            values = [record[1] for record in records]
            batch = record_batch(
                [self.world.now] * len(records), [record[0] for record in records], values
            )
            parts.append((partition - first, [batch], batch.nbytes))
        part = LanePart(
            topic_id=topic.topic_id,
            first_partition=first,
            codec="lz4",
            zones=mask,
            batches=parts,
        )
        built = writer.build(self.world.new_id(), [part])
        key = keys.hot_segment(built.runs[0].object_id)
        names = [name for n, name in enumerate(head.zones) if mask >> n & 1]
        await self.zones.put_widely(key, built.pieces, names)
        head_key = keys.head(topic.topic_id, lane)
        sent = built.runs[0].object_id

        def change(head: Head) -> Head:
            if any(run.object_id == sent for run in head.runs):
                return head
            return heads.append(head, built.runs)

        await change_head(self.metadata, head_key, change)
        for partition, records in batches.items():
            self.appended[topic.name, partition] += records

    async def roll(self, topic: Topic, lane: int = 0) -> None:
        head = await self.head(topic, lane)
        if not head.runs:
            return
        roll = await self.catalog.roll(head)

        def change(now: Head) -> Head:
            count = roll.run_count - (now.run_count - len(now.runs))
            if now.root != roll.old_root or not 0 < count <= len(now.runs):
                return now
            return heads.append(heads.drop_runs(now, count, roll.new_root), [])

        await change_head(self.metadata, keys.head(topic.topic_id, lane), change)

    async def head(self, topic: Topic, lane: int = 0) -> Head:
        item = await self.metadata.get(keys.head(topic.topic_id, lane))
        assert item is not None
        return heads.decode(item.value)

    async def change(self, topic: Topic, change: Callable[[Head], Head], lane: int = 0) -> None:
        await change_head(self.metadata, keys.head(topic.topic_id, lane), change)

    async def hide(self, topic: Topic, offset: int, partition: int = 0) -> None:
        """Move the log start, as retention does, and the size with it."""
        lane, number = topic.lane_of(partition)
        head = await self.head(topic, lane)
        gone, position = 0, head.log_starts[number]
        # The catalog returns the entries of one page at a time.
        while position < offset and (
            entries := await self.catalog.after(head, number, position, 10**6)
        ):
            gone += sum(entry.length for entry in entries if entry.end_offset <= offset)
            position = entries[-1].end_offset

        def change(head: Head) -> Head:
            starts, sizes = list(head.log_starts), list(head.sizes)
            starts[number], sizes[number] = offset, max(0, sizes[number] - gone)
            return msgspec.structs.replace(
                head,
                commits=head.commits + 1,
                log_starts=tuple(starts),
                sizes=tuple(sizes),
            )

        await self.change(topic, change, lane)

    def swapper(
        self,
        *,
        catalog: Catalog | None = None,
        metadata: MetadataStore | None = None,
        transact: Transact | None = None,
    ) -> Swapper:
        async def sleep(_: float) -> None:
            await asyncio.sleep(0)

        metadata = metadata or self.metadata
        return Swapper(
            catalog=catalog or self.catalog,
            zones=self.zones,
            metadata=metadata,
            transact=transact or metadata.transact,
            sleep=sleep,
            random=self.chance.random,
        )

    def options(self, **given: int) -> CompactionOptions:
        return CompactionOptions(
            **{"now_ms": self.world.now, "force": True, "range_bytes_min": MIB, **given}  # type: ignore[arg-type]
        )

    async def compact(
        self, *topics: Topic, swapper: Swapper | None = None, **given: int
    ) -> Summary:
        return await job.compact(
            swapper or self.swapper(),
            topics,
            self.work,
            self.options(**given),
            monotonic_s=lambda: 0.0,
        )

    async def read(self, topic: Topic, partition: int = 0) -> list[Read]:
        """Return the log of a partition as a reader without a cache sees it."""
        lane, number = topic.lane_of(partition)
        head = await self.head(topic, lane)
        catalog = Catalog(self.zones, self.world.new_id, 0)
        reader = LogReader(self.zones, catalog, 0)
        found: list[Read] = []
        offset = head.log_starts[number]
        while offset < head.next_offsets[number]:
            fetched = await reader.fetch(head, number, offset, SOME)
            for offsets, batch in fetched.batches(10**9):
                columns = (batch.column(1).to_pylist(), batch.column(2).to_pylist())
                found += list(zip(offsets, *columns, strict=True))
            assert fetched.end_offset > offset
            offset = fetched.end_offset
        return found

    def log(self, topic: Topic, partition: int = 0, start: int = 0) -> list[Read]:
        """Return the appended records from offset `start` on."""
        records = self.appended[topic.name, partition]
        return [(n, *record) for n, record in enumerate(records) if n >= start]

    async def size(self, topic: Topic, partition: int = 0) -> int:
        """Return the size of the live log as the index has it."""
        lane, number = topic.lane_of(partition)
        head = await self.head(topic, lane)
        total, offset = 0, head.log_starts[number]
        while entries := await self.catalog.after(head, number, offset):
            total += sum(entry.length for entry in entries)
            offset = entries[-1].end_offset
        return total

    async def stored(self, ending: str, zone: str = "a") -> set[str]:
        return {key for key in await self.zones[zone].keys() if key.endswith(ending)}


def last_of_each_key(log: Sequence[Read], end: int, start: int = 0) -> list[Read]:
    """Return the records that a compaction of the offsets up to `end` keeps."""
    last = {key: offset for offset, key, _ in log if start <= offset < end and key is not None}
    return [
        (offset, key, value)
        for offset, key, value in log
        if offset >= start and (offset >= end or key is None or last[key] == offset)
    ]


def keyed_records(chance: random.Random, count: int, key_count: int = 10) -> list[Record]:
    return [
        (
            b"key-%d" % chance.randrange(key_count),
            None if chance.random() < 0.2 else chance.randbytes(chance.randint(0, 40)),
        )
        for _ in range(count)
    ]


def numbered_records(numbers: "itertools.count[int]", count: int) -> list[Record]:
    return [(b"k%d" % n, b"value-%d" % n) for n in itertools.islice(numbers, count)]
