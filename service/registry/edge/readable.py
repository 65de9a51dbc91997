"""Which schemas a caller may read: those that a subject has that it may read."""

from typing import Final

from service.registry.errors import no_schema_id
from service.registry.names import SubjectName
from service.registry.reading import Schema, SchemaReader
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller

READERS_KEPT_MAX: Final = 10_000
"""Maximum number of schemas whose subject is remembered that allows to read them."""


class ReadableSchemas:
    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader
        self._known: dict[tuple[str, int], set[str]] = {}
        """Subjects that have a schema, as far as they were looked up."""

    def is_known(self, caller: Caller, context: str, schema_id: int) -> bool:
        """Whether the caller may read the schema, as far as this gateway remembers."""
        if caller.is_anyone:
            return True
        known = self._known.get((context, schema_id), ())
        return any(_may_read(caller, context, name) for name in known)

    async def schema(self, caller: Caller, context: str, schema_id: int) -> Schema:
        """Return the schema, or raise 40403 if there is none that the caller may read.

        Without security, and once it is known which subject allows it, this takes no call of the
        table.
        """
        if schema_id < 1:
            raise no_schema_id(schema_id)
        if not self.is_known(caller, context, schema_id):
            users = await self._reader.users(context, schema_id)
            if not any(_may_read(caller, context, name) for name in users):
                raise no_schema_id(schema_id)
            if len(self._known) >= READERS_KEPT_MAX:
                self._known.clear()
            self._known[context, schema_id] = set(users)
        return await self._reader.schema(context, schema_id)


def _may_read(caller: Caller, context: str, name: str) -> bool:
    full = str(SubjectName(context, name))
    return caller.allows(Operation.READ, ResourceType.SUBJECT, full)
