"""A deployment whose zones delay writes on demand, for tests of the write path."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection

from service.log.gateway import Gateway
from service.log.lane_buffers import NO_CLAIMS, Claims
from service.settings import Settings
from storage import keys
from storage.errors import ObjectMissing, StoreUnavailable
from storage.head import replication
from storage.head.changes import change_head
from storage.head.head import Head
from storage.head.producers import Claim
from storage.head.replication import VerifiedObjects
from storage.stores.memory import MemoryObjects
from storage.stores.objects import Body
from storage.topics.topics import Topic
from storage.zones.zones import Zones
from tests.service.helpers.deployments import Deployment
from tests.storage.helpers.failing_zones import FailingObjects, FailingZones
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import turns

INDEX = ("page", "node", "root", "producers")

RUNS_INLINE = 4
INLINE_BYTES = RUNS_INLINE * 47
"""Room for `RUNS_INLINE` runs of one slice each."""
KINDS = ("seg", *INDEX)

PLACES = 24
"""Maximum attempts to create a topic whose leader is in the first zone."""

LAG_MS = 100
"""The minimum: tests of hanging zones take this long."""


class GatedObjects(FailingObjects):
    """A zone that delays some writes, refuses others, and counts them by kind."""

    def __init__(self) -> None:
        super().__init__(MemoryObjects())
        self.refused: Collection[str] = ()
        """Kinds of objects that are refused, by the suffix of their keys."""
        self._held: Collection[str] = ()
        self._gate = asyncio.Event()
        self.tried: Counter[str] = Counter()

    def hold(self, kinds: Collection[str] = KINDS) -> None:
        """Delay puts of these kinds from now on."""
        self._held, self._gate = kinds, asyncio.Event()

    def release(self) -> None:
        self._held = ()
        self._gate.set()

    async def put(self, key: str, body: Body) -> None:
        kind = key.rpartition(".")[2]
        self.tried[kind] += 1
        if kind in self._held:
            await self._gate.wait()
        if kind in self.refused:
            raise StoreUnavailable("not that one")
        await super().put(key, body)

    async def holds(self, object_id: bytes) -> bool:
        try:
            await self.inner.size(keys.hot_segment(object_id))
        except ObjectMissing:
            return False
        return True


class GatedZones(FailingZones):
    def __init__(self, names: str) -> None:
        self.gated = {name: GatedObjects() for name in names}
        self.failing = dict[str, FailingObjects](self.gated)
        Zones.__init__(self, self.failing)

    def __getitem__(self, name: str) -> GatedObjects:
        return self.gated[name]


class Replicated(Deployment):
    """Zones a, b and c, and topics whose first partition is led by a, the second by b, ..."""

    def __init__(self, names: str = "abc") -> None:
        super().__init__(names)
        self.gated = GatedZones(names)
        self.zones = self.gated

    async def topic(self, *, partitions: int = 1, name: str = "t", **config: object) -> Topic:
        """Create a topic with a copy in every zone; all its partitions share a lane."""
        settings = {
            "min.insync.replicas": 2,
            "replica.lag.time.max.ms": LAG_MS,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        count = len(self.zones.names)
        for _ in range(PLACES):
            topic = await self.topics.create(
                name, partitions=partitions, replication_factor=count, config=settings
            )
            head = await self.head(topic)
            if head.zones[head.replicas[0]] == self.zones.names[0]:
                return topic
            await self.topics.delete(name)
        raise AssertionError("no topic began in the first zone")

    async def head(self, topic: Topic, lane: int = 0) -> Head:
        return await self.change(topic, lambda head: head, lane)

    async def change(self, topic: Topic, change: Callable[[Head], Head], lane: int = 0) -> Head:
        """Change a head as another process."""
        head = await change_head(self.metadata, keys.head(topic.topic_id, lane), change)
        assert head is not None
        return head

    async def isr(self, topic: Topic, lane: int = 0) -> str:
        return names_of(await self.head(topic, lane))

    async def let_in(self, topic: Topic, name: str) -> None:
        """Put a zone into the ISR, which must hold everything that is committed."""

        def change(head: Head) -> Head:
            held = VerifiedObjects(indexes=(), objects=[run.object_id for run in head.runs])
            return replication.with_zone(head, head.zones.index(name), held)

        await self.change(topic, change)

    async def copy(self, object_id: bytes, source: str, target: str) -> None:
        """Copy a segment from one zone to another, as the controller does."""
        key = keys.hot_segment(object_id)
        body = await self.gated[source].inner.get(key)
        await self.gated[target].inner.put(key, [body])

    async def holders(self, object_id: bytes) -> str:
        """Return the zones that hold a segment, as `abc`."""
        return "".join([n for n, zone in self.gated.gated.items() if await zone.holds(object_id)])

    def modest(self, **settings: object) -> Gateway:
        """Return a gateway that flushes one request at a time."""
        given = {"linger_max_ms": 3_600_000, "batch_bytes_max": 1, **settings}
        world = self.world()
        return Gateway(Settings.model_validate(given), Zones(self.failing), self.metadata, world)

    def small_headed(self, **settings: object) -> Gateway:
        """Return a gateway like `modest` whose heads are full after a few commits."""
        gateway = self.modest(**settings)
        gateway._lane_runtime.inline_bytes_max = INLINE_BYTES
        return gateway

    @property
    def failing(self) -> dict[str, FailingObjects]:
        return self.gated.failing


def names_of(head: Head, mask: int | None = None) -> str:
    mask = head.isr if mask is None else mask
    return "".join(sorted(name for n, name in enumerate(head.zones) if mask >> n & 1))


async def append(
    gateway: Gateway,
    topic: Topic,
    *values: bytes,
    partition: int = 0,
    acks: str = "all",
    claims: Claims = NO_CLAIMS,
) -> int:
    """Append records, and return the offset of the first."""
    batch = batch_of(*values)
    bases = await gateway.batcher.append(
        topic, {partition: batch}, batch.nbytes, claims, waits_for_all=acks == "all"
    )
    return bases[partition]


def numbered(producer_id: int, sequence: int, count: int = 1, partition: int = 0) -> Claims:
    return Claims(by_partition={partition: Claim(partition, producer_id, 0, sequence, count)})


async def started(
    gateway: Gateway,
    topic: Topic,
    *values: bytes,
    partition: int = 0,
    acks: str = "all",
    claims: Claims = NO_CLAIMS,
) -> "asyncio.Task[int]":
    """Start an append, and let it run as far as it can."""
    work = append(gateway, topic, *values, partition=partition, acks=acks, claims=claims)
    task = asyncio.create_task(work)
    await turns()
    return task


async def masks(deployment: Replicated, topic: Topic) -> list[str]:
    """Return the zones of each run, according to the head."""
    head = await deployment.head(topic)
    return [names_of(head, run.zones) for run in head.runs]


async def until(deployment: Replicated, topic: Topic, holds: Callable[[Head], bool]) -> Head:
    """Return the head as soon as it is as it should be. Who never gets there has failed."""
    async with asyncio.timeout(120):
        while not holds(head := await deployment.head(topic)):
            await asyncio.sleep(0.005)
    return head
