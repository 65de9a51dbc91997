"""A lane in several zones, written as by a gateway; a test can make each zone fail."""

import random
from pathlib import Path

import msgspec

from storage import keys
from storage.head import head as heads
from storage.head.head import Head
from storage.head.replication import zones_named
from storage.lanes import building as writer
from storage.lanes.building import LanePart
from storage.reading.catalog import Catalog
from storage.reading.reader import Budget, LogReader
from tests.storage.helpers.failing_zones import FailingZones
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import TOPIC_ID, new_ids

ALL = Budget(records_max=10**9, bytes_max=10**9)


class ReplicatedLane:
    def __init__(
        self, names: str = "abc", *, root: Path | None = None, partitions: int = 2, seed: int = 0
    ) -> None:
        self.zones = FailingZones(names, root)
        self.new_id = new_ids(seed)
        self.catalog = Catalog(self.zones, self.new_id, 1 << 20)
        self.head: Head = heads.create(TOPIC_ID, 0, partitions, list(names))
        self.values: list[list[bytes]] = [[] for _ in range(partitions)]

    async def append(self, *values: bytes, partition: int = 0, zones: str | None = None) -> bytes:
        """Write an object to `zones` (default: those in sync), commit it, and return its name."""
        mask = self.head.isr if zones is None else zones_named(self.head, zones)
        object_id = self.new_id()
        batch = batch_of(*values)
        part = LanePart(
            topic_id=TOPIC_ID,
            first_partition=0,
            codec="lz4",
            zones=mask,
            batches=[(partition, [batch], batch.nbytes)],
        )
        built = writer.build(object_id, [part])
        names = [name for n, name in enumerate(self.head.zones) if mask >> n & 1]
        await self.zones.put_widely(keys.hot_segment(object_id), built.pieces, names)
        self.head = heads.append(self.head, built.runs)
        self.values[partition] += values
        return object_id

    async def roll(self) -> None:
        roll = await self.catalog.roll(self.head)
        self.head = heads.drop_runs(self.head, len(self.head.runs), roll.new_root)

    async def fill(self, appends: int = 60, seed: int = 0, rolls: float = 0.2) -> None:
        chance = random.Random(seed)
        for number in range(appends):
            values = [b"%d %d" % (number, n) for n in range(chance.randint(1, 5))]
            await self.append(*values, partition=chance.randrange(len(self.values)))
            if chance.random() < rolls:
                await self.roll()

    def hide(self, partition: int, offset: int) -> None:
        starts = list(self.head.log_starts)
        starts[partition] = offset
        self.head = msgspec.structs.replace(self.head, log_starts=tuple(starts))

    async def read(self, partition: int = 0) -> list[bytes]:
        """Return every value of the partition, as a reader without a cache sees them."""
        reader = LogReader(self.zones, Catalog(self.zones, self.new_id, 0), 0)
        found: list[bytes] = []
        offset = 0
        while offset < self.head.next_offsets[partition]:
            fetched = await reader.fetch(self.head, partition, offset, ALL)
            for _, batch in fetched.batches(10**9):
                found += batch.column(2).to_pylist()
            offset = fetched.end_offset
        return found
