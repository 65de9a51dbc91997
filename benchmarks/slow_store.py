"""Latency over stores as slow as the real ones: 60 ms a PUT, 5 ms a table call.

python -m benchmarks.slow_store
"""

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence

from benchmarks.harness import show
from benchmarks.lanes import batch
from service.log.gateway import Gateway
from service.settings import Settings
from service.world.clock import real_world
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import Op, Versioned
from storage.stores.objects import Body
from storage.topics.topics import Topic
from storage.zones.zones import Zones

PUT_S, TABLE_S = 0.060, 0.005


class SlowObjects(MemoryObjects):
    puts = 0

    async def put(self, key: str, body: Body) -> None:
        self.puts += 1
        await asyncio.sleep(PUT_S)
        await super().put(key, body)


class SlowTable(MemoryMetadata):
    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        await asyncio.sleep(TABLE_S)
        return await super().transact(ops)

    async def get(self, key: str) -> Versioned | None:
        await asyncio.sleep(TABLE_S)
        return await super().get(key)


async def latencies(clients: int, calls: int) -> tuple[list[float], float]:
    """Return the latency of every call in ms, and PUTs per call."""
    world, objects = real_world(), SlowObjects()
    gateway = Gateway(Settings(), Zones({"a": objects}), SlowTable(world.new_version), world)
    topic = await gateway.topics.create("t", partitions=1)
    await gateway.batcher.append(topic, {0: batch(1)}, 100)
    objects.puts = 0

    async def client(topic: Topic) -> list[float]:
        took = []
        for _ in range(calls):
            began = time.perf_counter()
            await gateway.batcher.append(topic, {0: batch(1)}, 100)
            took.append((time.perf_counter() - began) * 1000)
        return took

    every = await asyncio.gather(*(client(topic) for _ in range(clients)))
    await gateway.aclose()
    return [ms for took in every for ms in took], objects.puts / (clients * calls)


async def main() -> None:
    floor = (PUT_S + TABLE_S) * 1000
    rows = []
    for clients, calls in ((1, 40), (8, 40), (64, 40), (512, 20)):
        took, puts = await latencies(clients, calls)
        cuts = statistics.quantiles(took, n=100)
        rows.append(
            [
                f"{clients}",
                f"{cuts[49]:.1f}",
                f"{cuts[98]:.1f}",
                f"{cuts[49] / floor:.2f}",
                f"{puts:.3f}",
            ]
        )
    show(
        f"Produce, one record a call, PUT {PUT_S * 1000:.0f} ms + table {TABLE_S * 1000:.0f} ms",
        ["clients", "p50 ms", "p99 ms", "p50 / (PUT + table)", "PUTs per call"],
        rows,
    )


if __name__ == "__main__":
    asyncio.run(main())
