"""Calls about compatibility, levels and modes."""

import dataclasses
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from service.log.gateway import Gateway
from service.registry.answers import (
    Parameters,
    answer,
    caller_in,
    parse_version,
    read_as,
)
from service.registry.bodies import LevelBody, ModeBody
from service.registry.changing import Changes
from service.registry.errors import (
    INVALID_MODE,
    INVALID_SCHEMA,
    RegistryError,
    invalid_level,
    invalid_mode,
    invalid_rule_set,
    no_level,
    no_mode,
    no_subject,
    no_version,
    not_permitted,
    too_large,
)
from service.registry.formats.compatibility import Level
from service.registry.formats.metadata import why_not_metadata, why_not_rule_set
from service.registry.items import METADATA_BYTES_MAX, SubjectHead, SubjectRules, SubjectVersion
from service.registry.names import DEFAULT, SubjectName, parse_subject
from service.registry.reading import DEFAULT_LEVEL, DEFAULT_MODE, SchemaReader
from service.registry.registering import LATEST, Registrar
from service.registry.subjects import BODY, check_references, meant, new_schema, subject_of
from service.security.acls import Operation, ResourceType

MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")


_LEVEL: Final = msgspec.json.Decoder(LevelBody)
_MODE: Final = msgspec.json.Decoder(ModeBody)

_ADDED: Final = {
    "defaultMetadata": "default_metadata",
    "overrideMetadata": "override_metadata",
    "defaultRuleSet": "default_rule_set",
    "overrideRuleSet": "override_rule_set",
}
"""What is added to schemas, as calls name it and as it is stored."""

EVERYWHERE: Final = SubjectName(DEFAULT, "")


class RuleCalls:
    def __init__(
        self, gateway: Gateway, reader: SchemaReader, registrar: Registrar, changes: Changes
    ) -> None:
        self._gateway = gateway
        self._reader = reader
        self._registrar = registrar
        self._changes = changes

    async def compare(self, request: Request) -> Response:
        """Say whether a schema is compatible with the versions that its level compares it with."""
        return await self._verdict(request, None)

    async def compare_with(self, request: Request) -> Response:
        """Say whether a schema is compatible with one version."""
        return await self._verdict(request, parse_version(request.path_params["version"]))

    async def _verdict(self, request: Request, number: int | None) -> Response:
        is_verbose = Parameters(request).flag("verbose")
        told: dict[str, Any] = {}
        try:
            why = await self._compare(request, number)
        except RegistryError as error:
            if not is_verbose or error.code != INVALID_SCHEMA:
                raise
            why = [str(error)]
        told["is_compatible"] = not why
        if is_verbose:
            told["messages"] = why
        return answer(told)

    async def _compare(self, request: Request, number: int | None) -> list[str]:
        """Return why a schema is not compatible."""
        query = Parameters(request)
        subject = await meant(request, self._reader)
        body = await read_as(request, self._gateway, BODY)
        new = dataclasses.replace(new_schema(body, caller_in(request).name_prefix), inherits=False)
        check_references(request, subject, new)

        def chosen(head: SubjectHead | None) -> SubjectVersion | None:
            live = [] if head is None else head.live()
            return next((each for each in reversed(live) if number in (LATEST, each.version)), None)

        head = await self._reader.head(
            subject, lambda head: number is None or chosen(head) is not None
        )
        only = None if number is None else chosen(head)
        if number is not None and only is None:
            raise (
                no_subject(str(subject)) if head is None or not head.live() else no_version(number)
            )
        prepared = await self._registrar.prepare(subject, new, query.flag("normalize"))
        # What if the subject had another level? Not one of Confluent's parameters.
        asked = query.text("level")
        level = _level(asked) if asked else await self._reader.level(subject, head)
        versions = [only] if only is not None else [] if head is None else head.live()
        group = await self._reader.compatibility_group(subject, head)
        why = []
        if await self._reader.validates_fields(subject, head):
            why = await self._registrar.misused_fields(prepared, subject.context, versions)
        context = subject.context
        return why + await self._registrar.violations(level, prepared, context, versions, group)

    async def show_level(self, request: Request) -> Response:
        """Show the level of a subject."""
        query = Parameters(request)
        subject = subject_of(request, is_context_too=True)
        rules = await self._rules(subject)
        if replace(rules, mode=None) == SubjectRules() and not query.flag("defaultToGlobal"):
            raise no_level(str(subject))
        level = rules.level or await self._reader.level(subject, await self._reader.head(subject))
        return answer(_shown(request, level, rules))

    async def show_default_level(self, request: Request) -> Response:
        """Show the level of subjects that have none."""
        rules = await self._rules(EVERYWHERE)
        return answer(_shown(request, rules.level or DEFAULT_LEVEL, rules))

    async def set_level(self, request: Request) -> Response:
        """Set the level of a subject."""
        return await self._set_level(request, subject_of(request, is_context_too=True))

    async def set_default_level(self, request: Request) -> Response:
        """Set the level of subjects that have none."""
        return await self._set_level(request, EVERYWHERE)

    async def _set_level(self, request: Request, subject: SubjectName) -> Response:
        body = await read_as(request, self._gateway, _LEVEL)
        changes = _changes(request, subject, body)

        def change(rules: SubjectRules) -> SubjectRules:
            changed = replace(rules, **changes)
            size_bytes = sum(len(getattr(changed, name) or b"") for name in _ADDED.values())
            if size_bytes > METADATA_BYTES_MAX:
                raise too_large(f"metadata and rules have more than {METADATA_BYTES_MAX} bytes")
            return changed

        await self._changes.set_rules(subject, change, must_be_writable=True)
        _record(request, subject)
        return answer(body)

    async def delete_level(self, request: Request) -> Response:
        """Remove the level of a subject, so that the default holds."""
        return await self._delete_level(request, subject_of(request, is_context_too=True))

    async def delete_default_level(self, request: Request) -> Response:
        """Set the level of subjects that have none to what it is at first."""
        return await self._delete_level(request, EVERYWHERE)

    async def _delete_level(self, request: Request, subject: SubjectName) -> Response:
        old = await self._changes.delete_level(subject)
        _record(request, subject)
        return answer(_shown(request, old.level or DEFAULT_LEVEL, old))

    async def show_mode(self, request: Request) -> Response:
        """Show the mode of a subject."""
        query = Parameters(request)
        subject = subject_of(request, is_context_too=True)
        rules = await self._rules(subject)
        if rules.mode is None and not query.flag("defaultToGlobal"):
            raise no_mode(str(subject))
        mode = rules.mode or await self._reader.mode(subject, await self._reader.head(subject))
        return answer({"mode": mode})

    async def show_default_mode(self, _: Request) -> Response:
        """Show the mode of subjects that have none."""
        return answer({"mode": (await self._rules(EVERYWHERE)).mode or DEFAULT_MODE})

    async def set_mode(self, request: Request) -> Response:
        """Set the mode of a subject."""
        return await self._set_mode(request, subject_of(request, is_context_too=True))

    async def set_default_mode(self, request: Request) -> Response:
        """Set the mode of subjects that have none."""
        return await self._set_mode(request, EVERYWHERE)

    async def _set_mode(self, request: Request, subject: SubjectName) -> Response:
        body = await read_as(request, self._gateway, _MODE)
        mode = (body.mode or "").upper()
        if mode == "FORWARD" and subject != EVERYWHERE:
            raise RegistryError(INVALID_MODE, "Forward mode only supported on global level")
        if mode not in MODES:
            raise invalid_mode((body.mode or "")[:100])
        must_be_empty = mode == "IMPORT" and not Parameters(request).flag("force")
        await self._changes.set_rules(
            subject, lambda rules: replace(rules, mode=mode), must_be_empty=must_be_empty
        )
        _record(request, subject)
        return answer({"mode": mode})

    async def delete_mode(self, request: Request) -> Response:
        """Remove the mode of a subject, so that the default holds."""
        return await self._delete_mode(request, subject_of(request, is_context_too=True))

    async def delete_default_mode(self, request: Request) -> Response:
        """Set the mode of subjects that have none to what it is at first."""
        return await self._delete_mode(request, EVERYWHERE)

    async def _delete_mode(self, request: Request, subject: SubjectName) -> Response:
        old = await self._changes.delete_mode(subject)
        if not subject.name and Parameters(request).flag("recursive"):
            await self._changes.delete_modes_within(subject.context)
        _record(request, subject)
        return answer({"mode": old.mode or DEFAULT_MODE})

    async def _rules(self, subject: SubjectName) -> SubjectRules:
        """Return what is set for a subject, or for a context."""
        if not subject.name:
            return (await self._reader.context(subject.context)).rules
        head = await self._reader.head(subject)
        return SubjectRules() if head is None else head.rules


def _level(text: str) -> Level:
    try:
        return Level(text.upper())
    except ValueError:
        raise invalid_level(text[:100]) from None


def _changes(request: Request, subject: SubjectName, body: LevelBody) -> dict[str, Any]:
    """Return what is to be set, or raise what is wrong with it; None: it is unset."""
    changes: dict[str, Any] = {
        name: value or None  # Clients that cannot send null send an empty text.
        for name, value in (
            ("level", body.compatibility),
            ("alias", body.alias),
            ("compatibility_group", body.compatibilityGroup),
        )
        if value is not UNSET
    }
    if body.normalize is not UNSET:
        changes["normalize"] = body.normalize
    if body.validateFields is not UNSET:
        changes["validate_fields"] = body.validateFields
    if changes.get("level") is not None:
        changes["level"] = str(_level(changes["level"]))
    if changes.get("alias") is not None:
        changes["alias"] = _alias(request, subject, changes["alias"])
    for name, field in _ADDED.items():
        value = getattr(body, name)
        if value is UNSET:
            continue
        added = msgspec.json.encode(value) if value else b""
        if name.endswith("Metadata") and (why := why_not_metadata(added)):
            raise RegistryError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{name}: {why}")
        if name.endswith("RuleSet") and (why := why_not_rule_set(added)):
            raise invalid_rule_set(why)
        changes[field] = added or None
    return changes


def _alias(request: Request, subject: SubjectName, text: str) -> str:
    """Return the full name of the subject that an alias names, or raise why there can be none."""
    if not subject.name:
        raise not_permitted("only a subject can be an alias")
    target = parse_subject(caller_in(request).inner_name(text), inside=subject.context)
    if target == subject:
        raise not_permitted(f"Subject {subject} cannot be an alias of itself")
    return f":{target.context}:{target.name}"


def _shown(request: Request, level: str, rules: SubjectRules) -> dict[str, Any]:
    """Return what answers say of a level and of what is set with it."""
    found: dict[str, Any] = {"compatibilityLevel": level}
    if rules.normalize is not None:
        found["normalize"] = rules.normalize
    if rules.validate_fields is not None:
        found["validateFields"] = rules.validate_fields
    if rules.alias is not None:
        found["alias"] = caller_in(request).outer_name(str(parse_subject(rules.alias)))
    if rules.compatibility_group is not None:
        found["compatibilityGroup"] = rules.compatibility_group
    for name, field in _ADDED.items():
        if (added := getattr(rules, field)) is not None:
            found[name] = msgspec.Raw(added)
    return found


def _record(request: Request, subject: SubjectName) -> None:
    name = str(subject) or "the default context"
    caller_in(request).changed(Operation.ALTER_CONFIGS, ResourceType.SUBJECT, name)
