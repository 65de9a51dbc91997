"""Does history make appends or fetches slower? Up to a million slices in one partition.

    python -m benchmarks.index_growth [slices, default 1000000]

In memory, so that only our own work and the number of requests are seen. Every append is a
commit of its own; objects of data are not written, since their cost does not depend on history.
Fetches are of a random offset, with the index cache emptied before each ("cold") and not.
"""

import asyncio
import gc
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence

from benchmarks.harness import show
from storage import keys
from storage.head import head as heads
from storage.head.head import Run, RunSlice
from storage.lanes.lane import Lane, LaneRuntime, Lanes
from storage.lanes.windows import WindowPages
from storage.reading.catalog import Catalog
from storage.reading.reader import FIRST_ENTRIES
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import Op, Put, Versioned
from storage.stores.objects import Body
from storage.zones.zones import Zones

TOPIC = bytes(16)
RECORDS_PER_SLICE = 10
PROBES = 300
PARTS = 4


class CountingObjects(MemoryObjects):
    puts = gets = put_bytes = get_bytes = 0

    async def put(self, key: str, body: Body) -> None:
        self.puts += 1
        self.put_bytes += sum(len(piece) for piece in body)
        await super().put(key, body)

    async def get(self, key: str) -> bytes:
        self.gets += 1
        data = await super().get(key)
        self.get_bytes += len(data)
        return data


class CountingMetadata(MemoryMetadata):
    reads = writes = written_bytes = 0

    async def get(self, key: str) -> Versioned | None:
        self.reads += 1
        return await super().get(key)

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        self.writes += 1
        self.written_bytes += sum(len(op.value) for op in ops if isinstance(op, Put))
        return await super().transact(ops)


class Bench:
    def __init__(self) -> None:
        chance = random.Random(1)
        self.objects = CountingObjects()
        self.zones = Zones({"a": self.objects})
        self.metadata = CountingMetadata(lambda: chance.randbytes(8).hex())
        self.new_id = lambda: chance.randbytes(16)
        self.chance = chance
        self.catalog = self.empty_catalog()
        self.lane: Lane = Lanes(
            LaneRuntime(
                metadata=self.metadata,
                zones=self.zones,
                catalog=self.catalog,
                monotonic_s=time.monotonic,
                sleep=asyncio.sleep,
                random=chance.random,
                poll_interval_s=1,
                window_pages=WindowPages(self.zones, self.new_id, 1024 * 1024),
                now_ms=lambda: 0,
            )
        ).lane(TOPIC, 0)

    def empty_catalog(self) -> Catalog:
        return Catalog(self.zones, self.new_id, 32 * 1024 * 1024)

    async def create(self) -> None:
        head = heads.encode(heads.create(TOPIC, 0, 1, ["a"]))
        await self.metadata.transact([Put(keys.head(TOPIC, 0), head, None)])

    async def append(self, count: int) -> None:
        for number in range(count):
            piece = RunSlice(0, RECORDS_PER_SLICE, 1000 + number % 7, 0, 1, 12345)
            ticket = self.lane.enqueue()
            ticket.ready(Run(self.new_id(), 8, number, (piece,), 1))
            await ticket.committed
            await asyncio.sleep(0)  # The roll runs beside the commits, as it does over real stores.

    async def fetch(self, *, cold: bool) -> tuple[float, float, float]:
        """Return the median µs, requests and bytes of finding a random slice."""
        view = await self.lane.view(0)
        end = view.head.next_offsets[0]
        catalog, times = self.catalog, []
        gets, get_bytes = self.objects.gets, self.objects.get_bytes
        for _ in range(PROBES):
            if cold:
                catalog = self.empty_catalog()
            offset = self.chance.randrange(end)
            began = time.perf_counter()
            [entry, *_] = await catalog.after(view.head, 0, offset, FIRST_ENTRIES)
            times.append(time.perf_counter() - began)
            assert entry.base_offset <= offset < entry.end_offset
        return (
            statistics.median(times) * 1e6,
            (self.objects.gets - gets) / PROBES,
            (self.objects.get_bytes - get_bytes) / PROBES,
        )


async def run(most: int) -> None:
    bench = Bench()
    await bench.create()
    rows: list[list[str]] = []
    done, first = 0, 0.0
    for target in [10**power for power in range(3, 10) if 10**power <= most]:
        # Wide enough for a merge of pages to be in it: that is part of what an append costs.
        window = min(4000, target - done)
        await bench.append(target - done - window)
        gc.collect()
        gc.freeze()  # What the bucket in memory holds is no burden of a real gateway's collector.
        puts, put_bytes = bench.objects.puts, bench.objects.put_bytes
        writes, table = bench.metadata.writes, bench.metadata.written_bytes
        parts = []
        for _ in range(PARTS):
            began = time.process_time()
            await bench.append(window // PARTS)
            parts.append((time.process_time() - began) / (window // PARTS) * 1e6)
        append_us = min(parts)  # Other programs only ever add to it.
        done = target
        cold, warm = await bench.fetch(cold=True), await bench.fetch(cold=False)
        first = first or append_us
        rows.append(
            [
                f"{target:,}",
                f"{append_us:.0f} µs ({append_us / first:.2f} ×)",
                f"{(bench.metadata.writes - writes) / window:.2f}",
                f"{(bench.metadata.written_bytes - table) / window:,.0f}",
                f"{(bench.objects.puts - puts) / window:.3f}",
                f"{(bench.objects.put_bytes - put_bytes) / window:,.0f}",
                f"{cold[0]:.0f} µs / {cold[1]:.1f} / {cold[2] / 1024:.0f} KiB",
                f"{warm[0]:.0f} µs / {warm[1]:.2f}",
            ]
        )
    show(
        "One partition, growing",
        [
            "slices",
            "append: CPU",
            "table writes",
            "table bytes",
            "index PUTs",
            "index bytes",
            "cold lookup: time / GETs / read",
            "warm: time / GETs",
        ],
        rows,
    )


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else 10**6))
