"""A registry in this process, on a table in memory."""

from collections.abc import Callable

import pytest

from service.connect.converters.registry.access import RegistryAccess
from service.process.limits.heavy_work import HeavyWork
from service.registry.edge.codecs import SchemaCodecs
from service.registry.reading import SchemaReader
from service.security.caller import ANYONE, Caller
from service.world.clock import real_world
from storage.stores.memory import MemoryMetadata

Access = Callable[[Caller], RegistryAccess]


@pytest.fixture
def access_of() -> Access:
    """Return what gives callers access to one registry."""
    world = real_world()
    reader = SchemaReader(MemoryMetadata(world.new_version), world, HeavyWork())
    codecs = SchemaCodecs(reader)
    return lambda caller: RegistryAccess(reader, codecs, caller)


@pytest.fixture
def access(access_of: Access) -> RegistryAccess:
    return access_of(ANYONE)
