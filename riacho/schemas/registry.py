"""The registry of schemas, asked over HTTP.

Every call may be repeated without harm, but for deletions: a retry after a lost reply would not
find what the first one deleted. So all others are retried.
"""

from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, TypeVar
from urllib.parse import quote

from riacho.admin.throttled import ThrottledGateway
from riacho.http.background import Synchronous
from riacho.http.gateway import Reply, gateway_url
from riacho.http.identity import Basic, ClientCert, Credentials
from riacho.http.retries import Backoff, patiently
from riacho.schemas.values import (
    RegisteredSchema,
    SchemaCheck,
    SchemaText,
    check_of,
    registered,
)

if TYPE_CHECKING:
    import httpx

SCHEMAS_KEPT_MAX: Final = 1000
PAGE: Final = 500

T = TypeVar("T")

Version: TypeAlias = int | Literal["latest"]


class AsyncSchemaRegistry:
    """The registry that every gateway is; for programs with an event loop.

        async with AsyncSchemaRegistry() as registry:
            made = await registry.register("orders-value", SchemaText(text=avsc))
            print(made.id, made.version)

    What was read by its id never changes, and is asked for once. Errors are `UnknownSchema`,
    `IncompatibleSchema`, `InvalidSchemaText` and `SchemaRefused`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout_s: float = 30.0,
        retry_s: float = 30.0,
        token: str | None = None,
        basic: Basic | None = None,
        ca_file: str | None = None,
        client_cert: ClientCert | None = None,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        """`url`: of a gateway; None means `RIACHO_URL`, else http://127.0.0.1:8080.

        `timeout_s`: how long to wait for an answer. `retry_s`: how long a call is repeated that
        gets none, or one that says to try later; 0 is never. The rest is as for `Admin`.
        """
        self._gateway = ThrottledGateway(
            gateway_url(url),
            timeout_s=timeout_s,
            transport=transport,
            credentials=Credentials(
                token=token, basic=basic, ca_file=ca_file, client_cert=client_cert
            ),
        )
        self._retry_s = retry_s
        self._kept: OrderedDict[tuple[int | str, str, str], RegisteredSchema] = OrderedDict()

    async def register(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Return the schema as a version of the subject: a new one, unless it has it already."""
        path = f"{_subject(subject)}/versions"
        document = await self._ask(
            "POST", path, json=schema.body(), params=_flags(normalize=normalize)
        )
        return registered({**schema.body(), **document}, subject=subject)

    async def look_up(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Return the version of the subject that is this schema, or raise `UnknownSchema`."""
        params = _flags(normalize=normalize)
        return registered(
            await self._ask("POST", _subject(subject), json=schema.body(), params=params)
        )

    async def version(
        self, subject: str, version: Version = "latest", *, form: str = "", deleted: bool = False
    ) -> RegisteredSchema:
        """Return a version of a subject; `form` as for `schema`."""
        params = _flags(deleted=deleted) | ({"format": form} if form else {})
        path = f"{_subject(subject)}/versions/{version}"
        return registered(await self._ask("GET", path, params=params))

    async def schema(
        self, schema_id: int | str, *, form: str = "", subject: str = ""
    ) -> RegisteredSchema:
        """Return a schema by its id, or its GUID.

        `form`: "serialized" gives Protobuf's descriptors instead of text. `subject`: ids are those
        of its context.
        """
        key = (schema_id, form, subject)
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        params = {name: text for name, text in (("format", form), ("subject", subject)) if text}
        kind = "ids" if isinstance(schema_id, int) else "guids"
        document = await self._ask("GET", f"/schemas/{kind}/{schema_id}", params=params)
        found = registered(document, id=schema_id if isinstance(schema_id, int) else 0)
        self._kept[key] = found
        if len(self._kept) > SCHEMAS_KEPT_MAX:
            self._kept.popitem(last=False)
        return found

    async def ids_of(self, guid: str) -> dict[str, int]:
        """Return the ids of the schema with a GUID, by the contexts that have it."""
        found = await self._ask("GET", f"/schemas/guids/{guid}/ids")
        return {each["context"]: each["id"] for each in found}

    async def versions_of(self, schema_id: int, *, subject: str = "") -> list[tuple[str, int]]:
        """Return the subjects and versions that have a schema."""
        params = {"subject": subject} if subject else {}
        found = await self._ask("GET", f"/schemas/ids/{schema_id}/versions", params=params)
        return [(each["subject"], each["version"]) for each in found]

    async def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Return the names of subjects; `deleted`: those as well that can still be restored."""
        params = _flags(deleted=deleted) | ({"subjectPrefix": prefix} if prefix else {})
        return list(await self._ask("GET", "/subjects", params=params))

    async def latest_schemas(
        self, prefix: str = "", *, deleted: bool = False
    ) -> list[RegisteredSchema]:
        """Return the latest version of each subject."""
        params: dict[str, str | int] = {**_flags(deleted=deleted), "latestOnly": "true"}
        params |= {"subjectPrefix": prefix} if prefix else {}
        found: list[RegisteredSchema] = []
        while True:
            page = await self._ask(
                "GET", "/schemas", params={**params, "offset": len(found), "limit": PAGE}
            )
            found += map(registered, page)
            if len(page) < PAGE:
                return found

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the versions of a subject, or raise `UnknownSchema`."""
        path = f"{_subject(subject)}/versions"
        return list(await self._ask("GET", path, params=_flags(deleted=deleted)))

    async def check(
        self,
        subject: str,
        schema: SchemaText,
        version: Version | None = None,
        *,
        level: str = "",
        normalize: bool = False,
    ) -> SchemaCheck:
        """Return whether a schema may follow: the versions its level says, or one of them.

        `level`: instead of that of the subject.
        """
        path = f"/compatibility{_subject(subject)}/versions"
        path += f"/{version}" if version is not None else ""
        params = _flags(verbose=True, normalize=normalize) | ({"level": level} if level else {})
        return check_of(await self._ask("POST", path, json=schema.body(), params=params))

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions of a subject; return their numbers."""
        params = _flags(permanent=permanent)
        return list(await self._ask("DELETE", _subject(subject), params=params))

    async def delete_version(
        self, subject: str, version: Version, *, permanent: bool = False
    ) -> int:
        """Delete a version of a subject; return its number."""
        path = f"{_subject(subject)}/versions/{version}"
        return int(await self._ask("DELETE", path, params=_flags(permanent=permanent)))

    async def level(self, subject: str = "") -> str:
        """Return the level that holds for a subject; without one, that of all that have none."""
        params = {"defaultToGlobal": "true"} if subject else {}
        found = await self._ask("GET", f"/config{_name(subject)}", params=params)
        return str(found["compatibilityLevel"])

    async def set_level(self, level: str | None, subject: str = "") -> None:
        """Set the level of a subject, or of all that have none; None: the default holds again."""
        await self._set(f"/config{_name(subject)}", "compatibility", level)

    async def mode(self, subject: str = "") -> str:
        """Return the mode that holds for a subject; without one, that of all that have none."""
        params = {"defaultToGlobal": "true"} if subject else {}
        return str((await self._ask("GET", f"/mode{_name(subject)}", params=params))["mode"])

    async def set_mode(self, mode: str | None, subject: str = "") -> None:
        """Set the mode of a subject, or of all that have none; None: the default holds again."""
        await self._set(f"/mode{_name(subject)}", "mode", mode)

    async def _set(self, path: str, field: str, value: str | None) -> None:
        if value is None:
            await self._ask("DELETE", path)
        else:
            await self._ask("PUT", path, json={field: value})

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, str | int] | None = None,
    ) -> Any:
        async def once() -> Reply:
            return await self._gateway.request(method, path, json=json, params=params)

        if method == "DELETE":
            return (await once()).json()
        return (await patiently(once, Backoff(), self._retry_s)).json()

    async def close(self) -> None:
        """Disconnect."""
        await self._gateway.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


class SchemaRegistry(Synchronous):
    """The registry that every gateway is; without an event loop.

        with SchemaRegistry() as registry:
            made = registry.register("orders-value", SchemaText(text=avsc))
            print(made.id, made.version)

    The calls are those of `AsyncSchemaRegistry`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout_s: float = 30.0,
        retry_s: float = 30.0,
        token: str | None = None,
        basic: Basic | None = None,
        ca_file: str | None = None,
        client_cert: ClientCert | None = None,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        """Prepare to ask; see `AsyncSchemaRegistry`."""
        self.twin = AsyncSchemaRegistry(
            url,
            timeout_s=timeout_s,
            retry_s=retry_s,
            token=token,
            basic=basic,
            ca_file=ca_file,
            client_cert=client_cert,
            transport=transport,
        )
        super().__init__()

    def register(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Return the schema as a version of the subject: a new one, unless it has it already."""
        return self._run(self.twin.register(subject, schema, normalize=normalize))

    def look_up(
        self, subject: str, schema: SchemaText, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Return the version of the subject that is this schema, or raise `UnknownSchema`."""
        return self._run(self.twin.look_up(subject, schema, normalize=normalize))

    def version(
        self, subject: str, version: Version = "latest", *, form: str = "", deleted: bool = False
    ) -> RegisteredSchema:
        """Return a version of a subject."""
        return self._run(self.twin.version(subject, version, form=form, deleted=deleted))

    def schema(
        self, schema_id: int | str, *, form: str = "", subject: str = ""
    ) -> RegisteredSchema:
        """Return a schema by its id, or its GUID; see `AsyncSchemaRegistry.schema`."""
        return self._run(self.twin.schema(schema_id, form=form, subject=subject))

    def ids_of(self, guid: str) -> dict[str, int]:
        """Return the ids of the schema with a GUID, by the contexts that have it."""
        return self._run(self.twin.ids_of(guid))

    def versions_of(self, schema_id: int, *, subject: str = "") -> list[tuple[str, int]]:
        """Return the subjects and versions that have a schema."""
        return self._run(self.twin.versions_of(schema_id, subject=subject))

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Return the names of subjects."""
        return self._run(self.twin.subjects(prefix, deleted=deleted))

    def latest_schemas(self, prefix: str = "", *, deleted: bool = False) -> list[RegisteredSchema]:
        """Return the latest version of each subject."""
        return self._run(self.twin.latest_schemas(prefix, deleted=deleted))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the versions of a subject, or raise `UnknownSchema`."""
        return self._run(self.twin.versions(subject, deleted=deleted))

    def check(
        self,
        subject: str,
        schema: SchemaText,
        version: Version | None = None,
        *,
        level: str = "",
        normalize: bool = False,
    ) -> SchemaCheck:
        """Return whether a schema may follow; see `AsyncSchemaRegistry.check`."""
        asked = self.twin.check(subject, schema, version, level=level, normalize=normalize)
        return self._run(asked)

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions of a subject; return their numbers."""
        return self._run(self.twin.delete_subject(subject, permanent=permanent))

    def delete_version(self, subject: str, version: Version, *, permanent: bool = False) -> int:
        """Delete a version of a subject; return its number."""
        return self._run(self.twin.delete_version(subject, version, permanent=permanent))

    def level(self, subject: str = "") -> str:
        """Return the level that holds for a subject; without one, that of all that have none."""
        return self._run(self.twin.level(subject))

    def set_level(self, level: str | None, subject: str = "") -> None:
        """Set the level of a subject, or of all that have none; None: the default holds again."""
        self._run(self.twin.set_level(level, subject))

    def mode(self, subject: str = "") -> str:
        """Return the mode that holds for a subject; without one, that of all that have none."""
        return self._run(self.twin.mode(subject))

    def set_mode(self, mode: str | None, subject: str = "") -> None:
        """Set the mode of a subject, or of all that have none; None: the default holds again."""
        self._run(self.twin.set_mode(mode, subject))

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns, which asks `twin`."""
        return self._run(work)

    async def _aclose(self) -> None:
        await self.twin.close()


def _subject(name: str) -> str:
    return f"/subjects{_name(name)}"


def _name(subject: str) -> str:
    """Return the part of a path that names a subject, if there is one."""
    return f"/{quote(subject, safe='')}" if subject else ""


def _flags(**flags: bool) -> dict[str, str]:
    return {name: "true" for name, is_set in flags.items() if is_set}
