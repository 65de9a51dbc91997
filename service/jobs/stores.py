"""The stores of a job, and how a worker on another machine opens the same ones.

The settings are sent with the work, because machines of a cluster do not have the environment of
the process that started the job. Secrets are not sent. On AWS a machine has its own role.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from service.jobs.schemas import RegisteredSchemas
from service.process.stores import open_keyring, open_table, open_zones
from service.settings import Settings
from service.world.clock import World, real_world
from storage.crypto.keyring import Keyring
from storage.maintenance.compaction.typed import DataSchemas
from storage.stores.metadata import MetadataStore
from storage.topics.topics import Topics
from storage.zones.zones import Zones

TRAVELLING: Final = (
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_DYNAMODB",
    "AWS_ENDPOINT_URL_KMS",
)
"""Variables sent to workers: locations of the stores, but no credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The stores for a task. They belong to one event loop."""

    zones: Zones
    metadata: MetadataStore
    world: World
    keyring: Keyring | None = None
    """The data keys of encrypted topics; None: the task meets none."""
    schemas: DataSchemas | None = None
    """What decodes keys and values for typed columns; None: the task makes none."""

    def topics(self) -> Topics:
        world = self.world
        return Topics(
            self.metadata,
            self.zones.names,
            world.new_id,
            world.now_ms,
            world.monotonic_s,
            back_off=world.back_off,
        )


Open: TypeAlias = Callable[[], AbstractAsyncContextManager[Stores]]
"""Opens the stores for the event loop in which it is entered."""


@asynccontextmanager
async def opened(settings: Settings, world: World | None = None) -> AsyncIterator[Stores]:
    """Open the stores that `settings` names, and close them at the end."""
    world = world or real_world()
    zones = open_zones(settings)
    try:
        metadata = open_table(settings, world)
        try:
            keyring = open_keyring(settings, metadata, world)
            yield Stores(
                zones=zones,
                metadata=metadata,
                world=world,
                keyring=keyring,
                schemas=RegisteredSchemas(metadata, world),
            )
        finally:
            await metadata.close()
    finally:
        await zones.close()


@dataclass(frozen=True, slots=True)
class Shipped:
    """Settings sent to a worker. Calling it opens the stores there."""

    settings: Settings
    environment: Mapping[str, str]

    def __call__(self) -> AbstractAsyncContextManager[Stores]:
        for name, value in self.environment.items():
            # Variables that the machine already has take precedence.
            os.environ.setdefault(name, value)
        return opened(self.settings)


def ship(settings: Settings) -> Shipped:
    """Return a callable that opens the stores of `settings` in any process that can reach them."""
    environment = {name: os.environ[name] for name in TRAVELLING if name in os.environ}
    paths = {"data": settings.data.expanduser().absolute()}
    if settings.kek_files is not None:
        paths["kek_files"] = settings.kek_files.expanduser().absolute()
    return Shipped(settings.model_copy(update=paths), environment)
