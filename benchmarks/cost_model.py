"""What produce and fetch cost on AWS: real calls, counted on memory stores, times list prices.

    python -m benchmarks.cost_model

Records are random bytes, so that compression changes nothing. Every row runs the real gateway
without HTTP until its index has rolled several times, counts what it asks of its stores, and
scales that to a GiB. Only the prices and the latencies of the stores are assumptions.
"""

import asyncio
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.harness import show
from service.log.gateway import Gateway
from service.settings import Settings
from service.world.clock import real_world
from storage.formats.records import record_batch
from storage.head import head as heads
from storage.reading.reader import Budget
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import Op, Put, Versioned, collection_of
from storage.stores.objects import Body
from storage.topics.topics import Topic
from storage.zones.zones import Zones

KIB, MIB, GIB = 1024, 1024**2, 1024**3
MONTH_S = 30 * 86_400

PUT_USD, GET_USD = 5 / 1e6, 0.4 / 1e6
WRITE_UNIT_USD, READ_UNIT_USD = 0.625 / 1e6, 0.125 / 1e6
"""S3 Standard and DynamoDB on demand in us-east-1. A write unit is a KB, a read unit 4 KB."""

PUT_S, TABLE_S = 0.060, 0.005
FLIGHT_S = PUT_S + TABLE_S

RECORD_BYTES = 1024
FLUSHES_MIN, FLUSHES_MAX = 40, 200
PRODUCED_MAX = 128 * MIB


class CountedObjects(MemoryObjects):
    """Counts requests. Segments need not be kept, since they are not read here."""

    def __init__(self, *, keep: bool) -> None:
        super().__init__()
        self.segment_puts = self.index_puts = self.segment_gets = self.index_gets = 0
        self._keep = keep

    async def put(self, key: str, body: Body) -> None:
        if key.endswith(".seg"):
            self.segment_puts += 1
            if not self._keep:
                return
        else:
            self.index_puts += 1
        await super().put(key, body)

    async def get(self, key: str) -> bytes:
        self.index_gets += 1
        return await super().get(key)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        # As `S3Objects` does: ranges less than 512 KiB apart are one request.
        self.segment_gets += 1
        body = await MemoryObjects.get(self, key)
        return [body[start:end] for start, end in ranges]


class CountedTable(MemoryMetadata):
    """Counts requests, and units as DynamoDB does."""

    reads = writes = read_units = write_units = 0

    async def get(self, key: str) -> Versioned | None:
        item = await super().get(key)
        self.reads += 1
        self.read_units += math.ceil(_item_bytes(key, item.value if item else b"") / 4096)
        return item

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        items = await super().get_many(keys)
        self.reads += 1
        for key in keys:
            held = items.get(key)
            self.read_units += math.ceil(_item_bytes(key, held.value if held else b"") / 4096)
        return items

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        found = await super().list(prefix, after=after, limit=limit)
        self.reads += 1
        size_bytes = sum(_item_bytes(key, item.value) for key, item in found)
        self.read_units += max(1, math.ceil(size_bytes / 4096))
        return found

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        # A write whose condition fails is paid for, too.
        self.writes += 1
        self.write_units += (1 if len(ops) == 1 else 2) * sum(map(self._write_units, ops))
        return await super().transact(ops)

    def _write_units(self, op: Op) -> int:
        held = self._items.get(op.key)
        sizes = [len(op.value)] if isinstance(op, Put) else []
        sizes += [len(held.value)] if held else []
        return math.ceil(_item_bytes(op.key, b"") / 1024 + max(sizes, default=0) / 1024)


def _item_bytes(key: str, value: bytes) -> int:
    """Return what DynamoDB counts for an item: names and values of its four attributes."""
    version_chars = 24
    return 6 + sum(map(len, collection_of(key))) + len(value) + version_chars


class Deployment:
    """One gateway and its stores."""

    def __init__(self, *, keep: bool = False) -> None:
        world = real_world()
        self.objects = CountedObjects(keep=keep)
        self.table = CountedTable(world.new_version)
        self.gateway = self.new_gateway()

    def new_gateway(self) -> Gateway:
        """Return another gateway on the same stores, with empty caches."""
        settings = Settings(batch_bytes_max=1024 * MIB)
        return Gateway(settings, Zones({"a": self.objects}), self.table, real_world())


def records(size_bytes: int) -> pa.RecordBatch:
    count = max(1, size_bytes // RECORD_BYTES)
    width = size_bytes // count
    blob = random.Random(size_bytes).randbytes(width * count)
    values = [blob[start : start + width] for start in range(0, len(blob), width)]
    return record_batch([1_700_000_000_000] * count, [None] * count, values)


@dataclass(frozen=True)
class PerFlush:
    """The requests of one flush, on average."""

    segment_puts: float
    index_puts: float
    writes: float
    write_units: float

    @property
    def usd(self) -> float:
        return (self.segment_puts + self.index_puts) * PUT_USD + self.write_units * WRITE_UNIT_USD


async def produce(deployment: Deployment, object_bytes: int, partitions: int) -> PerFlush:
    """Return the cost of flushes of `object_bytes` that touch all `partitions` evenly."""
    gateway, objects, table = deployment.gateway, deployment.objects, deployment.table
    topic = await gateway.topics.create("t", partitions=partitions)
    part = records(max(RECORD_BYTES // 8, object_bytes // partitions))
    parts = dict.fromkeys(range(partitions), part)
    flushes = max(FLUSHES_MIN, min(FLUSHES_MAX, PRODUCED_MAX // object_bytes))
    for _ in range(flushes // 4):  # Until heads are as large as they stay.
        await _flush(gateway, topic, parts, object_bytes)
    before = objects.segment_puts, objects.index_puts, table.writes, table.write_units
    for _ in range(flushes):
        await _flush(gateway, topic, parts, object_bytes)
    after = objects.segment_puts, objects.index_puts, table.writes, table.write_units
    return PerFlush(*((b - a) / flushes for a, b in zip(before, after, strict=True)))


async def _flush(
    gateway: Gateway, topic: Topic, parts: Mapping[int, pa.RecordBatch], size_bytes: int
) -> None:
    await gateway.batcher.append(topic, parts, size_bytes)
    await asyncio.sleep(0)  # Rolls run beside the commits.


async def produce_table() -> None:
    rows = []
    for partitions in (1, 64, 1000):
        for object_bytes in (64 * KIB, 512 * KIB, 4 * MIB, 8 * MIB):
            deployment = Deployment()
            cost = await produce(deployment, object_bytes, partitions)
            await deployment.gateway.aclose()
            scale = GIB / object_bytes
            rows.append(
                [
                    f"{partitions:,}",
                    _size(object_bytes),
                    f"{cost.segment_puts * scale:,.0f}",
                    f"{cost.index_puts * scale:,.0f}",
                    f"{cost.writes * scale:,.0f}",
                    f"{cost.write_units / cost.writes:.1f}",
                    f"{cost.usd * scale:.4f}",
                ]
            )
    show(
        "Produce, per GiB, by size of the objects",
        ["partitions", "object", "PUTs", "index PUTs", "table writes", "units each", "$ / GiB"],
        rows,
    )


async def inline_table() -> None:
    """Print the cost of a flush without its own PUT, by the size at which a head rolls."""
    rows = []
    kept = heads.INLINE_BYTES_MAX
    for limit in (1024, 2048, 4096, 8192):
        heads.INLINE_BYTES_MAX = limit  # type: ignore[misc]
        row = [f"{limit:,}"]
        for partitions in (1, 16, 64):
            deployment = Deployment()
            cost = await produce(deployment, 512 * KIB, partitions)
            await deployment.gateway.aclose()
            row.append(f"{(cost.usd - PUT_USD) * 1e6:.2f}")
        rows.append(row)
    heads.INLINE_BYTES_MAX = kept  # type: ignore[misc]
    show(
        "Index and table, $ per million flushes of 512 KiB, by INLINE_BYTES_MAX",
        ["inline bytes", "1 partition", "16 partitions", "64 partitions"],
        rows,
    )


async def rate_table() -> None:
    rows = []
    for gateways in (1, 4, 16):
        for rate in (0.1, 1, 10, 100):
            object_bytes = max(KIB, min(8 * MIB, int(rate * MIB * FLIGHT_S / gateways)))
            deployment = Deployment()
            cost = await produce(deployment, object_bytes, 64)
            await deployment.gateway.aclose()
            usd_per_gib = cost.usd * GIB / object_bytes
            rows.append(
                [
                    f"{gateways}",
                    f"{rate:g} MiB/s",
                    _size(object_bytes),
                    f"{rate * MIB / object_bytes:,.0f}",
                    f"{usd_per_gib:.4f}",
                    f"{usd_per_gib * rate / 1024 * MONTH_S:,.0f}",
                ]
            )
    show(
        f"Produce to 64 partitions at a constant rate, flights of {FLIGHT_S * 1000:.0f} ms",
        ["gateways", "rate, all", "object", "flushes/s, all", "$ / GiB", "$ / month"],
        rows,
    )


class SlowObjects(CountedObjects):
    async def put(self, key: str, body: Body) -> None:
        await asyncio.sleep(PUT_S)
        await super().put(key, body)


class SlowTable(CountedTable):
    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        await asyncio.sleep(TABLE_S)
        return await super().transact(ops)


async def linger_table(seconds: float = 3.0) -> None:
    rows = []
    for linger_ms in (10, 30, 100, 1000):
        world = real_world()
        objects = SlowObjects(keep=False)
        settings = Settings(linger_max_ms=linger_ms)
        table = SlowTable(world.new_version)
        gateway = Gateway(settings, Zones({"a": objects}), table, world)
        topic = await gateway.topics.create("t")
        part = {0: records(RECORD_BYTES)}
        calls: set[asyncio.Task[float]] = set()
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            calls.add(asyncio.create_task(_timed(gateway, topic, part)))
            await asyncio.sleep(0.002)
        latencies = sorted(await asyncio.gather(*calls))
        took = time.perf_counter() - began
        rows.append(
            [
                f"{linger_ms}",
                f"{objects.segment_puts / took:.0f}",
                f"{objects.segment_puts / took * MONTH_S * PUT_USD:,.0f}",
                f"{latencies[len(latencies) // 2] * 1000:.0f}",
                f"{latencies[len(latencies) * 99 // 100] * 1000:.0f}",
            ]
        )
        await gateway.aclose()
    show(
        f"linger_max_ms, one gateway, a record every 2 ms, flights of {FLIGHT_S * 1000:.0f} ms",
        ["linger_max_ms", "PUTs/s", "$ / month of PUTs", "p50 ms", "p99 ms"],
        rows,
    )


async def _timed(gateway: Gateway, topic: Topic, part: Mapping[int, pa.RecordBatch]) -> float:
    began = time.perf_counter()
    await gateway.batcher.append(topic, part, RECORD_BYTES)
    return time.perf_counter() - began


async def fetch_table() -> None:
    rows = []
    for partitions in (1, 16, 64):
        for object_bytes in (64 * KIB, 512 * KIB, 4 * MIB):
            deployment = Deployment(keep=True)
            await produce(deployment, object_bytes, partitions)
            await deployment.gateway.aclose()
            objects, table = deployment.objects, deployment.table
            objects.segment_gets = objects.index_gets = table.reads = table.read_units = 0
            gateway = deployment.new_gateway()
            size_bytes, fetches = await _read_partition(gateway, partitions - 1)
            await gateway.aclose()
            scale = GIB / size_bytes
            gets = objects.segment_gets + objects.index_gets
            usd = gets * GET_USD + table.read_units * READ_UNIT_USD
            rows.append(
                [
                    f"{partitions}",
                    _size(object_bytes),
                    _size(object_bytes // partitions),
                    f"{objects.segment_gets * scale:,.0f}",
                    f"{objects.index_gets * scale:,.1f}",
                    f"{fetches * scale:,.0f}",
                    f"{usd * scale:.4f}",
                ]
            )
    show(
        "Fetch one partition from the beginning, empty caches, 4 MiB a call, per GiB",
        ["partitions", "object", "of it wanted", "GETs", "index GETs", "fetches", "$ / GiB"],
        rows,
    )


async def _read_partition(gateway: Gateway, partition: int) -> tuple[int, int]:
    topic = await gateway.topics.get("t")
    number, local = topic.lane_of(partition)
    view = await gateway.lanes.lane(topic.topic_id, number).view(0)
    budget = Budget(records_max=100_000, bytes_max=4 * MIB)
    offset = size_bytes = fetches = 0
    while offset < view.head.next_offsets[local]:
        fetched = await gateway.reader.fetch(view.head, local, offset, budget)
        offset, fetches = fetched.end_offset, fetches + 1
        size_bytes += fetched.size_bytes
    return size_bytes, fetches


async def idle_table() -> None:
    """Print the monthly cost without traffic."""
    settings = Settings()
    looks = MONTH_S * 1000 / settings.head_poll_ms
    deployment = Deployment()
    await produce(deployment, 64 * KIB, 64)
    view = await deployment.gateway.lanes.lane(
        (await deployment.gateway.topics.get("t")).topic_id, 0
    ).view(0)
    table = deployment.table
    table.read_units = 0
    await deployment.gateway.aclose()
    await deployment.gateway.metadata.get(f"head/{view.head.topic_id.hex()}/00000")
    beats = MONTH_S / settings.gateway_heartbeat_s
    rows = [
        [
            f"a waiting fetch: per gateway and lane waited for ({table.read_units} units a look)",
            f"{looks:,.0f}",
            f"{looks * table.read_units * READ_UNIT_USD:,.2f}",
        ],
        ["a topic in use: each gateway", f"{MONTH_S:,.0f}", f"{MONTH_S * READ_UNIT_USD:,.2f}"],
        ["heartbeat: each gateway", f"{beats:,.0f}", f"{beats * WRITE_UNIT_USD:,.2f}"],
    ]
    show("Per month, though nothing is sent", ["what", "table calls", "$"], rows)


def _size(size_bytes: int) -> str:
    unit, name = (MIB, "MiB") if size_bytes >= MIB else (KIB, "KiB")
    return f"{size_bytes / unit:.3g} {name}"


async def main() -> None:
    await produce_table()
    await inline_table()
    await rate_table()
    await linger_table()
    await fetch_table()
    await idle_table()


if __name__ == "__main__":
    asyncio.run(main())
