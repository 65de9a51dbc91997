"""Registering a schema: one transaction of the table, from any gateway.

The transaction writes the subject, and if the schema is new, the schema, its digest and the last
id of its context. So ids and versions have no gaps, the same schema has one id however many
gateways register it at once, and a crash leaves all of it or nothing.

A version that refers to others rewrites their subjects unchanged: whoever deletes one of these
versions meanwhile has to look again, and finds the reference.
"""

import asyncio
import dataclasses
import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from service.registry import items
from service.registry.errors import (
    INCOMPATIBLE,
    RegistryError,
    invalid_rule_set,
    invalid_schema,
    invalid_version,
    not_permitted,
    other_id,
    too_large,
)
from service.registry.formats.compatibility import (
    Level,
    OldVersion,
    misused_fields,
    violations,
)
from service.registry.formats.form import Parsed
from service.registry.formats.metadata import (
    Additions,
    normal_metadata,
    normal_rule_set,
    property_of,
    why_not_metadata,
    why_not_rule_set,
    without_property,
)
from service.registry.items import (
    METADATA_BYTES_MAX,
    TEXT_BYTES_MAX,
    SchemaContext,
    SchemaId,
    SchemaReference,
    SchemaUser,
    StoredSchema,
    SubjectHead,
    SubjectRules,
    SubjectVersion,
)
from service.registry.names import DEFAULT, SubjectName, parse_subject
from service.registry.reading import (
    DEFAULT_LEVEL,
    DEFAULT_MODE,
    READ_ONLY_EVERYWHERE,
    Schema,
    SchemaReader,
    SchemaSettings,
    loaded,
    rule_of,
    settings_of,
)
from storage import keys
from storage.cas import Again, retry
from storage.schemas.source import InvalidSchema, SchemaType
from storage.stores.metadata import Check, Op, Put, Versioned

REFERENCES_MAX: Final = 40
"""Each takes two writes, and a transaction has at most 100. The rest takes ten at most."""

WITH_REFERENCES_MAX: Final = TEXT_BYTES_MAX
"""Maximum number of characters of a schema and all that it refers to: they are read together."""

VERSIONS_MAX: Final = 10_000
"""Maximum number of versions of a subject: they are in one item."""

COMPARED_MAX: Final = 100
"""Maximum number of versions that a transitive level compares a new one with."""

ID_MAX: Final = 2**31 - 1
VERSION_MAX: Final = 2**31 - 1
LATEST: Final = -1

VERSION_PROPERTY: Final = "confluent:version"
"""In the metadata of schemas that come from Confluent's: the number of their version."""

READ_ONLY: Final = frozenset({"READONLY", "READONLY_OVERRIDE", "FORWARD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchema:
    """A schema to be registered, or looked up."""

    type: SchemaType
    text: str
    references: tuple[SchemaReference, ...] = ()
    metadata: bytes = b""
    rule_set: bytes = b""
    schema_id: int | None = None
    """Only in mode IMPORT: the id that it has elsewhere."""
    version: int | None = None
    inherits: bool = True
    """Whether what it does not say is that of the latest version: text, metadata, rules."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a new version has from the latest one."""

    metadata: bytes = b""
    rule_set: bytes = b""
    latest: Schema | None = None
    """What it has the text of, if it came without one."""
    numbered: str | None = None
    """The text that the metadata counts versions of, if it does."""

    def metadata_of(self, text: str) -> bytes:
        """Return the metadata for a text: the number of a version belongs to one text only."""
        if self.numbered in (None, text):
            return self.metadata
        return without_property(self.metadata, VERSION_PROPERTY)

    def given_to(self, new: NewSchema) -> NewSchema:
        """Return a schema with the text, or raise 42201 if there is none."""
        if new.text:
            return new
        if self.latest is None:
            raise invalid_schema("Empty schema")
        latest = self.latest
        return dataclasses.replace(
            new, type=latest.type, text=latest.text, references=latest.references
        )


@dataclass(frozen=True, slots=True)
class Registered:
    """A version of a subject, and its schema."""

    version: int
    schema: Schema


@dataclass(frozen=True, slots=True)
class Prepared:
    """A new schema, parsed, with the text under which it is stored."""

    new: NewSchema
    parsed: Parsed
    text: str
    digest: str
    """Of everything that makes it another schema."""
    plain_digest: str
    """The same without what the subject adds, and without what is inherited."""
    inherited: Inherited
    """From the version that was the latest when this was prepared."""
    settings: SchemaSettings
    """Of the subject, as they were when this was prepared."""

    @property
    def guid(self) -> str:
        raw = self.digest[:32]
        return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


@dataclass(frozen=True, slots=True)
class _Before:
    """What a registration relies on."""

    context: SchemaContext
    context_item: Versioned | None
    head: SubjectHead | None
    head_item: Versioned | None
    default: SchemaContext
    default_item: Versioned | None
    schema_id: int | None
    """Of the schema, if it is registered already in this context."""
    plain_id: int | None
    """Of the schema without what the subject adds, likewise."""

    @property
    def mode(self) -> str:
        if self.default.rules.mode == READ_ONLY_EVERYWHERE:
            return READ_ONLY_EVERYWHERE
        return str(self.rule("mode") or DEFAULT_MODE)

    def rule(self, name: str) -> object:
        return rule_of(self._rules, name)

    @property
    def settings(self) -> SchemaSettings:
        return settings_of(self._rules)

    @property
    def _rules(self) -> list[SubjectRules]:
        own = [] if self.head is None else [self.head.rules]
        return [*own, self.context.rules, self.default.rules]


class Registrar:
    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader
        self._metadata = reader.metadata
        self._world = reader.world
        self._turn = asyncio.Lock()
        """Held by one of those who lost a race: they need not race each other, too."""

    async def prepare(self, subject: SubjectName, new: NewSchema, normalize: bool) -> Prepared:
        """Return the schema as it would be stored, or raise what is wrong with it."""
        if len(new.metadata) + len(new.rule_set) > METADATA_BYTES_MAX:
            raise too_large(f"metadata and rules have more than {METADATA_BYTES_MAX} bytes")
        head = await self._reader.head(subject)
        inherited = await self._inherited(new, head, await self._reader.mode(subject, head))
        new = _normal(inherited.given_to(new))
        if len(new.text.encode(errors="replace")) > TEXT_BYTES_MAX:
            raise too_large(f"the schema has more than {TEXT_BYTES_MAX} bytes, the limit")
        if len(new.references) > REFERENCES_MAX:
            raise invalid_schema(f"it has more than {REFERENCES_MAX} references, the limit")
        references, named = await self._reader.resolved(subject.context, new.references)
        referenced = sum(len(each.text) for each in named)
        if referenced and len(new.text) + referenced > WITH_REFERENCES_MAX:
            raise invalid_schema(
                "with all that it refers to, the schema has more than"
                f" {WITH_REFERENCES_MAX} characters, the limit"
            )
        parsed = await self._reader.parse(new.type, new.text, named)
        settings = await self._reader.settings(subject, head)
        normalize = normalize or settings.normalize
        try:
            text = await self._reader.convert(
                len(new.text), lambda: parsed.normalized if normalize else parsed.canonical
            )
        except InvalidSchema as error:
            raise invalid_schema(str(error)) from None
        if len(text.encode()) > 4 * TEXT_BYTES_MAX:
            raise too_large("the normal form of the schema is too long")
        told = [[each.name, each.subject, each.version] for each in references]
        parts = [new.type.value, text, told]
        plain = _digest([*parts, new.metadata, new.rule_set])
        whole = dataclasses.replace(
            new,
            references=references,
            metadata=new.metadata or inherited.metadata_of(text),
            rule_set=new.rule_set or inherited.rule_set,
        )
        added = _with_additions(whole, settings.additions)
        digest = _digest([*parts, added.metadata, added.rule_set])
        return Prepared(added, parsed, text, digest, plain, inherited, settings)

    async def _inherited(self, new: NewSchema, head: SubjectHead | None, mode: str) -> Inherited:
        """Return what a schema has from the latest version of its subject."""
        live = [] if head is None else head.live()
        if head is None or not live or not new.inherits or mode == "IMPORT":
            return Inherited()
        if new.text and new.metadata and new.rule_set:
            return Inherited()
        latest = await self._reader.schema(head.context, live[-1].schema_id)
        return Inherited(
            b"" if new.metadata else latest.metadata,
            b"" if new.rule_set else latest.rule_set,
            None if new.text else latest,
            None
            if new.metadata or property_of(latest.metadata, VERSION_PROPERTY) is None
            else latest.text,
        )

    async def ids_of(self, context: str, prepared: Prepared) -> list[int]:
        """Return the ids of the schema in this context: as it came, and with what is added."""
        wanted = [
            keys.schema_digest(context, digest)
            for digest in dict.fromkeys((prepared.plain_digest, prepared.digest))
        ]
        found = await self._metadata.get_many(wanted)
        return [items.decode_id(found[key].value).schema_id for key in wanted if key in found]

    async def register(
        self, subject: SubjectName, new: NewSchema, normalize: bool, *, force: bool = False
    ) -> Registered:
        """Return the version of the subject that has the schema: an old one, or a new one.

        With `force`, a new one need not be compatible.
        """
        for each in new.references:
            if each.version == LATEST:
                self._forget(parse_subject(each.subject, inside=subject.context))
        prepared = await self.prepare(subject, new, normalize)

        has_lost = False  # Those who find their schema at the first look wait for nobody.

        async def attempt(_: bool) -> Registered | Again:
            nonlocal has_lost
            async with self._turn if has_lost else nullcontext():
                has_lost = True
                return await once()

        async def once() -> Registered | Again:
            nonlocal prepared
            before = await self._before(subject, prepared)
            inherited = await self._inherited(new, before.head, before.mode)
            if (prepared.settings, prepared.inherited) != (before.settings, inherited):
                self._forget(subject)
                prepared = await self.prepare(subject, new, normalize)
                return Again()
            found = _known(before, prepared.settings)
            if found is not None and new.schema_id in (None, found.schema_id):
                schema = await self._reader.schema(subject.context, found.schema_id)
                return Registered(found.version, schema)
            await self._check(subject, prepared, before, force)
            ops, registered = await self._ops(subject, prepared, before)
            await self._metadata.transact(ops)
            self._reader.keep(registered.schema)
            return registered

        registered = await retry(f"subject {subject}", attempt, self._world.patience)
        self._forget(subject)
        return registered

    def _forget(self, subject: SubjectName) -> None:
        self._reader.forget(
            keys.subject(subject.context, subject.name),
            *{keys.schema_context(subject.context), keys.schema_context(DEFAULT)},
        )

    async def _before(self, subject: SubjectName, prepared: Prepared) -> _Before:
        context_key = keys.schema_context(subject.context)
        head_key = keys.subject(subject.context, subject.name)
        digest_key = keys.schema_digest(subject.context, prepared.digest)
        plain_key = keys.schema_digest(subject.context, prepared.plain_digest)
        default_key = keys.schema_context(DEFAULT)
        wanted = {context_key, head_key, digest_key, plain_key, default_key}
        found = await self._metadata.get_many(sorted(wanted))

        def context(key: str, name: str) -> SchemaContext:
            item = found.get(key)
            return SchemaContext(name) if item is None else items.decode_context(item.value)

        def schema_id(key: str) -> int | None:
            item = found.get(key)
            return None if item is None else items.decode_id(item.value).schema_id

        head = found.get(head_key)
        return _Before(
            context(context_key, subject.context),
            found.get(context_key),
            None if head is None else items.decode_subject(head.value),
            head,
            context(default_key, DEFAULT),
            found.get(default_key),
            schema_id(digest_key),
            schema_id(plain_key),
        )

    async def _check(
        self, subject: SubjectName, prepared: Prepared, before: _Before, force: bool
    ) -> None:
        """Raise unless mode and level allow the new version."""
        mode, new = before.mode, prepared.new
        if before.head is not None and (alias := before.head.rules.alias) is not None:
            target = parse_subject(alias)
            raise not_permitted(f"Subject {subject} is an alias of {target}: register there")
        if mode in READ_ONLY:
            raise not_permitted(f"Subject {subject} in context {subject.context} is in {mode} mode")
        if new.schema_id not in (None, -1):
            if mode != "IMPORT":
                raise not_permitted(f"Subject {subject} is not in import mode")
            key = keys.schema(subject.context, new.schema_id)
            if before.schema_id is None and await self._metadata.get(key) is not None:
                raise not_permitted(
                    f"Overwrite new schema with id {new.schema_id} is not permitted"
                )
        _check_versions(subject, new, before.head)
        if mode != "IMPORT":
            following = 1 if before.head is None else before.head.next_version
            if new.version not in (None, -1, 0, following):
                raise invalid_schema(f"version is {new.version}, and the next one is {following}")
            level = Level.NONE if force else Level(str(before.rule("level") or DEFAULT_LEVEL))
            versions = [] if before.head is None else before.head.live()
            group = before.rule("compatibility_group")
            why = []
            if not force and before.rule("validate_fields"):
                why = await self.misused_fields(prepared, subject.context, versions)
            why += await self.violations(
                level, prepared, subject.context, versions, None if group is None else str(group)
            )
            if why:
                raise RegistryError(
                    INCOMPATIBLE,
                    "Schema being registered is incompatible with an earlier schema for subject"
                    f' "{subject}", details: [{", ".join(why)}]',
                )

    async def misused_fields(
        self, prepared: Prepared, context: str, versions: Sequence[SubjectVersion]
    ) -> list[str]:
        """Return how the schema breaks the rules of `validateFields`, after the last version."""
        names = prepared.parsed.field_names
        if prepared.new.type is SchemaType.JSON:
            for name in sorted(names):
                if name.startswith("$$"):
                    raise invalid_schema(f"no name of a field begins with $$, as {name:.100} does")
        last = None
        if versions:
            last = await self._reader.schema(context, versions[-1].schema_id)
        return misused_fields(names, prepared.new.metadata, b"" if last is None else last.metadata)

    async def violations(
        self,
        level: Level,
        prepared: Prepared,
        context: str,
        versions: Sequence[SubjectVersion],
        group: str | None,
    ) -> list[str]:
        """Return why the schema does not keep the level, compared with versions in their order.

        With a `group`, only those count whose metadata has the same value of this property.
        """
        if level is Level.NONE:
            return []
        ours = None if group is None else property_of(prepared.new.metadata, group)
        compared_max = COMPARED_MAX if level.is_transitive else 1
        compared: set[int] = set()
        for version in reversed(versions):
            if len(compared) >= compared_max:
                break
            if version.schema_id in compared:
                continue
            schema = await self._reader.schema(context, version.schema_id)
            if group is not None and property_of(schema.metadata, group) != ours:
                continue
            compared.add(version.schema_id)
            old = OldVersion(version.version, schema.type, await self._reader.parsed(schema))
            size_bytes = len(schema.text) + len(prepared.text)
            try:
                why = await self._reader.convert(
                    size_bytes,
                    lambda old=old: violations(level, prepared.new.type, prepared.parsed, [old]),  # type: ignore[misc]
                )
            except InvalidSchema as error:
                raise invalid_schema(str(error)) from None
            if why:
                return why
        return []

    async def _ops(
        self, subject: SubjectName, prepared: Prepared, before: _Before
    ) -> tuple[list[Op], Registered]:
        head = before.head or SubjectHead(subject.context, subject.name)
        new = prepared.new
        schema_id, ops = self._schema_ops(subject.context, prepared, before)
        version = head.next_version
        if before.mode == "IMPORT" and new.version and new.version > 0:
            version = new.version
            if head.find(version) is not None:
                raise not_permitted(f"Subject {subject} has a version {version} already")
        versions = sorted((*head.versions, SubjectVersion(version, schema_id)), key=_number)
        changed = replace(
            head, versions=tuple(versions), next_version=max(version + 1, head.next_version)
        )
        head_key = keys.subject(subject.context, subject.name)
        ops.append(Put(head_key, items.encode(changed), _version(before.head_item)))
        use_key = keys.schema_use(subject.context, schema_id, subject.name)
        if all(each.schema_id != schema_id for each in head.versions):
            use = items.encode(SchemaUser(subject.context, subject.name))
            ops.append(Put(use_key, use, _version(await self._metadata.get(use_key))))
        ops += await self._reference_ops(subject, version, new.references, head_key)
        if subject.context != DEFAULT:
            # Levels and modes must still be those that were checked, as those of the context.
            ops.append(Check(keys.schema_context(DEFAULT), _version(before.default_item)))
        stored = _stored(prepared, 0)
        return ops, Registered(version, loaded(subject.context, schema_id, stored, prepared.text))

    def _schema_ops(
        self, context: str, prepared: Prepared, before: _Before
    ) -> tuple[int, list[Op]]:
        """Return the id of the schema, and what writes it unless it is there already."""
        context_key = keys.schema_context(context)
        given = prepared.new.schema_id
        if before.schema_id is not None:
            if given not in (None, -1, before.schema_id):
                raise other_id(f"the schema has the id {before.schema_id}, not {given}")
            # Levels and modes must still be those that were checked.
            return before.schema_id, [Check(context_key, _version(before.context_item))]
        schema_id = given if given is not None and given > 0 else before.context.last_id + 1
        if schema_id > ID_MAX:
            raise not_permitted(f"there is no id after {ID_MAX}")
        parts = items.deflated(prepared.text)
        stored = _stored(prepared, self._world.now_ms(), parts)
        last_id = max(schema_id, before.context.last_id)
        reserved = items.encode(SchemaId(context, schema_id))
        context_value = items.encode(replace(before.context, last_id=last_id))
        return schema_id, [
            Put(context_key, context_value, _version(before.context_item)),
            Put(keys.schema(context, schema_id), items.encode(stored), None),
            Put(keys.schema_digest(context, prepared.digest), reserved, None),
            Put(keys.schema_guid(prepared.guid, context), reserved, None),
            *(
                Put(keys.schema_text(context, schema_id, number), part, None)
                for number, part in enumerate(parts[1:], start=1)
            ),
        ]

    async def _reference_ops(
        self,
        subject: SubjectName,
        version: int,
        references: Sequence[SchemaReference],
        head_key: str,
    ) -> list[Op]:
        """Return what notes the references, and makes those wait who would delete their targets."""
        ops: dict[str, Op] = {}
        user = items.encode(SchemaUser(subject.context, subject.name, version))
        for each in references:
            target = parse_subject(each.subject, inside=subject.context)
            target_key = keys.subject(target.context, target.name)
            item = await self._metadata.get(target_key)
            found = None if item is None else items.decode_subject(item.value).find(each.version)
            if item is None or found is None or found.is_deleted:
                raise invalid_schema(
                    f"no schema reference found for subject '{target}' and version {each.version}"
                )
            if target_key != head_key:
                ops[target_key] = Put(target_key, item.value, item.version)
            key = keys.schema_referrer(
                target.context,
                target.name,
                each.version,
                f":{subject.context}:{subject.name}",
                version,
            )
            ops[key] = Put(key, user, None)
        return list(ops.values())


def _check_versions(subject: SubjectName, new: NewSchema, head: SubjectHead | None) -> None:
    """Raise unless there is a number for a new version."""
    if new.version is not None and new.version > VERSION_MAX:
        raise invalid_version(str(new.version))
    if head is not None and len(head.versions) >= VERSIONS_MAX:
        raise not_permitted(f"Subject {subject} has {VERSIONS_MAX} versions, the limit")
    if head is not None and head.next_version > VERSION_MAX:
        raise not_permitted(f"Subject {subject} has no version after {VERSION_MAX}")


def _known(before: _Before, settings: SchemaSettings) -> SubjectVersion | None:
    """Return the version of the subject that has the schema, as it came or as it would be stored.

    As it came is the better one, unless the subject says what all new versions have.
    """
    live = [] if before.head is None else before.head.live()
    ids = (before.plain_id, before.schema_id)
    for schema_id in ids if settings.additions == Additions() else reversed(ids):
        found = [each for each in live if each.schema_id == schema_id]
        if found:
            return found[-1]
    return None


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


def _with_additions(new: NewSchema, additions: Additions) -> NewSchema:
    """Return the schema with what its subject adds."""
    if additions == Additions():
        return new
    return dataclasses.replace(
        new,
        metadata=normal_metadata(additions.metadata(new.metadata)),
        rule_set=normal_rule_set(additions.rule_set(new.rule_set)),
    )


def _normal(new: NewSchema) -> NewSchema:
    """Return the schema with metadata and rules in their one form, or raise what is wrong."""
    if why := why_not_metadata(new.metadata):
        raise invalid_schema(f"its metadata: {why}")
    if why := why_not_rule_set(new.rule_set):
        raise invalid_rule_set(why)
    metadata, rule_set = normal_metadata(new.metadata), normal_rule_set(new.rule_set)
    return dataclasses.replace(new, metadata=metadata, rule_set=rule_set)


def _stored(prepared: Prepared, now_ms: int, parts: Sequence[bytes] = (b"",)) -> StoredSchema:
    new = prepared.new
    return StoredSchema(
        new.type,
        parts[0],
        len(parts),
        new.references,
        prepared.guid,
        now_ms,
        new.metadata,
        new.rule_set,
    )


def _number(version: SubjectVersion) -> int:
    return version.version


def _version(item: Versioned | None) -> str | None:
    return None if item is None else item.version
