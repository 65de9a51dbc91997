"""Who serves: every gateway says from time to time that it lives, as an item of its own.

Nothing depends on the answer but people and clients that look for another address, so a beat
that fails is simply tried again with the next one.
"""

import asyncio
import os
import socket
from contextlib import suppress
from typing import Final

import msgspec

from service.clock import World
from service.settings import Settings
from service.version import VERSION
from storage import frames, keys
from storage.errors import RiachoError
from storage.metadata import Delete, MetadataStore, Put
from storage.zones import Zones

MISSED_BEATS_MAX: Final = 3
"""A gateway that missed so many beats is shown as gone."""


class GatewayItem(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    url: str
    host: str
    pid: int
    version: str
    started_ms: int
    beat_ms: int
    failing: list[str] = []
    """Zones that this gateway could not use lately."""


_DECODER: Final = msgspec.json.Decoder(GatewayItem)


def decode(value: bytes) -> GatewayItem:
    """Return the item of a gateway, or raise `Corrupt`."""
    return frames.decoded(value, _DECODER, "the item of a gateway")


class Registry:
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
        self._version: str | None = None

    async def run(self) -> None:
        """Beat until cancelled."""
        while self._settings.gateway_heartbeat_s:
            with suppress(RiachoError):
                await self.beat()
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
        )
        key = keys.gateway(self.gateway_id)
        if self._version is None:
            # After an unanswered beat the version is not known, and the item may be there.
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
        """Return the gateways that beat lately."""
        return await _alive(self._metadata, self._world, self._settings)


async def failing_zones(metadata: MetadataStore, world: World, settings: Settings) -> set[str]:
    """Return the zones that some gateway could not use lately."""
    return {name for item in await _alive(metadata, world, settings) for name in item.failing}


async def _alive(metadata: MetadataStore, world: World, settings: Settings) -> list[GatewayItem]:
    missed_ms = int(MISSED_BEATS_MAX * 1000 * max(1.0, settings.gateway_heartbeat_s))
    # Dated before the call: gateways beat on while this process waits for the answer.
    oldest_ms = world.now_ms() - missed_ms
    items = [decode(item.value) for _, item in await metadata.list("gateway/")]
    return [item for item in items if item.beat_ms >= oldest_ms]


async def stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
