"""Runners of connectors in the processes of gateways, and what their runs commit."""

import asyncio
import random
from dataclasses import replace
from itertools import count
from typing import Any, Final

from service.connect.data.errors import RetriableFault, TaskFault
from service.connect.running.assembly import parts_of
from service.connect.running.loops import loop_of
from service.connect.running.run import Loop, LoopParts, Timing
from service.connect.running.runner import Runner
from service.connect.tasks.api import TaskCommits
from service.connect.tasks.holding import Holding
from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from tests.checker.connect_history import ConnectHistory, RunCommit
from tests.simulation.connect.far import Far
from tests.simulation.connect.toys import plugin_of
from tests.simulation.hosts import Host

TIMING: Final = Timing(
    tick_s=1.0,
    idle_tick_s=2.0,
    look_s=2.0,
    lease_s=5.0,
    stop_s_max=3.0,
    gauges_s=5.0,
    restart_s_min=0.5,
    restart_s_max=4.0,
)

REFUSED = 1


class Runners:
    def __init__(self, far: Far, chance: random.Random, history: ConnectHistory) -> None:
        self._far = far
        self._chance = chance
        self._history = history
        self._runs = count(1)
        self._started: list[tuple[Host, Runner, str]] = []
        self._followed: set[str] = set()

    def begin(self, host: Host) -> None:
        """Start a runner in the process of a gateway, as `riacho serve` does beside it."""
        gateway = host.gateway
        coordinator = Coordinator(gateway.metadata, gateway.topics, gateway.world)
        offsets = Offsets(gateway.metadata, gateway.topics, coordinator, gateway.world)
        holder = self._holder()
        runner = Runner(
            parts_of(gateway, offsets, None),
            self._loop,
            worker=f"w{len(self._started)}",
            plugins=lambda class_name: plugin_of(self._far, class_name),
            timing=TIMING,
            holder=holder,
        )
        self._started.append((host, runner, holder))
        host.process.begin(runner.run()).add_done_callback(self._ended)

    def _holder(self) -> str:
        """Return a new name, or that of a process that is dead."""
        dead = [
            holder
            for host, _, holder in self._started
            if host.process.is_dead and holder not in self._followed
        ]
        if dead and self._far.plan.follows:
            self._followed.add(dead[0])
            return dead[0] if self._chance.random() < 0.5 else f"{dead[0]}'"
        return f"h{len(self._started)}"

    def _ended(self, running: "asyncio.Task[None]") -> None:
        if not running.cancelled() and (error := running.exception()) is not None:
            self._history.errors.append(f"a runner ended: {error!r}")

    async def close(self) -> None:
        """Stop the runners that live; some are told to, others just end with their process."""
        for host, runner, _ in self._started:
            if not host.process.is_dead and self._chance.random() < 0.5:
                await host.serve(runner.aclose())

    def _loop(self, running: LoopParts) -> Loop:
        holding = running.holding
        commits = _Noted(running.commits, holding, next(self._runs), self._far, self._history)
        commits.note(self._far.loop.now_s, 0)
        return loop_of(replace(running, commits=commits))  # type: ignore[arg-type]


class _Noted:
    """The commits of a run, written down."""

    def __init__(
        self, inner: TaskCommits, holding: Holding, run: int, far: Far, history: ConnectHistory
    ) -> None:
        self._inner = inner
        self._holding = holding
        self._run = run
        # While a lease is renewed, it names none.
        self._epoch = holding._epoch or 0
        self._far = far
        self._history = history

    def note(self, began_s: float, code: int | None) -> None:
        holding = self._holding
        self._history.commits.append(
            RunCommit(
                holding.connector.name,
                holding.number,
                self._run,
                self._epoch,
                began_s,
                self._far.loop.now_s,
                code,
                holding.token.hex() if code == 0 else "",
            )
        )

    async def commit(self, **what: Any) -> None:
        began_s, code = self._far.loop.now_s, None
        try:
            await self._inner.commit(**what)
            code = 0
        except (RetriableFault, TaskFault):
            code = REFUSED
            raise
        finally:
            self.note(began_s, code)


__all__ = ["REFUSED", "TIMING", "Runners"]
