"""Columns as fields of records: the schema that Debezium gives a type, and its values from text.

Types are known by their names, since those of extensions have another oid in each database. A
domain is what it is made of, an array has elements of a known type. Other types have no schema:
Debezium leaves such columns out, and so do we, unless `include.unknown.datatypes` gives their text
as bytes.
"""

import base64
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, TypeAlias

from service.connect.connectors.postgres import text_values
from service.connect.data import schema as schemas
from service.connect.data.logical import (
    date_from_days,
    decimal_of,
    decimal_to_bytes,
    time_from_ms,
    timestamp_from_ms,
)
from service.connect.data.schema import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    FLOAT32,
    FLOAT64,
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
)

Parse: TypeAlias = Callable[[str], Any]

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""What stands for a large value that an update did not touch."""

MODIFIER_HEADER: Final = 4
BITS_MAX: Final = (1 << 31) - 1
MONEY_SCALE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PgType:
    oid: int
    name: str
    kind: str
    """b: base, d: domain, e: enum, c: composite, r: range, …"""
    base_oid: int = 0
    """Of a domain."""
    base_modifier: int = -1
    element_oid: int = 0
    """Of an array."""
    delimiter: str = ","
    labels: tuple[str, ...] = ()
    """Of an enum, in order."""


Types: TypeAlias = Mapping[int, PgType]


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """How types become fields, as the configuration says."""

    decimals: str = "precise"
    """precise, double, string"""
    times: str = "adaptive"
    """adaptive, adaptive_time_microseconds, connect"""
    intervals: str = "numeric"
    """numeric, string"""
    binary: str = "bytes"
    """bytes, base64, base64-url-safe, hex"""
    hstore: str = "json"
    """json, map"""
    unavailable: str = UNAVAILABLE
    includes_unknown: bool = False


@dataclass(frozen=True, slots=True)
class TypeMeaning:
    """What a type becomes; its schema is not optional."""

    schema: ConnectSchema
    parse: Parse
    fallback: Any
    """The value of a required field that is not known, as in the `before` of a deleted row."""
    unavailable: Any = None
    """The value of one that was not in the log, which is large; None: the fallback."""


def _semantic(base: ConnectSchema, name: str, **more: Any) -> ConnectSchema:
    return replace(base, name=f"io.debezium.{name}", version=1, **more)


VARIABLE_DECIMAL: Final = schemas.struct(
    [("scale", INT32), ("value", BYTES)],
    "io.debezium.data.VariableScaleDecimal",
    version=1,
    doc="Variable scaled decimal",
)
_POINT: Final = schemas.struct(
    [("x", FLOAT64), ("y", FLOAT64), ("wkb", BYTES.optional()), ("srid", INT32.optional())],
    "io.debezium.data.geometry.Point",
    version=1,
    doc="Geometry (POINT)",
)
_WKB_POINT: Final = struct.Struct("<BIdd")
_JSON: Final = _semantic(STRING, "data.Json")


def _float(text: str) -> float:
    return float(text)


def _bool(text: str) -> bool:
    return text == "t"


def _point(text: str) -> dict[str, Any]:
    x, y = text_values.point(text)
    return {"x": x, "y": y, "wkb": _WKB_POINT.pack(1, 1, x, y), "srid": None}


def _hstore_json(text: str) -> str:
    return json.dumps(text_values.hstore(text), ensure_ascii=False, separators=(",", ":"))


def _text(text: str) -> str:
    return text


_ZERO_TIME: Final = "1970-01-01T00:00:00Z"

_PLAIN: Final[Mapping[str, TypeMeaning]] = {
    "bool": TypeMeaning(BOOLEAN, _bool, False),
    "int2": TypeMeaning(INT16, int, 0),
    "int4": TypeMeaning(INT32, int, 0),
    "int8": TypeMeaning(INT64, int, 0),
    "oid": TypeMeaning(INT64, int, 0),
    "float4": TypeMeaning(FLOAT32, _float, 0.0),
    "float8": TypeMeaning(FLOAT64, _float, 0.0),
    "xml": TypeMeaning(_semantic(STRING, "data.Xml"), _text, "", UNAVAILABLE),
    "uuid": TypeMeaning(_semantic(STRING, "data.Uuid"), _text, ""),
    "json": TypeMeaning(_JSON, _text, "", UNAVAILABLE),
    "jsonb": TypeMeaning(_JSON, _text, "", UNAVAILABLE),
    "ltree": TypeMeaning(_semantic(STRING, "data.Ltree"), _text, "", UNAVAILABLE),
    "timetz": TypeMeaning(_semantic(STRING, "time.ZonedTime"), text_values.zoned_time, "00:00:00Z"),
    "point": TypeMeaning(_POINT, _point, _point("(0,0)")),
    **{
        name: TypeMeaning(STRING, _text, "", UNAVAILABLE)
        for name in (
            *("text", "varchar", "bpchar", "name", "citext", "char"),
            *("inet", "cidr", "macaddr", "macaddr8"),
            *("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"),
        )
    },
}


def meaning_of(oid: int, modifier: int, types: Types, modes: Modes) -> TypeMeaning | None:
    """Return what values of a type become; None: the type is not known."""
    kind = types.get(oid)
    if kind is None:
        return _unknown(modes)
    if kind.kind == "d":
        inner = kind.base_modifier if kind.base_modifier >= 0 else modifier
        return meaning_of(kind.base_oid, inner, types, modes)
    if kind.element_oid:
        return _array(kind, modifier, types, modes)
    if kind.kind == "e":
        schema = _semantic(STRING, "data.Enum", parameters=(("allowed", ",".join(kind.labels)),))
        return TypeMeaning(schema, _text, "")
    made = _MADE.get(kind.name)
    if made is not None:
        return made(modifier, modes)
    plain = _PLAIN.get(kind.name)
    if plain is None:
        return _unknown(modes)
    if plain.unavailable is not None:
        return replace(plain, unavailable=modes.unavailable)
    return plain


def _unknown(modes: Modes) -> TypeMeaning | None:
    if not modes.includes_unknown:
        return None
    return TypeMeaning(BYTES, str.encode, b"", modes.unavailable.encode())


def _array(kind: PgType, modifier: int, types: Types, modes: Modes) -> TypeMeaning | None:
    of = meaning_of(kind.element_oid, modifier, types, modes)
    if of is None:
        return None
    element = types[kind.element_oid]
    is_enum = element.kind == "e"
    parse, delimiter = of.parse, element.delimiter

    def parsed(text: str) -> list[Any]:
        return [
            None if each is None else parse(each)
            for each in text_values.array_elements(text, delimiter)
        ]

    schema = array(of.schema if is_enum else of.schema.optional())
    if of.schema.type in (Type.INT32, Type.INT64) and of.schema.name is None:
        unavailable: list[Any] = list(modes.unavailable.encode())
    else:
        unavailable = [] if of.unavailable is None else [of.unavailable]
    return TypeMeaning(schema, parsed, [], unavailable)


def _numeric(modifier: int, modes: Modes) -> TypeMeaning:
    if modes.decimals == "string":
        return TypeMeaning(STRING, _text, "0", modes.unavailable)
    if modes.decimals == "double":
        return TypeMeaning(FLOAT64, _float, 0.0)
    if modifier < MODIFIER_HEADER:
        return TypeMeaning(VARIABLE_DECIMAL, _variable_decimal, _variable_decimal("0"))
    precision = (modifier - MODIFIER_HEADER) >> 16 & 0xFFFF
    scale = (modifier - MODIFIER_HEADER) & 0x7FF
    scale = (scale ^ 1024) - 1024  # PostgreSQL 15 and later: it may be negative.
    schema = decimal(scale, parameters=(("connect.decimal.precision", str(precision)),))
    return TypeMeaning(schema, _scaled(scale), Decimal(0).scaleb(-scale))


def _scaled(scale: int) -> Parse:
    def parse(text: str) -> Decimal | None:
        value = Decimal(text)
        if not value.is_finite():
            return None
        return value if scale >= 0 else decimal_of(int(text) // 10**-scale, scale)

    return parse


def _variable_decimal(text: str) -> dict[str, Any] | None:
    value = Decimal(text.rstrip("0").rstrip(".") if "." in text else text)
    if not value.is_finite():
        return None
    scale = len(text.partition(".")[2].rstrip("0"))
    return {"scale": scale, "value": decimal_to_bytes(value, scale)}


def _money(_: int, modes: Modes) -> TypeMeaning:
    if modes.decimals == "string":
        return TypeMeaning(STRING, lambda text: str(text_values.money(text)), "0")
    if modes.decimals == "double":
        return TypeMeaning(FLOAT64, lambda text: float(text_values.money(text)), 0.0)
    cent = Decimal(1).scaleb(-MONEY_SCALE)
    return TypeMeaning(
        decimal(MONEY_SCALE),
        lambda text: text_values.money(text).quantize(cent),
        Decimal(0).quantize(cent),
    )


def _date(_: int, modes: Modes) -> TypeMeaning:
    if modes.times == "connect":
        return TypeMeaning(
            DATE_SCHEMA,
            lambda text: date_from_days(text_values.date_days(text)),
            date_from_days(0),
        )
    return TypeMeaning(_semantic(INT32, "time.Date"), text_values.date_days, 0)


def _time(modifier: int, modes: Modes) -> TypeMeaning:
    if modes.times == "connect":
        return TypeMeaning(
            TIME_SCHEMA,
            lambda text: time_from_ms(text_values.time_us(text) // 1000 % 86_400_000),
            time_from_ms(0),
        )
    if modes.times == "adaptive" and 0 <= modifier <= 3:
        return TypeMeaning(
            _semantic(INT32, "time.Time"), lambda text: text_values.time_us(text) // 1000, 0
        )
    return TypeMeaning(_semantic(INT64, "time.MicroTime"), text_values.time_us, 0)


def _timestamp(modifier: int, modes: Modes) -> TypeMeaning:
    if modes.times == "connect":
        return TypeMeaning(
            TIMESTAMP_SCHEMA,
            lambda text: timestamp_from_ms(text_values.timestamp_us(text) // 1000),
            timestamp_from_ms(0),
        )
    if 0 <= modifier <= 3:
        return TypeMeaning(
            _semantic(INT64, "time.Timestamp"),
            lambda text: text_values.timestamp_us(text) // 1000,
            0,
        )
    return TypeMeaning(_semantic(INT64, "time.MicroTimestamp"), text_values.timestamp_us, 0)


def _timestamptz(modifier: int, _: Modes) -> TypeMeaning:
    digits = 6 if modifier < 0 else modifier
    return TypeMeaning(
        _semantic(STRING, "time.ZonedTimestamp"),
        lambda text: text_values.zoned_timestamp(text, digits),
        _ZERO_TIME,
    )


def _interval(_: int, modes: Modes) -> TypeMeaning:
    if modes.intervals == "string":
        return TypeMeaning(_semantic(STRING, "time.Interval"), text_values.iso_interval, "")
    return TypeMeaning(_semantic(INT64, "time.MicroDuration"), text_values.interval_us, 0)


def _bytea(_: int, modes: Modes) -> TypeMeaning:
    encode = _BINARY.get(modes.binary)
    if encode is None:
        return TypeMeaning(BYTES, text_values.bytea, b"", modes.unavailable.encode())
    return TypeMeaning(
        STRING,
        lambda text: encode(text_values.bytea(text)),
        "",
        encode(modes.unavailable.encode()),
    )


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _base64_url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode()


_BINARY: Final[Mapping[str, Callable[[bytes], str]]] = {
    "base64": _base64,
    "base64-url-safe": _base64_url,
    "hex": bytes.hex,
}


def _bit(modifier: int, _: Modes) -> TypeMeaning:
    if modifier == 1:
        return TypeMeaning(BOOLEAN, lambda text: text == "1", False)
    return _varbit(modifier, _)


def _varbit(modifier: int, _: Modes) -> TypeMeaning:
    length = str(BITS_MAX if modifier < 0 else modifier)
    schema = _semantic(BYTES, "data.Bits", parameters=(("length", length),))
    return TypeMeaning(schema, text_values.bits, b"")


def _hstore(_: int, modes: Modes) -> TypeMeaning:
    if modes.hstore == "map":
        return TypeMeaning(
            map_of(STRING, STRING.optional()),
            text_values.hstore,
            {},
            {modes.unavailable: modes.unavailable},
        )
    return TypeMeaning(_JSON, _hstore_json, "", modes.unavailable)


_MADE: Final[Mapping[str, Callable[[int, Modes], TypeMeaning]]] = {
    "numeric": _numeric,
    "money": _money,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "interval": _interval,
    "bytea": _bytea,
    "bit": _bit,
    "varbit": _varbit,
    "hstore": _hstore,
}
