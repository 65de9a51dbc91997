"""Values of Connect from JSON: a function for each schema, made once.

Kafka reads a number that does not fit its type as another number, and text as the number 0. Here
both are refused, since that is lost data.
"""

import binascii
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from service.connect.data.errors import DataFault
from service.connect.data.logical import from_stored, scale_of
from service.connect.data.schema import DECIMAL, UNSET, ConnectSchema, Type

Reader: TypeAlias = Callable[[Any], Any]

_BITS: Final[Mapping[Type, int]] = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INT64_END: Final = 1 << 63


def reader_of(schema: ConnectSchema, *, with_defaults: bool) -> Reader:
    """Return what reads values of a schema; `with_defaults`: null is the default, if there is one.

    Numbers with a point are `Decimal`, so that decimals keep their digits.
    """
    read = _decimal(schema) if schema.name == DECIMAL else _logical(schema, with_defaults)
    default = None if schema.default is UNSET else schema.default
    kind = schema.type.name

    def of_null() -> Any:
        if with_defaults and default is not None:
            return default
        if schema.is_optional:
            return None
        raise DataFault(f"Invalid null value for required {kind} field")

    def with_null(said: Any) -> Any:
        return of_null() if said is None else read(said)

    return with_null


def _logical(schema: ConnectSchema, with_defaults: bool) -> Reader:
    read = _READERS[schema.type](schema, with_defaults)
    above = from_stored(schema)
    if above is None:
        return read

    def logical(said: Any) -> Any:
        return above(read(said))

    return logical


def _whole(schema: ConnectSchema, _: bool) -> Reader:
    end, kind = 1 << _BITS[schema.type], schema.type

    def read(said: Any) -> int:
        if type(said) is Decimal and said == said.to_integral_value() and abs(said) < _INT64_END:
            said = int(said)
        if type(said) is not int:
            raise DataFault(f"Invalid type for {kind.name}: {_json_type(said)}")
        if not -end <= said < end:
            raise DataFault(f"{said} does not fit {kind.value}")
        return said

    return read


def _float(schema: ConnectSchema, _: bool) -> Reader:
    kind = schema.type

    def read(said: Any) -> float:
        if type(said) is Decimal or type(said) is int or type(said) is float:
            return _as_float(said)
        if said in _NOT_FINITE:
            return _NOT_FINITE[said]
        raise DataFault(f"Invalid type for {kind.name}: {_json_type(said)}")

    return read


def _as_float(said: Any) -> float:
    try:
        return float(said)
    except OverflowError:
        return math.inf if said > 0 else -math.inf


def _of_type(kind: type) -> Callable[[ConnectSchema, bool], Reader]:
    def made(schema: ConnectSchema, _: bool) -> Reader:
        def read(said: Any) -> Any:
            if type(said) is not kind:
                raise DataFault(f"Invalid type for {schema.type.name}: {_json_type(said)}")
            return said

        return read

    return made


def _bytes(_: ConnectSchema, __: bool) -> Reader:
    return read_bytes


def read_bytes(said: Any) -> bytes:
    if type(said) is not str:
        raise DataFault("Invalid bytes field")
    try:
        return binascii.a2b_base64(said, strict_mode=True)
    except ValueError:
        raise DataFault("Invalid bytes field") from None


def _array(schema: ConnectSchema, with_defaults: bool) -> Reader:
    assert schema.value_schema is not None, schema
    element = reader_of(schema.value_schema, with_defaults=with_defaults)

    def read(said: Any) -> list[Any]:
        if type(said) is not list:
            raise DataFault(
                f"Arrays should be encoded as JSON arrays, but found {_json_type(said)}"
            )
        return [element(each) for each in said]

    return read


def _map(schema: ConnectSchema, with_defaults: bool) -> Reader:
    assert schema.value_schema is not None, schema
    assert schema.key_schema is not None, schema
    element = reader_of(schema.value_schema, with_defaults=with_defaults)
    if schema.key_schema.type is Type.STRING:

        def read(said: Any) -> dict[Any, Any]:
            if type(said) is not dict:
                raise DataFault(
                    "Maps with string fields should be encoded as JSON objects, "
                    f"but found {_json_type(said)}"
                )
            return {key: element(each) for key, each in said.items()}

        return read
    key_of = reader_of(schema.key_schema, with_defaults=with_defaults)

    def read_pairs(said: Any) -> dict[Any, Any]:
        if type(said) is not list:
            raise DataFault(
                "Maps with non-string fields should be encoded as JSON array of tuples, "
                f"but found {_json_type(said)}"
            )
        found = {}
        for pair in said:
            if type(pair) is not list:
                raise DataFault(
                    f"Found invalid map entry instead of array tuple: {_json_type(pair)}"
                )
            if len(pair) != 2:
                raise DataFault(
                    f"Found invalid map entry, expected length 2 but found :{len(pair)}"
                )
            key = key_of(pair[0])
            if isinstance(key, list | dict):
                raise DataFault("a map whose keys are lists or structures")
            found[key] = element(pair[1])
        return found

    return read_pairs


def _struct(schema: ConnectSchema, with_defaults: bool) -> Reader:
    readers = [
        (field.name, reader_of(field.schema, with_defaults=with_defaults))
        for field in schema.fields
    ]

    def read(said: Any) -> dict[str, Any]:
        if type(said) is not dict:
            raise DataFault(
                f"Structs should be encoded as JSON objects, but found {_json_type(said)}"
            )
        get = said.get
        return {name: reader(get(name)) for name, reader in readers}

    return read


def _decimal(schema: ConnectSchema) -> Reader:
    scale_of(schema)  # Refuses a schema without one.
    above = from_stored(schema)
    assert above is not None, schema

    def read(said: Any) -> Decimal:
        if type(said) is Decimal:
            return said
        if type(said) is int:
            return Decimal(said)
        if type(said) is str:
            found: Decimal = above(read_bytes(said))
            return found
        raise DataFault(
            "Invalid type for Decimal, underlying representation should be numeric or bytes "
            f"but was {_json_type(said)}"
        )

    return read


_READERS: Final[Mapping[Type, Callable[[ConnectSchema, bool], Reader]]] = {
    **dict.fromkeys(_BITS, _whole),
    Type.FLOAT32: _float,
    Type.FLOAT64: _float,
    Type.BOOLEAN: _of_type(bool),
    Type.STRING: _of_type(str),
    Type.BYTES: _bytes,
    Type.ARRAY: _array,
    Type.MAP: _map,
    Type.STRUCT: _struct,
}


def _json_type(said: Any) -> str:
    """Return what Kafka's errors call a JSON value."""
    match said:
        case None:
            return "NULL"
        case bool():
            return "BOOLEAN"
        case int() | float() | Decimal():
            return "NUMBER"
        case str():
            return "STRING"
        case list():
            return "ARRAY"
        case _:
            return "OBJECT"
