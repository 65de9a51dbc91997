"""Live gateways: every gateway periodically writes a heartbeat, as an item of its own.

Only operators, clients that look for another address and the controller (`failing_zones`) use the
list, so a failed beat is not retried before the next one is due.

Clocks are not compared. Every beat gives the item a new version, and a reader considers a gateway
alive as long as it sees the version change, by the reader's own clock. So a gateway whose clock is
wrong is listed, and one that died is not. Every gateway reads the others' items with each of its
own beats. Only for an item that it sees for the first time it uses the time in the item: a time
far from its own, past or future, counts as dead.
"""

import asyncio
import os
import socket
from contextlib import suppress
from typing import Final

import msgspec

from service.process.version import VERSION
from service.settings import Settings
from service.world.clock import World
from storage import keys
from storage.errors import RiachoError
from storage.formats import frames
from storage.stores.metadata import Delete, MetadataStore, Put
from storage.zones.zones import Zones

MISSED_BEATS_MAX: Final = 3
"""A gateway is not listed as alive after this many missed beats."""


class KafkaAddress(msgspec.Struct, frozen=True):
    """Where Kafka's clients reach a gateway, and as which broker they know it."""

    node_id: int
    host: str
    port: int
    zone: str = ""


class GatewayItem(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    url: str
    host: str
    pid: int
    version: str
    started_ms: int
    beat_ms: int
    failing: list[str] = []
    """Zones that this gateway avoids, because they failed recently."""
    kafka: KafkaAddress | None = None
    """None: it does not listen for Kafka's clients, or not any more."""


_DECODER: Final = msgspec.json.Decoder(GatewayItem)


def decode(value: bytes) -> GatewayItem:
    """Return the item of a gateway, or raise `Corrupt`."""
    return frames.decoded(value, _DECODER, "the item of a gateway")


class LiveGateways:
    def __init__(
        self,
        settings: Settings,
        metadata: MetadataStore,
        world: World,
        zones: Zones | None = None,
    ) -> None:
        self._zones = zones
        self.gateway_id = world.random_bytes(6).hex()
        self._settings = settings
        self._metadata = metadata
        self._world = world
        self._started_ms = world.now_ms()
        self._observed = Observed(settings, metadata, world)
        self._version: str | None = None
        self.kafka: KafkaAddress | None = None
        """Goes out with the next heartbeat."""

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while self._settings.gateway_heartbeat_s:
            with suppress(RiachoError):
                await self.beat()
                await self.gateways()
            await self._world.sleep(self._settings.gateway_heartbeat_s)

    async def beat(self) -> None:
        item = GatewayItem(
            id=self.gateway_id,
            url=self._settings.advertised_url,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=VERSION,
            started_ms=self._started_ms,
            beat_ms=self._world.now_ms(),
            failing=self._failing(),
            kafka=self.kafka,
        )
        key = keys.gateway(self.gateway_id)
        if self._version is None:
            # Unknown before the first beat and after a failed one, which may have been stored.
            stored = await self._metadata.get(key)
            self._version = None if stored is None else stored.version
        expected, self._version = self._version, None
        versions = await self._metadata.transact([Put(key, msgspec.json.encode(item), expected)])
        self._version = versions[key]

    def _failing(self) -> list[str]:
        if self._zones is None:
            return []
        return [name for name in self._zones.names if self._zones.is_avoided(name)]

    async def leave(self) -> None:
        if self._version is not None:
            with suppress(RiachoError):
                await self._metadata.transact(
                    [Delete(keys.gateway(self.gateway_id), self._version)]
                )

    async def gateways(self) -> list[GatewayItem]:
        """Return the gateways that sent a heartbeat recently."""
        return await self._observed.alive()


class Observed:
    """The items of gateways, as one reader has seen them change."""

    def __init__(self, settings: Settings, metadata: MetadataStore, world: World) -> None:
        self._missed_s = MISSED_BEATS_MAX * max(1.0, settings.gateway_heartbeat_s)
        self._metadata = metadata
        self._world = world
        self._seen: dict[str, tuple[str, float]] = {}
        """By key: the version of the item, and when the reader dates its last beat."""

    async def alive(self) -> list[GatewayItem]:
        """Return the gateways whose items have changed recently."""
        # Read the clocks before the call: gateways go on beating while this process waits for it.
        now_s, now_ms = self._world.monotonic_s(), self._world.now_ms()
        items = await self._metadata.list(keys.GATEWAYS)
        seen, found = dict[str, tuple[str, float]](), []
        for key, stored in items:
            item = decode(stored.value)
            version, beat_s = self._seen.get(key, (None, now_s - _age_s(item, now_ms)))
            if version not in (None, stored.version):
                beat_s = now_s
            seen[key] = stored.version, beat_s
            if now_s - beat_s <= self._missed_s:
                found.append(item)
        self._seen = seen
        return found

    async def failing_zones(self) -> set[str]:
        """Return the zones that a live gateway reports as failing."""
        return {name for item in await self.alive() for name in item.failing}


def _age_s(item: GatewayItem, now_ms: int) -> float:
    return abs(now_ms - item.beat_ms) / 1000


async def stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
