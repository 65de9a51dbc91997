"""Calls about compatibility, levels and modes."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
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
    invalid_level,
    invalid_mode,
    no_level,
    no_mode,
    no_subject,
    no_version,
    not_permitted,
)
from service.registry.formats.compatibility import Level
from service.registry.items import SubjectHead, SubjectRules, SubjectVersion
from service.registry.names import DEFAULT, SubjectName
from service.registry.reading import DEFAULT_LEVEL, DEFAULT_MODE, SchemaReader
from service.registry.registering import LATEST, Registrar
from service.registry.subjects import BODY, check_references, new_schema, subject_of
from service.security.acls import Operation, ResourceType

MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")


_LEVEL: Final = msgspec.json.Decoder(LevelBody)
_MODE: Final = msgspec.json.Decoder(ModeBody)

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
        return await self._compare(request, None)

    async def compare_with(self, request: Request) -> Response:
        """Say whether a schema is compatible with one version."""
        return await self._compare(request, parse_version(request.path_params["version"]))

    async def _compare(self, request: Request, number: int | None) -> Response:
        query = Parameters(request)
        subject = subject_of(request)
        body = await read_as(request, self._gateway, BODY)
        new = new_schema(body, caller_in(request).name_prefix)
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
        why = await self._registrar.violations(level, prepared, subject.context, head, only)
        told: dict[str, Any] = {"is_compatible": not why}
        if query.flag("verbose"):
            told["messages"] = why
        return answer(told)

    async def show_level(self, request: Request) -> Response:
        """Show the level of a subject."""
        query = Parameters(request)
        subject = subject_of(request, is_context_too=True)
        rules = await self._rules(subject)
        if rules.level is None and rules.normalize is None and not query.flag("defaultToGlobal"):
            raise no_level(str(subject))
        level = rules.level or await self._reader.level(subject, await self._reader.head(subject))
        return answer(_with_normalize({"compatibilityLevel": level}, rules))

    async def show_default_level(self, _: Request) -> Response:
        """Show the level of subjects that have none."""
        rules = await self._rules(EVERYWHERE)
        return answer(_with_normalize({"compatibilityLevel": rules.level or DEFAULT_LEVEL}, rules))

    async def set_level(self, request: Request) -> Response:
        """Set the level of a subject."""
        return await self._set_level(request, subject_of(request, is_context_too=True))

    async def set_default_level(self, request: Request) -> Response:
        """Set the level of subjects that have none."""
        return await self._set_level(request, EVERYWHERE)

    async def _set_level(self, request: Request, subject: SubjectName) -> Response:
        body = await read_as(request, self._gateway, _LEVEL)
        level = None if body.compatibility is None else _level(body.compatibility)
        _refuse_unknown(body)

        def change(rules: SubjectRules) -> SubjectRules:
            changed = rules if level is None else replace(rules, level=str(level))
            return changed if body.normalize is None else replace(changed, normalize=body.normalize)

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
        return answer(_with_normalize({"compatibilityLevel": old.level or DEFAULT_LEVEL}, old))

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


def _with_normalize(body: dict[str, Any], rules: SubjectRules) -> dict[str, Any]:
    return body if rules.normalize is None else {**body, "normalize": rules.normalize}


def _refuse_unknown(body: LevelBody) -> None:
    """Raise rather than forget what would have changed the answers of other calls."""
    known: Callable[[str], bool] = ("compatibility", "normalize").__contains__
    for name in body.__struct_fields__:
        if not known(name) and getattr(body, name) not in (None, "", False):
            raise not_permitted(f"{name} is not supported here; leave it out")


def _record(request: Request, subject: SubjectName) -> None:
    name = str(subject) or "the default context"
    caller_in(request).changed(Operation.ALTER_CONFIGS, ResourceType.SUBJECT, name)
