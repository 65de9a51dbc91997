"""OpenAPI descriptions of the routes about groups."""

from typing import Any, Final

import msgspec

from service.http.requests import JSON
from service.routes.groups import (
    BeatBody,
    CommitBody,
    JoinBody,
    PollBody,
    ResetBody,
)
from service.routes.openapi.document import OFFSET, TOPIC_NAME

_NUMBER: Final = {"type": "integer"}
_GROUP: Final = {
    "name": "group",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$"},
}
_MEMBER: Final = {"name": "member", "in": "path", "required": True, "schema": {"type": "string"}}
_PLACES: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["topic", "partition"],
        "properties": {"topic": TOPIC_NAME, "partition": _NUMBER},
    },
}
_BEAT: Final = {"generation": _NUMBER, "assignment": _PLACES, "revoke": _PLACES}
_SUMMARY: Final = {
    "group": {"type": "string"},
    "state": {"enum": ["Empty", "PreparingRebalance", "Stable"]},
    "generation": _NUMBER,
    "assignor": {"type": "string"},
    "member_count": _NUMBER,
}
_OFFSETS: Final = {
    "offsets": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["topic", "partition", "offset"],
            "properties": {"topic": TOPIC_NAME, "partition": _NUMBER, "offset": OFFSET},
        },
    }
}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return `schema` without references: OpenAPI resolves them elsewhere."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
        return {k: _inlined(v, definitions) for k, v in schema.items() if k != "$defs"}
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    return schema


def _body(kind: type[msgspec.Struct]) -> dict[str, Any]:
    schema = msgspec.json.schema(kind)
    inlined = _inlined(schema, schema.get("$defs", {}))
    return {"requestBody": {"required": True, "content": {JSON: {"schema": inlined}}}}


def operation(
    summary: str,
    parameters: list[dict[str, Any]],
    answer: dict[str, Any] | None,
    body: type[msgspec.Struct] | None = None,
) -> dict[str, Any]:
    """Return the description of a route; without `answer` it has no content."""
    extra: dict[str, Any] = {"parameters": parameters}
    if body is not None:
        extra |= _body(body)
    operation: dict[str, Any] = {"summary": summary, "openapi_extra": extra}
    if answer is None:
        operation |= {"status_code": 204, "responses": {204: {"description": "Done"}}}
    else:
        schema = {"type": "object", "required": list(answer), "properties": answer}
        ok = {"description": "Done", "content": {JSON: {"schema": schema}}}
        operation["responses"] = {200: ok}
    return operation


_TOPIC_FILTER: Final = {
    "name": "topic",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
}

GROUP_OPERATIONS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("GET", "/v1/groups"): operation(
        "List groups",
        [],
        {"groups": {"type": "array", "items": {"type": "object", "properties": _SUMMARY}}},
    ),
    ("GET", "/v1/groups/{group}"): operation(
        "Describe a group and its members",
        [_GROUP],
        {**_SUMMARY, "members": {"type": "array", "items": {"type": "object"}}},
    ),
    ("DELETE", "/v1/groups/{group}"): operation("Delete a group without members", [_GROUP], None),
    ("POST", "/v1/groups/{group}/members"): operation(
        "Join a group", [_GROUP], {"member_id": {"type": "string"}, **_BEAT}, JoinBody
    ),
    ("DELETE", "/v1/groups/{group}/members/{member}"): operation(
        "Leave a group", [_GROUP, _MEMBER], None
    ),
    ("POST", "/v1/groups/{group}/members/{member}/heartbeat"): operation(
        "Keep a session, and learn what to read", [_GROUP, _MEMBER], _BEAT, BeatBody
    ),
    ("POST", "/v1/groups/{group}/members/{member}/poll"): operation(
        "Heartbeat, and fetch what is assigned",
        [_GROUP, _MEMBER],
        {**_BEAT, "partitions": {"type": "array", "items": {"type": "object"}}},
        PollBody,
    ),
    ("GET", "/v1/groups/{group}/offsets"): operation(
        "Read committed offsets", [_GROUP, _TOPIC_FILTER], _OFFSETS
    ),
    ("POST", "/v1/groups/{group}/offsets"): operation(
        "Commit offsets", [_GROUP], _OFFSETS, CommitBody
    ),
    ("GET", "/v1/groups/{group}/lag"): operation(
        "Show how far behind a group is",
        [_GROUP],
        {
            "group": {"type": "string"},
            "total_lag": _NUMBER,
            "partitions": {"type": "array", "items": {"type": "object"}},
        },
    ),
    ("POST", "/v1/groups/{group}/reset"): operation(
        "Move committed offsets",
        [_GROUP],
        {"dry_run": {"type": "boolean"}, "offsets": {"type": "array", "items": {"type": "object"}}},
        ResetBody,
    ),
}
