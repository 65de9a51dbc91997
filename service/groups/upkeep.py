"""Periodic upkeep of groups: ends expired sessions and deletes expired offsets."""

from contextlib import suppress
from typing import Final

from service.clock import World
from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.settings import Settings
from storage.errors import RiachoError

EXPIRY_EVERY_S: Final = 3600.0


class GroupUpkeep:
    def __init__(
        self, coordinator: Coordinator, offsets: Offsets, settings: Settings, world: World
    ) -> None:
        self._coordinator = coordinator
        self._offsets = offsets
        self._settings = settings
        self._world = world
        self._expired_s = world.monotonic_s()

    async def run(self) -> None:
        """Call `tick` periodically until cancelled; what fails is retried the next time."""
        while self._settings.group_upkeep_s:
            # Jitter, so that gateways do not all run at the same moment.
            await self._world.sleep(self._settings.group_upkeep_s * (0.5 + self._world.random()))
            with suppress(RiachoError):
                await self.tick()

    async def tick(self) -> None:
        """End sessions that are over and, once an hour, delete expired groups."""
        await self._coordinator.tick()
        if self._world.monotonic_s() - self._expired_s >= EXPIRY_EVERY_S:
            self._expired_s = self._world.monotonic_s()
            await self._offsets.expire(self._settings.offsets_retention_minutes * 60_000)
