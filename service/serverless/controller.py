"""The controller on a schedule: one tick per call, more of them while there is much to copy.

A call also does the upkeep that gateways do in the background elsewhere: it ends sessions of
groups and overdue transactions that no request has ended, and once an hour deletes what has
expired. The schedule keeps the environment warm, so state of a minute ago is still in memory.
"""

import asyncio
import logging
from typing import Any, Final

from service.controller.controller import Controller
from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.process.logs import configure_logging
from service.process.stores import open_table, open_zones
from service.process.thawing import thawing
from service.process.without_pandas import refuse_pandas
from service.serverless.context import left_s
from service.serverless.metrics import MetricLog
from service.serverless.settings import controller_settings
from service.settings import Settings
from service.transactions.ids import ProducerIds
from service.transactions.items import TransactionItems
from service.transactions.upkeep import TransactionUpkeep
from service.world.clock import World, real_world
from storage.errors import RiachoError
from storage.topics.topics import Topics

log = logging.getLogger("riacho.controller")

MARGIN_S: Final = 15.0
"""Minimum time left to begin another tick: one tick may copy for a few seconds."""

MINUTES: Final = 60


class ScheduledController:
    """Handles events of a schedule."""

    def __init__(
        self,
        settings: Settings | None = None,
        world: World | None = None,
        metrics: MetricLog | None = None,
    ) -> None:
        refuse_pandas()
        settings = settings or controller_settings()
        world = thawing(world or real_world())
        configure_logging(settings.log_level, settings.log_format)
        self._settings = settings
        self._world = world
        self._metrics = metrics or MetricLog(world.now_ms)
        self._loop = asyncio.new_event_loop()
        self._metadata = metadata = open_table(settings, world)
        self._zones = zones = open_zones(settings)
        topics = Topics(
            metadata,
            zones.names,
            world.new_id,
            world.now_ms,
            world.monotonic_s,
            back_off=world.back_off,
        )
        self.controller = Controller(
            settings, zones, metadata, topics, world, world.random_bytes(6).hex()
        )
        self._coordinator = Coordinator(metadata, topics, world)
        self._offsets = Offsets(metadata, topics, self._coordinator, world)
        items = TransactionItems(metadata, ProducerIds(metadata, world), world)
        self._transactions = TransactionUpkeep(metadata, items, settings, world)
        self._expired_hour = -1

    def __call__(self, _event: object, context: Any) -> dict[str, Any]:
        """Do what is due, and return a report. Raises the errors of the stores."""
        # Without a time limit in the context there is one tick.
        until_s = self._world.monotonic_s() + (left_s(context) or 0.0) - MARGIN_S
        return self._loop.run_until_complete(self._call(until_s))

    async def _call(self, until_s: float) -> dict[str, Any]:
        ticks, is_controller = 0, False
        # A tick that used up its time for copying has more to copy; other ticks only wait.
        has_more = True
        while has_more:
            began_s = self._world.monotonic_s()
            ticks, is_controller = ticks + 1, await self.controller.tick()
            now_s = self._world.monotonic_s()
            has_more = (
                self.controller.is_behind
                and now_s - began_s >= self._settings.controller_step_s
                and now_s < until_s
            )
        await self._coordinator.tick()
        await self._transactions.tick()
        expired = await self._expire()
        self._metrics.write({"ControllerTick": 1})
        return {
            "controller": is_controller,
            "ticks": ticks,
            "behind": self.controller.is_behind,
            "expired": expired,
        }

    async def _expire(self) -> bool:
        """Delete what has expired, in the first minute of an hour, which needs no stored state."""
        hour, minute = divmod(self._world.now_ms() // 60_000, MINUTES)
        if minute != 0 or hour == self._expired_hour:
            return False
        try:
            await self._offsets.expire(self._settings.offsets_retention_minutes * 60_000)
            await self._transactions.expire()
        except RiachoError as error:
            log.warning("what has expired is still there: %s", error)
            return False
        self._expired_hour = hour
        return True

    def close(self) -> None:
        """Release the lease and close the stores. Lambda never calls this; tests do."""
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _close(self) -> None:
        await self.controller.leave()
        await self._metadata.close()
        await self._zones.close()
