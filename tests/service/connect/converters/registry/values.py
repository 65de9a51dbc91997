"""A schema of all types, values of it, and what converters make of values."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

from service.connect.converters.api import Converter
from service.connect.converters.choice import converter_of
from service.connect.converters.registry.access import SchemaAccess
from service.connect.data.schema import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
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

LINE: Final = struct([("sku", STRING), ("count", INT16.optional())], name="shop.Line", doc="one")
EVERYTHING: Final = struct(
    [
        ("small", INT8),
        ("id", INT64),
        ("vip", BOOLEAN.optional()),
        ("name", STRING.optional()),
        ("rating", ConnectSchema(Type.INT32, is_optional=True, default=3)),
        ("price", decimal(2)),
        ("day", DATE_SCHEMA.optional()),
        ("at", TIME_SCHEMA),
        ("when", TIMESTAMP_SCHEMA),
        ("raw", BYTES.optional()),
        ("short", FLOAT32),
        ("long", FLOAT64),
        ("tags", array(STRING)),
        ("counts", map_of(STRING, INT32)),
        ("pairs", map_of(INT32, STRING)),
        ("first", LINE),
        ("last", LINE.optional()),
        ("lines", array(LINE)),
    ],
    name="shop.Order",
    version=2,
)
VALUE: Final[dict[str, Any]] = {
    "small": -5,
    "id": 1 << 40,
    "vip": True,
    "name": None,
    "rating": 5,
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
    "first": {"sku": "s", "count": 1},
    "last": None,
    "lines": [{"sku": "t", "count": None}],
}
LATER: Final = {**VALUE, "name": "n", "last": {"sku": "u", "count": 9}, "vip": None, "day": None}


def converter(kind: str, access: SchemaAccess | None, **settings: str) -> Converter:
    return converter_of(
        f"io.confluent.connect.{kind}",
        {name.replace("_", "."): text for name, text in settings.items()},
        is_key=False,
        key="value.converter",
        registry=access,
    )


async def stored(
    made: Converter, schema: ConnectSchema, value: Any, topic: str = "orders"
) -> bytes:
    await made.prepare_write(topic, [schema])
    found = made.to_bytes(topic, schema, value)
    assert found is not None
    return found


async def read(made: Converter, data: bytes) -> tuple[ConnectSchema | None, Any]:
    await made.prepare("orders", [data, None])
    return made.to_data("orders", data)
