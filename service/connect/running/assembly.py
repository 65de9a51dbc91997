"""The parts of a runner, chosen and connected."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from service.connect.access.parts import ConnectParts
from service.connect.connectors.environment import environment_of
from service.connect.running.loops import loop_of
from service.connect.running.planning import Plugins
from service.connect.running.run import Timing
from service.connect.running.runner import ConnectRunner
from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.log.gateway import Gateway
from service.process.references.references import SecretReferences
from service.process.stores import open_table, open_zones, with_small_batches
from service.settings import Settings
from service.world.clock import World, real_world

if TYPE_CHECKING:
    from service.security.assembly import Security


def parts_of(gateway: Gateway, offsets: Offsets, security: "Security | None") -> ConnectParts:
    """Return what tasks work with in the process of this gateway."""
    return ConnectParts(
        gateway=gateway,
        offsets=offsets,
        environment=environment_of(gateway.settings, gateway.world),
        references=SecretReferences.of(gateway.settings),
        security=security,
    )


def runner_of(
    parts: ConnectParts,
    *,
    plugins: Plugins | None = None,
    timing: Timing | None = None,
    worker: str = "",
    holder: str = "",
) -> ConnectRunner:
    """Return a runner that knows the plugins of this installation, unless others are given."""
    more = {} if plugins is None else {"plugins": plugins}
    return ConnectRunner(
        parts, loop_of, worker=worker or worker_name(), timing=timing, holder=holder, **more
    )


def worker_name() -> str:
    """Return how statuses name this process."""
    return f"{socket.gethostname()}:{os.getpid()}"


@asynccontextmanager
async def opened(settings: Settings, world: World | None = None) -> AsyncIterator[ConnectParts]:
    """Open the stores that `settings` name, as a gateway without HTTP; close them at the end."""
    world = world or real_world()
    settings = with_small_batches(settings)
    metadata = open_table(settings, world)
    gateway = Gateway(settings, open_zones(settings), metadata, world)
    coordinator = Coordinator(metadata, gateway.topics, world)
    offsets = Offsets(metadata, gateway.topics, coordinator, world)
    security = None
    if settings.security != "off":
        # Imported here: without security it is not needed.
        from service.security.assembly import secured

        security = secured(settings, metadata, world)
    try:
        yield parts_of(gateway, offsets, security)
    finally:
        if security is not None:
            await security.audit.aclose()
        await gateway.aclose()
