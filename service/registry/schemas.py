"""Calls about schemas by their ids, and about the registry itself."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from service.process.version import VERSION
from service.registry.answers import Parameters, answer, caller_in, parse_id, shown, text_answer
from service.registry.changing import Changes
from service.registry.edge.readable import ReadableSchemas
from service.registry.errors import no_schema_id
from service.registry.formats.metadata import types_of_rules
from service.registry.items import SubjectVersion
from service.registry.names import DEFAULT, SubjectName, context_of, parse_subject
from service.registry.reading import Schema, SchemaReader
from service.registry.subjects import formatted, has_prefix, tags_in
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller
from storage.schemas.source import SchemaType


class SchemaCalls:
    def __init__(self, reader: SchemaReader, readable: ReadableSchemas, changes: Changes) -> None:
        self._reader = reader
        self._readable = readable
        self._changes = changes

    async def show(self, request: Request) -> Response:
        """Show a schema by its id."""
        query = Parameters(request)
        schema = await self._schema(request, query)
        body: dict[str, Any] = {**shown(schema), "guid": schema.guid}
        if query.flag("fetchMaxId"):
            last_id = (await self._reader.context(schema.context)).last_id
            body["maxId"] = max(last_id, schema.schema_id)
        if tags := await tags_in(self._reader, schema, query.texts("findTags")):
            body["schemaTags"] = tags
        body["schema"] = await formatted(self._reader, schema, query.text("format"))
        return answer(body)

    async def show_text(self, request: Request) -> Response:
        """Show the text of a schema by its id, and nothing else."""
        query = Parameters(request)
        schema = await self._schema(request, query)
        return text_answer(await formatted(self._reader, schema, query.text("format")))

    async def list_subjects(self, request: Request) -> Response:
        """List the subjects that have a schema."""
        query = Parameters(request)
        names = [each for each, _ in await self._versions(request, query)]
        return answer(query.page(sorted(set(names))))

    async def list_versions(self, request: Request) -> Response:
        """List the versions that have a schema."""
        query = Parameters(request)
        found = sorted(await self._versions(request, query))
        return answer([{"subject": name, "version": number} for name, number in query.page(found)])

    async def _versions(self, request: Request, query: Parameters) -> list[tuple[str, int]]:
        schema = await self._schema(request, query)
        caller = caller_in(request)
        wanted = query.text("subject")
        found: list[tuple[str, int]] = []
        for name in await self._reader.users(schema.context, schema.schema_id):
            head = await self._reader.head(
                SubjectName(schema.context, name),
                lambda head: (
                    head is not None
                    and any(each.schema_id == schema.schema_id for each in head.versions)
                ),
            )
            full = str(SubjectName(schema.context, name))
            if head is None or not caller.allows(Operation.READ, ResourceType.SUBJECT, full):
                continue
            full = caller.outer_name(full)
            if wanted and not wanted.endswith(":") and full != wanted.removeprefix(":.:"):
                continue
            found += [
                (full, each.version)
                for each in head.versions
                if each.schema_id == schema.schema_id
                and (query.flag("deleted") or not each.is_deleted)
            ]
        return found

    async def _schema(self, request: Request, query: Parameters) -> Schema:
        schema_id = parse_id(request.path_params["schema"])
        context = context_of(query.text("subject"))
        return await self._readable.schema(caller_in(request), context, schema_id)

    async def list_all(self, request: Request) -> Response:
        """List schemas with their subjects and versions."""
        query = Parameters(request)
        prefix = query.text("subjectPrefix")
        caller = caller_in(request)
        aliases = await self._aliases(caller, prefix) if query.flag("aliases") else {}
        found = []
        async for head in self._reader.all_heads():
            full = str(SubjectName(head.context, head.name))
            name = caller.outer_name(full)
            if not has_prefix(name, prefix) and full not in aliases:
                continue
            if not caller.allows(Operation.READ, ResourceType.SUBJECT, full):
                continue
            versions = head.versions if query.flag("deleted") else head.live()
            chosen = versions[-1:] if query.flag("latestOnly") else versions
            found += [(name, head.context, each) for each in chosen]
        found.sort(key=lambda each: (each[0], each[2].version))
        if kind := query.text("ruleType"):
            found = [each for each in found if kind in await self._types_of_rules(*each)]
        bodies = []
        for name, context, version in query.page(found):
            schema = await self._reader.schema(context, version.schema_id)
            numbers = {"version": version.version, "id": schema.schema_id, "guid": schema.guid}
            deleted = {"deleted": True} if version.is_deleted else {}
            body = {"subject": name, **numbers, **shown(schema), **deleted, "schema": schema.text}
            if names := aliases.get(caller.inner_name(name)):
                body["aliases"] = names
            bodies.append(body)
        return answer(bodies)

    async def _aliases(self, caller: Caller, prefix: str) -> dict[str, list[str]]:
        """Return the aliases that a prefix means, by the subjects that they name."""
        found: dict[str, list[str]] = {}
        async for head in self._reader.all_heads():
            full = str(SubjectName(head.context, head.name))
            name = caller.outer_name(full)
            if (
                head.rules.alias is not None
                and has_prefix(name, prefix)
                and caller.allows(Operation.READ, ResourceType.SUBJECT, full)
            ):
                found.setdefault(str(parse_subject(head.rules.alias)), []).append(name)
        return found

    async def _types_of_rules(self, _: str, context: str, version: SubjectVersion) -> set[str]:
        return types_of_rules((await self._reader.schema(context, version.schema_id)).rule_set)

    async def list_types(self, _: Request) -> Response:
        """List the types of schemas."""
        return answer([SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO])

    async def show_by_guid(self, request: Request) -> Response:
        """Show a schema by its GUID."""
        query = Parameters(request)
        for context, schema_id in await self._reader.ids_of_guid(request.path_params["guid"]):
            schema = await self._readable.schema(caller_in(request), context, schema_id)
            text = await formatted(self._reader, schema, query.text("format"))
            return answer({**shown(schema), "guid": schema.guid, "schema": text})
        raise no_schema_id(request.path_params["guid"][:100])

    async def list_ids_of_guid(self, request: Request) -> Response:
        """List the ids of the schema with a GUID, one for each context."""
        found = await self._reader.ids_of_guid(request.path_params["guid"])
        for context, schema_id in found:
            await self._readable.schema(caller_in(request), context, schema_id)
        return answer([{"context": context, "id": schema_id} for context, schema_id in found])

    async def list_contexts(self, request: Request) -> Response:
        """List contexts."""
        query = Parameters(request)
        caller = caller_in(request)
        if caller.is_anyone or caller.is_super:
            names = {DEFAULT, *await self._reader.contexts_in_use()}
        else:
            names = {DEFAULT}
            async for head in self._reader.all_heads():
                full = str(SubjectName(head.context, head.name))
                if caller.allows(Operation.DESCRIBE, ResourceType.SUBJECT, full):
                    names.add(head.context)
        return answer(query.page(sorted(names)))

    async def delete_context(self, request: Request) -> Response:
        """Delete a context without subjects."""
        await self._changes.delete_context(request.path_params["context"])
        return Response(status_code=204)

    async def about(self, _: Request) -> Response:
        """Say what answers here: for clients of the registry and of other APIs at this port."""
        return answer({"version": VERSION, "commit": "", "kafka_cluster_id": "riacho"})

    async def take_nothing(self, _: Request) -> Response:
        """Answer with nothing: clients send something to see that somebody is there."""
        return answer({})

    async def about_deployment(self, _: Request) -> Response:
        """Show what is special about this registry: nothing that Confluent has a name for."""
        return answer({"attributes": []})

    async def about_id(self, _: Request) -> Response:
        """Show the id of the registry."""
        clusters = {"kafka-cluster": "riacho", "schema-registry-cluster": "schema-registry"}
        return answer({"id": "", "scope": {"path": [], "clusters": clusters}})

    async def about_version(self, _: Request) -> Response:
        """Show the version of the registry."""
        return answer({"version": VERSION, "commitId": ""})
