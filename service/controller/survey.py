"""Survey of all lanes of a deployment, for the controller and for `/v1/cluster`.

It reads every head, so it costs a read of the table per lane. The controller does it
periodically; requests to `/v1/cluster` within a second share one survey.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from typing import Final

from storage import keys
from storage.formats import zone_sets
from storage.formats.zone_sets import EVERYWHERE
from storage.head import head as heads
from storage.head import replication
from storage.head.head import Head
from storage.stores.metadata import MetadataStore
from storage.tasks import shared
from storage.topics.topics import Topic, Topics
from storage.zones import items as zone_items
from storage.zones.items import ZoneItem

HEADS_AT_ONCE: Final = 100
AGE_MAX_S: Final = 1.0


@dataclass(slots=True)
class ZoneCounts:
    """Numbers of partitions that one zone leads, replicates and has in sync."""

    leaders: int = 0
    replicas: int = 0
    in_sync: int = 0


@dataclass(slots=True)
class Counts:
    topics: int = 0
    partitions: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    offline: int = 0
    reassigning: int = 0
    zones: dict[str, ZoneCounts] = field(default_factory=dict)

    def add(self, topic: Topic, head: Head, away: Collection[str]) -> None:
        """Count a lane; `away` are zones that cannot be reached."""
        count, factor = head.partition_count, topic.replication_factor
        alive = zone_sets.without(EVERYWHERE, replication.zones_named(head, away))
        self.partitions += count
        self.under_replicated += count * replication.is_under_replicated(head, factor)
        self.under_min_isr += count * (zone_sets.count(head.isr) < topic.in_sync_min)
        self.offline += count * replication.is_offline(head, alive)
        self.reassigning += count * replication.is_reassigning(head, factor)
        for number in head.replicas:
            zone = self.zones.setdefault(head.zones[number], ZoneCounts())
            zone.replicas += count
            zone.in_sync += count * zone_sets.has(head.isr, number)
        for leader in replication.leaders(head):
            if leader is not None:
                self.zones.setdefault(head.zones[leader], ZoneCounts()).leaders += 1


async def lanes(
    metadata: MetadataStore, topics: Collection[Topic]
) -> AsyncIterator[tuple[Topic, str, Head]]:
    """Yield every lane that exists: its topic, the key of its head, and its head."""
    wanted = [(keys.head(topic.topic_id, n), topic) for topic in topics for n in topic.lanes]
    for start in range(0, len(wanted), HEADS_AT_ONCE):
        some = dict(wanted[start : start + HEADS_AT_ONCE])
        found = await metadata.get_many(list(some))
        for key, topic in some.items():
            if key in found:
                yield topic, key, heads.decode(found[key].value, key)


async def zones_of(metadata: MetadataStore) -> dict[str, ZoneItem]:
    """Return the items of all zones, as the controller last wrote them."""
    items = [zone_items.decode(item.value) for _, item in await metadata.list(keys.ZONES)]
    return {item.name: item for item in items}


class Survey:
    def __init__(self, metadata: MetadataStore, topics: Topics) -> None:
        self._metadata = metadata
        self._topics = topics
        self._counting: tuple[asyncio.Task[Counts], float] | None = None

    async def counts(self) -> Counts:
        """Return the counts, at most `AGE_MAX_S` old."""
        now_s = asyncio.get_running_loop().time()
        if self._counting is None or now_s - self._counting[1] > AGE_MAX_S:
            self._counting = shared(self._count()), now_s
        return await asyncio.shield(self._counting[0])

    async def _count(self) -> Counts:
        items, topics = await zones_of(self._metadata), await self._topics.all()
        away = [item.name for item in items.values() if item.state != "online"]
        counts = Counts(topics=len(topics))
        async for topic, _, head in lanes(self._metadata, topics):
            counts.add(topic, head, away)
        return counts
