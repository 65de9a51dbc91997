"""One run of one task: from the lease of it to the end, whatever that is.

    take      the lease; without it nothing more happens
    begin     write the task's item, so that nothing an earlier run has sent has an effect any more
    start     resolve secrets, make the plugin's task, start it
    loop      of a source or of a sink, until told to end
    end       stop the plugin's task, write how it went, free the lease

A run that loses its lease, or whose connector has changed, ends without a word: the next one is
under way. One that fails says why and when it is tried again; whoever finds the task then runs it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from service.connect.access.log_access import ConnectorLog
from service.connect.access.parts import ConnectParts
from service.connect.access.rights import references_of
from service.connect.connectors.api import Plugin, SinkTask, SourceTask, TaskContext
from service.connect.data.errors import RetriableFault
from service.connect.running.traces import trace_of
from service.connect.tasks.committing import RunCommits
from service.connect.tasks.errors import ErrorPolicy
from service.connect.tasks.holding import Holding
from service.connect.tasks.items import (
    FAILED,
    PAUSED,
    RESTARTING,
    RUNNING,
    UNASSIGNED,
    TaskItem,
    decode_connector,
    is_planned,
    task_config,
)
from service.connect.tasks.offsets import StoredOffsets
from service.process.references.references import Resolved
from storage import keys
from storage.errors import OutcomeUnknown, RiachoError, Unavailable
from storage.leases import LeaseLost
from storage.tasks import begin, drop_error

log: Final = logging.getLogger("riacho.connect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long things take; tests take less."""

    tick_s: float = 1.0
    """How soon a pause or a change is noticed."""
    idle_tick_s: float = 2.0
    """The same while there is no connector."""
    look_s: float = 2.0
    """How often free tasks are looked for."""
    lease_s: float = 10.0
    """A run that has not renewed its lease for this long is replaced."""
    stop_s_max: float = 10.0
    """A run that does not end by then is cut off; what it has not committed is done again."""
    gauges_s: float = 10.0
    """How often gauges are written if nothing is committed."""
    restart_s_min: float = 2.0
    restart_s_max: float = 300.0
    """The first and the longest pause before a failed task is restarted."""


class Loop(Protocol):
    """The loop of a source or of a sink."""

    is_stopping: bool

    async def run(self, until_s: float | None = None) -> None:
        """Run until `is_stopping` is set, or until a moment of the monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """What a loop is made of."""

    parts: ConnectParts
    holding: Holding
    config: Mapping[str, str]
    task: SourceTask | SinkTask
    commits: RunCommits
    policy: ErrorPolicy
    records_max: int
    """Of a sink: how many records it is given at once, unless its configuration says."""


MakeLoop = Callable[[LoopParts], Loop]


class TaskRun:
    def __init__(
        self,
        parts: ConnectParts,
        plugin: Plugin,
        holding: Holding,
        make_loop: MakeLoop,
        timing: Timing,
    ) -> None:
        self.holding = holding
        self._parts = parts
        self._plugin = plugin
        self._make_loop = make_loop
        self._timing = timing
        self._world = parts.gateway.world
        self._resolved = Resolved({}, frozenset())
        self._commits: RunCommits | None = None
        self._shown: dict[str, float] = {}
        self._shown_s = self._world.monotonic_s()
        self._loop: Loop | None = None
        self._failures = 0
        self._end_s: float | None = None
        """When it is cut off, once it was told to end."""

    @property
    def name(self) -> str:
        return f"{self.holding.connector.name}-{self.holding.number}"

    def end(self, reason: str) -> None:
        """Tell the run to end; what has not ended after `stop_s_max` is cut off."""
        if self._end_s is None:
            log.info("task %s ends: %s", self.name, reason)
            self._end_s = self._world.monotonic_s() + self._timing.stop_s_max
        if self._loop is not None:
            self._loop.is_stopping = True

    async def run(self, until_s: float | None = None) -> None:
        """Run the task, whose lease is ours, to its end. Never raises what the task raises."""
        work = begin(self._work(until_s))
        keeping = begin(self._keep())
        try:
            await asyncio.wait([work, keeping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            await asyncio.wait([work])
            try:
                await self._conclude(work)
            except (LeaseLost, RiachoError) as error:
                log.info("task %s has not said how it ended: %s", self.name, error)
            finally:
                keeping.cancel()
                await asyncio.wait([keeping])
                for task in (work, keeping):
                    drop_error(task)
                await self.holding.lease.release()

    # The lease, meanwhile

    async def _keep(self) -> None:
        """Keep the lease; return when it is lost, or the run has taken too long to end."""
        lease, now_s = self.holding.lease, self._world.monotonic_s
        while self._end_s is None or now_s() < self._end_s:
            await self._world.sleep(min(self._timing.tick_s, lease.lease_s / 10))
            try:
                # Asked twice: without an answer to the first, the second finds out.
                if lease.is_due and not await lease.keep() and not await lease.keep():
                    log.warning("task %s: its lease was taken over", self.name)
                    return
                await self._show_gauges()
            except LeaseLost:
                continue  # A commit will meet it, too, and say why.
            except (Unavailable, OutcomeUnknown):
                if now_s() - lease.renewed_s > lease.lease_s:
                    log.warning("task %s: its lease could not be renewed for too long", self.name)
                    return

    async def _show_gauges(self) -> None:
        commits = self._commits
        if commits is None or commits.gauges == self._shown:
            return
        if self._world.monotonic_s() - self._shown_s < self._timing.gauges_s:
            return
        self._shown, self._shown_s = dict(commits.gauges), self._world.monotonic_s()
        await self.holding.change(
            lambda task: msgspec.structs.replace(task, gauges=dict(self._shown))
        )

    # The work

    async def _work(self, until_s: float | None) -> None:
        begun = await self.holding.begin(RESTARTING)
        self._failures = begun.health.failures
        running = await self._made()
        task = running.task
        try:
            await running.policy.prepare(ConnectorLog(self._parts, self.holding.connector))
            await task.start()
            await self.holding.change(self._said(RUNNING))
            self._loop = self._make_loop(running)
            self._loop.is_stopping = self._end_s is not None
            await self._loop.run(until_s)
        finally:
            await self._stop(task)

    async def _made(self) -> LoopParts:
        holding, parts = self.holding, self._parts
        connector, item = holding.connector, holding.task
        assert item is not None, "a run has begun"
        self._resolved = await references_of(parts, connector).resolved(
            task_config(connector, item)
        )
        config = self._resolved.config
        name = connector.name.removeprefix(connector.name_prefix)
        policy = ErrorPolicy(
            name, holding.number, config, self._world, class_name=self._plugin.class_name
        )
        self._commits = commits = RunCommits(parts, holding, config)
        context = TaskContext(
            connector=name,
            task=holding.number,
            config=config,
            environment=parts.environment,
            offsets=StoredOffsets(holding.metadata, connector.name),
            report=policy.report_put,
            metric=commits.gauges.__setitem__,
            log=ConnectorLog(parts, connector),
        )
        return LoopParts(
            parts=parts,
            holding=holding,
            config=config,
            task=self._plugin.make(context),
            commits=commits,
            policy=policy,
            records_max=self._plugin.records_max,
        )

    async def _stop(self, task: SourceTask | SinkTask) -> None:
        try:
            async with asyncio.timeout(self._timing.stop_s_max):
                await task.stop()
        except Exception as error:  # noqa: BLE001 - Whatever a connector raises.
            log.warning("task %s could not be stopped: %s", self.name, self._hidden(error))

    # The end

    async def _conclude(self, work: "asyncio.Task[None]") -> None:
        """Write how the run has ended."""
        error = None if work.cancelled() else work.exception()
        if isinstance(error, LeaseLost):
            log.info("task %s has ended: %s", self.name, error)
            error = None
        if isinstance(error, RetriableFault) and self._end_s is not None:
            error = None
        if error is None:
            state = await self._resting_state()
            if state is not None:
                await self.holding.change(self._said(state), is_last=True)
            return
        trace = self._hidden(error)
        log.error("task %s has failed: %s", self.name, trace)
        await self.holding.change(self._failed(trace), is_last=True)

    async def _resting_state(self) -> str | None:
        """Return what the item of a task says that nobody runs; None: another one says it."""
        stored = await self.holding.metadata.get(keys.connector(self.holding.connector.name))
        if stored is None:
            return None
        connector = decode_connector(stored.value)
        if connector.target == PAUSED:
            return PAUSED
        return UNASSIGNED if is_planned(connector) else None

    def _said(self, state: str) -> Callable[[TaskItem], TaskItem]:
        return lambda task: msgspec.structs.replace(task, health=self.holding.told(task, state))

    def _failed(self, trace: str) -> Callable[[TaskItem], TaskItem]:
        committed = self._commits is not None and self._commits.count > 0
        failures = 1 if committed else self._failures + 1
        longest_s = self._timing.restart_s_min * 2.0 ** min(failures - 1, 30)
        pause_s = min(self._timing.restart_s_max, longest_s) * (0.75 + self._world.random() / 4)
        due_ms = self._world.now_ms() + round(pause_s * 1000)
        return lambda task: msgspec.structs.replace(
            task,
            health=self.holding.told(task, FAILED, trace=trace, failures=failures, due_ms=due_ms),
        )

    def _hidden(self, error: BaseException) -> str:
        return self._resolved.hide(trace_of(error))
