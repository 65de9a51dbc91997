"""Periodic upkeep, beside the calls of clients: what is overdue is ended, what is old deleted."""

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final

from service.settings import Settings
from service.world.clock import World
from storage.errors import RiachoError

EXPIRY_EVERY_S: Final = 3600.0


class Upkeep(ABC):
    def __init__(self, settings: Settings, world: World) -> None:
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
        """End what is overdue and, once an hour, delete what has expired."""
        await self.end_overdue()
        if self._world.monotonic_s() - self._expired_s >= EXPIRY_EVERY_S:
            self._expired_s = self._world.monotonic_s()
            await self.expire()

    @abstractmethod
    async def end_overdue(self) -> None: ...

    @abstractmethod
    async def expire(self) -> None: ...
