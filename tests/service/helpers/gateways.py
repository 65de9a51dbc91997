"""Gateways over one table and one bucket: batchers whose requests carry claims."""

import asyncio
from collections.abc import Mapping, Sequence

from service.log.batcher import Batcher, BatchLimits
from service.log.lane_buffers import Claims
from storage.head.producers import SEQUENCES, Claim
from storage.lanes.lane import Lanes
from storage.reading.reader import Budget, LogReader
from storage.stores.metadata import Check, MetadataStore, Op
from storage.topics.topics import Topic, Topics
from storage.zones.zones import Zones
from tests.storage.helpers.faults import FaultyMetadata, TestObjects
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import Clock, new_ids, new_metadata, new_runtime

NEVER_S = 3600.0

Parts = Mapping[int, tuple[int, Sequence[bytes]]]
"""By partition: the number of the first record, and the values."""


class GatedMetadata(FaultyMetadata):
    """A table that fails the commits of some lanes, and delays all commits on demand."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner)
        self.refused: set[str] = set()
        self.gate: asyncio.Event | None = None

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        if self.gate is not None:
            await self.gate.wait()
        if ops[0].key[-5:] in self.refused:
            self.faults = ["refused"]
        return await super().transact(ops)


class Cluster:
    """The state that gateways share."""

    def __init__(self) -> None:
        self.table = new_metadata()
        self.objects = TestObjects()
        self.clock = Clock()
        self.topics = Topics(
            self.table, ["a"], new_ids(1), self.clock.now_ms, self.clock.monotonic_s
        )
        self._gateways = 0

    async def topic(self, partitions: int = 1, lane_partitions: int = 1) -> Topic:
        config = {"lane.partitions": lane_partitions}
        return await self.topics.create("t", partitions=partitions, config=config)

    def gateway(self, *, batch_bytes_max: int = 1 << 30, flights_max: int = 4) -> "Gateway":
        self._gateways += 1
        return Gateway(self, self._gateways, batch_bytes_max, flights_max)


class Gateway:
    def __init__(self, cluster: Cluster, seed: int, batch_bytes_max: int, flights_max: int) -> None:
        self.metadata = GatedMetadata(cluster.table)
        self.objects = cluster.objects
        self.runtime = new_runtime(
            self.metadata, cluster.objects, clock=cluster.clock, seed=100 * seed
        )
        self.lanes = Lanes(self.runtime)
        self.reader = LogReader(self.runtime.zones, self.runtime.catalog, 1 << 20)
        limits = BatchLimits(
            batch_bytes_max=batch_bytes_max, linger_max_s=NEVER_S, flights_max=flights_max
        )
        zones = Zones({"a": cluster.objects})
        self.batcher = Batcher(zones, self.lanes, self.reader, limits, new_ids(100 * seed + 1))

    async def append(
        self,
        topic: Topic,
        producer_id: int,
        parts: Parts,
        *,
        epoch: int = 0,
        fence: Check | None = None,
    ) -> dict[int, int]:
        """Send numbered records; those of producer 0 have no claim."""
        claims = {
            partition: Claim(
                topic.lane_of(partition)[1], producer_id, epoch, sequence % SEQUENCES, len(values)
            )
            for partition, (sequence, values) in parts.items()
            if producer_id
        }
        batches = {partition: batch_of(*values) for partition, (_, values) in parts.items()}
        size_bytes = sum(len(value) for _, values in parts.values() for value in values)
        return await self.batcher.append(
            topic, batches, size_bytes, Claims(by_partition=claims, fence=fence)
        )

    def start(
        self,
        topic: Topic,
        producer_id: int,
        parts: Parts,
        *,
        epoch: int = 0,
        fence: Check | None = None,
    ) -> "asyncio.Task[dict[int, int]]":
        return asyncio.create_task(self.append(topic, producer_id, parts, epoch=epoch, fence=fence))

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
