"""The parts of a gateway that depend on where it runs: a process that lasts, or one that freezes.

A process that a host freezes between answers, as Lambda does, has a clock that counts the time it
was stopped, leaves nothing for later, and cannot be scraped. The assembly chooses once; no other
part knows.
"""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp

from service.http.hosted import InTime, Settled
from service.http.metrics import Metrics, NoMetrics
from service.process.thawing import thawing
from service.settings import Settings
from service.world.clock import World
from storage.lanes.watch import NEWS_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """The parts for one kind of host."""

    world: World
    metrics: Metrics
    news_s: float = NEWS_S
    """How long reports about zones may wait."""
    buffers_lines: bool = True
    """Whether access lines may wait to be written together."""
    wrap: Callable[[ASGIApp], ASGIApp] = lambda app: app
    """Keeps an application within the limits of its host."""


def hosting(settings: Settings, world: World) -> Hosting:
    """Return the parts for the host that `settings` describe."""
    if settings.freezes:
        world = thawing(world)

    def in_time(app: ASGIApp) -> ASGIApp:
        return InTime(app, answer_s_max=settings.answer_s_max, monotonic_s=world.monotonic_s)

    def settled(app: ASGIApp) -> ASGIApp:
        return Settled(in_time(app), monotonic_s=world.monotonic_s)

    if settings.freezes:
        return Hosting(
            world=world, metrics=NoMetrics(), news_s=0.0, buffers_lines=False, wrap=settled
        )
    if settings.answer_s_max:
        return Hosting(world=world, metrics=Metrics(), wrap=in_time)
    return Hosting(world=world, metrics=Metrics())
