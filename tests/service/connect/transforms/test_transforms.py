"""What transforms do; `tests/kafka_programs/transforms` compares all of them with Kafka's."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from service.connect.data.errors import DataFault
from service.connect.data.records import ConnectRecord, FromSource
from service.connect.data.schema import (
    BOOLEAN,
    DATE_SCHEMA,
    FLOAT32,
    INT32,
    INT64,
    STRING,
    TIMESTAMP_SCHEMA,
    ConnectSchema,
    Type,
    decimal,
    map_of,
    struct,
)
from service.connect.transforms.choice import transforms_of
from service.connect.transforms.paths import steps_of
from service.connect.transforms.sides import SCHEMAS_MAX
from service.connect.transforms.times.patterns import DatePattern

WHEN = datetime(2024, 2, 29, 13, 5, 9, 123_000, UTC)


def transformed(
    kind: str, config: dict[str, str], value: Any, schema: ConnectSchema | None = None
) -> tuple[ConnectSchema | None, Any]:
    settings = {f"transforms.a.{name}": text for name, text in config.items()}
    chain = transforms_of({"transforms": "a", "transforms.a.type": kind, **settings})
    changed = chain(ConnectRecord("t", 0, None, value, value_schema=schema, timestamp_ms=0))
    assert changed is not None
    return changed.value_schema, changed.value


def test_a_mask_keeps_the_scale_of_decimals() -> None:
    schema = struct([("price", decimal(2)), ("vip", BOOLEAN)])
    value = {"price": Decimal("1.25"), "vip": True}
    masked = transformed("MaskField$Value", {"fields": "price,vip"}, value, schema)
    assert masked == (schema, {"price": Decimal("0.00"), "vip": False})
    _, replaced = transformed(
        "MaskField$Value", {"fields": "price", "replacement": "7.5"}, value, schema
    )
    assert str(replaced["price"]) == "7.50"


def test_casting_a_whole_date_leaves_its_name_behind() -> None:
    schema, value = transformed("Cast$Value", {"spec": "int64"}, date(1970, 1, 3), DATE_SCHEMA)
    assert (schema, value) == (INT64, 2)
    assert transformed("Cast$Value", {"spec": "string"}, WHEN, TIMESTAMP_SCHEMA) == (
        STRING,
        "2024-02-29T13:05:09.123Z",
    )


def test_a_cast_float_has_the_digits_of_a_float() -> None:
    assert transformed("Cast$Value", {"spec": "float32"}, "0.1") == (None, 0.1)
    schema, value = transformed("Cast$Value", {"spec": "float32"}, "0.1", STRING)
    assert schema == FLOAT32
    assert value == pytest.approx(0.1)


def test_defaults_take_the_place_of_null_unless_told_otherwise() -> None:
    schema = struct([("a", ConnectSchema(Type.INT32, is_optional=True, default=7))])
    for said, expected in (("true", 7), ("false", None)):
        config = {"exclude": "b", "replace.null.with.default": said}
        _, value = transformed("ReplaceField$Value", config, {"a": None}, schema)
        assert value == {"a": expected}


def test_offsets_are_of_sinks_only() -> None:
    chain = transforms_of(
        {
            "transforms": "a",
            "transforms.a.type": "InsertField$Value",
            "transforms.a.offset.field": "o",
        }
    )
    with pytest.raises(DataFault, match="Only SinkRecord"):
        chain(ConnectRecord("t", None, None, {}, origin=FromSource({}, {})))


@pytest.mark.parametrize(
    ("kind", "config", "value", "schema", "reason"),
    [
        ("Cast$Value", {"spec": "a:int8"}, {"a": "300"}, None, "out of range"),
        ("Cast$Value", {"spec": "a:int8"}, {"a": [1]}, None, "casting from ARRAY"),
        ("Cast$Value", {"spec": "a:int8"}, [1], None, "Only Map objects"),
        ("Cast$Value", {"spec": "a:int8"}, 1, INT32, "Only Struct objects"),
        ("ExtractField$Value", {"field": "b"}, {"a": 1}, struct([("a", INT32)]), "Unknown field"),
        ("Flatten$Value", {}, {"m": {}}, struct([("m", map_of(STRING, INT32))]), "MAP"),
        ("HoistField$Value", {"field": "f"}, None, INT32, "null used for required"),
        (
            "InsertField$Value",
            {"topic.field": "a"},
            {"a": 1},
            struct([("a", INT32)]),
            "duplication",
        ),
        ("MaskField$Value", {"fields": "a"}, {"a": b"x"}, None, "Cannot mask"),
        ("MaskField$Value", {"fields": "a"}, None, None, "Only Map objects"),
        ("SetSchemaMetadata$Value", {"schema.name": "x"}, 1, None, "Schema required"),
        ("ValueToKey", {"fields": "b"}, {"a": 1}, struct([("a", INT32)]), "does not exist: b"),
        ("TimestampConverter$Value", {"target.type": "unix"}, 1.5, None, "does not support float"),
        ("TimestampConverter$Value", {"target.type": "Date"}, 1 << 62, None, "years 1 to 9999"),
        ("TimestampConverter$Value", {"target.type": "Date"}, "x", None, "`format` is needed"),
    ],
)
def test_what_cannot_be_done_is_refused(
    kind: str, config: dict[str, str], value: Any, schema: ConnectSchema | None, reason: str
) -> None:
    with pytest.raises(DataFault, match=reason):
        transformed(kind, config, value, schema)


def test_many_schemas_do_not_fill_the_memory() -> None:
    chain = transforms_of(
        {"transforms": "a", "transforms.a.type": "Flatten$Value"},
    )
    for number in range(3 * SCHEMAS_MAX):
        schema = struct([("a", INT32)], name=f"n{number}")
        changed = chain(ConnectRecord("t", None, None, {"a": 1}, value_schema=schema))
        assert changed is not None
        assert changed.value_schema == schema


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a.b", ["a", "b"]),
        ("`a.b`.c", ["a.b", "c"]),
        ("`a`b`.c", ["a`b", "c"]),
        ("`a\\`.b`", ["a`.b"]),
        ("a..", ["a", "", ""]),
    ],
)
def test_paths(text: str, steps: list[str]) -> None:
    assert steps_of(text, "V2") == steps
    assert steps_of(text, "v1") == [text]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSX", "2024-02-29T13:05:09.123Z"),
        ("yyMMddHHmmssSSS", "240229130509123"),
        ("EEEE, d MMMM yyyy h:mm:ss.SSS a", "Thursday, 29 February 2024 1:05:09.123 PM"),
        ("D 'of' y kk:mm:ss,SSS Z", "60 of 2024 13:05:09,123 +0000"),
    ],
)
def test_dates_are_written_and_read(pattern: str, text: str) -> None:
    assert DatePattern(pattern).format(WHEN) == text
    assert DatePattern(pattern).parse(text) == WHEN


def test_zones_are_taken_off() -> None:
    found = DatePattern("yyyy-MM-dd HH:mm X").parse("2024-03-01 01:30 +02:00")
    assert found == datetime(2024, 2, 29, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize("pattern", ["yyyy'", "G", "YYYY", "n", "XXXX"])
def test_patterns_that_mean_nothing_here_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="has"):
        DatePattern(pattern)
