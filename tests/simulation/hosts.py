"""Gateways, each in a process of its own."""

import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.settings import Settings
from service.world.clock import World
from storage.topics.topics import Topic
from tests.simulation.cloud import Cloud
from tests.simulation.virtual_loop import Process, VirtualLoop
from tests.simulation.world import Faults, FaultyLink, world_of

if TYPE_CHECKING:
    from tests.simulation.kafka.connections import Broker

T = TypeVar("T")

Create: TypeAlias = Callable[[str, int, Mapping[str, object]], Awaitable[Topic]]
"""Creates a topic: its name, number of partitions, and configuration."""

SKEW_MS = 300_000
"""Maximum error of a gateway's clock."""


@dataclass(eq=False)
class Host:
    """A gateway in a process of its own."""

    process: Process
    link: FaultyLink
    gateway: Gateway
    app: App = field(repr=False)
    broker: "Broker | None" = field(default=None, repr=False)
    """Its door for Kafka's clients, if it has one."""

    async def serve(self, work: Coroutine[Any, Any, T]) -> T:
        """Do a client's work in the process; while the process is paused, the client waits."""
        return await self.process.serve(work)

    def live(self) -> None:
        """Start the background work of a gateway."""
        for work in (
            self.app._registry.run(),
            self.app._upkeep.run(),
            self.app._transaction_upkeep.run(),
            self.app._controller().run(),
        ):
            self.process.begin(work)


class Hosts:
    """Starts gateways."""

    def __init__(
        self,
        loop: VirtualLoop,
        cloud: Cloud,
        chance: random.Random,
        settings: Callable[[], Settings],
        inline_bytes_max: int,
    ) -> None:
        self._loop = loop
        self._cloud = cloud
        self._chance = chance
        self._settings = settings
        self._inline_bytes_max = inline_bytes_max
        self.links: list[FaultyLink] = []
        """Links of all gateways that were ever started."""

    def start(self, faults: Faults) -> Host:
        chance = random.Random(self._chance.randrange(2**62))
        world: World = world_of(self._loop, chance, chance.randint(-SKEW_MS, SKEW_MS))
        link = FaultyLink(self._loop, chance, faults)
        zones, table = self._cloud.zones(link), self._cloud.table(link)
        gateway = Gateway(self._settings(), zones, table, world)
        gateway._lane_runtime.inline_bytes_max = self._inline_bytes_max
        registry = LiveGateways(gateway.settings, table, world, zones)
        app = App(gateway, registry, Metrics())
        host = Host(Process(self._loop), link, gateway, app)
        link.process = host.process
        self.links.append(link)
        return host
