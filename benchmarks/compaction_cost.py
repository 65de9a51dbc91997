"""What compaction costs on AWS: its real calls, counted on memory stores, times list prices.

    python -m benchmarks.compaction_cost

A gateway writes as in `benchmarks.cost_model`; then everything is compacted, once by merging and
once by key, as the job does it with two workers. Counts are scaled to a GiB.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.cost_model import (
    GET_USD,
    GIB,
    KIB,
    MIB,
    PUT_USD,
    WRITE_UNIT_USD,
    CountedObjects,
    Deployment,
    produce,
)
from benchmarks.harness import show
from service.world.clock import World, real_world
from storage.crypto.keyring import Keyring
from storage.maintenance.compaction import job, tasks
from storage.maintenance.compaction.plan import CompactionOptions
from storage.maintenance.compaction.summary import Summary
from storage.maintenance.compaction.swap import Swapper
from storage.maintenance.compaction.typed import DataSchemas
from storage.reading.catalog import Catalog
from storage.stores.ranges import merged
from storage.stores.s3 import COALESCE_GAP_BYTES_MAX, ONE_REQUEST_BYTES_MAX, PART_BYTES
from storage.topics.config import TopicConfig
from storage.topics.items import Topic
from storage.zones.zones import Zones


class Bucket(CountedObjects):
    """Counts requests as `S3Objects` makes them: near ranges together, large files in parts."""

    file_puts = 0

    async def put_file(self, key: str, path: Path) -> None:
        size_bytes = path.stat().st_size
        is_one = size_bytes <= ONE_REQUEST_BYTES_MAX
        self.file_puts += 1 if is_one else 2 + -(-size_bytes // PART_BYTES)
        self.index_puts -= 1
        await super().put_file(key, path)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        near = merged([each for each in ranges if each[0] < each[1]], COALESCE_GAP_BYTES_MAX)
        self.segment_gets += len(near) - 1
        return await super().get_ranges(key, ranges)


@dataclass(frozen=True)
class _Stores:
    zones: Zones
    world: World
    keyring: Keyring | None = None
    schemas: DataSchemas | None = None


@dataclass(frozen=True)
class _Work:
    stores: _Stores
    parallelism: int = 2

    async def run(self, payloads: Sequence[bytes]) -> AsyncIterator[tuple[int, bytes]]:
        for number, payload in enumerate(payloads):
            yield number, await tasks.run(self.stores, payload)

    def shuffle(self, payloads: Sequence[bytes]) -> AsyncIterator[tuple[int, bytes]]:
        raise AssertionError("what is written here is less than a range")


@dataclass(frozen=True)
class Compaction:
    """The requests of compacting `size_bytes`."""

    size_bytes: int
    gets: int
    index_gets: int
    file_puts: int
    index_puts: int
    writes: int
    write_units: int

    @property
    def usd(self) -> float:
        puts = (self.file_puts + self.index_puts) * PUT_USD
        gets = (self.gets + self.index_gets) * GET_USD
        return puts + gets + self.write_units * WRITE_UNIT_USD


async def compacted(object_bytes: int, partitions: int, *, policy: str = "delete") -> Compaction:
    """Return the cost of compacting flushes of `object_bytes`."""
    deployment = Deployment(keep=True)
    bucket = deployment.objects = Bucket(keep=True)
    deployment.gateway = deployment.new_gateway()
    await produce(deployment, object_bytes, partitions)
    await deployment.gateway.aclose()
    topic = await deployment.gateway.topics.read("t")
    topic = msgspec.structs.replace(topic, config=TopicConfig({"cleanup.policy": policy}))
    before = _counts(deployment)
    summary = await compact(deployment, topic)
    assert not summary.failed, summary.failed
    assert len(summary.compacted) == partitions, summary.skipped
    after = _counts(deployment)
    assert bucket.file_puts
    return Compaction(summary.bytes_in, *(b - a for a, b in zip(before, after, strict=True)))


def _counts(deployment: Deployment) -> tuple[int, ...]:
    objects, table = deployment.objects, deployment.table
    assert isinstance(objects, Bucket)
    return (
        objects.segment_gets,
        objects.index_gets,
        objects.file_puts,
        objects.index_puts,
        table.writes,
        table.write_units,
    )


async def compact(deployment: Deployment, topic: Topic) -> Summary:
    world = real_world()
    zones = Zones({"a": deployment.objects})
    swapper = Swapper(
        Catalog(zones, world.new_id, 64 * MIB),
        zones,
        deployment.table,
        deployment.table.transact,
        world.sleep,
        random.Random(0).random,
    )

    async def work_for(_: int) -> _Work:
        return _Work(_Stores(zones, world))

    options = CompactionOptions(now_ms=world.now_ms(), force=True)
    return await job.compact(
        swapper,
        [topic],
        work_for,
        options,
        monotonic_s=world.monotonic_s,
    )


async def main() -> None:
    rows = []
    for partitions in (1, 16, 64):
        for object_bytes in (64 * KIB, 512 * KIB, 4 * MIB):
            for policy in ("delete", "compact"):
                cost = await compacted(object_bytes, partitions, policy=policy)
                scale = GIB / cost.size_bytes
                rows.append(
                    [
                        f"{partitions}",
                        f"{object_bytes // KIB} KiB",
                        "merge" if policy == "delete" else "by key",
                        f"{cost.gets * scale:,.0f}",
                        f"{cost.file_puts * scale:,.0f}",
                        f"{(cost.index_gets + cost.index_puts) * scale:,.0f}",
                        f"{cost.writes * scale:,.0f}",
                        f"{cost.usd * scale:.4f}",
                    ]
                )
    show(
        "Compaction, per GiB that it rewrites",
        [
            "partitions",
            "object",
            "",
            "GETs",
            "PUTs",
            "index GETs and PUTs",
            "table writes",
            "$ / GiB",
        ],
        rows,
    )


if __name__ == "__main__":
    asyncio.run(main())
