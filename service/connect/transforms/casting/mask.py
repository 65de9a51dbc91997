"""MaskField: the same value for all, instead of what must not be seen.

Kafka makes decimals the number 0 or the replacement, whatever scale the schema says, and then
cannot write the record; here they get the schema's scale.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.config.values import Values
from service.connect.data.errors import DataFault
from service.connect.data.logical import decimal_of, scale_of
from service.connect.data.records import ConnectRecord
from service.connect.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Type
from service.connect.transforms.api import Transform
from service.connect.transforms.casting.numbers import (
    BITS,
    as_float32,
    decimal_in,
    whole_part,
    wrapped,
)
from service.connect.transforms.kinds import (
    WITH_DEFAULTS,
    TransformKind,
    fields_key,
    key_and_value,
    not_empty,
)
from service.connect.transforms.sides import Change, Side, changing, filled

_EMPTY: Final[Mapping[Type, Any]] = {
    **dict.fromkeys(BITS, 0),
    Type.FLOAT32: 0.0,
    Type.FLOAT64: 0.0,
    Type.BOOLEAN: False,
    Type.STRING: "",
    Type.ARRAY: [],
    Type.MAP: {},
}
_BEGINNING: Final[Mapping[str, Any]] = {
    DATE: date(1970, 1, 1),
    TIME: time(),
    TIMESTAMP: datetime(1970, 1, 1, tzinfo=UTC),
}
_TYPES: Final[Mapping[type, Type]] = {
    bool: Type.BOOLEAN,
    int: Type.INT64,
    float: Type.FLOAT64,
    str: Type.STRING,
    list: Type.ARRAY,
    dict: Type.MAP,
}

_Mask = Callable[[], Any]


def _mask_field(side: Side, values: Values) -> Transform:
    names = dict.fromkeys(values["fields"])
    replacement = values["replacement"]
    with_defaults = values["replace.null.with.default"]
    by_type: dict[type, _Mask] = {
        python: _mask(ConnectSchema(kind), replacement) for python, kind in _TYPES.items()
    }

    def without_schema(_: ConnectRecord, value: dict[str, Any]) -> dict[str, Any]:
        masked = dict(value)
        for name in names:
            each = value.get(name)
            mask = by_type.get(type(each))
            if mask is None and each is not None:
                raise DataFault(f"Cannot mask value of type: {type(each).__name__}")
            masked[name] = None if mask is None else mask()
        return masked

    def with_schema(schema: ConnectSchema) -> tuple[ConnectSchema, Change]:
        fill = filled(schema) if with_defaults else None
        masks = [
            (field.name, _mask(field.schema, replacement))
            for field in schema.fields
            if field.name in names
        ]

        def change(_: ConnectRecord, value: dict[str, Any]) -> dict[str, Any]:
            masked = dict(value) if fill is None else fill(value)
            for name, mask in masks:
                if masked.get(name) is not None:
                    masked[name] = mask()
            return masked

        return schema, change

    return changing(side, "mask fields", without_schema, with_schema, null_passes=False)


def _mask(schema: ConnectSchema, replacement: str | None) -> _Mask:
    """Return what makes the value instead of all of a schema, or refuses that."""
    try:
        constant = _nothing(schema) if replacement is None else _replacement(schema, replacement)
    except DataFault as error:
        said = str(error)

        def refuse() -> Any:
            raise DataFault(said)

        return refuse
    if isinstance(constant, list | dict):
        return type(constant)
    return lambda: constant


def _nothing(schema: ConnectSchema) -> Any:
    if schema.name == DECIMAL:
        return decimal_of(0, scale_of(schema))
    beginning = _BEGINNING.get(schema.name or "")
    if beginning is not None:
        return beginning
    if schema.type not in _EMPTY:
        raise DataFault(f"Cannot mask value of type: {schema.type.value}")
    return _EMPTY[schema.type]


def _replacement(schema: ConnectSchema, text: str) -> Any:
    kind = schema.type
    if kind is Type.STRING:
        return text
    is_number = kind in BITS or kind in (Type.FLOAT32, Type.FLOAT64)
    if schema.name != DECIMAL and (not is_number or schema.name in _BEGINNING):
        raise DataFault(f"Cannot mask value of type {kind.value} with custom replacement.")
    number = decimal_in(text)
    if number is None:
        raise DataFault(f"Unable to convert {text} to a number")
    if schema.name == DECIMAL:
        return _rescaled(number, scale_of(schema))
    if kind in BITS:
        return wrapped(whole_part(number), kind)
    return as_float32(float(number)) if kind is Type.FLOAT32 else float(number)


def _rescaled(number: Decimal, scale: int) -> Decimal:
    digits = whole_part(number.scaleb(scale))
    found = decimal_of(digits, scale)
    if found != number:
        raise DataFault(f"Unable to convert {number} to a decimal of scale {scale}")
    return found


MASK_FIELD: Final[Sequence[TransformKind]] = key_and_value(
    "MaskField",
    "Makes fields 0, false, empty, or a replacement.",
    (
        fields_key("The fields to mask."),
        Key(
            name="replacement",
            type=KeyType.STRING,
            default=None,
            importance=Importance.LOW,
            about="What takes the place of numbers and of text.",
            check=not_empty,
        ),
        WITH_DEFAULTS,
    ),
    _mask_field,
)
