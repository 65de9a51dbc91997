"""A deployment in memory or in directories: zones that fail, gateways, controllers, one clock."""

import itertools
import random
from pathlib import Path

from service.controller.controller import Controller
from service.controller.survey import zones_of
from service.log.gateway import Gateway, Position, Wait
from service.settings import Settings
from service.world.clock import World
from storage import keys
from storage.errors import RiachoError
from storage.head import head as heads
from storage.head.head import Head
from storage.maintenance.fsck import LaneReport, check_lane
from storage.reading.reader import Budget
from storage.reading.table_batches import TableBatches
from storage.topics.topics import Topics
from storage.zones.items import ZoneItem
from storage.zones.zones import Zones
from tests.storage.helpers.failing_zones import FailingZones
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import Clock, new_metadata

ALL = Budget(records_max=10**6, bytes_max=10**9)
INTERVAL_S = 5.0


class Deployment:
    def __init__(self, names: str = "abc", root: Path | None = None) -> None:
        self.clock = Clock()
        self.metadata = FaultyMetadata(new_metadata())
        self.zones = FailingZones(names, root)
        # In memory only a hanging zone takes time; a disk may be slow.
        self.probe_timeout_s = 0.05 if root is None else 60.0
        self._seeds = itertools.count()
        self.topics = self._topics(self.world())
        self.written: dict[int, list[bytes]] = {}

    def world(self) -> World:
        chance = random.Random(next(self._seeds))
        return World(
            now_ms=self.clock.now_ms,
            monotonic_s=self.clock.monotonic_s,
            sleep=self.clock.sleep,
            random=chance.random,
            random_bytes=chance.randbytes,
        )

    def _topics(self, world: World) -> Topics:
        return Topics(
            self.metadata, self.zones.names, world.new_id, world.now_ms, world.monotonic_s
        )

    def controller(self, name: str = "one", **settings: object) -> Controller:
        world = self.world()
        given = {
            "controller_probe_timeout_s": self.probe_timeout_s,
            "controller_scan_s": 10,
            **settings,
        }
        return Controller(
            Settings.model_validate(given),
            self.zones,
            self.metadata,
            self._topics(world),
            world,
            name,
        )

    def gateway(self, **settings: object) -> Gateway:
        # Each gateway has its own view of the health of zones.
        zones = Zones(self.zones.failing)
        given = {"linger_max_ms": 3_600_000, **settings}
        return Gateway(Settings.model_validate(given), zones, self.metadata, self.world())

    async def produce(self, gateway: Gateway, *values: bytes, partition: int = 0) -> None:
        batch = batch_of(*values)
        await gateway.produce("t", batch, batch.nbytes, partition)
        self.written.setdefault(partition, []).extend(values)

    async def read(self, partition: int = 0) -> list[bytes]:
        """Return all values, read through a new gateway."""
        gateway, found, offset = self.gateway(), list[bytes](), 0
        while True:
            result = await gateway.fetch("t", partition, Position(offset=offset), ALL, Wait())
            for _, batch in result.fetched.batches(10**9):
                found += batch.column(2).to_pylist()
            offset = result.fetched.end_offset
            if offset >= result.high_watermark:
                return found

    async def check_all_is_read(self) -> None:
        for partition, values in self.written.items():
            assert await self.read(partition) == values

    async def tick(self, *controllers: Controller, times: int = 1) -> list[bool]:
        """Let time pass and the controllers tick, `times` times; return which led last."""
        held: list[bool] = []
        for _ in range(times):
            self.clock.now_s += INTERVAL_S
            held = []
            for controller in controllers:
                try:
                    held.append(await controller.tick())
                except RiachoError:
                    held.append(False)
        return held

    async def heads(self, name: str = "t") -> list[Head]:
        topic = await self.topics.read(name)
        items = await self.metadata.get_many(
            [keys.head(topic.topic_id, lane) for lane in topic.lanes]
        )
        return [heads.decode(items[key].value) for key in sorted(items)]

    async def in_sync(self) -> list[str]:
        """Return the zones in sync of every lane, as `abc`."""
        return [
            "".join(sorted(name for n, name in enumerate(head.zones) if head.isr >> n & 1))
            for head in await self.heads()
        ]

    async def zone(self, name: str) -> ZoneItem:
        return (await zones_of(self.metadata))[name]

    async def fsck(self) -> LaneReport:
        total = LaneReport()
        for head in await self.heads():
            total.add(await check_lane(self.zones, head, batches=TableBatches(self.metadata)))
        return total
