"""OpenAPI descriptions of the routes about producers and transactions."""

from typing import Any, Final

from service.http.requests import JSON
from service.routes.openapi.document import INSTANCE, RECORD, TOPIC_NAME, parameter
from service.routes.openapi.groups import operation
from service.routes.transaction_bodies import (
    AbortBody,
    BeginBody,
    CommitBody,
    ProducerBody,
    WithOffsets,
)
from service.routes.transactions import KEY_CHARS_MAX
from storage.head.producers import SEQUENCES

_NUMBER: Final = {"type": "integer"}
_TEXT: Final = {"type": "string"}
_TRANSACTION: Final = parameter("path", "transaction", _TEXT, "as POST /v1/transactions named it")
_PLACE: Final = {"topic": TOPIC_NAME, "partition": _NUMBER}
_RESULTS: Final = {
    "type": "array",
    "description": "where the records are; left out if a later commit took its place meanwhile",
    "items": {
        "type": "object",
        "required": ["topic", "partition", "base_offset", "count"],
        "properties": {**_PLACE, "base_offset": _NUMBER, "count": _NUMBER},
    },
}
_VIEW: Final = {
    "transaction_id": _TEXT,
    "transactional_id": _TEXT,
    "state": {"enum": ["empty", "ongoing", "committed", "aborted"]},
    **INSTANCE,
    "started_ms": {"type": ["integer", "null"]},
    "timeout_ms": {"type": ["integer", "null"]},
    "partitions": {"type": "array", "items": {"type": "object", "properties": _PLACE}},
}

_ATOMIC_HEADERS: Final = [
    parameter(
        "header",
        "Riacho-Producer-Id",
        INSTANCE["producer_id"],
        "of a transactional id: one whole transaction; else with Riacho-Sequence",
    ),
    parameter("header", "Riacho-Producer-Epoch", INSTANCE["epoch"], "with Riacho-Producer-Id"),
    parameter(
        "header",
        "Riacho-Sequence",
        {"type": "integer", "minimum": 0, "maximum": SEQUENCES - 1},
        "number of the first record, counted over all atomic calls of the producer",
    ),
    parameter(
        "header",
        "Idempotency-Key",
        {"type": "string", "pattern": f"^[!-~]{{1,{KEY_CHARS_MAX}}}$"},
        "instead: a repeated call with the same key and body gets the first answer, for a day",
    ),
]


def _ending(summary: str, body: type[CommitBody] | type[AbortBody]) -> dict[str, Any]:
    answer = {"transaction_id": _TEXT, "state": {"enum": ["committed", "aborted"]}, **INSTANCE}
    described = operation(summary, [_TRANSACTION], answer, body)
    described["openapi_extra"]["requestBody"]["required"] = False
    schema = described["responses"][200]["content"][JSON]["schema"]
    schema["properties"] = {**schema["properties"], "results": _RESULTS}
    return described


def _init() -> dict[str, Any]:
    described = operation("Get a producer id", [], INSTANCE, ProducerBody)
    described["openapi_extra"]["requestBody"]["required"] = False
    return described


def _atomic() -> dict[str, Any]:
    described = operation(
        "Produce to many partitions and commit group offsets, all or nothing",
        _ATOMIC_HEADERS,
        {},
        WithOffsets,
    )
    content = described["openapi_extra"]["requestBody"]["content"][JSON]["schema"]
    record = {
        **RECORD,
        "required": ["topic"],
        "properties": {"topic": TOPIC_NAME, **RECORD["properties"]},
    }
    content["properties"] = {
        "records": {"type": "array", "items": record},
        **content["properties"],
    }
    ok = described["responses"][200]
    ok["content"][JSON]["schema"]["properties"] = {"results": _RESULTS, **INSTANCE}
    ok["headers"] = {
        "Idempotency-Replayed": {
            "schema": {"const": "true"},
            "description": "there if the call was made before, and this is its answer",
        }
    }
    return described


TRANSACTION_OPERATIONS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("POST", "/v1/producers"): _init(),
    ("GET", "/v1/transactions"): operation(
        "List transactions",
        [],
        {
            "transactions": {
                "type": "array",
                "items": {"type": "object", "required": list(_VIEW), "properties": _VIEW},
            }
        },
    ),
    ("POST", "/v1/transactions"): operation(
        "Begin a transaction",
        [],
        {"transaction_id": _TEXT, **INSTANCE, "timeout_ms": _NUMBER},
        BeginBody,
    ),
    ("GET", "/v1/transactions/{transaction}"): operation(
        "Describe a transaction", [_TRANSACTION], _VIEW
    ),
    ("POST", "/v1/transactions/{transaction}/commit"): _ending("Commit a transaction", CommitBody),
    ("POST", "/v1/transactions/{transaction}/abort"): _ending("Abort a transaction", AbortBody),
    ("POST", "/v1/atomic"): _atomic(),
}
