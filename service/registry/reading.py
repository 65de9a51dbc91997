"""Reading the registry: schemas are cached for ever, subjects and contexts for a second."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final, Generic, TypeVar

from service.process.limits.heavy_work import HeavyWork
from service.registry import items
from service.registry.errors import invalid_schema, no_schema_id
from service.registry.formats.compatibility import Level
from service.registry.formats.form import Parsed, form_of
from service.registry.formats.metadata import Additions
from service.registry.items import (
    SchemaContext,
    SchemaReference,
    StoredSchema,
    SubjectHead,
    SubjectRules,
)
from service.registry.names import DEFAULT, SubjectName, parse_subject
from service.world.clock import World
from storage import keys
from storage.errors import Corrupt
from storage.schemas.source import InvalidSchema, Named, SchemaType
from storage.stores.metadata import MetadataStore, Versioned, pages

T = TypeVar("T")

FRESH_S: Final = 1.0
"""For how long a gateway believes what it has read of a subject or a context."""

HEADS_KEPT_MAX: Final = 1000
SCHEMAS_KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
PARSED_KEPT_MAX: Final = 64
PARSED_TEXT_MAX: Final = 64 * 1024
"""Larger schemas are parsed whenever they are needed."""

REFERENCED_MAX: Final = 500
"""Maximum number of schemas that one refers to, over all that it refers to."""

IN_THREAD_BYTES: Final = 1024 * 1024
"""Said of schemas whose parser waits for another process: it must not wait on the event loop."""

DEFAULT_LEVEL: Final = Level.BACKWARD
DEFAULT_MODE: Final = "READWRITE"
READ_ONLY_EVERYWHERE: Final = "READONLY_OVERRIDE"
"""If this is the mode of all subjects, none can have another one."""


def _anything(_: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema."""

    context: str
    schema_id: int
    type: SchemaType
    text: str
    references: tuple[SchemaReference, ...]
    guid: str
    metadata: bytes
    rule_set: bytes


@dataclass(frozen=True, slots=True)
class SchemaSettings:
    """What a subject sets for how its schemas are stored."""

    normalize: bool
    additions: Additions


def rule_of(rules: Sequence[SubjectRules], name: str) -> object:
    """Return what the first one says that says something."""
    found = (getattr(each, name) for each in rules)
    return next((each for each in found if each is not None), None)


def settings_of(rules: Sequence[SubjectRules]) -> SchemaSettings:
    """Return what holds by rules of a subject, its context and the default context."""
    added = Additions()
    if rule_of(rules, "mode") != "IMPORT":
        names = [field.name for field in fields(Additions)]
        found = {name: rule_of(rules, name) for name in names}
        added = Additions(**{name: each for name, each in found.items() if isinstance(each, bytes)})
    return SchemaSettings(bool(rule_of(rules, "normalize")), added)


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    value: T
    until_s: float


class SchemaReader:
    """What is registered, as this gateway knows it."""

    def __init__(self, metadata: MetadataStore, world: World, heavy_work: HeavyWork) -> None:
        self.metadata = metadata
        self.world = world
        self._heavy_work = heavy_work
        self._heads: OrderedDict[str, _Kept[Versioned | None]] = OrderedDict()
        self._forgotten = 0
        self._schemas: OrderedDict[tuple[str, int], Schema] = OrderedDict()
        self._schemas_bytes = 0
        self._parsed: OrderedDict[object, Parsed] = OrderedDict()
        self._decoded: OrderedDict[str, tuple[Versioned, SubjectHead]] = OrderedDict()

    def _known(self, key: str) -> _Kept[Versioned | None] | None:
        """Return what this gateway has read of an item within the last second, if anything."""
        kept = self._heads.get(key)
        return kept if kept is not None and self.world.monotonic_s() < kept.until_s else None

    async def _read(self, key: str) -> Versioned | None:
        until_s, forgotten = self.world.monotonic_s() + FRESH_S, self._forgotten
        found = await self.metadata.get(key)
        if self._forgotten == forgotten:  # Else it may be from before a change of this gateway.
            self._heads[key] = _Kept(found, until_s)
            self._heads.move_to_end(key)
            if len(self._heads) > HEADS_KEPT_MAX:
                self._heads.popitem(last=False)
        return found

    def forget(self, *subject_keys: str) -> None:
        """Read these items again: this gateway has just changed them."""
        self._forgotten += 1
        for key in subject_keys:
            self._heads.pop(key, None)

    async def head(
        self, subject: SubjectName, is_enough: Callable[[SubjectHead | None], bool] = _anything
    ) -> SubjectHead | None:
        """Return the subject, at most a second old; as it is now if that is not `is_enough`.

        So a version that another gateway has just registered is not said to be missing.
        """
        key = keys.subject(subject.context, subject.name)
        kept = self._known(key)
        if kept is not None and is_enough(found := self._subject(key, kept.value)):
            return found
        return self._subject(key, await self._read(key))

    def _subject(self, key: str, item: Versioned | None) -> SubjectHead | None:
        """Return the subject in an item, which is decoded once for each of its versions."""
        if item is None:
            return None
        kept = self._decoded.get(key)
        if kept is not None and kept[0] == item:
            return kept[1]
        self._decoded[key] = item, items.decode_subject(item.value)
        self._decoded.move_to_end(key)
        if len(self._decoded) > HEADS_KEPT_MAX:
            self._decoded.popitem(last=False)
        return self._decoded[key][1]

    async def context(self, name: str) -> SchemaContext:
        """Return the context, at most a second old; an empty one if it has never been used."""
        kept = self._known(key := keys.schema_context(name))
        item = await self._read(key) if kept is None else kept.value
        return SchemaContext(name) if item is None else items.decode_context(item.value)

    async def all_heads(self) -> AsyncIterator[SubjectHead]:
        """Yield all subjects of all contexts, as they are now."""
        for context in sorted(await self.contexts()):
            async for page in pages(self.metadata, keys.subjects_of(context)):
                for _, item in page:
                    yield items.decode_subject(item.value)

    async def contexts(self) -> list[str]:
        return [
            items.decode_context(item.value).name
            async for page in pages(self.metadata, keys.SCHEMA_CONTEXTS)
            for _, item in page
        ]

    async def contexts_in_use(self) -> list[str]:
        """Return the contexts with subjects or rules; of deleted ones only the last id is kept."""
        return [
            context.name
            async for page in pages(self.metadata, keys.SCHEMA_CONTEXTS)
            for context in [items.decode_context(item.value) for _, item in page]
            if context.rules != SubjectRules()
            or await self.metadata.list(keys.subjects_of(context.name), limit=1)
        ]

    async def schema(self, context: str, schema_id: int) -> Schema:
        """Return the schema, from memory if it is there, or raise 40403."""
        kept = self._schemas.get((context, schema_id))
        if kept is not None:
            self._schemas.move_to_end((context, schema_id))
            return kept
        item = await self.metadata.get(keys.schema(context, schema_id))
        if item is None:
            raise no_schema_id(schema_id)
        stored = items.decode_schema(item.value)
        text = items.inflated([stored.text, *await self._parts(context, schema_id, stored.parts)])
        return self.keep(loaded(context, schema_id, stored, text))

    async def users(self, context: str, schema_id: int) -> list[str]:
        """Return the names of the subjects that have the schema, as they are now."""
        prefix = keys.schema_uses(context, schema_id)
        return [
            items.decode_user(item.value).subject
            async for page in pages(self.metadata, prefix)
            for _, item in page
        ]

    async def ids_of_guid(self, guid: str) -> list[tuple[str, int]]:
        """Return the contexts that have the schema of a GUID, and its id in each."""
        prefix = keys.schema_guids(keys.short_part(guid.lower()))
        found = [
            items.decode_id(item.value)
            async for page in pages(self.metadata, prefix)
            for _, item in page
        ]
        return [(each.context, each.schema_id) for each in found]

    async def _parts(self, context: str, schema_id: int, parts: int) -> list[bytes]:
        wanted = [keys.schema_text(context, schema_id, number) for number in range(1, parts)]
        found = await self.metadata.get_many(wanted) if wanted else {}
        if len(found) != len(wanted):
            raise Corrupt(f"schema {schema_id} lacks a part of its text")
        return [found[key].value for key in wanted]

    def keep(self, schema: Schema) -> Schema:
        """Remember a schema, which never changes."""
        key = (schema.context, schema.schema_id)
        if key not in self._schemas:
            self._schemas[key] = schema
            self._schemas_bytes += len(schema.text)
            while self._schemas_bytes > SCHEMAS_KEPT_BYTES_MAX and len(self._schemas) > 1:
                _, gone = self._schemas.popitem(last=False)
                self._schemas_bytes -= len(gone.text)
        return schema

    async def resolved(
        self, inside: str, references: Sequence[SchemaReference]
    ) -> tuple[tuple[SchemaReference, ...], list[Named]]:
        """Return the references with their versions, and what they refer to, dependencies first.

        Raises 42201 if there is no such version.
        """
        named: dict[str, Named] = {}
        settled = tuple([await self._settled(inside, each, named, ()) for each in references])
        return settled, list(named.values())

    async def _settled(
        self,
        inside: str,
        reference: SchemaReference,
        named: dict[str, Named],
        path: tuple[str, ...],
    ) -> SchemaReference:
        subject = parse_subject(reference.subject, inside=inside)
        head = await self.head(
            subject, lambda head: _version_of(head, reference.version) is not None
        )
        found = _version_of(head, reference.version)
        if found is None:
            raise invalid_schema(
                f"no schema reference found for subject '{subject}' and version {reference.version}"
            )
        if reference.name not in named:
            schema = await self.schema(subject.context, found[1])
            for each in schema.references:
                await self._settled(subject.context, each, named, (*path, reference.name))
            if len(named) >= REFERENCED_MAX:
                raise invalid_schema(f"it refers to more than {REFERENCED_MAX} schemas")
            named[reference.name] = Named(reference.name, schema.text)
        return SchemaReference(reference.name, reference.subject, found[0])

    async def parse(self, kind: SchemaType, text: str, named: Sequence[Named]) -> Parsed:
        """Return the parsed schema, or raise 42201."""
        key = (kind, text, tuple(named))
        if (kept := self._parsed.get(key)) is not None:
            return kept
        size_bytes = len(text) + sum(len(each.text) for each in named)
        if kind is not SchemaType.AVRO:
            size_bytes = IN_THREAD_BYTES

        def parsed() -> Parsed:
            return form_of(kind).parse(text, named)

        try:
            found = await self._heavy_work.convert(size_bytes, parsed)
        except InvalidSchema as error:
            raise invalid_schema(str(error)) from None
        if len(text) <= PARSED_TEXT_MAX:
            self._parsed[key] = found
            if len(self._parsed) > PARSED_KEPT_MAX:
                self._parsed.popitem(last=False)
        return found

    async def parsed(self, schema: Schema) -> Parsed:
        """Return a registered schema, parsed."""
        _, named = await self.resolved(schema.context, schema.references)
        return await self.parse(schema.type, schema.text, named)

    async def convert(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Return what `work` does, off the event loop if it may take long."""
        return await self._heavy_work.convert(size_bytes, work)

    async def level(self, subject: SubjectName, head: SubjectHead | None) -> Level:
        return Level(str(await self._rule(subject, head, "level") or DEFAULT_LEVEL))

    async def mode(self, subject: SubjectName, head: SubjectHead | None) -> str:
        if (await self.context(DEFAULT)).rules.mode == READ_ONLY_EVERYWHERE:
            return READ_ONLY_EVERYWHERE
        return str(await self._rule(subject, head, "mode") or DEFAULT_MODE)

    async def settings(self, subject: SubjectName, head: SubjectHead | None) -> SchemaSettings:
        return settings_of(await self._rules(subject, head))

    async def compatibility_group(
        self, subject: SubjectName, head: SubjectHead | None
    ) -> str | None:
        """Return the property that versions must share to be compared, if there is one."""
        found = await self._rule(subject, head, "compatibility_group")
        return None if found is None else str(found)

    async def validates_fields(self, subject: SubjectName, head: SubjectHead | None) -> bool:
        return bool(await self._rule(subject, head, "validate_fields"))

    async def meant(self, subject: SubjectName) -> SubjectName:
        """Return the subject that is read: if this one is an alias, the one that it names."""
        head = await self.head(subject)
        if head is None or head.rules.alias is None:
            return subject
        return parse_subject(head.rules.alias)

    async def _rule(self, subject: SubjectName, head: SubjectHead | None, name: str) -> object:
        """Return a rule of the subject, else of its context, else of the default context."""
        return rule_of(await self._rules(subject, head), name)

    async def _rules(self, subject: SubjectName, head: SubjectHead | None) -> list[SubjectRules]:
        around = dict.fromkeys((subject.context, DEFAULT))
        return [
            *([] if head is None else [head.rules]),
            *[(await self.context(context)).rules for context in around],
        ]


def _version_of(head: SubjectHead | None, version: int) -> tuple[int, int] | None:
    """Return a version and the id of its schema; -1 is the latest.

    A deleted version still counts: what refers to it must stay readable.
    """
    if head is None or not head.versions:
        return None
    if version == -1:
        live = head.live()
        return (live[-1].version, live[-1].schema_id) if live else None
    found = head.find(version)
    return None if found is None else (found.version, found.schema_id)


def loaded(context: str, schema_id: int, stored: StoredSchema, text: str) -> Schema:
    return Schema(
        context,
        schema_id,
        SchemaType(stored.type),
        text,
        stored.references,
        stored.guid,
        stored.metadata,
        stored.rule_set,
    )
