"""Schemas by the ids and GUIDs that records carry, for a caller who may read them."""

from collections import OrderedDict
from typing import Final

from service.http.bodies.schema_fetch import FoundSchema
from service.registry.edge.codecs import SchemaCodecs
from service.registry.edge.readable import ReadableSchemas
from service.registry.errors import RegistryError, no_schema_id
from service.registry.names import DEFAULT
from service.registry.reading import FRESH_S, SchemaReader
from service.security.caller import Caller

GUIDS_KEPT_MAX: Final = 10_000
ABSENT_KEPT_MAX: Final = 10_000


class SchemaLookups:
    def __init__(
        self, reader: SchemaReader, readable: ReadableSchemas, codecs: SchemaCodecs
    ) -> None:
        self._reader = reader
        self._readable = readable
        self._codecs = codecs
        self._ids: dict[str, tuple[str, int]] = {}
        self._absent: OrderedDict[int | str, float] = OrderedDict()
        """Names of no schema, and until when that is believed."""

    def known(self, caller: Caller, name: int | str) -> FoundSchema | str | None:
        """Return what can be said without a call of the table."""
        until_s = self._absent.get(name)
        if until_s is not None and self._reader.world.monotonic_s() < until_s:
            return str(no_schema_id(name))
        place = (DEFAULT, name) if isinstance(name, int) else self._ids.get(name)
        if place is None or not self._readable.is_known(caller, *place):
            return None
        return self._codecs.kept(*place)

    async def find(self, caller: Caller, name: int | str) -> FoundSchema | str:
        """Return a schema that the caller may read, or why there is none."""
        try:
            context, schema_id = await self._place(name)
            schema = await self._readable.schema(caller, context, schema_id)
            return await self._codecs.found(schema)
        except RegistryError as error:
            if caller.is_anyone:
                self._forget(name)
            return str(error)

    async def _place(self, name: int | str) -> tuple[str, int]:
        """Return the context and the id of a schema."""
        if isinstance(name, int):
            return DEFAULT, name
        if name not in self._ids:
            found = dict(await self._reader.ids_of_guid(name))
            if not found:
                raise no_schema_id(name)
            if len(self._ids) >= GUIDS_KEPT_MAX:
                self._ids.clear()
            context = DEFAULT if DEFAULT in found else min(found)
            self._ids[name] = context, found[context]
        return self._ids[name]

    def _forget(self, name: int | str) -> None:
        """Remember for a moment that there is no such schema."""
        self._absent[name] = self._reader.world.monotonic_s() + FRESH_S
        self._absent.move_to_end(name)
        if len(self._absent) > ABSENT_KEPT_MAX:
            self._absent.popitem(last=False)
