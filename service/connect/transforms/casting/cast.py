"""Cast: fields, or everything, as another type.

Kafka keeps the name of a logical type when it casts everything, and then cannot write the record;
here the name goes with the type. A float of 32 bits without a schema is the double with its digits.
"""

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.config.values import Values
from service.connect.data.errors import DataFault
from service.connect.data.java_text import decimal_text, double_text, float_text, shortest_float
from service.connect.data.logical import to_stored
from service.connect.data.records import ConnectRecord
from service.connect.data.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    UNSET,
    ConnectSchema,
    Type,
    default_of,
)
from service.connect.data.text import temporal_text
from service.connect.transforms.api import Transform
from service.connect.transforms.casting.numbers import (
    BITS,
    as_float32,
    saturated,
    whole_part,
    wrapped,
)
from service.connect.transforms.kinds import WITH_DEFAULTS, TransformKind, key_and_value
from service.connect.transforms.sides import (
    BySchema,
    Change,
    Side,
    changing,
    struct_like,
)

Caster = Callable[[Any], Any]

_TARGETS: Final[Mapping[str, Type]] = {
    kind.value: kind for kind in (*BITS, Type.FLOAT32, Type.FLOAT64, Type.BOOLEAN, Type.STRING)
}
_NESTED: Final = frozenset({Type.ARRAY, Type.MAP, Type.STRUCT})
_LOGICAL: Final = frozenset({DATE, TIME, TIMESTAMP, DECIMAL})
_WHOLE: Final = re.compile(r"[+-]?\d{1,4000}")
_FLOATING: Final = re.compile(
    r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)", re.ASCII
)
_HEX: Final = re.compile(
    r"([+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII
)
_BLANK: Final = "".join(map(chr, range(33)))


def caster(kind: Type, schema: ConnectSchema | None) -> Caster:
    """Return what casts values of a schema, or of none, to a type; null remains."""
    if schema is not None and schema.type in _NESTED:
        name = schema.type.name
        return lambda value: None if value is None else _refuse(name)
    if kind is Type.STRING:
        return _is_text_of(schema)
    cast = _casts(kind, is_typed=schema is not None)
    below = None if schema is None or schema.name == DECIMAL else to_stored(schema)

    def from_value(value: Any) -> Any:
        if value is None:
            return None
        made = cast.get(type(value))
        if made is None:
            raise _unexpected(value)
        return made(value)

    if below is None:
        return from_value
    return lambda value: None if value is None else from_value(below(value))


def _refuse(name: str) -> Any:
    raise DataFault(f"Cast transformation does not support casting from {name}")


def _unexpected(value: Any) -> DataFault:
    if isinstance(value, list | dict):
        return DataFault(
            "Cast transformation does not support casting from "
            f"{'ARRAY' if isinstance(value, list) else 'MAP'}"
        )
    return DataFault(f"Unexpected type in Cast transformation: {type(value).__name__}")


def _out_of_range(value: Any) -> DataFault:
    return DataFault(f"Value ({value}) was out of range for requested data type")


def _casts(kind: Type, *, is_typed: bool) -> Mapping[type, Caster]:
    if kind in BITS:
        return _whole_casts(kind)
    if kind is Type.BOOLEAN:
        return {
            bool: bool,
            int: lambda value: wrapped(value, Type.INT64) != 0,
            float: lambda value: saturated(value, Type.INT64) != 0,
            Decimal: lambda value: wrapped(whole_part(value), Type.INT64) != 0,
            str: lambda value: value.lower() == "true",
        }
    narrowed: Callable[[float], float] = float
    if kind is Type.FLOAT32:
        narrowed = as_float32 if is_typed else lambda value: shortest_float(as_float32(value))
    return {
        bool: float,
        int: lambda value: narrowed(float(value)),
        float: narrowed,
        Decimal: lambda value: narrowed(float(value)),
        str: lambda value: narrowed(_parsed_float(value)),
    }


def _whole_casts(kind: Type) -> Mapping[type, Caster]:
    end = 1 << (BITS[kind] - 1)

    def parsed(text: str) -> int:
        if _WHOLE.fullmatch(text) is None or not -end <= (number := int(text)) < end:
            raise _out_of_range(text)
        return number

    return {
        bool: int,
        int: lambda value: value if -end <= value < end else wrapped(value, kind),
        float: lambda value: saturated(value, kind),
        Decimal: lambda value: wrapped(whole_part(value), kind),
        str: parsed,
    }


def _parsed_float(text: str) -> float:
    stripped = text.strip(_BLANK)
    if stripped.endswith(("NaN", "Infinity")) and _FLOATING.fullmatch(stripped):
        return math.nan if stripped.endswith("NaN") else float(stripped)
    found = _HEX.fullmatch(stripped)
    try:
        if found is not None:
            return float.fromhex(found[1])
    except OverflowError:
        return -math.inf if stripped.startswith("-") else math.inf
    if _FLOATING.fullmatch(stripped) is None:
        raise _out_of_range(text)
    return float(stripped.rstrip("fFdD"))


def _is_text_of(schema: ConnectSchema | None) -> Caster:
    is_short = schema is not None and schema.type is Type.FLOAT32
    is_typed = schema is not None

    def text(value: Any) -> str | None:
        match value:
            case None | str():
                return value
            case bool():
                return "true" if value else "false"
            case int():
                return str(value)
            case float():
                return float_text(value) if is_short else double_text(value)
            case bytes():
                return base64.b64encode(value).decode("ascii")
            case Decimal() if is_typed:
                return decimal_text(value)
            case datetime() | date() | time() if is_typed:
                return temporal_text(value)
        raise _unexpected(value)

    return text


def _is_spec(_: str, value: Any) -> str | None:
    if not value:
        return "Must specify at least one field to cast."
    for each in value:
        name, colon, kind = each.rpartition(":")
        if ":" in name:
            return f"Invalid rename mapping: {each}"
        if kind.strip().lower() not in _TARGETS:
            return (
                f"Invalid type found in casting spec: {kind.strip()}; "
                f"there are {', '.join(_TARGETS)}"
            )
        if not colon and len(value) > 1:
            return (
                "Cast transformations that specify a type to cast the entire value to may only "
                "specify a single cast in their spec"
            )
    return None


def _cast(side: Side, values: Values) -> Transform:
    with_defaults = values["replace.null.with.default"]
    spec: dict[str, Type] = {}
    for each in values["spec"]:
        name, colon, kind = each.rpartition(":")
        if not colon:
            return _cast_all(side, _TARGETS[kind.strip().lower()])
        spec[name.strip()] = _TARGETS[kind.strip().lower()]
    casters = [(name, caster(kind, None)) for name, kind in spec.items()]

    def without_schema(_: ConnectRecord, value: dict[str, Any]) -> dict[str, Any]:
        made = dict(value)
        for name, cast in casters:
            made[name] = cast(value.get(name))
        return made

    def with_schema(schema: ConnectSchema) -> tuple[ConnectSchema, Change]:
        return _planned(schema, spec, with_defaults=with_defaults)

    return changing(side, "cast types", without_schema, with_schema, null_passes=True)


def _planned(
    schema: ConnectSchema, spec: Mapping[str, Type], *, with_defaults: bool
) -> tuple[ConnectSchema, Change]:
    fields, plan = [], []
    for field in schema.fields:
        of, cast = field.schema, None
        if field.name in spec:
            cast = caster(spec[field.name], of)
            of = _as(of, ConnectSchema(spec[field.name]), cast)
        fields.append((field.name, of))
        plan.append((field.name, default_of(field.schema) if with_defaults else None, cast))

    def change(_: ConnectRecord, value: dict[str, Any]) -> dict[str, Any]:
        made = {}
        for name, default, cast in plan:
            each = value.get(name)
            if each is None:
                each = default
            made[name] = each if cast is None else cast(each)
        return made

    return replace(struct_like(schema, fields), is_optional=schema.is_optional), change


def _as(schema: ConnectSchema, target: ConnectSchema, cast: Caster) -> ConnectSchema:
    """Return `target`, optional and with a default as `schema` is."""
    default = default_of(schema)
    return replace(
        target,
        is_optional=schema.is_optional,
        default=UNSET if default is None else cast(default),
    )


def _cast_all(side: Side, kind: Type) -> Transform:
    plain = caster(kind, None)

    def plan(schema: ConnectSchema) -> tuple[ConnectSchema, Caster]:
        cast = caster(kind, schema)
        target = ConnectSchema(kind, doc=schema.doc)
        if schema.name not in _LOGICAL:
            target = replace(
                target, name=schema.name, version=schema.version, parameters=schema.parameters
            )
        return _as(schema, target, cast), cast

    plans = BySchema(plan)

    def transform(record: ConnectRecord) -> ConnectRecord:
        schema, value = side.read(record)
        if value is None:
            return record
        if schema is None:
            return side.replaced(record, None, plain(value))
        updated, cast = plans[schema]
        return side.replaced(record, updated, cast(value))

    return transform


CAST: Final[Sequence[TransformKind]] = key_and_value(
    "Cast",
    "Makes fields, or everything, of another type.",
    (
        Key(
            name="spec",
            type=KeyType.LIST,
            importance=Importance.HIGH,
            about=f"`field:type` for each field, or one type for all: {', '.join(_TARGETS)}.",
            check=_is_spec,
        ),
        WITH_DEFAULTS,
    ),
    _cast,
)
