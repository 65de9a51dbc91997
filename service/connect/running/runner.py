"""The runner: plans what is to be planned, and runs every task whose lease it gets.

It looks at the items of all connectors regularly. Runs whose connector has changed, or is paused,
stopped or deleted, are told to end; they could not write any more anyway. Tasks that are due and
that nobody runs are begun. One with many runs hesitates, so that others come first. All of it may
be done by any number of processes: leases and versions decide.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from service.connect.access.parts import ConnectParts
from service.connect.connectors.catalog import plugin_of
from service.connect.running.left_behind import LeftBehind
from service.connect.running.planning import Planner, Plugins, is_due
from service.connect.running.run import MakeLoop, TaskRun, Timing
from service.connect.tasks.holding import Holding
from service.connect.tasks.items import (
    ConnectorItem,
    TaskItem,
    decode_connector,
    decode_task,
    is_planned,
)
from storage import keys
from storage.errors import OutcomeUnknown, RiachoError, StoreUnavailable
from storage.leases import Lease
from storage.stores.metadata import pages
from storage.tasks import begin, drop_error

log: Final = logging.getLogger("riacho.connect")

RUNS_MAX: Final = 500
"""Of one process; further tasks wait for others."""

HESITATION_S: Final = 0.1
HESITATION_S_MAX: Final = 3.0
"""How much longer a task must be free for each that this process runs, and at most."""


class ConnectRunner:
    def __init__(
        self,
        parts: ConnectParts,
        make_loop: MakeLoop,
        *,
        worker: str,
        plugins: Plugins = plugin_of,
        timing: Timing | None = None,
        holder: str = "",
    ) -> None:
        """`worker` says where this process is, as `host:port` or `host:pid`.

        `holder` is whom leases are of: a name of its own, unless it follows a process that is dead.
        """
        self._parts = parts
        self._make_loop = make_loop
        self._worker = worker
        self._plugins = plugins
        self._timing = timing or Timing()
        self._metadata = parts.gateway.metadata
        self._world = parts.gateway.world
        self._holder = holder or self._world.random_bytes(8).hex()
        self._planner = Planner(parts, plugins, worker)
        self._planning: dict[str, asyncio.Task[None]] = {}
        self._runs: dict[str, tuple[TaskRun, asyncio.Task[None]]] = {}
        self._leases: dict[str, tuple[Lease, float]] = {}
        """Of tasks that others hold, or that are free, and when they were first seen so."""
        self._looked_s = float("-inf")
        self._left_behind = LeftBehind(self._metadata, parts.gateway.topics)
        self._cleaning: asyncio.Task[None] | None = None
        self._cleaned_s = self._world.monotonic_s()
        self.connector_count = 0

    @property
    def run_count(self) -> int:
        return len(self._runs)

    async def run(self, until_s: float | None = None) -> None:
        """Run what is to be run, until cancelled or until a moment of the monotonic clock."""
        is_failing = False
        while until_s is None or self._world.monotonic_s() < until_s:
            try:
                await self.tick(until_s)
                is_failing = False
            except RiachoError as error:
                if not is_failing:
                    log.warning("connectors cannot be looked at: %s", error)
                is_failing = True
            timing = self._timing
            await self._world.sleep(timing.tick_s if self.connector_count else timing.idle_tick_s)

    async def aclose(self) -> None:
        """End all runs and free their leases; what does not end soon is cut off."""
        for run, _ in self._runs.values():
            run.end("this process stops")
        tasks = [*self._planning.values(), *(task for _, task in self._runs.values())]
        for planning in self._planning.values():
            planning.cancel()
        if self._cleaning is not None:
            tasks.append(self._cleaning)
            self._cleaning.cancel()
        if tasks:
            # Runs cut themselves off.
            await asyncio.wait(tasks)
        for task in tasks:
            drop_error(task)

    async def tick(self, until_s: float | None = None) -> None:
        """Look once."""
        connectors = await self._connectors()
        if len(connectors) < self.connector_count:
            self._cleaned_s = float("-inf")  # One was deleted.
        self.connector_count = len(connectors)
        await self._end_changed(connectors)
        now_ms = self._world.now_ms()
        for name, connector in connectors.items():
            if name not in self._planning and is_due(connector, self._plugins, now_ms):
                self._planning[name] = task = begin(self._planner.plan(name))
                task.add_done_callback(partial(self._planned, name))
        if self._world.monotonic_s() - self._looked_s >= self._timing.look_s:
            self._looked_s = self._world.monotonic_s()
            await self._take_free(list(connectors.values()), until_s)
        waited_s = self._world.monotonic_s() - self._cleaned_s
        if (
            waited_s >= self._timing.clean_s
            and self._cleaning is None
            and not self._is_ending(connectors)
        ):
            self._cleaned_s = self._world.monotonic_s()
            self._cleaning = begin(self._clean())

    def _is_ending(self, connectors: dict[str, ConnectorItem]) -> bool:
        """Whether runs of deleted connectors have not ended yet: they free their leases."""
        return any(run.holding.connector.name not in connectors for run, _ in self._runs.values())

    async def _clean(self) -> None:
        try:
            count = await self._left_behind.remove()
            if count:
                log.info("%d items that were left behind are removed", count)
        except RiachoError as error:
            log.info("what was left behind could not be removed: %s", error)
        finally:
            self._cleaning = None

    def _planned(self, name: str, task: "asyncio.Task[None]") -> None:
        self._planning.pop(name, None)
        self._looked_s = float("-inf")  # Its tasks are there now.
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("connector %s could not be planned: %s", name, error)

    async def _connectors(self) -> dict[str, ConnectorItem]:
        return {
            connector.name: connector
            async for page in pages(self._metadata, keys.CONNECTORS)
            for _, item in page
            for connector in (decode_connector(item.value),)
        }

    async def _end_changed(self, connectors: dict[str, ConnectorItem]) -> None:
        """Tell runs to end whose connector or task has changed."""
        found = await self._metadata.get_many(list(self._runs)) if self._runs else {}
        for key, (run, _) in list(self._runs.items()):
            connector, item = connectors.get(run.holding.connector.name), found.get(key)
            if connector is None or item is None:
                run.end("it was deleted")
            elif reason := run.holding.ended_by(connector, decode_task(item.value)):
                run.end(reason)

    async def _take_free(self, connectors: Sequence[ConnectorItem], until_s: float | None) -> None:
        now_ms, seen = self._world.now_ms(), set[str]()
        for connector in connectors:
            if not is_planned(connector):
                continue
            for key, task in await self._tasks(connector):
                seen.add(key)
                is_due = task.generation == connector.generation and task.health.due_ms <= now_ms
                if is_due and key not in self._runs and len(self._runs) < RUNS_MAX:
                    await self._try(key, connector, task, until_s)
        for key in [key for key in self._leases if key not in seen]:
            del self._leases[key]

    async def _tasks(self, connector: ConnectorItem) -> list[tuple[str, TaskItem]]:
        prefix = keys.connect_tasks_of(connector.name)
        return [
            (key, decode_task(item.value))
            async for page in pages(self._metadata, prefix)
            for key, item in page
        ]

    async def _try(
        self, key: str, connector: ConnectorItem, task: TaskItem, until_s: float | None
    ) -> None:
        """Run the task if its lease is free."""
        plugin = self._plugins(connector.config.get("connector.class", ""))
        if plugin is None:
            return  # Another process knows it, perhaps of a newer version.
        now_s = self._world.monotonic_s()
        lease, seen_s = self._leases.setdefault(key, (self._lease(key), now_s))
        if now_s - seen_s < min(HESITATION_S_MAX, HESITATION_S * len(self._runs)):
            return
        try:
            if not await lease.keep():
                return
        except (StoreUnavailable, OutcomeUnknown):
            return  # The next look finds out.
        del self._leases[key]
        holding = Holding(self._metadata, self._world, connector, task.number, lease, self._worker)
        run = TaskRun(self._parts, plugin, holding, self._make_loop, self._timing)
        running = begin(run.run(until_s))
        self._runs[key] = run, running
        running.add_done_callback(partial(self._ended, key))
        log.info("task %s begins", run.name)

    def _ended(self, key: str, task: "asyncio.Task[None]") -> None:
        self._runs.pop(key, None)
        self._looked_s = float("-inf")
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the run of %s has failed", key, exc_info=error)

    def _lease(self, key: str) -> Lease:
        return Lease(
            self._metadata,
            key,
            holder=self._holder,
            lease_s=self._timing.lease_s,
            monotonic_s=self._world.monotonic_s,
            now_ms=self._world.now_ms,
            about=self._worker,
        )
