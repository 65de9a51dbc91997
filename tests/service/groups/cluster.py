"""Gateways without HTTP that share one table, on clocks that the test moves."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.groups.assignors import TopicPartition
from service.groups.coordinator import Beat, Coordinator
from service.groups.offsets import Offsets
from service.groups.state import Group, Member
from service.world.clock import World
from storage.stores.metadata import MetadataStore, Op, Put, Versioned
from storage.topics.topics import Topics
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.worlds import new_ids, new_metadata

GROUP = "g"
TOPIC = "t"
SESSION_MS = 10_000


def member(*topics: str, session_ms: int = SESSION_MS, **fields: str) -> Member:
    return Member(topics=topics or (TOPIC,), session_timeout_ms=session_ms, **fields)


def matching(pattern: str) -> Member:
    return Member(pattern=pattern, session_timeout_ms=SESSION_MS)


@dataclass
class Gateway:
    coordinator: Coordinator
    offsets: Offsets
    topics: Topics
    world: World
    skew_ms: int = 0


class Cluster:
    """Time passes for all at the same pace; what the time of day is, each has its own idea."""

    def __init__(self, metadata: MetadataStore | None = None) -> None:
        self.metadata = FaultyMetadata(metadata or new_metadata())
        self.now_s = 1_000_000.0
        self._seeds = iter(range(10**6))

    def gateway(self, skew_ms: int = 0) -> Gateway:
        seed = next(self._seeds)
        chance = random.Random(seed)

        def now_ms() -> int:
            return int(self.now_s * 1000) + gateway.skew_ms

        world = World(
            now_ms=now_ms,
            monotonic_s=lambda: self.now_s,
            sleep=self._sleep,
            random=chance.random,
            random_bytes=chance.randbytes,
        )
        topics = Topics(self.metadata, ["a"], new_ids(seed), now_ms, world.monotonic_s)
        coordinator = Coordinator(self.metadata, topics, world)
        offsets = Offsets(self.metadata, topics, coordinator, world)
        gateway = Gateway(coordinator, offsets, topics, world, skew_ms)
        return gateway

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def with_topic(cluster: Cluster, partitions: int = 4, name: str = TOPIC) -> Gateway:
    """Return a gateway of the cluster, which now has a topic."""
    gateway = cluster.gateway()
    await gateway.topics.create(name, partitions=partitions)
    return gateway


async def follow(gateway: Gateway, beat: Beat, group: str = GROUP) -> Beat:
    """Beat as a member does that reads exactly what it was told to."""
    return await gateway.coordinator.heartbeat(
        group, beat.member_id, beat.generation, beat.assignment
    )


async def settled(gateway: Gateway, *beats: Beat, rounds: int = 3) -> list[Beat]:
    """Return what everyone is told once all have heard of all changes."""
    last = list(beats)
    for _ in range(rounds):
        last = [await follow(gateway, beat) for beat in last]
    return last


async def group_of(gateway: Gateway, group: str = GROUP) -> Group:
    return (await gateway.coordinator.read(group)).group


def places(count: int, topic: str = TOPIC) -> list[TopicPartition]:
    return [(topic, partition) for partition in range(count)]


class CountingMetadata:
    """A `MetadataStore` that counts what a bill would."""

    def __init__(self, inner: MetadataStore) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()

    async def get(self, key: str) -> Versioned | None:
        self.calls["reads"] += 1
        item = await self.inner.get(key)
        self._read([] if item is None else [item])
        return item

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        self.calls["reads"] += 1
        items = await self.inner.get_many(keys)
        self._read(list(items.values()))
        return items

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        self.calls["lists"] += 1
        page = await self.inner.list(prefix, after=after, limit=limit)
        self._read([item for _, item in page])
        return page

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        self.calls["writes"] += 1
        self.calls["written items"] += len(ops)
        self.calls["written bytes"] += sum(len(op.value) for op in ops if isinstance(op, Put))
        for op in ops:
            self.calls[f"written {op.key.split('/')[0]}"] += 1
        return await self.inner.transact(ops)

    def _read(self, items: Sequence[Versioned]) -> None:
        self.calls["read items"] += len(items)
        self.calls["read bytes"] += sum(len(item.value) for item in items)

    async def close(self) -> None:
        await self.inner.close()
