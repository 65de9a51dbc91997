"""Many writers on one head, each a separate process, as functions in Lambda are.

    python -m benchmarks.writers

In virtual time: a call of the table takes 2.5 to 7.5 ms, a PUT 30 to 90. Writes to one item are
decided in the order in which they arrive, as in DynamoDB; a late one is refused, with the current
item. Every writer sends one record of 1 KB, waits for the answer, and sends the next.
"""

import asyncio
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from benchmarks import virtual_time
from benchmarks.harness import show
from service.log.gateway import Gateway
from service.settings import Settings
from storage.errors import MetadataConflict, RiachoError
from storage.formats.records import record_batch
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import Op, Put, Versioned
from storage.stores.objects import Body
from storage.zones.zones import Zones

WRITERS = (1, 8, 32, 128)
SECONDS = 10.0
RECORD_BYTES = 1024
PUT_S, TABLE_S = 0.060, 0.005


@dataclass
class Stores:
    """One bucket and one table, and the network in front of them."""

    chance: random.Random
    attempts: int = 0
    conflicts: int = 0
    write_units: int = 0
    """Of heads: a KB each, also where the condition did not hold."""

    def __post_init__(self) -> None:
        numbers = iter(range(10**9))
        self.table = MemoryMetadata(lambda: f"{next(numbers):x}")

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * (0.5 + self.chance.random()))


class FarObjects(MemoryObjects):
    def __init__(self, stores: Stores) -> None:
        super().__init__()
        self._stores = stores

    async def put(self, key: str, body: Body) -> None:
        await self._stores.pause(PUT_S)
        await super().put(key, body)


class FarTable:
    """A table at the other end of a network."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def get(self, key: str) -> Versioned | None:
        await self._stores.pause(TABLE_S)
        return await self._stores.table.get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        await self._stores.pause(TABLE_S)
        return await self._stores.table.get_many(keys)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        await self._stores.pause(TABLE_S)
        return await self._stores.table.list(prefix, after=after, limit=limit)

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        stores = self._stores
        await stores.pause(TABLE_S / 2)
        heads = [op for op in ops if op.key.startswith("head/") and isinstance(op, Put)]
        stores.attempts += len(heads)
        stores.write_units += sum(-(-len(op.value) // 1024) for op in heads)
        try:
            return await stores.table.transact(ops)
        except MetadataConflict:
            stores.conflicts += len(heads)
            raise
        finally:
            await stores.pause(TABLE_S / 2)

    async def close(self) -> None:
        pass


@dataclass
class Outcome:
    took_s: list[float] = field(default_factory=list)
    refused: int = 0
    offsets: list[int] = field(default_factory=list)
    attempts: int = 0
    write_units: int = 0


def records(chance: random.Random) -> pa.RecordBatch:
    return record_batch([0], [None], [chance.randbytes(RECORD_BYTES)])


async def measured(writers: int, table_batch_bytes_max: int, seed: int = 1) -> Outcome:
    """Let writers write for a while; return what became of it."""
    stores = Stores(random.Random(seed))
    settings = Settings(table_batch_bytes_max=table_batch_bytes_max)
    objects = FarObjects(stores)
    gateways = [
        Gateway(
            settings,
            Zones({"a": objects}),
            FarTable(stores),
            virtual_time.world(seed * 1000 + number),
            news_s=0.0,
        )
        for number in range(writers)
    ]
    await gateways[0].topics.create("t", partitions=1)
    stores.attempts = stores.write_units = 0
    now_s = asyncio.get_running_loop().time
    end_s = now_s() + SECONDS
    outcome = Outcome()

    async def write(gateway: Gateway, chance: random.Random) -> None:
        await asyncio.sleep(chance.random() * PUT_S)
        while now_s() < end_s:
            began_s = now_s()
            try:
                placed = await gateway.produce("t", records(chance), RECORD_BYTES, 0)
            except RiachoError:
                outcome.refused += 1
            else:
                outcome.offsets.append(placed[0][0])
                outcome.took_s.append(now_s() - began_s)

    await asyncio.gather(
        *(write(each, random.Random(seed + number)) for number, each in enumerate(gateways))
    )
    outcome.attempts, outcome.write_units = stores.attempts, stores.write_units
    for gateway in gateways:
        await gateway.aclose()
    return outcome


def row(writers: int, outcome: Outcome) -> list[str]:
    cuts = statistics.quantiles(outcome.took_s, n=100)
    done = len(outcome.took_s)
    return [
        f"{writers}",
        f"{done / SECONDS:.0f}",
        f"{cuts[49] * 1000:.0f}",
        f"{cuts[98] * 1000:.0f}",
        f"{max(outcome.took_s) * 1000:.0f}",
        f"{outcome.attempts / done:.2f}",
        f"{outcome.write_units / SECONDS:.0f}",
        f"{outcome.refused}",
    ]


def main() -> None:
    for title, limit in (("a batch is an object", 0), ("batches live in the table first", 4096)):
        rows = []
        for writers in WRITERS:
            outcome = virtual_time.run(measured(writers, limit))
            # Nothing is lost, nothing twice.
            assert sorted(outcome.offsets) == list(range(len(outcome.offsets)))
            rows.append(row(writers, outcome))
        show(
            f"Writers on one head, {title}",
            [
                "writers",
                "commits/s",
                "p50 ms",
                "p99 ms",
                "max ms",
                "attempts per commit",
                "write units/s",
                "refused",
            ],
            rows,
        )


if __name__ == "__main__":
    main()
