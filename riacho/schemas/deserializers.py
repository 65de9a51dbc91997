"""From the bytes of records to values, by the schemas that they name.

    with SchemaRegistry() as registry, Consumer(...) as consumer:
        decode = AvroDeserializer(registry)
        for record in consumer:
            print(decode(record))

A value that cannot be decoded raises where it is decoded: the record has been read, and the
program can log it, keep it and go on.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from riacho.records import HeaderPairs, Record
from riacho.schemas.codecs import Codecs
from riacho.schemas.registry import AsyncSchemaRegistry, SchemaRegistry
from riacho.schemas.values import RegisteredSchema, SchemaKind
from storage.errors import InvalidRecord

if TYPE_CHECKING:
    from storage.schemas.codec import Codec


class Deserializer:
    """Decodes values of any type.

    One that was made with a `SchemaRegistry` is called; of one that was made with an
    `AsyncSchemaRegistry`, `decode` is awaited. Avro's values come as Python has them, those of
    Protobuf by Protobuf's JSON mapping.
    """

    kind: ClassVar[SchemaKind | None] = None
    """None: any."""

    def __init__(
        self, registry: SchemaRegistry | AsyncSchemaRegistry, *, context: str = ""
    ) -> None:
        """`context`: of the registry, like .staging, in which ids are looked up."""
        self._sync = registry if isinstance(registry, SchemaRegistry) else None
        self._registry = registry.twin if isinstance(registry, SchemaRegistry) else registry
        self._codecs = Codecs(self._registry, is_natural=True)
        self._inside = f":{context}:" if context else ""
        self._known: dict[int | str, tuple[RegisteredSchema, Codec | None]] = {}

    def __call__(self, record: Record) -> Any:
        """Return the value of a record; None if it is null.

        Raises `InvalidRecord` if it names no schema or does not fit the one that it names, and
        `UnknownSchema` if there is no such schema.
        """
        return self._waited(record, is_key=False)

    def key(self, record: Record) -> Any:
        """Return the key of a record, as a call does its value."""
        return self._waited(record, is_key=True)

    async def decode(self, record: Record) -> Any:
        """Return the value of a record, as a call does."""
        return await self._awaited(record, is_key=False)

    async def decode_key(self, record: Record) -> Any:
        """Return the key of a record, as a call does its value."""
        return await self._awaited(record, is_key=True)

    def _waited(self, record: Record, *, is_key: bool) -> Any:
        frame = _frame(record, is_key)
        if frame is None:
            return None
        if frame[0] not in self._known:
            if self._sync is None:
                raise TypeError("made with an AsyncSchemaRegistry: await decode() instead")
            self._sync.wait_for(self._learn(frame[0]))
        return self._decoded(record, *frame)

    async def _awaited(self, record: Record, *, is_key: bool) -> Any:
        frame = _frame(record, is_key)
        if frame is None:
            return None
        if frame[0] not in self._known:
            if self._sync is not None:
                raise TypeError("made with a SchemaRegistry, which waits: call it instead")
            await self._learn(frame[0])
        return self._decoded(record, *frame)

    async def _learn(self, schema_id: int | str) -> None:
        schema = await self._registry.schema(schema_id, subject=self._inside)
        codec = await self._codec(schema) if self.kind in (None, schema.kind) else None
        self._known[schema_id] = schema, codec

    async def _codec(self, schema: RegisteredSchema) -> "Codec | None":
        return await self._codecs.of(schema)

    def _decoded(self, record: Record, schema_id: int | str, body: bytes) -> Any:
        schema, codec = self._known[schema_id]
        place = f"{record.topic}/{record.partition}, offset {record.offset}"
        if self.kind not in (None, schema.kind):
            raise InvalidRecord(f"{place}: schema {schema_id} is of type {schema.kind}")
        return self._read(codec, body, place)

    def _read(self, codec: "Codec | None", body: bytes, place: str) -> Any:
        assert codec is not None
        decoded = codec.decode_many((body,))
        if decoded.refused:
            [refused] = decoded.refused
            raise InvalidRecord(f"{place}: {refused.path or '/'}: {refused.reason}")
        return decoded.values[0]


class AvroDeserializer(Deserializer):
    """Decodes Avro: records become dicts, by the schema with which they were written."""

    kind = "AVRO"


class JsonSchemaDeserializer(Deserializer):
    """Decodes JSON; it was checked when it was written."""

    kind = "JSON"


def frame_of(
    data: bytes, headers: HeaderPairs, *, is_key: bool = False
) -> tuple[int | str, bytes] | None:
    """Return the id or GUID of the schema, and what follows it; None: the data names none."""
    from storage.schemas import framing

    if headers:
        wanted = framing.KEY_HEADER if is_key else framing.VALUE_HEADER
        for name, value in reversed(headers):
            if name == wanted and value and (found := framing.split_header(value)) is not None:
                return found[0], found[1] + data
    return framing.split(data)


def _frame(record: Record, is_key: bool) -> tuple[int | str, bytes] | None:
    data = record.key if is_key else record.value
    if data is None:
        return None
    found = frame_of(data, record.headers, is_key=is_key)
    if found is None:
        what = "key" if is_key else "value"
        raise InvalidRecord(
            f"{record.topic}/{record.partition}, offset {record.offset}: the {what} names no schema"
        )
    return found
