"""OpenAPI descriptions of the routes whose parameters FastAPI does not parse itself."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from service.http.requests import ARROW, JSON, NDJSON, OFFSET_MAX, SSE
from service.limits.record_limits import PARTITION_MAX
from storage.head.producers import EPOCH_MAX, PRODUCER_ID_MAX

TOPIC_NAME: Final = {"type": "string", "pattern": r"^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}$"}
OFFSET: Final = {"type": "integer", "format": "int64", "minimum": 0, "maximum": OFFSET_MAX}
PLACE: Final = {"type": "string", "pattern": "^(earliest|latest|[0-9]{1,18})$"}

_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail", "retryable", "may_have_applied"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "Kafka's name where Kafka has one"},
        "detail": {"type": "string", "description": "what is wrong and what to do"},
        "retryable": {"type": "boolean"},
        "may_have_applied": {"type": "boolean"},
        "request_id": {"type": "string"},
    },
}


_RETRY_AFTER: Final = {
    "Retry-After": {
        "description": "seconds to wait before the same request is sent again",
        "required": True,
        "schema": {"type": "integer", "minimum": 0},
    }
}


def problem_response(description: str, status: int, codes: Sequence[str]) -> dict[str, Any]:
    """Return the description of a status: which codes come with it."""
    properties = {
        **_PROBLEM["properties"],
        "status": {"const": status},
        "code": {**_PROBLEM["properties"]["code"], "enum": list(codes)},
    }
    schema = {**_PROBLEM, "properties": properties}
    response = {
        "description": description,
        "content": {"application/problem+json": {"schema": schema}},
    }
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response["headers"] = _RETRY_AFTER
    return response


_TEXT: Final = {"type": "string"}
_ANY: Final = {"description": "text is its UTF-8 bytes, other JSON its JSON text, null is null"}
_BASE64: Final = {"type": ["string", "null"], "format": "byte"}
_HEADERS: Final = {
    "anyOf": [
        {"type": "object", "additionalProperties": _ANY},
        {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["key"],
                "properties": {"key": _TEXT, "value": _ANY, "value_base64": _BASE64},
                "additionalProperties": False,
            },
        },
        {"type": "null"},
    ]
}
RECORD: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "key": _ANY,
        "value": _ANY,
        "key_base64": _BASE64,
        "value_base64": _BASE64,
        "headers": _HEADERS,
        "timestamp": {**OFFSET, "type": ["integer", "null"]},
        "partition": {"type": ["integer", "null"], "minimum": 0, "maximum": PARTITION_MAX},
    },
}
_FETCHED_RECORD: Final = {
    "type": "object",
    "required": ["offset", "timestamp", "headers"],
    "properties": {
        "offset": {"type": "integer"},
        "timestamp": {"type": "integer"},
        "key": _ANY,
        "value": _ANY,
        "key_base64": _BASE64,
        "value_base64": _BASE64,
        "headers": {"type": "array", "items": {"type": "object"}},
    },
}
_FETCHED: Final = {
    "type": "object",
    "required": ["records", "next_offset", "high_watermark", "log_start_offset"],
    "properties": {
        "records": {"type": "array", "items": _FETCHED_RECORD},
        "next_offset": {"type": "integer"},
        "high_watermark": {"type": "integer"},
        "log_start_offset": {"type": "integer"},
    },
}
_RESULTS: Final = {
    "type": "object",
    "required": ["results"],
    "properties": {
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["partition", "base_offset", "count"],
                "properties": {
                    "partition": {"type": "integer"},
                    "base_offset": {"type": "integer", "description": "-1: not known yet"},
                    "count": {"type": "integer"},
                },
            },
        },
        "staged": {
            "type": "string",
            "description": "in a transaction, without a sequence: what a commit may name it by",
        },
    },
}


def parameter(place: str, name: str, schema: dict[str, Any], about: str = "") -> dict[str, Any]:
    """Return the description of a parameter that FastAPI does not see."""
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "schema": schema,
        "description": about,
    }


_NUMBER: Final = {"type": "integer", "minimum": 0, "maximum": PARTITION_MAX}
_TOPIC: Final = parameter("path", "topic", TOPIC_NAME)
_PARTITION: Final = parameter("path", "partition", _NUMBER)
_ACKS: Final = parameter(
    "query",
    "acks",
    {"enum": ["0", "1", "all"], "default": "all"},
    "answered when the records are committed and 1: in the zone that leads, all: in every zone in"
    " sync; 0: before anything is written",
)
INSTANCE: Final = {
    "producer_id": {"type": "integer", "minimum": 1, "maximum": PRODUCER_ID_MAX},
    "epoch": {"type": "integer", "minimum": 0, "maximum": EPOCH_MAX},
}
_PRODUCER: Final = [
    parameter("header", "Riacho-Producer-Id", INSTANCE["producer_id"], "of POST /v1/producers"),
    parameter("header", "Riacho-Producer-Epoch", INSTANCE["epoch"], "with Riacho-Producer-Id"),
    parameter(
        "header",
        "Riacho-Sequence",
        {
            "type": "string",
            "pattern": "^([0-9]{1,10}|[0-9]{1,4}=[0-9]{1,10}(,[0-9]{1,4}=[0-9]{1,10}){0,999})$",
        },
        "number of the first record, or one for each partition: 0=17,2=4",
    ),
    parameter(
        "header",
        "Riacho-Transaction",
        {"type": "string", "pattern": "^[!-~]{1,300}$"},
        "stage the records in this transaction; its commit makes them visible",
    ),
]
_COUNT: Final = {**OFFSET, "minimum": 1}
_WAIT: Final = {"type": "integer", "minimum": 0, "maximum": 60_000}


def _content(schema: dict[str, Any], *others: str) -> dict[str, Any]:
    return {JSON: {"schema": schema}, **{name: {} for name in others}}


def _produce(summary: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    body = {
        "type": "object",
        "required": ["records"],
        "additionalProperties": False,
        "properties": {"records": {"type": "array", "minItems": 1, "items": RECORD}},
    }
    return {
        "summary": summary,
        "openapi_extra": {
            "parameters": [*parameters, _ACKS, *_PRODUCER],
            "requestBody": {"required": True, "content": _content(body, NDJSON, ARROW)},
        },
        "responses": {
            200: {
                "description": "Durable and committed; with Riacho-Transaction, durable and staged",
                "content": _content(_RESULTS),
            },
            202: {"description": "acks=0: on its way", "content": _content(_RESULTS)},
        },
    }


_FETCH_PARAMETERS: Final = [
    parameter("query", "offset", OFFSET, "first offset to return"),
    parameter("query", "at", PLACE, "instead: earliest (default), latest, or a timestamp in ms"),
    parameter("query", "max_records", _COUNT),
    parameter("query", "max_bytes", _COUNT, "one record is returned even if it is larger"),
    parameter("query", "min_bytes", OFFSET, "wait for so much"),
    parameter("query", "max_wait_ms", _WAIT, "and so long"),
    parameter("query", "value_format", {"enum": ["text", "json", "base64"], "default": "text"}),
    parameter(
        "query",
        "offsets",
        {"enum": ["base", "column", "either"], "default": "base"},
        "how an Arrow stream says offsets where compaction left gaps: base cuts batches there,"
        " column adds a column offset to all, either adds it only if there are gaps",
    ),
]

_FETCH_BODY: Final = {
    "type": "object",
    "required": ["partitions"],
    "additionalProperties": False,
    "properties": {
        "partitions": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["topic", "partition"],
                "additionalProperties": False,
                "properties": {
                    "topic": _TEXT,
                    "partition": _NUMBER,
                    "offset": {"type": ["integer", "null"]},
                    "at": {"type": ["string", "integer", "null"]},
                    "max_bytes": {**_COUNT, "type": ["integer", "null"]},
                },
            },
        },
        "max_records": {**_COUNT, "type": ["integer", "null"]},
        "max_bytes": {**_COUNT, "type": ["integer", "null"]},
        "min_bytes": OFFSET,
        "max_wait_ms": _WAIT,
        "value_format": {"enum": ["text", "json", "base64"]},
    },
}

_FETCHED_MANY: Final = {
    "type": "object",
    "required": ["partitions"],
    "properties": {"partitions": {"type": "array", "items": {"type": "object"}}},
}

HOT_OPERATIONS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("POST", "/v1/topics/{topic}/records"): _produce("Produce records to a topic", _TOPIC),
    ("POST", "/v1/topics/{topic}/partitions/{partition}/records"): _produce(
        "Produce records to one partition", _TOPIC, _PARTITION
    ),
    ("GET", "/v1/topics/{topic}/partitions/{partition}/records"): {
        "summary": "Fetch records, or tail them as server-sent events",
        "openapi_extra": {"parameters": [_TOPIC, _PARTITION, *_FETCH_PARAMETERS]},
        "responses": {
            200: {"description": "Records", "content": _content(_FETCHED, NDJSON, ARROW, SSE)},
        },
    },
    ("POST", "/v1/fetch"): {
        "summary": "Fetch from several partitions with one wait and one budget",
        "openapi_extra": {
            "requestBody": {"required": True, "content": _content(_FETCH_BODY)},
        },
        "responses": {
            200: {"description": "Records by partition", "content": _content(_FETCHED_MANY)},
        },
    },
}
