"""Connectors on a schedule: a call runs their tasks for as long as it may take, then frees them.

A call every minute with a limit of a minute keeps tasks running almost all the time. Without
connectors a call ends after one look. What is not committed when it is cut off is done again by
the next one.
"""

import asyncio
from typing import Any, Final

from service.connect.running.assembly import opened, runner_of
from service.connect.running.planning import Plugins
from service.connect.running.run import Timing
from service.process.logs import configure_logging
from service.process.thawing import thawing
from service.process.without_pandas import refuse_pandas
from service.serverless.context import left_s
from service.serverless.settings import controller_settings
from service.settings import Settings
from service.world.clock import World, real_world

MARGIN_S: Final = 8.0
"""Time left for tasks to end: they commit what they have, and free their leases."""

UNTOLD_S: Final = 50.0
"""How long a call takes whose context does not say how long it may."""


class ScheduledConnectors:
    """Handles events of a schedule."""

    def __init__(
        self,
        settings: Settings | None = None,
        world: World | None = None,
        *,
        plugins: Plugins | None = None,
        timing: Timing | None = None,
    ) -> None:
        refuse_pandas()
        self._settings = settings or controller_settings()
        self._world = thawing(world or real_world())
        configure_logging(self._settings.log_level, self._settings.log_format)
        self._plugins = plugins
        self._timing = timing or Timing(stop_s_max=MARGIN_S / 2)

    def __call__(self, _event: object, context: Any) -> dict[str, Any]:
        """Run what is due, and return a report. Raises the errors of the stores."""
        may_take_s = left_s(context)
        until_s = self._world.monotonic_s() + (UNTOLD_S if may_take_s is None else may_take_s)
        return asyncio.run(self._call(until_s - MARGIN_S))

    async def _call(self, until_s: float) -> dict[str, Any]:
        # Opened by each call: connections do not outlive what freezes a function.
        async with opened(self._settings, self._world) as parts:
            runner = runner_of(parts, plugins=self._plugins, timing=self._timing)
            began = 0
            try:
                while self._world.monotonic_s() < until_s:
                    await runner.tick(until_s)
                    began = max(began, runner.run_count)
                    if not runner.connector_count:
                        break
                    await self._world.sleep(self._timing.tick_s)
            finally:
                await runner.aclose()
            return {"connectors": runner.connector_count, "tasks": began}
