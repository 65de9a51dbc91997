"""JSON with and without schemas, as Kafka writes it."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from service.connect.converters.json.converter import JsonConverter
from service.connect.data.errors import DataFault
from service.connect.data.schema import (
    BYTES,
    DATE_SCHEMA,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectSchema,
    Type,
    array,
    decimal,
    map_of,
    struct,
)

EVERYTHING = struct(
    [
        ("id", INT64),
        ("name", STRING.optional()),
        ("price", decimal(2)),
        ("day", DATE_SCHEMA),
        ("at", TIME_SCHEMA),
        ("when", TIMESTAMP_SCHEMA),
        ("raw", BYTES),
        ("short", FLOAT32),
        ("long", FLOAT64),
        ("tags", array(STRING)),
        ("counts", map_of(STRING, INT32)),
        ("pairs", map_of(INT8, STRING)),
    ],
    name="shop.Order",
)
VALUE = {
    "id": 1,
    "name": None,
    "price": Decimal("-12.34"),
    "day": date(2026, 1, 31),
    "at": time(1, 2, 3, 4000),
    "when": datetime(2026, 1, 31, 1, 2, 3, 4000, UTC),
    "raw": b"\x00\xff",
    "short": 0.5,
    "long": 1e300,
    "tags": ["a", "b"],
    "counts": {"a": 1},
    "pairs": {1: "x"},
}


def test_an_envelope_is_as_kafka_writes_it() -> None:
    schema = struct([("a", INT32), ("p", decimal(1))], name="R", version=2, doc="d")
    stored = JsonConverter().to_bytes("t", schema, {"a": 1, "p": Decimal("0.5")})
    assert stored == (
        b'{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"a"},'
        b'{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal",'
        b'"version":1,"parameters":{"scale":"1"},"field":"p"}],"optional":false,"name":"R",'
        b'"version":2,"doc":"d"},"payload":{"a":1,"p":"BQ=="}}'
    )


@pytest.mark.parametrize("numeric", [False, True])
def test_every_type_comes_back(numeric: bool) -> None:
    converter = JsonConverter(numeric_decimals=numeric)
    stored = converter.to_bytes("t", EVERYTHING, VALUE)
    assert stored is not None
    assert converter.to_data("t", stored) == (EVERYTHING, VALUE)
    assert json.loads(stored)["payload"]["price"] == (-12.34 if numeric else "+y4=")


def test_without_schemas_the_payload_stands_alone() -> None:
    converter = JsonConverter(with_schemas=False)
    stored = converter.to_bytes("t", struct([("a", INT32)]), {"a": 1})
    assert stored == b'{"a":1}'
    assert converter.to_data("t", stored) == (None, {"a": 1})
    assert converter.to_bytes("t", None, {1: "x"}) == b'[[1,"x"]]'
    assert converter.to_bytes("t", None, None) is None
    assert converter.to_data("t", None) == (None, None)
    assert converter.to_bytes("t", STRING.optional(), None) == b"null"


def test_a_default_takes_the_place_of_null_unless_told_otherwise() -> None:
    schema = struct([("a", ConnectSchema(Type.INT32, is_optional=True, default=7))])
    stored = JsonConverter().to_bytes("t", schema, {"a": None})
    assert stored is not None
    assert json.loads(stored)["payload"] == {"a": 7}
    kept = JsonConverter(with_defaults=False)
    stored = kept.to_bytes("t", schema, {"a": None})
    assert stored is not None
    assert json.loads(stored)["payload"] == {"a": None}
    assert kept.to_data("t", stored) == (schema, {"a": None})


def test_the_schema_may_stand_in_the_settings() -> None:
    said = '{"type":"struct","fields":[{"type":"int8","field":"a"}]}'
    converter = JsonConverter(schema_content=said)
    assert converter.to_data("t", b'{"a":1}') == (struct([("a", INT8)]), {"a": 1})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a":1}', "schemas.enable"),
        (b'{"schema":null,"payload":1,"more":2}', "schemas.enable"),
        (b"[]", "schemas.enable"),
        (b"", "serialization error"),
        (b"{", "serialization error"),
        (b'{"schema":{"type":"int8"},"payload":300}', "does not fit int8"),
        (b'{"schema":{"type":"int8"},"payload":"1"}', "Invalid type for INT8"),
        (b'{"schema":{"type":"int8"},"payload":null}', "Invalid null value for required INT8"),
        (b'{"schema":{"type":"other"},"payload":1}', "Unknown schema type: other"),
        (b'{"schema":{"type":"array"},"payload":[]}', "element type"),
        (b'{"schema":{"type":"struct"},"payload":{}}', '"fields"'),
        (b'{"schema":{"type":"bytes"},"payload":"?"}', "Invalid bytes field"),
        (
            b'{"schema":null,"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            "serialization error",
        ),
    ],
    ids=lambda each: each[:40] if isinstance(each, bytes) else None,
)
def test_what_is_wrong_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(DataFault, match=reason):
        JsonConverter().to_data("t", data)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8, 128),
        (INT32, "1"),
        (INT32, True),
        (INT32, None),
        (STRING, 1),
        (decimal(2), Decimal("1.5")),
        (DATE_SCHEMA, datetime(2026, 1, 1, tzinfo=UTC)),
        (struct([("a", INT8)]), {"b": 1}),
        (None, Decimal(1)),
        (None, date(2026, 1, 1)),
        (None, 1 << 70),
        (None, {1, 2}),
    ],
)
def test_values_that_do_not_fit_are_refused(schema: ConnectSchema | None, value: Any) -> None:
    with pytest.raises(DataFault):
        JsonConverter().to_bytes("t", schema, value)
