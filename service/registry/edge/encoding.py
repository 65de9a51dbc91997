"""Records that are sent as JSON with the name of their schema: encoded, and framed by its id.

A sender names a schema by its id, by a subject and perhaps a version, or by its text. A text is
registered, under the subject that it gives or that of the topic, as Confluent's REST proxy does.
"""

from collections import OrderedDict
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from service.http.bodies.json import ChosenSchema, Part, UnencodedRecords
from service.http.bodies.produce import Produced
from service.http.bodies.schema_fetch import FoundSchema
from service.registry.edge.codecs import SchemaCodecs
from service.registry.edge.readable import ReadableSchemas
from service.registry.edge.validation.record_names import record_names
from service.registry.errors import (
    INCOMPATIBLE,
    RegistryError,
    invalid_schema,
    no_subject,
    no_version,
)
from service.registry.items import SubjectHead, SubjectVersion
from service.registry.names import DEFAULT, SubjectName, parse_subject
from service.registry.reading import FRESH_S, Schema, SchemaReader
from service.registry.registering import NewSchema, Registrar
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller
from storage import keys
from storage.errors import (
    IncompatibleSchema,
    InvalidSchemaText,
    RefusedRecord,
    RiachoError,
    UnfitRecords,
    UnknownSchema,
)
from storage.schemas.framing import prefix_of
from storage.schemas.source import SchemaType
from storage.topics.schema_rules import Strategy
from storage.topics.topics import Topic

NAMED_MAX: Final = 100
"""Maximum number of records that an error names."""

TEXTS_KEPT_MAX: Final = 100

ENCODING_BYTES: Final = 4
"""To encode a byte of JSON takes as long as to decode so many."""


class Encoding:
    def __init__(
        self,
        reader: SchemaReader,
        readable: ReadableSchemas,
        codecs: SchemaCodecs,
        registrar: Registrar,
    ) -> None:
        self._reader = reader
        self._readable = readable
        self._codecs = codecs
        self._registrar = registrar
        self._texts: OrderedDict[tuple[SubjectName, SchemaType, str], tuple[Schema, float]] = (
            OrderedDict()
        )
        """What texts were registered as, and until when that is believed."""

    async def encode(self, caller: Caller, topic: Topic, records: UnencodedRecords) -> Produced:
        """Return the records, or raise `UnfitRecords` if some do not fit."""
        key = await self._found(caller, topic, records.key)
        value = await self._found(caller, topic, records.value)

        def encoded() -> Produced:
            refused: list[RefusedRecord] = []
            keys = None if key is None else _bodies(records, "key", key, refused)
            values = None if value is None else _bodies(records, "value", value, refused)
            if refused:
                named = sorted(refused, key=lambda each: each.index)[:NAMED_MAX]
                raise UnfitRecords(named, len(refused))
            return Produced(
                *records.with_bodies(keys, values),
                key_schema_id=None if key is None else key.schema_id,
                value_schema_id=None if value is None else value.schema_id,
            )

        return await self._reader.convert(ENCODING_BYTES * records.body_bytes, encoded)

    async def _found(
        self, caller: Caller, topic: Topic, chosen: ChosenSchema | None
    ) -> FoundSchema | None:
        if chosen is None:
            return None
        try:
            return await self._codecs.found(await self._schema(caller, topic, chosen))
        except RegistryError as error:
            raise _as_problem(error, chosen.part) from None

    async def _schema(self, caller: Caller, topic: Topic, chosen: ChosenSchema) -> Schema:
        if chosen.schema_id is not None:
            return await self._readable.schema(caller, DEFAULT, chosen.schema_id)
        if chosen.text is None:
            assert chosen.subject is not None, chosen
            subject = parse_subject(caller.inner_name(chosen.subject))
            return await self._of_subject(caller, subject, chosen.version)
        kind = SchemaType(chosen.kind or SchemaType.AVRO)
        if chosen.subject is not None:
            subject = parse_subject(caller.inner_name(chosen.subject))
        else:
            subject = await self._subject_of(caller, topic, chosen.part, kind, chosen.text)
        caller.require(Operation.WRITE, ResourceType.SUBJECT, str(subject))
        return await self._registered(caller, subject, kind, chosen.text)

    async def _subject_of(
        self, caller: Caller, topic: Topic, part: Part, kind: SchemaType, text: str
    ) -> SubjectName:
        """Return the subject that the topic's settings say for a schema."""
        if only := topic.config[f"{part}.schema.subject"]:
            return parse_subject(only)
        strategy = topic.config[f"confluent.{part}.subject.name.strategy"]
        if strategy == Strategy.TOPIC:
            return parse_subject(f"{topic.name}-{part}")
        parsed = await self._reader.parse(kind, text, [])
        names = record_names(kind, parsed.canonical)
        if not names:
            raise invalid_schema("it has no name, which its subject would have")
        if strategy == Strategy.TOPIC_RECORD:
            return parse_subject(f"{topic.name}-{names[0]}")
        return parse_subject(caller.inner_name(names[0]))

    async def _of_subject(
        self, caller: Caller, subject: SubjectName, version: int | None
    ) -> Schema:
        if not caller.allows(Operation.READ, ResourceType.SUBJECT, str(subject)):
            raise no_subject(str(subject))
        found = _version(await self._reader.head(subject), version)
        if found is None:
            # Another gateway may have registered it a moment ago.
            self._reader.forget(keys.subject(subject.context, subject.name))
            head = await self._reader.head(subject)
            found = _version(head, version)
            if found is None:
                is_there = head is not None and head.live()
                raise no_version(version) if is_there else no_subject(str(subject))
        return await self._reader.schema(subject.context, found.schema_id)

    async def _registered(
        self, caller: Caller, subject: SubjectName, kind: SchemaType, text: str
    ) -> Schema:
        key = subject, kind, text
        now_s = self._reader.world.monotonic_s()
        kept = self._texts.get(key)
        if kept is not None and now_s < kept[1]:
            return kept[0]
        new = NewSchema(type=kind, text=text)
        done = await self._registrar.register(subject, new, False)
        caller.changed(Operation.WRITE, ResourceType.SUBJECT, str(subject))
        self._texts[key] = done.schema, now_s + FRESH_S
        self._texts.move_to_end(key)
        if len(self._texts) > TEXTS_KEPT_MAX:
            self._texts.popitem(last=False)
        return done.schema


def _version(head: SubjectHead | None, version: int | None) -> SubjectVersion | None:
    live = [] if head is None else head.live()
    if version is None:
        return live[-1] if live else None
    return next((each for each in live if each.version == version), None)


def _bodies(
    records: UnencodedRecords, part: Part, schema: FoundSchema, refused: list[RefusedRecord]
) -> Sequence[bytes | None]:
    """Return the framed keys or values; note those that do not fit."""
    room_bytes = records.limits.request_bytes_max
    encoded = schema.codec.encode_many(records.values_of(part), room_bytes)
    refused += [RefusedRecord(e.index, part, e.path, e.reason) for e in encoded.refused]
    prefix = prefix_of(schema.schema_id)
    return [None if body is None else prefix + body for body in encoded.bodies]


def _as_problem(error: RegistryError, part: Part) -> RiachoError:
    message = f"the schema of the {part}: {error}"
    if error.status == HTTPStatus.NOT_FOUND:
        return UnknownSchema(message)
    if error.status == INCOMPATIBLE:
        return IncompatibleSchema(message)
    return InvalidSchemaText(message)
