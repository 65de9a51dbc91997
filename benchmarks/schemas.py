"""Data against schemas, on one core: records a second, and how much of it is reading JSON.

    python -m benchmarks.schemas

CPU seconds, best of some rounds that take turns (see `benchmarks.codec`).
"""

import json

import msgspec

from benchmarks.codec import RECORDS, Row, measured
from storage.schemas.codecs import codec_of
from storage.schemas.source import SchemaSource, SchemaType

FLAT = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "name": {"type": "string", "maxLength": 40},
        "email": {"type": ["string", "null"]},
        "amount": {"type": "number", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        "at": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT"},
    },
    "required": ["id", "name"],
    "additionalProperties": False,
}
AVRO = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "email", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": "double"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
NESTED = {
    "type": "object",
    "properties": {
        "user": {"$ref": "#/definitions/user"},
        "related": {"type": "array", "items": {"$ref": "#/definitions/user"}},
        "kind": {"enum": ["created", "changed", "deleted"]},
        "source": {"oneOf": [{"type": "null"}, {"type": "object", "required": ["host"]}]},
    },
    "required": ["user", "kind"],
    "definitions": {"user": FLAT},
}


def main() -> None:
    users = [
        {
            "id": number,
            "name": f"user {number}",
            "email": None if number % 2 else f"u{number}@example.com",
            "amount": number * 0.5,
            "tags": ["a", "b"],
            "at": "2026-01-01T00:00:00Z",
        }
        for number in range(RECORDS)
    ]
    flat = [json.dumps(user).encode() for user in users]
    nested = [
        json.dumps({"user": user, "related": [user], "kind": "created", "source": None}).encode()
        for user in users
    ]
    one_bad = [*flat[:-1], b'{"id": "a", "name": "b"}']
    flat_values, nested_values = (
        codec_of(SchemaSource(SchemaType.JSON, json.dumps(schema))) for schema in (FLAT, NESTED)
    )
    rows_of_avro = [
        {
            "id": user["id"],
            "name": user["name"],
            "email": user["email"],
            "amount": user["amount"],
            "kind": "NEW",
            "at": 1_767_225_600_000,
        }
        for user in users
    ]
    avro = codec_of(SchemaSource(SchemaType.AVRO, json.dumps(AVRO)))
    bodies = avro.encode_many(rows_of_avro).bodies
    decode = msgspec.json.Decoder().decode
    rows = [
        Row("Avro, six fields: encode", lambda: avro.encode_many(rows_of_avro)),
        Row("Avro, six fields: decode", lambda: avro.decode_many(bodies)),
        Row(f"reading JSON of {len(flat[-1])} bytes alone", lambda: [decode(v) for v in flat]),
        Row("JSON Schema, six fields", lambda: flat_values.validate_many(flat)),
        Row(
            "JSON Schema, six fields, one record does not fit",
            lambda: flat_values.validate_many(one_bad),
        ),
        Row(
            f"JSON Schema, nested, {len(nested[-1])} bytes",
            lambda: nested_values.validate_many(nested),
        ),
    ]
    print(f"{'':<44} {'M records/s':>12}")
    for row, per_s in zip(rows, measured(rows), strict=True):
        print(f"{row.name:<44} {per_s / 1e6:>12.2f}")


if __name__ == "__main__":
    main()
