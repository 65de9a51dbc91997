"""Cost against data size on log axes: what does history do to each operation, and compaction cost?

    python -m benchmarks.growth [--slices 1000000] [--records 10000000] [--json FILE]

From 10^2 slices of history on, ten records each: to append one more; to fetch a record at a random
offset, and to find the offset of a random moment, with warm index caches and none of slices; to
open the partition in a process that knows nothing, and fetch from it. All in memory, so that only
our own work (CPU) and the number of requests are seen, to the table and the object store together.
Objects of data are not kept: they are made again when they are asked for.

From 10^4 records on, of 100 B in 4 partitions: to compact them, one worker, wall clock.

The exponent is the slope on log-log axes: 0 does not grow, 1 grows as the data does. `--json`
appends a line for each point, for `benchmarks.plots`.
"""

import argparse
import asyncio
import gc
import json
import math
import random
import statistics
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from crc32c import crc32c

from benchmarks.compaction import BATCH, KINDS, PARTITIONS, Kind, stream_of
from benchmarks.compaction_cost import Bucket, compact
from benchmarks.cost_model import Deployment
from benchmarks.harness import show
from benchmarks.index_growth import CountingMetadata, CountingObjects
from service.http.bodies.produce import ARROW_STREAM, decode_produce
from storage import keys
from storage.formats import slices
from storage.formats.records import record_batch
from storage.head import head as heads
from storage.head.head import Run, RunSlice
from storage.lanes.lane import Lane, LaneRuntime, Lanes
from storage.lanes.windows import WindowPages
from storage.reading.catalog import Catalog
from storage.reading.reader import Budget, LogReader
from storage.stores.metadata import Put
from storage.zones.zones import Zones

TOPIC = bytes(16)
RECORDS_PER_SLICE = 10
PROBES = 300
OPENS = 100
PARTS = 4
WINDOW_MAX = 4000
INDEX_CACHE_BYTES = 32 * 1024 * 1024
ONE = Budget(records_max=1, bytes_max=1 << 20)
STAMPS = struct.Struct(f"<{RECORDS_PER_SLICE}q")


@dataclass(frozen=True)
class Point:
    what: str
    size: int
    ms: float
    requests: float
    benchmark: str = "growth"


# A history of which only the index exists: slices differ in their timestamps alone.


def _template() -> tuple[bytes, bytes]:
    count = RECORDS_PER_SLICE
    stamps = [10**12 + number for number in range(count)]
    batch = record_batch(stamps, [None] * count, [b"x" * 100] * count)
    before, found, after = bytes(slices.encode([batch], "none")[0].data).partition(
        STAMPS.pack(*stamps)
    )
    assert found, "a slice that is not compressed has its timestamps as they are"
    return before, after


BEFORE, AFTER = _template()


def slice_of(number: int) -> bytes:
    first = number * RECORDS_PER_SLICE
    return BEFORE + STAMPS.pack(*range(first, first + RECORDS_PER_SLICE)) + AFTER


class Objects(CountingObjects):
    """Keeps index objects. A slice has its number in its object's name."""

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.gets += 1
        number = int.from_bytes(bytes.fromhex(Path(key).stem)[8:], "big")
        return [slice_of(number) for _ in ranges]


class History:
    def __init__(self) -> None:
        self.chance = random.Random(1)
        self.objects = Objects()
        self.zones = Zones({"a": self.objects})
        self.metadata = CountingMetadata(lambda: self.chance.randbytes(8).hex())
        self.count = 0
        self.lane, self.reader = self.opened()

    def opened(self) -> tuple[Lane, LogReader]:
        """Return the partition as a process knows it that has just started."""

        def new_id() -> bytes:
            return self.chance.randbytes(16)

        catalog = Catalog(self.zones, new_id, INDEX_CACHE_BYTES)
        runtime = LaneRuntime(
            metadata=self.metadata,
            zones=self.zones,
            catalog=catalog,
            monotonic_s=time.monotonic,
            sleep=asyncio.sleep,
            random=self.chance.random,
            poll_interval_s=1,
            window_pages=WindowPages(self.zones, new_id, 1024 * 1024),
            now_ms=lambda: 0,
        )
        return Lanes(runtime).lane(TOPIC, 0), LogReader(self.zones, catalog, 0)

    async def create(self) -> None:
        head = heads.encode(heads.create(TOPIC, 0, 1, ["a"]))
        await self.metadata.transact([Put(keys.head(TOPIC, 0), head, None)])

    @property
    def requests(self) -> int:
        table = self.metadata.reads + self.metadata.writes
        return table + self.objects.gets + self.objects.puts

    async def append(self) -> None:
        data, first_ms = slice_of(self.count), self.count * RECORDS_PER_SLICE
        span_ms = RECORDS_PER_SLICE - 1
        piece = RunSlice(0, RECORDS_PER_SLICE, len(data), 0, span_ms, crc32c(data))
        object_id = self.chance.randbytes(8) + self.count.to_bytes(8, "big")
        self.count += 1
        ticket = self.lane.enqueue()
        ticket.ready(Run(object_id, 8, first_ms, (piece,), 1))
        await ticket.committed
        await asyncio.sleep(0)  # The roll runs beside the commits, as it does over real stores.

    async def grow(self, count: int) -> None:
        for _ in range(count):
            await self.append()

    async def appends(self, count: int) -> Point:
        """Append `count` slices, and return the time and requests of each."""
        requests, parts = self.requests, []
        for _ in range(PARTS):
            began = time.process_time()
            await self.grow(count // PARTS)
            parts.append((time.process_time() - began) / (count // PARTS))
        # One more is the PUT of the data; and other programs only ever add to the time.
        per_append = 1 + (self.requests - requests) / (count // PARTS * PARTS)
        return Point("append", self.count, min(parts) * 1000, per_append)

    async def probed(self, what: str, probe: Callable[[int], Awaitable[None]], count: int) -> Point:
        """Return the median of `probe` at random offsets, which are timestamps, too."""
        times = []
        for _ in range(min(count, PROBES // 4)):
            await probe(self.chance.randrange(self.count * RECORDS_PER_SLICE))
        requests = self.requests
        for _ in range(count):
            offset = self.chance.randrange(self.count * RECORDS_PER_SLICE)
            began = time.process_time()
            await probe(offset)
            times.append(time.process_time() - began)
        per_probe = (self.requests - requests) / count
        return Point(what, self.count, statistics.median(times) * 1000, per_probe)

    async def points(self, appended: int) -> list[Point]:
        append = await self.appends(appended)
        head = (await self.lane.view(0)).head

        async def fetch(offset: int) -> None:
            found = await self.reader.fetch(head, 0, offset, ONE)
            assert found.start_offset == offset < found.end_offset, found

        async def at(offset: int) -> None:
            assert await self.reader.offset_at(head, 0, offset) == (offset, offset)

        async def cold(offset: int) -> None:
            lane, reader = self.opened()
            found = await reader.fetch((await lane.view(0)).head, 0, offset, ONE)
            assert found.start_offset == offset < found.end_offset, found

        return [
            append,
            await self.probed("fetch", fetch, PROBES),
            await self.probed("offset by time", at, PROBES),
            await self.probed("cold open", cold, OPENS),
        ]


async def histories(most: int) -> list[Point]:
    history, points = History(), list[Point]()
    await history.create()
    for target in powers(2, most):
        # Wide enough for a merge of pages to be in it: that is part of what an append costs.
        window = min(WINDOW_MAX, target - history.count)
        await history.grow(target - history.count - window)
        gc.collect()
        gc.freeze()  # What the bucket in memory holds is no burden of a real gateway's collector.
        points += await history.points(window)
    return points


def powers(first: int, most: int) -> list[int]:
    return [10**power for power in range(first, 12) if 10**power <= most]


# Compaction: the job's real calls, on a bucket in memory that counts as S3 would.


async def compactions(most: int) -> list[Point]:
    points = []
    for kind in KINDS[:2]:
        await compaction(kind, 1000)  # A warm-up: Arrow's first array imports other modules.
        points += [await compaction(kind, records) for records in powers(4, most)]
    return points


async def compaction(kind: Kind, records: int) -> Point:
    deployment = Deployment(keep=True)
    bucket = deployment.objects = Bucket(keep=True)
    deployment.gateway = deployment.new_gateway()
    config = {"cleanup.policy": kind.policy}
    topic = await deployment.gateway.topics.create("t", partitions=PARTITIONS, config=config)
    await fill(deployment, kind, records)
    await deployment.gateway.aclose()

    def requests() -> int:
        table = deployment.table.reads + deployment.table.writes
        gets = bucket.segment_gets + bucket.index_gets
        return table + gets + bucket.file_puts + bucket.index_puts

    before = requests()
    summary = await compact(deployment, topic)
    assert not summary.failed, summary.failed
    assert summary.records_in == records, summary
    name = "compact, merge" if kind.policy == "delete" else "compact, by key"
    return Point(name, records, summary.seconds * 1000, requests() - before)


async def fill(deployment: Deployment, kind: Kind, records: int) -> None:
    import numpy as np

    dice = np.random.default_rng(records)
    batch_records = min(BATCH, records // PARTITIONS)
    for start in range(0, records, batch_records):
        count = min(batch_records, records - start)
        body = stream_of(dice, start, count, records // kind.repeats)
        batch = decode_produce(body, ARROW_STREAM, now_ms=0).batch
        partition = start // batch_records % PARTITIONS
        await deployment.gateway.produce("t", batch, batch.nbytes, partition)


# The output.


def exponent(points: Sequence[Point], value: Callable[[Point], float]) -> float:
    """Return the slope of the line through the points on log-log axes, by least squares."""
    known = [(math.log(p.size), math.log(value(p))) for p in points if value(p) > 0]
    if len(known) < 2:
        return math.nan
    return statistics.linear_regression(*zip(*known, strict=True)).slope


def tell(points: Sequence[Point], title: str) -> None:
    sizes = sorted({point.size for point in points})
    rows = []
    for what in dict.fromkeys(point.what for point in points):
        mine = [point for point in points if point.what == what]
        by_size = {point.size: point for point in mine}
        for unit, value in (("ms", _ms), ("requests", _requests)):
            cells = [_figure(value(by_size[size])) if size in by_size else "" for size in sizes]
            name = f"{what}, {unit}" if unit == "ms" else f"  {unit}"
            rows.append([name, *cells, f"{exponent(mine, value):+.2f}"])
    show(title, ["", *(f"10^{round(math.log10(size))}" for size in sizes), "exponent"], rows)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ms(point: Point) -> float:
    return point.ms


def _requests(point: Point) -> float:
    return point.requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=10**6)
    parser.add_argument("--records", type=int, default=10**7)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    of_slices = asyncio.run(histories(given.slices))
    tell(of_slices, "One operation, by slices of history in the partition")
    of_records = asyncio.run(compactions(given.records))
    tell(of_records, "Compaction, by records")
    if given.json is not None:
        with given.json.open("a") as sink:
            sink.writelines(json.dumps(asdict(point)) + "\n" for point in of_slices + of_records)


if __name__ == "__main__":
    main()
