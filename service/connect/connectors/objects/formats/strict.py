"""Values that a file of typed columns can take, checked before any byte is written.

A record that an Avro or Parquet writer refuses halfway would leave a broken file, and Parquet
refuses it only thousands of records later. So each value is checked and copied first.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, TypeAlias

from service.connect.data.errors import DataFault
from service.connect.data.logical import scale_of, unscaled
from service.connect.data.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    UNSET,
    ConnectSchema,
    Type,
)

Copy: TypeAlias = Callable[[Any], Any]

PRECISION: Final = "connect.decimal.precision"
"""The parameter of a Decimal's schema that says how many digits it may have."""

_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_LOGICAL: Final[Mapping[str, type]] = {DATE: date, TIME: time, TIMESTAMP: datetime}
_PLAIN: Final[Mapping[Type, type]] = {Type.BOOLEAN: bool, Type.BYTES: bytes}


def precision_of(schema: ConnectSchema, default: int) -> int:
    text = schema.parameter(PRECISION) or ""
    return int(text) if text.isdigit() and 0 < int(text) <= default else default


def strict(schema: ConnectSchema, *, digits: int, pairs: bool) -> Copy:
    """Return what checks and copies values of a schema; it raises `DataFault`.

    `digits` limits decimals; with `pairs`, maps become lists of pairs.
    """
    copy = _filled(schema, digits, pairs)

    def checked(value: Any) -> Any:
        if value is None and schema.default is not UNSET:
            value = schema.default
        if value is None:
            if schema.is_optional:
                return None
            raise DataFault(f"null for a required value of type {schema.type.value}")
        return copy(value)

    return checked


def _filled(schema: ConnectSchema, digits: int, pairs: bool) -> Copy:
    """Return what checks and copies values that are not null."""
    if schema.name == DECIMAL:
        return _decimal(schema, digits)
    logical = _LOGICAL.get(schema.name or "")
    if logical is not None:
        return _typed(logical)
    match schema.type:
        case Type.STRUCT:
            return _struct(schema, digits, pairs)
        case Type.ARRAY:
            assert schema.value_schema is not None, schema
            each = strict(schema.value_schema, digits=digits, pairs=pairs)
            of_list = _typed(list)
            return lambda value: [each(item) for item in of_list(value)]
        case Type.MAP:
            return _map(schema, digits, pairs)
        case Type.STRING:
            return _text
        case Type.FLOAT32 | Type.FLOAT64:
            return _number
        case Type.BOOLEAN | Type.BYTES:
            return _typed(_PLAIN[schema.type])
        case _:
            return _integer(_BITS[schema.type])


def _struct(schema: ConnectSchema, digits: int, pairs: bool) -> Copy:
    fields = [(f.name, strict(f.schema, digits=digits, pairs=pairs)) for f in schema.fields]
    of_dict = _typed(dict)

    def copy(value: Any) -> Any:
        found = of_dict(value)
        made = {}
        for name, each in fields:
            try:
                made[name] = each(found.get(name))
            except DataFault as fault:
                raise DataFault(f"{name}: {fault}") from None
        return made

    return copy


def _map(schema: ConnectSchema, digits: int, pairs: bool) -> Copy:
    assert schema.key_schema is not None, schema
    assert schema.value_schema is not None, schema
    keys = strict(schema.key_schema, digits=digits, pairs=pairs)
    values = strict(schema.value_schema, digits=digits, pairs=pairs)
    of_dict = _typed(dict)
    if pairs:
        return lambda value: [(keys(k), values(v)) for k, v in of_dict(value).items()]
    if schema.key_schema.type is Type.STRING and not schema.key_schema.is_optional:
        return lambda value: {keys(k): values(v) for k, v in of_dict(value).items()}
    return lambda value: [{"key": keys(k), "value": values(v)} for k, v in of_dict(value).items()]


def _decimal(schema: ConnectSchema, digits: int) -> Copy:
    scale, most = scale_of(schema), precision_of(schema, digits)

    def copy(value: Any) -> Decimal:
        if len(str(abs(unscaled(value, scale)))) > most:
            raise DataFault(f"a decimal of more than {most} digits")
        assert isinstance(value, Decimal), value
        return value

    return copy


def _typed(kind: type) -> Copy:
    def copy(value: Any) -> Any:
        if type(value) is not kind:
            raise DataFault(f"{kind.__name__} expected, but it is {type(value).__name__}")
        return value

    return copy


def _text(value: Any) -> str:
    if type(value) is not str:
        raise DataFault(f"a string expected, but it is {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DataFault("a string with half of a surrogate pair") from None
    return value


def _number(value: Any) -> float:
    if type(value) not in (float, int):
        raise DataFault(f"a number expected, but it is {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise DataFault(f"{value} is too large for a double") from None


def _integer(bits: int) -> Copy:
    end = 1 << (bits - 1)

    def copy(value: Any) -> int:
        if type(value) is not int:
            raise DataFault(f"a whole number expected, but it is {type(value).__name__}")
        if not -end <= value < end:
            raise DataFault(f"{value} does not fit {bits} bits")
        return value

    return copy
