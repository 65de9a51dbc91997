"""Small produce calls: an object in each zone, or an item of the table that a roll moves there?

    python -m benchmarks.small_produce

One caller sends a batch at a time to one partition, as a function does that answers one request
at a time. The real gateway runs on memory stores in virtual time: a PUT takes 60 ms and a call to
the table 5. Everything is counted until heads have rolled several times, moves and removals
included, and multiplied by list prices. A second gateway, which has written nothing, follows the
log; its cost to read each batch once is a separate column.

The last table is for a gateway with many concurrent callers, whose requests share flushes.
"""

import asyncio
import math
import random
from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from benchmarks import virtual_time
from benchmarks.cost_model import (
    GET_USD,
    MONTH_S,
    PUT_S,
    PUT_USD,
    READ_UNIT_USD,
    TABLE_S,
    WRITE_UNIT_USD,
    CountedObjects,
    SlowObjects,
)
from benchmarks.harness import show
from benchmarks.modes import SlowTable
from service.log.gateway import Gateway, Position, Wait
from service.settings import Settings
from storage.formats.records import record_batch
from storage.reading.reader import Budget
from storage.reading.table_batches import TableBatches
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import Versioned
from storage.zones.zones import Zones

KIB = 1024
SIZES = (200, 500, KIB, 2 * KIB, 3 * KIB, 4 * KIB, 6 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 60 * KIB)
WARM_CALLS, CALLS = 100, 900
"""A head rolls every 87 runs of one slice."""

CROWD_S = 20.0

MILLION = 1e6
EVERYTHING = Budget(records_max=10**6, bytes_max=10**9)


class FollowedObjects(CountedObjects):
    """The same bucket, with a separate meter for the consumer that follows the log."""

    def __init__(self, shared: MemoryObjects) -> None:
        super().__init__(keep=True)
        self._bodies = shared._bodies


class FollowedBatches(TableBatches):
    """The same table, with a separate meter for batches; heads cost the same either way."""

    units = 0

    async def _found(self, object_ids: Collection[bytes]) -> dict[bytes, Versioned]:
        found = await super()._found(object_ids)
        self.units += sum(math.ceil((len(item.value) + 100) / 4096) for item in found.values())
        return found


@dataclass(frozen=True)
class Cost:
    """What a call takes, on average."""

    puts: float
    writes: float
    write_units: float
    read_units: float
    follower_usd: float
    p50_ms: float
    p99_ms: float

    @property
    def usd(self) -> float:
        units = self.write_units * WRITE_UNIT_USD + self.read_units * READ_UNIT_USD
        return self.puts * PUT_USD + units


def batch_of(size_bytes: int) -> pa.RecordBatch:
    """Return records of up to 1 KiB, random, so that compression changes nothing."""
    count = max(1, size_bytes // KIB)
    values = [random.Random(n).randbytes(size_bytes // count) for n in range(count)]
    return record_batch([virtual_time.BEGAN_MS] * count, [None] * count, values)


async def measure(size_bytes: int, zone_count: int, *, in_table: bool) -> Cost:
    world = virtual_time.world(7)
    zones = {name: SlowObjects(keep=True) for name in "abc"[:zone_count]}
    table = SlowTable(world.new_version)
    settings = Settings(table_batch_bytes_max=64 * KIB if in_table else 0)
    gateway = Gateway(settings, Zones(zones), table, world)
    topic = await gateway.topics.create("t", replication_factor=zone_count)
    bucket = FollowedObjects(zones["a"])
    # A table without latency, and without a meter, behind a meter for batches.
    plain = MemoryMetadata(world.new_version)
    plain._items = table._items
    batches = FollowedBatches(plain)
    follower = Gateway(
        Settings(), Zones(dict.fromkeys(zones, bucket)), plain, virtual_time.world(8)
    )
    follower.catalog.batches = batches
    batch = batch_of(size_bytes)
    took: list[float] = []
    loop = asyncio.get_running_loop()

    def counts() -> list[float]:
        puts = sum(zone.segment_puts + zone.index_puts for zone in zones.values())
        gets = bucket.segment_gets + bucket.index_gets
        usd = gets * GET_USD + batches.units * READ_UNIT_USD
        return [puts, table.writes, table.write_units, table.read_units, usd]

    before: list[float] = []
    for number in range(WARM_CALLS + CALLS):
        if number == WARM_CALLS:
            before, took = counts(), []
        began_s = loop.time()
        await gateway.batcher.append(topic, {0: batch}, size_bytes)
        took.append(loop.time() - began_s)
        offset = number * batch.num_rows
        await follower.fetch("t", 0, Position(offset=offset), EVERYTHING, Wait())
    await asyncio.sleep(1)
    spent = [(now - then) / CALLS for now, then in zip(counts(), before, strict=True)]
    took.sort()
    await gateway.aclose()
    p50_ms, p99_ms = took[CALLS // 2] * 1000, took[CALLS * 99 // 100] * 1000
    return Cost(*spent, p50_ms, p99_ms)


async def measure_crowd(callers: int, *, in_table: bool) -> list[str]:
    """Return the cost of a call of 200 bytes if this many callers use one gateway."""
    world = virtual_time.world(7)
    objects, table = SlowObjects(keep=True), SlowTable(world.new_version)
    settings = Settings(table_batch_bytes_max=64 * KIB if in_table else 0)
    gateway = Gateway(settings, Zones({"a": objects}), table, world)
    topic = await gateway.topics.create("t")
    batch, loop = batch_of(SIZES[0]), asyncio.get_running_loop()
    took: list[float] = []

    async def call() -> None:
        while loop.time() < CROWD_S:
            began_s = loop.time()
            await gateway.batcher.append(topic, {0: batch}, SIZES[0])
            took.append(loop.time() - began_s)

    await asyncio.gather(*(call() for _ in range(callers)))
    puts = objects.segment_puts + objects.index_puts
    units = table.write_units * WRITE_UNIT_USD + table.read_units * READ_UNIT_USD
    flushes = gateway.batcher.flush_count
    await gateway.aclose()
    took.sort()
    return [
        f"{len(took) / CROWD_S:,.0f}",
        f"{flushes / CROWD_S:.0f}",
        f"{(puts * PUT_USD + units) / len(took) * MILLION:.2f}",
        f"{(puts * PUT_USD + units) / CROWD_S * MONTH_S:,.0f}",
        f"{took[len(took) // 2] * 1000:.0f}",
    ]


def crowds() -> None:
    rows = []
    for callers in (1, 8, 64, 512):
        for in_table in (False, True):
            found = virtual_time.run(measure_crowd(callers, in_table=in_table))
            rows.append([f"{callers}", "table" if in_table else "object", *found])
    show(
        "Calls of 200 bytes to one gateway, 1 zone",
        ["callers", "where", "calls/s", "flushes/s", "$ / M calls", "$ / month", "p50 ms"],
        rows,
    )


def compare(zone_count: int) -> None:
    rows = []
    for size_bytes in SIZES:
        both = [
            virtual_time.run(measure(size_bytes, zone_count, in_table=in_table))
            for in_table in (False, True)
        ]
        objects, items = both
        rows.append(
            [
                f"{size_bytes / KIB:.1f}",
                *(f"{each.puts:.2f}" for each in both),
                *(f"{each.write_units:.1f}" for each in both),
                *(f"{each.usd * MILLION:.2f}" for each in both),
                f"{1 - items.usd / objects.usd:.0%}",
                *(f"{each.follower_usd * MILLION:.2f}" for each in both),
                *(f"{each.p50_ms:.0f}" for each in both),
                *(f"{each.p99_ms:.0f}" for each in both),
            ]
        )
    columns = ["PUTs", "write units", "$ / M calls"]
    heading = [f"{name}, {where}" for name in columns for where in ("object", "table")]
    follower = [f"$ / M reads, {where}" for where in ("object", "table")]
    waits = [f"{name} ms, {where}" for name in ("p50", "p99") for where in ("object", "table")]
    show(
        f"A call with a small batch, {zone_count} zone{'s' if zone_count > 1 else ''},"
        f" PUT {PUT_S * 1000:.0f} ms, table {TABLE_S * 1000:.0f} ms",
        ["KiB", *heading, "saved", *follower, *waits],
        rows,
    )


def main() -> None:
    for zone_count in (1, 3):
        compare(zone_count)
    crowds()


if __name__ == "__main__":
    main()
