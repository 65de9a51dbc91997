"""Whether this gateway can write, and probes that detect when it can again.

A gateway whose disk is full, or that has no descriptors left, reports at `/ready` that it is not
ready (`obstacle`), and gets no requests then. So it must probe by itself: while a store is in
trouble (`storage/stores/trouble.py`), it writes something small to it every `PROBED_EVERY_S`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from service.world.clock import World
from storage import keys
from storage.errors import RiachoError
from storage.stores.metadata import MetadataStore
from storage.stores.trouble import MayFail
from storage.zones.zones import Zones

PROBED_EVERY_S: Final = 2.0
PROBE_S_MAX: Final = 10.0
PROBE_BYTES: Final = 64 * 1024
"""Not just a few bytes: those may fit on a full disk."""


def obstacle(zones: Zones, metadata: MetadataStore) -> str:
    """Return why writes fail: the table takes none, or no zone does. Empty if writes work.

    One working zone is enough: the others leave the ISR.
    """
    if table := reason_of(metadata):
        return table
    reasons = [reason_of(zones.store(name)) for name in zones.names]
    return reasons[0] if all(reasons) else ""


def reason_of(store: object) -> str:
    return store.trouble.reason if isinstance(store, MayFail) else ""


class StoreWatch:
    """Writes to stores that are in trouble until a write succeeds."""

    def __init__(
        self,
        zones: Zones,
        metadata: MetadataStore,
        beat: Callable[[], Awaitable[None]],
        world: World,
    ) -> None:
        """`beat` writes this gateway's regular heartbeat to the table."""
        self._zones = zones
        self._metadata = metadata
        self._beat = beat
        self._world = world

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self._world.sleep(PROBED_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Try once to write to each store that is in trouble."""
        if reason_of(self._metadata):
            with suppress(RiachoError, TimeoutError):
                async with asyncio.timeout(PROBE_S_MAX):
                    await self._beat()
        for name in self._zones.names:
            if reason_of(self._zones.store(name)):
                with suppress(RiachoError, TimeoutError):
                    async with asyncio.timeout(PROBE_S_MAX):
                        await self._probe(name)

    async def _probe(self, name: str) -> None:
        store, probe = self._zones.store(name), self._world.new_id().hex()
        key = keys.zone_probe(probe)
        await store.put(key, [bytes(PROBE_BYTES)])
        await store.delete([key])
