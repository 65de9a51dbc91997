"""Checking a whole deployment, lane by lane, from the stores that its settings name."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from service.clock import World
from service.settings import Settings
from service.stores import open_table, open_zones
from storage import head as heads
from storage import keys
from storage.fsck import LaneReport, check_steadily
from storage.head import Head
from storage.metadata import MetadataStore
from storage.topics import Topic, Topics
from storage.zones import Zones

LANES_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class CheckedLane:
    topic: str
    lane: int
    report: LaneReport


class Check:
    """What is to be checked."""

    def __init__(self, zones: Zones, metadata: MetadataStore, topics: Sequence[Topic]) -> None:
        self._zones = zones
        self._metadata = metadata
        self._topics = topics

    @property
    def lane_count(self) -> int:
        return sum(len(topic.lanes) for topic in self._topics)

    async def run(
        self, *, sizes_only: bool = False, seen: Callable[[int], None] = lambda _: None
    ) -> AsyncIterator[CheckedLane]:
        """Yield the report of every lane, in any order."""
        lanes = ((topic, lane) for topic in self._topics for lane in topic.lanes)
        running: set[asyncio.Task[CheckedLane]] = set()
        try:
            while True:
                while len(running) < LANES_AT_ONCE and (one := next(lanes, None)) is not None:
                    running.add(asyncio.create_task(self._lane(*one, sizes_only, seen)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()

    async def _lane(
        self, topic: Topic, lane: int, sizes_only: bool, seen: Callable[[int], None]
    ) -> CheckedLane:
        async def read() -> Head | None:
            item = await self._metadata.get(keys.head(topic.topic_id, lane))
            return None if item is None else heads.decode(item.value)

        report = await check_steadily(self._zones, read, sizes_only=sizes_only, seen=seen)
        return CheckedLane(topic.name, lane, report)


@asynccontextmanager
async def opened(settings: Settings, world: World, names: Sequence[str]) -> AsyncIterator[Check]:
    """Open the stores of `settings` to check the named topics; none named: all."""
    zones = open_zones(settings)
    try:
        metadata = open_table(settings, world)
        try:
            topics = Topics(metadata, zones.names, world.new_id, world.now_ms, world.monotonic_s)
            wanted = [await topics.read(name) for name in names] or await topics.all()
            yield Check(zones, metadata, wanted)
        finally:
            await metadata.close()
    finally:
        await zones.close()
