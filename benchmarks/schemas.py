"""Data against schemas, on one core: records a second, and how much of it is reading JSON.

    python -m benchmarks.schemas

CPU seconds, best of some rounds that take turns (see `benchmarks.codec`).
"""

import json

import msgspec

from benchmarks.codec import RECORDS, Row, measured
from service.registry.data.json_values import JsonValues
from service.registry.formats.json_schema.form import FORM

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
        JsonValues(FORM.parse(json.dumps(schema), [])) for schema in (FLAT, NESTED)
    )
    decode = msgspec.json.Decoder().decode
    rows = [
        Row(f"reading JSON of {len(flat[-1])} bytes alone", lambda: [decode(v) for v in flat]),
        Row("six fields", lambda: flat_values.validate_many(flat)),
        Row("six fields, one record does not fit", lambda: flat_values.validate_many(one_bad)),
        Row(f"nested, {len(nested[-1])} bytes", lambda: nested_values.validate_many(nested)),
    ]
    print(f"{'':<44} {'M records/s':>12}")
    for row, per_s in zip(rows, measured(rows), strict=True):
        print(f"{row.name:<44} {per_s / 1e6:>12.2f}")


if __name__ == "__main__":
    main()
