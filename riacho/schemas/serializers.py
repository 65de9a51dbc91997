"""From values to bytes that name their schema: for `Producer` and `AsyncProducer`.

    with SchemaRegistry() as registry:
        with Producer(value_serializer=AvroSerializer(registry, avsc)) as producer:
            producer.send("orders", {"amount": 3})

A serializer asks the registry when it meets a subject for the first time, and then works without.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from riacho.schemas.codecs import Codecs
from riacho.schemas.registry import AsyncSchemaRegistry, SchemaRegistry
from riacho.schemas.subjects import SubjectStrategy, record_name, strategy_of
from riacho.schemas.values import RegisteredSchema, SchemaKind, SchemaReference, SchemaText
from storage.errors import InvalidConfig, InvalidRecord

if TYPE_CHECKING:
    from storage.schemas.codec import Codec

IdPlace: TypeAlias = Literal["prefix", "header"]

LATEST_FRESH_S: Final = 60.0
"""How long `use_latest` takes a version for the latest."""


@dataclass(frozen=True, slots=True)
class Serialized:
    """A key or a value as it is sent."""

    data: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    """What names the schema, if its id is in a header."""


@dataclass(frozen=True, slots=True)
class ReadySubject:
    """A subject whose schema is known."""

    schema: RegisteredSchema
    write: Callable[[Any], bytes]
    """Returns what follows the id, or raises `InvalidRecord`."""
    until_s: float = float("inf")


class Serializer(ABC):
    """What the serializers of all types share.

    One that was made with a `SchemaRegistry` is for `Producer`, or is called; one that was made
    with an `AsyncSchemaRegistry` is for `AsyncProducer`, or its `serialize` is awaited.
    """

    kind: ClassVar[SchemaKind]

    def __init__(
        self,
        registry: SchemaRegistry | AsyncSchemaRegistry,
        *,
        subject_strategy: SubjectStrategy = "topic_name",
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
        id_in: IdPlace = "prefix",
    ) -> None:
        """Prepare to serialize; nothing is asked yet.

        `subject_strategy`: "topic_name", "record_name", "topic_record_name", or a function of
        topic, whether it is a key, and name of the record.
        `auto_register`: register the schema if the subject does not have it; otherwise it must.
        `use_latest`: write by the latest version of the subject; nothing is registered.
        `normalize`: schemas that differ only in order are the same.
        `id_in`: before the value ("prefix"), or in a header of the record ("header").
        """
        if id_in not in ("prefix", "header"):
            raise InvalidConfig(f'id_in is "prefix" or "header", not {id_in!r}')
        self._sync = registry if isinstance(registry, SchemaRegistry) else None
        self._registry = registry.twin if isinstance(registry, SchemaRegistry) else registry
        self._subject = strategy_of(subject_strategy)
        self._auto_register = auto_register
        self._use_latest = use_latest
        self._normalize = normalize
        self._id_in = id_in
        self._ready: dict[str, ReadySubject] = {}

    def __call__(self, topic: str, value: Any, *, is_key: bool = False) -> Serialized:
        """Return a value as it is sent to the topic; None is null, whatever the schema.

        Raises `InvalidRecord` if it does not fit, and errors of the registry.
        """
        if value is None:
            return Serialized(None)
        subject = self._subject(topic, is_key, self._record_name())
        ready = self._known(subject)
        if ready is None:
            if self._sync is None:
                raise TypeError("made with an AsyncSchemaRegistry: await serialize() instead")
            ready = self._sync.wait_for(self._prepare(subject))
        return self._written(ready, value, is_key)

    async def serialize(self, topic: str, value: Any, *, is_key: bool = False) -> Serialized:
        """Return a value as it is sent to the topic, as a call does."""
        if value is None:
            return Serialized(None)
        subject = self._subject(topic, is_key, self._record_name())
        ready = self._known(subject)
        if ready is None:
            if self._sync is not None:
                raise TypeError("made with a SchemaRegistry, which waits: call it instead")
            ready = await self._prepare(subject)
        return self._written(ready, value, is_key)

    @abstractmethod
    def _record_name(self) -> str:
        """Return the name that strategies may use; empty: there is none."""

    @abstractmethod
    async def _schema(self) -> SchemaText | None:
        """Return the schema to be registered or looked up; None: only the latest is used."""

    @abstractmethod
    async def _write(self, schema: RegisteredSchema) -> Callable[[Any], bytes]:
        """Return what writes values by a schema."""

    def _known(self, subject: str) -> ReadySubject | None:
        ready = self._ready.get(subject)
        if ready is None or (self._use_latest and time.monotonic() > ready.until_s):
            return None
        return ready

    async def _prepare(self, subject: str) -> ReadySubject:
        schema = await self._registered(subject)
        if schema.kind != self.kind:
            raise InvalidConfig(
                f"the schema of subject {subject} is of type {schema.kind}, not {self.kind}"
            )
        if self._id_in == "header" and not schema.guid:
            raise InvalidConfig('this registry gives no GUIDs: id_in is "prefix"')
        until_s = time.monotonic() + LATEST_FRESH_S
        ready = ReadySubject(schema, await self._write(schema), until_s)
        self._ready[subject] = ready
        return ready

    async def _registered(self, subject: str) -> RegisteredSchema:
        text = None if self._use_latest else await self._schema()
        if text is None:
            return await self._registry.version(subject)
        if self._auto_register:
            return await self._registry.register(subject, text, normalize=self._normalize)
        return await self._registry.look_up(subject, text, normalize=self._normalize)

    def _written(self, ready: ReadySubject, value: Any, is_key: bool) -> Serialized:
        from storage.schemas import framing

        body = ready.write(value)
        if self._id_in == "prefix":
            return Serialized(framing.framed(ready.schema.id, body))
        start = framing.unpack_indexes(body)[1] if self.kind == "PROTOBUF" else 0
        name = framing.KEY_HEADER if is_key else framing.VALUE_HEADER
        header = framing.header_of(ready.schema.guid, body[:start])
        return Serialized(body[start:], ((name, header),))


class TextSerializer(Serializer):
    """A serializer whose schema is given as text."""

    def __init__(
        self,
        registry: SchemaRegistry | AsyncSchemaRegistry,
        schema: str | None = None,
        *,
        references: Sequence[SchemaReference] = (),
        subject_strategy: SubjectStrategy = "topic_name",
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
        id_in: IdPlace = "prefix",
    ) -> None:
        """Prepare to serialize; nothing is asked yet.

        `schema`: its text; None: the latest version of the subject. `references`: registered
        schemas that it refers to. The rest is as for `Serializer`.
        """
        super().__init__(
            registry,
            subject_strategy=subject_strategy,
            auto_register=auto_register,
            use_latest=use_latest or schema is None,
            normalize=normalize,
            id_in=id_in,
        )
        self._text: SchemaText | None = None
        if schema is not None:
            self._text = SchemaText(text=schema, kind=self.kind, references=tuple(references))
        self._name = "" if self._text is None else record_name(self._text)
        self._codecs = Codecs(self._registry)

    def _record_name(self) -> str:
        return self._name

    async def _schema(self) -> SchemaText | None:
        return self._text

    async def _write(self, schema: RegisteredSchema) -> Callable[[Any], bytes]:
        return writer_of(await self._codecs.of(schema))


class AvroSerializer(TextSerializer):
    """Writes values by an Avro schema.

    Records are dicts. Besides JSON's values it takes bytes, dates, datetimes, decimals and UUIDs.
    A value of a union needs no type; where branches look alike, {"type": value} says which.
    """

    kind = "AVRO"


class JsonSchemaSerializer(TextSerializer):
    """Writes values as JSON, if they are valid by a JSON Schema."""

    kind = "JSON"


def writer_of(codec: "Codec") -> Callable[[Any], bytes]:
    """Return what encodes one value, or raises `InvalidRecord` with the place and the reason."""

    def write(value: Any) -> bytes:
        encoded = codec.encode_many((value,))
        body = encoded.bodies[0]
        if body is None:
            [refused] = encoded.refused
            raise InvalidRecord(f"{refused.path or '/'}: {refused.reason}")
        return body

    return write
