"""The OpenAPI document, from the table of routes.

FastAPI describes what it validates: the models in the annotations of handlers. Everything else
comes from the rows, and the schemas of their types from msgspec.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec

from service.connect.rest import bodies as connectors
from service.connect.rest.served import CONNECT
from service.http import problems
from service.http.problems import UNKNOWN, Problem, status_of
from service.http.requests import JSON
from service.registry import bodies as schemas
from service.registry.served import REGISTRY
from service.routes.route import Answer, Errors, RequestBody, Route
from service.routes.table import PATH_PARAMETERS, ROUTES
from service.security.caller import UNAUTHORIZED
from service.security.needs import Needs
from storage.errors import QuotaExceeded, Unauthenticated

_REFERENCE: Final = "#/components/schemas/{name}"

_ABOUT: Final = {
    400: "The request is wrong; the detail says where and why",
    401: "With security on: no credential, or one that is not known, has expired or was revoked",
    403: "With security on: the caller may not do this; the same whether the thing exists or not",
    404: "There is no such topic, partition, group, member, producer or transaction",
    406: "None of the accepted media types can be given",
    409: "Someone else was first, or it does not follow what was before",
    413: "The request, or a record, is too large",
    415: "This content type or encoding is not read here",
    416: "The offset is outside the log",
    422: "The Idempotency-Key was used for another request",
    429: "A quota, or a limit of failed logins, is exceeded; wait as Retry-After says",
    500: "A fault of the gateway, or damaged data",
    501: "Not available here",
    503: "Nothing was written; send the same request after Retry-After",
    504: "The outcome is unknown; it may have been applied",
}

_OF_REGISTRY: Final = {
    400: "The request cannot be read",
    401: _ABOUT[401],
    403: "With security on: the caller may not do this on the cluster",
    404: "There is no such subject, version or schema, or the caller may not read it",
    409: "The schema is not compatible with an earlier one",
    413: "The body is too large",
    415: "This encoding is not read here",
    422: "The schema, version, level, mode or subject is not valid, or this is not permitted",
    429: _ABOUT[429],
    500: "The table cannot be used now (50001), or gave no answer (50002); send it again later",
}

_OF_CONNECT: Final = {
    400: "The request or the configuration is wrong; the message says where and why",
    401: _ABOUT[401],
    403: "With security on: the caller may not do this; the same whether the thing exists or not",
    404: "There is no such connector, task, plugin or logger",
    409: "There is a connector of this name, or others change it all the time",
    413: "The body is too large",
    415: "This content type or encoding is not read here",
    429: _ABOUT[429],
    500: _ABOUT[500],
    503: _ABOUT[503],
    504: _ABOUT[504],
}


_OF_SECURITY: Final = frozenset({401, 403, 429})


@dataclass(frozen=True, slots=True)
class _Foreign:
    """Errors of an API of others."""

    about: Mapping[int, str]
    problem: type
    media_type: str = JSON


_OF_OTHERS: Final = {
    REGISTRY.under: _Foreign(_OF_REGISTRY, schemas.RegistryProblem, schemas.MEDIA_TYPE),
    CONNECT.under: _Foreign(_OF_CONNECT, connectors.ConnectProblem),
}

_RETRY_AFTER: Final = {
    "Retry-After": {
        "description": "seconds to wait before the same request is sent again",
        "required": True,
        "schema": {"type": "integer", "minimum": 0},
    }
}


_CHALLENGE: Final = {
    "WWW-Authenticate": {
        "description": "the schemes of credentials that are taken",
        "required": True,
        "schema": {"type": "string"},
    }
}

_HEADERS: Final = {401: _CHALLENGE, 429: _RETRY_AFTER, 503: _RETRY_AFTER}

_SCHEMES: Final = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "an API key (rk_…) or a token of an identity provider",
    },
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "the id of an API key, and its secret",
    },
    "mutualTLS": {"type": "mutualTLS", "description": "a certificate of the client"},
}
"""How a caller shows who it is, where security is on; each of them is enough."""

_CREDENTIALS: Final[list[dict[str, list[str]]]] = [{name: []} for name in _SCHEMES]


def described(document: dict[str, Any]) -> dict[str, Any]:
    """Return FastAPI's document with everything that the table says."""
    schemas = document["components"]["schemas"]
    # Of errors that FastAPI assumes; the table knows all there are.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name)
    document["components"]["securitySchemes"] = _SCHEMES
    describer = _Describer(schemas)
    for route in ROUTES:
        describer.complete(document["paths"][route.path][route.method.lower()], route)
    return document


class _Describer:
    """Describes routes, and adds the schemas that it refers to."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._schemas = schemas
        self._problem = self._schema(Problem)

    def complete(self, operation: dict[str, Any], route: Route) -> None:
        """Add what the table says of a route to what FastAPI says."""
        found = operation["responses"]
        if parameters := self._parameters(route):
            operation["parameters"] = [*operation.get("parameters", ()), *parameters]
        if route.body is not None:
            content = self._content(route.body)
            operation["requestBody"] = {"required": route.body.is_required, "content": content}
        operation["responses"] = {
            str(status): self._answer(answer, found.get(str(status), {}))
            for status, answer in route.answers.items()
        } | (
            self._errors((*route.errors, *_of_security(route.needs)))
            if route.api is None
            else self._foreign_errors(_OF_OTHERS[route.api.under], route.needs)
        )
        operation["security"] = [] if route.needs.is_open else _CREDENTIALS
        if needed := route.needs.described():
            operation["x-riacho-needs"] = needed

    def _schema(self, kind: Any) -> dict[str, Any]:
        [schema], schemas = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
        for name, each in schemas.items():
            assert self._schemas.setdefault(name, each) == each, f"two types are named {name}"
        return schema

    def _parameters(self, route: Route) -> list[dict[str, Any]]:
        in_path = [each for each in PATH_PARAMETERS if f"{{{each.name}}}" in route.path]
        return [
            {
                "name": each.name,
                "in": each.place,
                "required": each.is_required or each.place == "path",
                "schema": self._schema(each.type),
                "description": each.about,
            }
            # FastAPI describes those in the path if a handler asks for them.
            for each in [*([] if route.by_fastapi else in_path), *route.parameters]
        ]

    def _content(self, described: Answer | RequestBody) -> dict[str, Any]:
        first, *others = described.media_types
        return {first: {"schema": self._schema(described.type)}, **{name: {} for name in others}}

    def _answer(self, answer: Answer, found: dict[str, Any]) -> dict[str, Any]:
        described = {**found, "description": answer.about}
        if answer.type is not None:
            described["content"] = self._content(answer)
        if answer.headers:
            described["headers"] = answer.headers
        return described

    def _foreign_errors(self, theirs: "_Foreign", needs: Needs) -> dict[str, dict[str, Any]]:
        """Return the descriptions of what any call of another API may answer."""
        content = {theirs.media_type: {"schema": self._schema(theirs.problem)}}
        return {
            str(status): {"description": about, "content": content}
            | ({"headers": _HEADERS[status]} if status in _HEADERS else {})
            for status, about in theirs.about.items()
            if not (needs.is_open and status in _OF_SECURITY)
        }

    def _errors(self, errors: Errors) -> dict[str, dict[str, Any]]:
        """Return the descriptions of errors by status: which codes come with it."""
        codes: dict[int, list[str]] = defaultdict(list)
        for kind in errors:
            if kind.code not in (found := codes[int(status_of(kind))]):
                found.append(kind.code)
        if errors:
            codes[int(HTTPStatus.INTERNAL_SERVER_ERROR)].append(UNKNOWN)
        return {str(status): self._error(status, sorted(codes[status])) for status in sorted(codes)}

    def _error(self, status: int, codes: list[str]) -> dict[str, Any]:
        these = {"status": {"const": status}, "code": {"enum": codes}}
        schema = {"allOf": [self._problem, {"properties": these}]}
        described: dict[str, Any] = {
            "description": _ABOUT[status],
            "content": {problems.MEDIA_TYPE: {"schema": schema}},
        }
        if headers := _HEADERS.get(status):
            described["headers"] = headers
        return described


def _of_security(needs: Needs) -> Errors:
    """Return the errors of callers that are not known, may not do this, or do too much of it."""
    if needs.is_open:
        return ()
    kinds = {UNAUTHORIZED[need.kind] for need in (*needs.checked, *needs.within)}
    return Unauthenticated, QuotaExceeded, *sorted(kinds, key=lambda kind: kind.code)
