"""Time and chance for tests: nothing here waits, and a seed decides everything."""

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable

from storage.head.head import Run, create
from storage.head.head import encode as encode_head
from storage.keys import head as head_key
from storage.lanes.commits import Bases
from storage.lanes.lane import Lane, LaneRuntime
from storage.lanes.windows import WindowPages
from storage.reading.catalog import Catalog
from storage.reading.table_batches import TableBatches
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import MetadataStore, Put
from storage.stores.objects import ObjectStore
from storage.zones.zones import Zones

TOPIC_ID = bytes(range(16))


class Clock:
    """Time that passes only while a task sleeps; to sleep is to let other tasks run."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


class HandClock(Clock):
    """Time that the test moves by hand; tasks sleep until it does."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    async def sleep(self, seconds: float) -> None:
        alarm = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now_s + seconds, next(self._order), alarm))
        await alarm

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and let every task that wakes up run as far as it can."""
        await turns()
        self.now_s += seconds
        while self._sleepers and self._sleepers[0][0] <= self.now_s:
            _, _, alarm = heapq.heappop(self._sleepers)
            if not alarm.done():
                alarm.set_result(None)
        await turns()


async def turns(count: int = 50) -> None:
    """Give every task `count` turns of the event loop: enough to reach where it must wait."""
    for _ in range(count):
        await asyncio.sleep(0)


def new_ids(seed: int = 0) -> Callable[[], bytes]:
    chance = random.Random(seed)
    return lambda: chance.randbytes(16)


def new_metadata() -> MemoryMetadata:
    numbers = itertools.count(1)
    return MemoryMetadata(lambda: f"v{next(numbers)}")


def new_runtime(
    metadata: MetadataStore,
    objects: ObjectStore | None = None,
    *,
    clock: Clock | None = None,
    seed: int = 0,
    index_cache_bytes: int = 1 << 20,
) -> LaneRuntime:
    """Return what the lanes of one process need; it shares only stores with other processes."""
    clock = clock or Clock()
    zones = Zones({"a": objects or MemoryObjects()})
    return LaneRuntime(
        metadata=metadata,
        zones=zones,
        catalog=Catalog(zones, new_ids(seed), index_cache_bytes, TableBatches(metadata)),
        monotonic_s=clock.monotonic_s,
        sleep=clock.sleep,
        random=random.Random(seed).random,
        poll_interval_s=0.05,
        window_pages=WindowPages(zones, new_ids(seed + 1_000_000), index_cache_bytes),
        now_ms=lambda: int(clock.monotonic_s() * 1000),
    )


async def create_lane(metadata: MetadataStore, partitions: int = 1, lane: int = 0) -> None:
    head = create(TOPIC_ID, lane, partitions, ["a"])
    await metadata.transact([Put(head_key(TOPIC_ID, lane), encode_head(head), None)])


async def commit_run(lane: Lane, run: Run, *, age_s: float = 0.0) -> Bases:
    """Commit `run`, whose object was begun `age_s` ago."""
    ticket = lane.enqueue()
    ticket.born_s -= age_s
    ticket.ready(run)
    return await ticket.committed
