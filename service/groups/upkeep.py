"""Periodic upkeep of groups: ends expired sessions and deletes expired offsets."""

from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.process.upkeep import Upkeep
from service.settings import Settings
from service.world.clock import World


class GroupUpkeep(Upkeep):
    def __init__(
        self, coordinator: Coordinator, offsets: Offsets, settings: Settings, world: World
    ) -> None:
        super().__init__(settings, world)
        self._coordinator = coordinator
        self._offsets = offsets

    async def end_overdue(self) -> None:
        """End the expired sessions of all groups."""
        await self._coordinator.tick()

    async def expire(self) -> None:
        """Delete groups without members or commits for the retention time of offsets."""
        await self._offsets.expire(self._settings.offsets_retention_minutes * 60_000)
