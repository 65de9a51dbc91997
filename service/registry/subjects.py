"""Calls about subjects and their versions."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeGuard

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.log.gateway import Gateway
from service.registry.answers import (
    Parameters,
    answer,
    caller_in,
    parse_version,
    read_as,
    shown,
    text_answer,
)
from service.registry.bodies import PartTags, SchemaBody, TagBody
from service.registry.changing import Changes
from service.registry.errors import (
    invalid_rule_set,
    invalid_schema,
    no_schema,
    no_subject,
    no_version,
    not_permitted,
)
from service.registry.formats.avro.tags import tags_of, with_tags
from service.registry.formats.metadata import changed_rules, properties, why_not_rule_set
from service.registry.items import SchemaReference, SubjectHead, SubjectVersion
from service.registry.names import ALL_CONTEXTS, SubjectName, parse_subject
from service.registry.reading import IN_THREAD_BYTES, Schema, SchemaReader
from service.registry.registering import LATEST, NewSchema, Registered, Registrar
from service.security.acls import Operation, ResourceType
from storage import keys
from storage.schemas.source import InvalidSchema, SchemaType

BODY: Final = msgspec.json.Decoder(SchemaBody)
TAGS_BODY: Final = msgspec.json.Decoder(TagBody)

DELETED_ONLY: Final = ("deletedOnly", "deleted_only")
"""Confluent's client for Python sends the second, which its server ignores."""


def new_schema(body: SchemaBody, prefix: str = "", *, needs_text: bool = True) -> NewSchema:
    """Return what a body describes; subjects of references get the `prefix` of a tenant."""
    text = body.schema or ""
    if not text.strip():
        if needs_text:
            raise invalid_schema("Empty schema")
        text = ""
    try:
        kind = SchemaType(body.schemaType or SchemaType.AVRO)
    except ValueError:
        raise invalid_schema(
            f"Invalid schema type {body.schemaType:.100}; types are AVRO, JSON and PROTOBUF"
        ) from None
    references = tuple(
        SchemaReference(each.name, prefix + each.subject, each.version)
        for each in body.references or ()
    )
    return NewSchema(
        type=kind,
        text=text,
        references=references,
        metadata=_raw(body.metadata),
        rule_set=_raw(body.ruleSet),
        schema_id=None if body.id in (None, -1, 0) else body.id,
        version=body.version,
    )


def _raw(value: dict[str, Any] | None) -> bytes:
    return b"" if value is None else msgspec.json.encode(value)


class SubjectCalls:
    def __init__(
        self, gateway: Gateway, reader: SchemaReader, registrar: Registrar, changes: Changes
    ) -> None:
        self._gateway = gateway
        self._reader = reader
        self._registrar = registrar
        self._changes = changes

    async def list_subjects(self, request: Request) -> Response:
        """List subjects."""
        query = Parameters(request)
        caller = caller_in(request)
        found = []
        async for head in self._reader.all_heads():
            name = str(SubjectName(head.context, head.name))
            if not _is_shown(head, query) or not caller.allows(
                Operation.DESCRIBE, ResourceType.SUBJECT, name
            ):
                continue
            name = caller.outer_name(name)
            if has_prefix(name, query.text("subjectPrefix")):
                found.append(name)
        return answer(query.page(sorted(found)))

    async def register(self, request: Request) -> Response:
        """Register a schema under a subject."""
        query = Parameters(request)
        subject, caller = subject_of(request), caller_in(request)
        body = await read_as(request, self._gateway, BODY)
        # Only who may read the latest version may register its text again.
        may_read = caller.allows(Operation.READ, ResourceType.SUBJECT, str(subject))
        new = new_schema(body, caller.name_prefix, needs_text=not may_read)
        check_references(request, subject, new)
        done = await self._registrar.register(
            subject, new, query.flag("normalize"), force=query.flag("force")
        )
        caller.changed(Operation.WRITE, ResourceType.SUBJECT, str(subject))
        schema, told = done.schema, _registered(request, done)
        if form := query.text("format"):
            # Only if it is asked for: Confluent's client for Python keeps what it is told instead
            # of what it has sent, and reads no text of Protobuf.
            told["schema"] = await formatted(self._reader, schema, form)
        return answer(told)

    async def change_tags(self, request: Request) -> Response:
        """Register a version with other tags, metadata and rules than one that is there."""
        subject, caller = subject_of(request), caller_in(request)
        body = await read_as(request, self._gateway, TAGS_BODY)
        self._reader.forget(keys.subject(subject.context, subject.name))
        version = await self._find(subject, parse_version(request.path_params["version"]))
        schema = await self._reader.schema(subject.context, version.schema_id)
        latest = await self._find(subject, LATEST)
        last = await self._reader.schema(subject.context, latest.schema_id)
        new = NewSchema(
            type=schema.type,
            text=_tagged(schema, body),
            references=schema.references,
            metadata=schema.metadata if body.metadata is None else _raw(body.metadata),
            rule_set=_changed_rules(schema, last, body),
            version=body.newVersion,
            inherits=False,
        )
        check_references(request, subject, new)
        done = await self._registrar.register(subject, new, normalize=False)
        caller.changed(Operation.WRITE, ResourceType.SUBJECT, str(subject))
        return answer(_registered(request, done))

    async def look_up(self, request: Request) -> Response:
        """Find a schema under a subject."""
        query = Parameters(request)
        subject = await meant(request, self._reader)
        body = await read_as(request, self._gateway, BODY)
        new = new_schema(body, caller_in(request).name_prefix)
        check_references(request, subject, new)
        with_deleted = query.flag("deleted")
        await self._existing(subject, with_deleted)
        prepared = await self._registrar.prepare(subject, new, query.flag("normalize"))
        ids = await self._registrar.ids_of(subject.context, prepared)

        def versions_of(head: SubjectHead) -> list[SubjectVersion]:
            versions = head.versions if with_deleted else head.live()
            return next(
                (found for each in ids if (found := [v for v in versions if v.schema_id == each])),
                [],
            )

        head = await self._existing(
            subject, with_deleted, lambda head: not ids or bool(versions_of(head))
        )
        found = versions_of(head)
        if not found:
            raise no_schema()
        form = query.text("format")
        return answer(await self._version_body(request, subject, found[-1], form))

    async def find_by_metadata(self, request: Request) -> Response:
        """Show the latest version whose metadata has all properties of the query."""
        query = Parameters(request)
        subject = await meant(request, self._reader)
        wanted = set(zip(query.texts("key"), query.texts("value"), strict=False))
        with_deleted = query.flag("deleted")
        head = await self._existing(subject, with_deleted)
        versions = head.versions if with_deleted else head.live()
        for version in reversed(versions):
            schema = await self._reader.schema(subject.context, version.schema_id)
            if wanted <= properties(schema.metadata).items():
                form = query.text("format")
                return answer(await self._version_body(request, subject, version, form))
        raise no_schema()

    async def delete_subject(self, request: Request) -> Response:
        """Delete all versions of a subject."""
        permanent = Parameters(request).flag("permanent")
        subject = subject_of(request)
        deleted = await self._changes.delete_subject(subject, permanent=permanent)
        caller_in(request).changed(Operation.DELETE, ResourceType.SUBJECT, str(subject))
        return answer(deleted)

    async def list_versions(self, request: Request) -> Response:
        """List the versions of a subject."""
        query = Parameters(request)
        subject = await meant(request, self._reader)
        only_deleted = query.flag(*DELETED_ONLY)
        with_deleted = query.flag("deleted") or only_deleted
        head = await self._existing(subject, with_deleted)
        found = [
            -each.version if each.is_deleted and query.flag("deletedAsNegative") else each.version
            for each in head.versions
            if (each.is_deleted if only_deleted else with_deleted or not each.is_deleted)
        ]
        if not found:
            raise no_subject(str(subject))
        return answer(query.page(found))

    async def describe_version(self, request: Request) -> Response:
        """Show a version of a subject."""
        query = Parameters(request)
        subject, version = await self._version(request, query.flag("deleted"))
        body = await self._version_body(request, subject, version, query.text("format"))
        schema = await self._reader.schema(subject.context, version.schema_id)
        if tags := await tags_in(self._reader, schema, query.texts("findTags")):
            body["schemaTags"] = tags
        return answer(body)

    async def show_schema(self, request: Request) -> Response:
        """Show the schema of a version, and nothing else."""
        query = Parameters(request)
        subject, version = await self._version(request, query.flag("deleted"))
        schema = await self._reader.schema(subject.context, version.schema_id)
        return text_answer(await formatted(self._reader, schema, query.text("format")))

    async def list_referrers(self, request: Request) -> Response:
        """List the ids of schemas that refer to a version."""
        query = Parameters(request)
        subject, version = await self._version(request, with_deleted=True)
        found: set[int] = set()
        for user in await self._changes.referrers(subject, version.version):
            number = user.version
            head = await self._reader.head(
                SubjectName(user.context, user.subject),
                lambda head, number=number: head is not None and head.find(number) is not None,  # type: ignore[misc]
            )
            by = None if head is None else head.find(number)
            if by is not None and (query.flag("deleted") or not by.is_deleted):
                found.add(by.schema_id)
        return answer(query.page(sorted(found)))

    async def delete_version(self, request: Request) -> Response:
        """Delete a version of a subject."""
        permanent = Parameters(request).flag("permanent")
        subject = subject_of(request)
        number = parse_version(request.path_params["version"])
        chosen = None if number == LATEST else number
        deleted = await self._changes.delete_version(subject, chosen, permanent=permanent)
        caller_in(request).changed(Operation.DELETE, ResourceType.SUBJECT, str(subject))
        return answer(deleted)

    async def _existing(
        self,
        subject: SubjectName,
        with_deleted: bool,
        is_enough: Callable[[SubjectHead], bool] = lambda _: True,
    ) -> SubjectHead:
        """Return the subject, as it is now unless what is known of it `is_enough`."""

        def exists(head: SubjectHead | None) -> TypeGuard[SubjectHead]:
            return head is not None and bool(head.versions if with_deleted else head.live())

        head = await self._reader.head(subject, lambda head: exists(head) and is_enough(head))
        if not exists(head):
            raise no_subject(str(subject))
        return head

    async def _version(
        self, request: Request, with_deleted: bool
    ) -> tuple[SubjectName, SubjectVersion]:
        subject = await meant(request, self._reader)
        number = parse_version(request.path_params["version"])
        return subject, await self._find(subject, number, with_deleted)

    async def _find(
        self, subject: SubjectName, number: int, with_deleted: bool = False
    ) -> SubjectVersion:
        def chosen(head: SubjectHead) -> SubjectVersion | None:
            versions = head.versions if with_deleted else tuple(head.live())
            if number == LATEST:
                return versions[-1]
            return next((each for each in versions if each.version == number), None)

        head = await self._existing(subject, with_deleted, lambda head: chosen(head) is not None)
        if (found := chosen(head)) is None:
            raise no_version(number)
        return found

    async def _version_body(
        self, request: Request, subject: SubjectName, version: SubjectVersion, form: str = ""
    ) -> dict[str, Any]:
        schema = await self._reader.schema(subject.context, version.schema_id)
        return {
            "subject": caller_in(request).outer_name(str(subject)),
            "version": version.version,
            "id": schema.schema_id,
            "guid": schema.guid,
            **_outer(request, schema),
            **({"deleted": True} if version.is_deleted else {}),
            "schema": await formatted(self._reader, schema, form),
        }


def _registered(request: Request, done: Registered) -> dict[str, Any]:
    schema = done.schema
    numbers = {"id": schema.schema_id, "version": done.version, "guid": schema.guid}
    return {**numbers, **_outer(request, schema)}


def _tagged(schema: Schema, body: TagBody) -> str:
    """Return the text of a schema with the tags that a body asks for."""
    if not body.tagsToAdd and not body.tagsToRemove:
        return schema.text
    if schema.type is not SchemaType.AVRO:
        raise not_permitted(f"tags in a schema of type {schema.type} cannot be changed here")
    try:
        return with_tags(schema.text, _by_path(body.tagsToAdd), _by_path(body.tagsToRemove))
    except InvalidSchema as error:
        raise invalid_schema(str(error)) from None


def _by_path(tags: Sequence[PartTags] | None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in tags or ():
        found.setdefault(each.schemaEntity.entityPath, []).extend(each.tags)
    return found


def _changed_rules(schema: Schema, latest: Schema, body: TagBody) -> bytes:
    """Return the rules that a body asks for: others, or those of the latest version, changed."""
    if body.rulesToMerge is None and body.rulesToRemove is None:
        return schema.rule_set if body.ruleSet is None else _raw(body.ruleSet)
    if body.ruleSet is not None:
        raise invalid_rule_set("with rulesToMerge or rulesToRemove there is no ruleSet")
    merged = _raw(body.rulesToMerge)
    if why := why_not_rule_set(latest.rule_set) or why_not_rule_set(merged):
        raise invalid_rule_set(why)
    return changed_rules(latest.rule_set, merged, body.rulesToRemove or ())


def _is_shown(head: SubjectHead, query: Parameters) -> bool:
    """Whether a list of subjects has this one; one that has only a level or a mode is not there."""
    if query.flag(*DELETED_ONLY):
        return bool(head.versions) and not head.live()
    return bool(head.versions if query.flag("deleted") else head.live())


def has_prefix(name: str, prefix: str) -> bool:
    """Whether a subject is meant by `subjectPrefix`; `:*:` stands for every context."""
    if prefix.startswith(ALL_CONTEXTS):
        name = name.split(":", 2)[-1] if name.startswith(":.") else name
        prefix = prefix.removeprefix(ALL_CONTEXTS)
    return name.startswith(prefix.removeprefix(":.:"))


def subject_of(request: Request, *, is_context_too: bool = False) -> SubjectName:
    return parse_subject(request.path_params["subject"], is_context_too=is_context_too)


async def meant(request: Request, reader: SchemaReader) -> SubjectName:
    """Return the subject that a call reads: the one that an alias names, if the caller may."""
    subject = subject_of(request)
    target = await reader.meant(subject)
    if target != subject and not caller_in(request).allows(
        Operation.READ, ResourceType.SUBJECT, str(target)
    ):
        raise no_subject(str(subject))
    return target


def check_references(request: Request, subject: SubjectName, new: NewSchema) -> None:
    """Raise unless the caller may read what the schema refers to."""
    caller = caller_in(request)
    for each in new.references:
        name = str(parse_subject(each.subject, inside=subject.context))
        if not caller.allows(Operation.READ, ResourceType.SUBJECT, name):
            raise invalid_schema(
                f"no schema reference found for subject '{each.subject}' and version {each.version}"
            )


def _outer(request: Request, schema: Schema) -> dict[str, Any]:
    """Return what answers say of a schema, with names as the caller knows them."""
    body = shown(schema)
    caller = caller_in(request)
    for each in body.get("references", ()):
        each["subject"] = caller.outer_name(each["subject"])
    return body


async def formatted(reader: SchemaReader, schema: Schema, form: str) -> str:
    """Return the text of a schema in the form that the caller asks for, if its type has that."""
    if form not in ("serialized", "resolved") or (form == "resolved" and not schema.references):
        return schema.text
    parsed = await reader.parsed(schema)
    write = parsed.serialized if form == "serialized" else parsed.resolved
    try:
        return await reader.convert(IN_THREAD_BYTES, write)
    except InvalidSchema as error:
        raise invalid_schema(str(error)) from None


async def tags_in(
    reader: SchemaReader, schema: Schema, wanted: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what of a schema has one of the tags that a caller looks for; `*`: any."""
    if not wanted or schema.type is not SchemaType.AVRO:
        return []
    text = await formatted(reader, schema, "resolved")
    return [
        {"schemaEntity": {"entityPath": path, "entityType": kind}, "tags": tags}
        for path, kind, tags in await reader.convert(len(text), lambda: tags_of(text))
        if "*" in wanted or not set(wanted).isdisjoint(tags)
    ]
