"""What lanes buy: one compare-and-set for up to 64 partitions.

    python -m benchmarks.lanes

In memory. First, flushes that touch every partition: 1,000 partitions in 16 lanes against 16
partitions in one lane, and against lanes of one. Second, gateways that race on one lane whose
table takes 5 ms a call, as a real one does.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from benchmarks.harness import show
from benchmarks.index_growth import CountingMetadata, CountingObjects
from service.log.gateway import Gateway
from service.settings import Settings
from service.world.clock import World, real_world
from storage.errors import MetadataConflict
from storage.formats.records import record_batch
from storage.stores.metadata import MetadataStore, Op
from storage.topics.topics import Topic
from storage.zones.zones import Zones

TABLE_S = 0.005
FLUSHES = 40
RACE_S = 3.0


class SlowTable(CountingMetadata):
    """A table in memory that takes its time, and counts lost races."""

    conflicts = 0

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        await asyncio.sleep(TABLE_S)
        try:
            return await super().transact(ops)
        except MetadataConflict:
            self.conflicts += 1
            raise


def new_gateway(objects: CountingObjects, metadata: MetadataStore, world: World) -> Gateway:
    return Gateway(Settings(), Zones({"a": objects}), metadata, world)


def batch(count: int) -> pa.RecordBatch:
    return record_batch([0] * count, [None] * count, ["x" * 100] * count)


async def flushes(partitions: int, lane_partitions: int) -> list[str]:
    world = real_world()
    objects, metadata = CountingObjects(), CountingMetadata(world.new_version)
    gateway = new_gateway(objects, metadata, world)
    topic = await gateway.topics.create(
        "t", partitions=partitions, config={"lane.partitions": lane_partitions}
    )
    parts = {partition: batch(1) for partition in range(partitions)}
    await gateway.batcher.append(topic, parts, 100 * partitions)
    writes, table, puts = metadata.writes, metadata.written_bytes, objects.puts
    cpu = time.process_time()
    for _ in range(FLUSHES):
        await gateway.batcher.append(topic, parts, 100 * partitions)
    cpu = (time.process_time() - cpu) / FLUSHES
    flushed = gateway.batcher.flush_count - 1
    assert flushed == FLUSHES, flushed
    row = [
        f"{partitions:,} partitions, lanes of {lane_partitions}",
        f"{(metadata.writes - writes) / FLUSHES:.1f}",
        f"{(metadata.written_bytes - table) / FLUSHES / 1024:.1f}",
        f"{(objects.puts - puts) / FLUSHES:.2f}",
        f"{cpu * 1000:.1f}",
        f"{cpu / partitions * 1e6:.1f}",
    ]
    await gateway.aclose()
    return row


async def race(gateways: int) -> tuple[float, float]:
    """Return commits a second and conflicts per commit, all on one lane."""
    world = real_world()
    objects, metadata = CountingObjects(), SlowTable(world.new_version)
    crowd = [new_gateway(objects, metadata, world) for _ in range(gateways)]
    topic = await crowd[0].topics.create("t", partitions=1)
    stop_at = time.monotonic() + RACE_S

    async def produce(gateway: Gateway, topic: Topic) -> int:
        done = 0
        while time.monotonic() < stop_at:
            await gateway.batcher.append(topic, {0: batch(1)}, 100)
            done += 1
        return done

    # Four requests at a time for each gateway, so that flushes can batch them.
    done = await asyncio.gather(*(produce(g, topic) for g in crowd for _ in range(4)))
    view = await crowd[0].lanes.lane(topic.topic_id, 0).view(0)
    assert view.head.next_offsets[0] == sum(done), "a record was lost or doubled"
    commits = metadata.writes - metadata.conflicts
    for gateway in crowd:
        await gateway.aclose()
    return sum(done) / RACE_S, metadata.conflicts / max(1, commits)


async def main() -> None:
    random.seed(1)
    rows = [await flushes(16, 16), await flushes(1000, 64), await flushes(1000, 1)]
    show(
        "A flush that touches every partition",
        ["topic", "table writes", "table KiB", "PUTs", "CPU ms", "CPU µs / partition"],
        rows,
    )
    rows, first = [], 0.0
    for gateways in (1, 4, 16):
        rate, conflicts = await race(gateways)
        first = first or rate
        rows.append([f"{gateways}", f"{rate:,.0f}", f"{rate / first:.2f} ×", f"{conflicts:.2f}"])
    show(
        f"Gateways racing on one lane, table of {TABLE_S * 1000:.0f} ms",
        ["gateways", "appends/s", "against one", "lost races per commit"],
        rows,
    )


if __name__ == "__main__":
    asyncio.run(main())
