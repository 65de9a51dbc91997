"""What converters ask of the schema registry, as the principal of their connector.

All calls raise `DataFault` for what the registry refuses, `RetriableFault` if it cannot be asked
now, and `TaskFault` if the principal may not do it.
"""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, TypeVar

from service.connect.data.errors import DataFault, RetriableFault, TaskFault
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller
from storage.errors import RiachoError, Unauthorized
from storage.schemas.source import SchemaType

if TYPE_CHECKING:
    from service.http.bodies.schema_fetch import FoundSchema
    from service.registry.edge.codecs import SchemaCodecs
    from service.registry.items import SubjectVersion
    from service.registry.names import SubjectName
    from service.registry.reading import SchemaReader

T = TypeVar("T")


class SchemaAccess(Protocol):
    async def by_id(self, schema_id: int) -> "FoundSchema":
        """Return the schema; `DataFault`: there is none that the connector may read."""

    async def registered(
        self, subject: str, kind: SchemaType, text: str, *, normalize: bool
    ) -> "FoundSchema":
        """Return the schema, once it is a version of the subject."""

    async def looked_up(
        self, subject: str, kind: SchemaType, text: str, *, normalize: bool
    ) -> "FoundSchema":
        """Return the schema; `DataFault`: it is no version of the subject."""

    async def latest(self, subject: str) -> "FoundSchema":
        """Return the newest version of the subject."""


class NoRegistry:
    """Where a configuration is checked and nothing is converted."""

    async def by_id(self, schema_id: int) -> "FoundSchema":
        raise self._fault()

    async def registered(
        self, subject: str, kind: SchemaType, text: str, *, normalize: bool
    ) -> "FoundSchema":
        raise self._fault()

    async def looked_up(
        self, subject: str, kind: SchemaType, text: str, *, normalize: bool
    ) -> "FoundSchema":
        raise self._fault()

    async def latest(self, subject: str) -> "FoundSchema":
        raise self._fault()

    def _fault(self) -> TaskFault:
        return TaskFault("there is no schema registry here, which the converter needs")


class RegistryAccess:
    """The registry of this log, in this process.

    `caller` is the principal of the connector: it needs READ on a subject that has a schema to
    read its values, and WRITE on the subject to register one.
    """

    def __init__(self, reader: "SchemaReader", codecs: "SchemaCodecs", caller: Caller) -> None:
        from service.registry.edge.lookups import SchemaLookups
        from service.registry.edge.readable import ReadableSchemas
        from service.registry.registering import Registrar

        self._reader = reader
        self._codecs = codecs
        self._caller = caller
        self._lookups = SchemaLookups(reader, ReadableSchemas(reader), codecs)
        self._registrar = Registrar(reader)

    async def by_id(self, schema_id: int) -> "FoundSchema":
        found = await _asked(self._lookups.find(self._caller, schema_id))
        if isinstance(found, str):
            raise DataFault(found)
        return found

    async def registered(
        self, subject: str, kind: SchemaType, text: str, *, normalize: bool
    ) -> "FoundSchema":
        from service.registry.registering import NewSchema

        name = self._allowed(Operation.WRITE, subject)
        done = await _asked(
            self._registrar.register(name, NewSchema(type=kind, text=text), normalize)
        )
        self._caller.changed(Operation.WRITE, ResourceType.SUBJECT, str(name))
        return await _asked(self._codecs.found(done.schema))

    async def looked_up(
        self, subject: str, kind: SchemaType, text: str, *, normalize: bool
    ) -> "FoundSchema":
        from service.registry.registering import NewSchema

        name = self._allowed(Operation.READ, subject)
        new = NewSchema(type=kind, text=text)
        prepared = await _asked(self._registrar.prepare(name, new, normalize))
        ids = await _asked(self._registrar.ids_of(name.context, prepared))
        live = {each.schema_id for each in await self._live(name)}
        for schema_id in ids:
            if schema_id in live:
                schema = await _asked(self._reader.schema(name.context, schema_id))
                return await _asked(self._codecs.found(schema))
        raise DataFault(f"Schema not found under subject {subject}, and it is not to be registered")

    async def latest(self, subject: str) -> "FoundSchema":
        name = self._allowed(Operation.READ, subject)
        live = await self._live(name)
        if not live:
            raise DataFault(f"Subject '{subject}' not found.")
        schema = await _asked(self._reader.schema(name.context, live[-1].schema_id))
        return await _asked(self._codecs.found(schema))

    async def _live(self, name: "SubjectName") -> "list[SubjectVersion]":
        """Return the versions of a subject, or of the one that it is an alias of."""
        head = await _asked(self._reader.head(await _asked(self._reader.meant(name))))
        return [] if head is None else head.live()

    def _allowed(self, operation: Operation, subject: str) -> "SubjectName":
        from service.registry.names import parse_subject

        with _faults():
            name = parse_subject(self._caller.inner_name(subject))
            self._caller.require(operation, ResourceType.SUBJECT, str(name))
            return name


async def _asked(answer: Awaitable[T]) -> T:
    with _faults():
        return await answer


@contextmanager
def _faults() -> Iterator[None]:
    """Make what the registry raises faults of Connect."""
    from service.registry.errors import RegistryError

    try:
        yield
    except RegistryError as error:
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise RetriableFault(f"the schema registry: {error}") from error
        raise DataFault(f"the schema registry: {error}") from error
    except Unauthorized as error:
        raise TaskFault(f"the schema registry: {error}") from error
    except RiachoError as error:
        if error.retryable:
            raise RetriableFault(f"the schema registry: {error}") from error
        raise DataFault(f"the schema registry: {error}") from error
