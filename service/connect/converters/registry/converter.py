"""Converters of values that begin with the id of their schema.

What is needed of the registry is asked for in `prepare` and `prepare_write`, for a batch at once;
`to_data` and `to_bytes` ask for nothing. What one schema was refused for is said of its records
only, and tried again with the next batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from service.connect.config.keys import Importance, Key, KeyType, between
from service.connect.config.values import Values
from service.connect.converters.registry.access import SchemaAccess
from service.connect.converters.registry.subjects import (
    STRATEGIES,
    TOPIC_NAME,
    is_strategy,
    strategy_of,
)
from service.connect.data.errors import DataFault
from service.connect.data.schema import ConnectSchema
from storage.schemas.framing import id_of, prefix_of, split
from storage.schemas.source import SchemaType

if TYPE_CHECKING:
    from service.http.bodies.schema_fetch import FoundSchema

PARTS_MAX: Final = 10_000
"""Of a schema of Connect. A few types that name each other twice would make billions."""

Read = Callable[[bytes], tuple[ConnectSchema | None, Any]]
"""Takes what follows the id."""

Write = Callable[[Any], bytes]
"""Takes a value of Connect, and returns what follows the id."""


class PartsLeft:
    """How many parts a schema may still get."""

    def __init__(self) -> None:
        self._left = PARTS_MAX

    def take(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise DataFault(f"it becomes a schema of more than {PARTS_MAX} parts")


@dataclass(frozen=True, slots=True)
class WrittenSchema:
    """A schema of Connect as one of a registry."""

    text: str
    name: str | None
    """Of the record, for subjects that are named after it."""
    write: Callable[[Any], Any]
    """Makes of a value of Connect what the schema's codec encodes."""


class SchemaMapping(Protocol):
    """One type of schemas, and its mapping from and to Connect's."""

    kind: SchemaType

    def written(self, schema: ConnectSchema, *, is_exact: bool) -> WrittenSchema:
        """Return a schema for values of Connect; `is_exact`: they are written by this very one.

        Raises `DataFault`.
        """

    def reader(self, found: "FoundSchema") -> Read:
        """Return what reads values of a schema. Raises `DataFault`."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    prefix: bytes
    write: Write


class RegistryConverter:
    def __init__(
        self, mapping: SchemaMapping, values: Values, is_key: bool, access: SchemaAccess
    ) -> None:
        self._mapping = mapping
        self._access = access
        self._is_key = is_key
        self._registers = values["auto.register.schemas"]
        self._uses_latest = values["use.latest.version"]
        self._normalizes = values["normalize.schemas"]
        self._kept_max = values["schemas.cache.config"]
        part = "key" if is_key else "value"
        self._subject = strategy_of(values[f"{part}.subject.name.strategy"])
        self._readers: dict[int, Read | DataFault] = {}
        self._writers: dict[tuple[str, ConnectSchema], _Prepared | DataFault] = {}

    async def prepare(self, topic: str, batch: Sequence[bytes | None]) -> None:
        del topic
        ids = {found for each in batch if each is not None and (found := id_of(each)) is not None}
        if len(self._readers) + len(ids) > self._kept_max:
            self._readers = {key: kept for key, kept in self._readers.items() if key in ids}
        for schema_id in ids:
            if not isinstance(self._readers.get(schema_id), DataFault | None):
                continue
            try:
                self._readers[schema_id] = self._reader(await self._access.by_id(schema_id))
            except DataFault as fault:
                self._readers[schema_id] = fault

    async def prepare_write(self, topic: str, schemas: Sequence[ConnectSchema | None]) -> None:
        wanted = {(topic, schema) for schema in schemas if schema is not None}
        if len(self._writers) + len(wanted) > self._kept_max:
            self._writers = {key: kept for key, kept in self._writers.items() if key in wanted}
        for key in wanted:
            if not isinstance(self._writers.get(key), DataFault | None):
                continue
            try:
                self._writers[key] = await self._prepared(*key)
            except DataFault as fault:
                self._writers[key] = fault

    def to_data(self, topic: str, data: bytes | None) -> tuple[ConnectSchema | None, Any]:
        del topic
        if data is None:
            return None, None
        framed = split(data)
        if framed is None:
            raise DataFault("Unknown magic byte!: the value does not begin with a schema's id")
        schema_id, body = framed
        read = self._readers.get(schema_id)
        if read is None:
            raise DataFault(f"the schema {schema_id} was not looked up")
        if isinstance(read, DataFault):
            raise DataFault(f"schema {schema_id}: {read}")
        return read(body)

    def to_bytes(self, topic: str, schema: ConnectSchema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        if schema is None:
            raise DataFault("a value without a schema; this converter needs one")
        prepared = self._writers.get((topic, schema))
        if prepared is None:
            raise DataFault("the schema of the value was not registered")
        if isinstance(prepared, DataFault):
            raise DataFault(str(prepared))
        return prepared.prefix + prepared.write(value)

    def _reader(self, found: "FoundSchema") -> Read:
        if found.type is not self._mapping.kind:
            raise DataFault(f"it is of type {found.type}, and not {self._mapping.kind}")
        try:
            return self._mapping.reader(found)
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            # Attributes such as `connect.parameters` are not checked when they are registered.
            raise DataFault(f"it has no schema of Connect: {error}") from error

    async def _prepared(self, topic: str, schema: ConnectSchema) -> _Prepared:
        written = self._mapping.written(schema, is_exact=not self._uses_latest)
        subject = self._subject(topic, self._is_key, written.name)
        if self._uses_latest:
            found = await self._access.latest(subject)
        else:
            ask = self._access.registered if self._registers else self._access.looked_up
            found = await ask(subject, self._mapping.kind, written.text, normalize=self._normalizes)
        if found.type is not self._mapping.kind:
            raise DataFault(f"subject {subject} has schemas of type {found.type}")
        encode, convert = found.codec.encode_many, written.write

        def write(value: Any) -> bytes:
            encoded = encode([convert(value)])
            if encoded.refused:
                [refused] = encoded.refused
                where = f"{refused.path}: " if refused.path else ""
                raise DataFault(f"the value does not fit its schema: {where}{refused.reason}")
            [body] = encoded.bodies
            assert body is not None
            return body

        return _Prepared(prefix_of(found.schema_id), write)


def decoded(found: "FoundSchema", body: bytes) -> Any:
    """Return a value as its codec decodes it."""
    done = found.codec.decode_many([body])
    if done.refused:
        [refused] = done.refused
        where = f"{refused.path}: " if refused.path else ""
        raise DataFault(f"the value is not of schema {found.schema_id}: {where}{refused.reason}")
    return done.values[0]


def _flag(name: str, default: bool, about: str) -> Key:
    return Key(name=name, type=KeyType.BOOLEAN, default=default, about=about, group="Registry")


def _unused(name: str, about: str) -> Key:
    return Key(
        name=name,
        type=KeyType.STRING,
        default=None,
        importance=Importance.LOW,
        about=f"{about} It has no effect: the registry is this log's own, as the connector.",
        group="Registry",
    )


def _strategy(part: str) -> Key:
    return Key(
        name=f"{part}.subject.name.strategy",
        type=KeyType.CLASS,
        default=TOPIC_NAME,
        importance=Importance.LOW,
        about=f"Which subject the schemas of {part}s are registered under.",
        group="Registry",
        choices=(*STRATEGIES, *(name.rpartition(".")[2] for name in STRATEGIES)),
        check=is_strategy,
    )


REGISTRY_KEYS: Final = (
    _unused("schema.registry.url", "Where the registry is."),
    _unused("basic.auth.credentials.source", "Where credentials for the registry are."),
    _unused("basic.auth.user.info", "Credentials for the registry."),
    _flag("auto.register.schemas", True, "Whether schemas are registered."),
    _flag("use.latest.version", False, "Whether values are written by the newest of the subject."),
    _flag("latest.compatibility.strict", True, "Values that do not fit are refused in any case."),
    _flag("normalize.schemas", False, "Whether schemas are registered in their normal form."),
    Key(
        name="schemas.cache.config",
        type=KeyType.INT,
        default=1000,
        importance=Importance.LOW,
        about="At most so many schemas are kept.",
        group="Registry",
        check=between(1, 1_000_000),
    ),
    _strategy("key"),
    _strategy("value"),
)
