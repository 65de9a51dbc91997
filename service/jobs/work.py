"""The context of a job: stores, the maintenance lease, runners, and a progress meter."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from service.jobs import lease, progress, stores
from service.jobs.lease import HeldLease
from service.jobs.progress import Meter
from service.jobs.runners.choice import How, Runners
from service.jobs.stores import Stores
from service.settings import Settings
from service.world.clock import World, real_world
from storage.topics.topics import Topic


@dataclass(frozen=True, slots=True)
class JobContext:
    """The context of a job."""

    stores: Stores
    runners: Runners
    meter: Meter
    held: HeldLease | None
    """None: the job may not change anything."""

    async def topics(self, names: Sequence[str]) -> list[Topic]:
        """Return the named topics; none named: all. Raises `UnknownTopicOrPartition`."""
        topics = self.stores.topics()
        return [await topics.read(name) for name in names] or await topics.all()


@dataclass(slots=True, kw_only=True)
class JobOutcome:
    """The result of a job."""

    ok: bool
    document: dict[str, Any]
    """For JSON output."""
    lines: list[str] = field(default_factory=list)
    """For text output."""


@asynccontextmanager
async def begun(
    settings: Settings,
    job: str,
    how: How,
    *,
    changes: bool = True,
    world: World | None = None,
) -> AsyncIterator[JobContext]:
    """Open the context of a job. If it `changes` something, it holds the lease meanwhile.

    Raises `lease.Busy` if another job runs, and `LeaseLost` if another job took over the lease.
    """
    world = world or real_world()
    async with AsyncExitStack() as stack:
        meter = stack.enter_context(progress.shown(job, world.monotonic_s))
        opened = await stack.enter_async_context(stores.opened(settings, world))
        held = None
        if changes:
            held = await stack.enter_async_context(
                lease.held(opened.metadata, world, job, wait_s=how.wait_s)
            )
        runners = await stack.enter_async_context(Runners(how, stores.ship(settings), meter))
        yield JobContext(opened, runners, meter, held)
