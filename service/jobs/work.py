"""What every job has: stores, a lease that is kept, runners, and somebody who watches."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from service.clock import World, real_world
from service.jobs import lease, progress, stores
from service.jobs.choice import How, Runners
from service.jobs.lease import Held
from service.jobs.progress import Meter
from service.jobs.stores import Stores
from service.settings import Settings
from storage.topics.topics import Topic


@dataclass(frozen=True, slots=True)
class Work:
    """A job's tools."""

    stores: Stores
    runners: Runners
    meter: Meter
    held: Held | None
    """None: nothing may be changed."""

    async def topics(self, names: Sequence[str]) -> list[Topic]:
        """Return the named topics; none named: all. Raises `UnknownTopicOrPartition`."""
        topics = self.stores.topics()
        return [await topics.read(name) for name in names] or await topics.all()


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a job has to say in the end."""

    ok: bool
    document: dict[str, Any]
    """For programs."""
    lines: list[str] = field(default_factory=list)
    """For people."""


@asynccontextmanager
async def begun(
    settings: Settings,
    job: str,
    how: How,
    *,
    changes: bool = True,
    world: World | None = None,
) -> AsyncIterator[Work]:
    """Open what the job needs. One that `changes` something holds the lease meanwhile.

    Raises `lease.Busy` if another job runs, and `LeaseLost` if this one was taken for dead.
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
        yield Work(opened, runners, meter, held)
