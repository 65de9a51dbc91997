"""Schemas for the routes of records: nothing of the registry is imported before one is needed."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from service.http.bodies.json import UnencodedRecords
from service.http.bodies.produce import Produced
from service.http.bodies.schema_fetch import FoundSchema
from service.process.limits.heavy_work import HeavyWork
from service.security.caller import Caller
from storage.topics.topics import Topic

if TYPE_CHECKING:
    from service.log.gateway import Gateway
    from service.registry.assembly import Registry

T = TypeVar("T")

SCHEMAS_MAX: Final = 100
"""Maximum number of schemas that are looked up for one answer: chance bytes may look like ids."""

_TOO_MANY: Final = f"the answer has records of more than {SCHEMAS_MAX} schemas"


class LateSchemas:
    """The registry of a gateway, made when it is first needed."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway

    @cached_property
    def registry(self) -> "Registry":
        from service.registry.assembly import Registry

        return Registry(self._gateway)

    def of(self, caller: Caller) -> "CallersSchemas":
        return CallersSchemas(self, caller)

    def known(self, caller: Caller, name: int | str) -> FoundSchema | str | None:
        """Return what this gateway knows of a schema without asking the table."""
        if "registry" not in self.__dict__:
            return None
        return self.registry.lookups.known(caller, name)

    async def find(self, caller: Caller, name: int | str) -> FoundSchema | str:
        """Return a schema, or why the caller cannot have it."""
        return await self.registry.lookups.find(caller, name)

    async def encode(self, caller: Caller, topic: Topic, records: UnencodedRecords) -> Produced:
        """Return the records, encoded by the schemas that their sender names, and framed.

        Raises `UnfitRecords` for records that do not fit, and what is wrong with the schemas.
        """
        return await self.registry.encoding.encode(caller, topic, records)


class CallersSchemas:
    """What one request has found of schemas, as far as its caller may read them."""

    def __init__(self, schemas: LateSchemas, caller: Caller) -> None:
        self._schemas = schemas
        self._caller = caller
        self._found: dict[int | str, FoundSchema | str] = {}
        self._missing: set[int | str] = set()

    def find(self, name: int | str) -> FoundSchema | str | None:
        found = self._found.get(name)
        if found is None and len(self._found) + len(self._missing) >= SCHEMAS_MAX:
            return _TOO_MANY
        if found is None:
            found = self._schemas.known(self._caller, name)
            if found is None:
                self._missing.add(name)
            else:
                self._found[name] = found
        return found

    async def look_up(self) -> bool:
        """Look up what is missing; return whether anything was."""
        missing = sorted(self._missing, key=str)
        self._missing.clear()
        for name in missing:
            self._found[name] = await self._schemas.find(self._caller, name)
        return bool(missing)


async def with_schemas(
    heavy_work: HeavyWork, size_bytes: int, work: Callable[[], T], schemas: CallersSchemas | None
) -> T:
    """Return what `work` returns, once it has found all schemas that it looks for."""
    while True:
        found = await heavy_work.convert(size_bytes, work)
        if schemas is None or not await schemas.look_up():
            return found
