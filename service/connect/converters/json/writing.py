"""JSON of values of Connect: a function for each schema, made once.

What it returns is ready for `msgspec.json`: numbers, text, lists, dicts, and `msgspec.Raw` for
decimals that are written as numbers.
"""

import binascii
import math
from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any, Final, TypeAlias

import msgspec

from service.connect.data.errors import DataFault
from service.connect.data.java_text import double_text, java_text, shortest_float
from service.connect.data.logical import scale_of, to_stored, unscaled
from service.connect.data.schema import DECIMAL, UNSET, ConnectSchema, Type

Writer: TypeAlias = Callable[[Any], Any]

_BITS: Final[Mapping[Type, int]] = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}


class JsonWriting:
    """How values become JSON, as the settings of a converter say."""

    def __init__(self, *, numeric_decimals: bool, with_defaults: bool) -> None:
        self._numeric_decimals = numeric_decimals
        self._with_defaults = with_defaults

    def writer_of(self, schema: ConnectSchema) -> Writer:
        """Return what writes values of a schema."""
        write, of_null = self._both(schema)

        def with_null(value: Any) -> Any:
            return of_null() if value is None else write(value)

        return with_null

    def _both(self, schema: ConnectSchema) -> tuple[Writer, Callable[[], Any]]:
        """Return what writes values of a schema, and what is written of null."""
        write = self._present(schema)
        default = None if schema.default is UNSET else schema.default

        def of_null() -> Any:
            if self._with_defaults and default is not None:
                return write(default)
            if schema.is_optional:
                return None
            raise DataFault(
                "Conversion error: null value for field that is required and has no default value"
            )

        return write, of_null

    def _present(self, schema: ConnectSchema) -> Writer:
        if schema.name == DECIMAL and self._numeric_decimals:
            scale = scale_of(schema)

            def decimal(value: Any) -> Any:
                unscaled(value, scale)
                return msgspec.Raw(_plain_number(value))

            return decimal
        below = to_stored(schema)
        if below is not None:
            return _bytes_of(below) if schema.type is Type.BYTES else below
        match schema.type:
            case Type.ARRAY:
                return self._array(schema)
            case Type.MAP:
                return self._map(schema)
            case Type.STRUCT:
                return self._struct(schema)
            case kind if kind in _BITS:
                return _whole(kind)
            case kind:
                return _SCALARS[kind]

    def _part(self, schema: ConnectSchema | None) -> Writer:
        """Return the writer of elements; of none, as of an empty array, any will do."""
        return without_schema if schema is None else self.writer_of(schema)

    def _array(self, schema: ConnectSchema) -> Writer:
        element = self._part(schema.value_schema)

        def write(value: Any) -> list[Any]:
            if type(value) is not list and type(value) is not tuple:
                raise _misfit(Type.ARRAY, value)
            return [element(each) for each in value]

        return write

    def _map(self, schema: ConnectSchema) -> Writer:
        key_of, element = self._part(schema.key_schema), self._part(schema.value_schema)
        is_object = schema.key_schema is None or schema.key_schema.type is Type.STRING

        def write(value: Any) -> dict[str, Any] | list[Any]:
            if type(value) is not dict:
                raise _misfit(Type.MAP, value)
            if is_object:
                # Kafka writes the key null as the text.
                return {
                    "null" if key is None else key_of(key): element(each)
                    for key, each in value.items()
                }
            return [[key_of(key), element(each)] for key, each in value.items()]

        return write

    def _struct(self, schema: ConnectSchema) -> Writer:
        writers = [(field.name, *self._both(field.schema)) for field in schema.fields]
        names = frozenset(schema.by_name)

        def write(value: Any) -> dict[str, Any]:
            if type(value) is not dict:
                raise _misfit(Type.STRUCT, value)
            if not names.issuperset(value):
                raise DataFault(
                    f"Mismatching schema: it has no field {sorted(value.keys() - names)[0]!r}"
                )
            get = value.get
            return {
                name: of_null() if (each := get(name)) is None else write_one(each)
                for name, write_one, of_null in writers
            }

        return write


def without_schema(value: Any) -> Any:
    """Return the JSON of a value that has no schema."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return _whole_64(value)
    if kind is float:
        return _float(value)
    if kind is dict:
        if all(type(key) is str for key in value):
            return {key: without_schema(each) for key, each in value.items()}
        return [[without_schema(key), without_schema(each)] for key, each in value.items()]
    if kind is list or kind is tuple:
        return [without_schema(each) for each in value]
    if kind is bytes:
        return _bytes(value)
    if isinstance(value, Decimal | date | time):
        text = java_text(None, value)
        raise DataFault(f"{text}: a {kind.__name__} needs a schema to be written as JSON")
    raise DataFault(f"Python's {kind.__name__} does not have corresponding schema type.")


def _whole(kind: Type) -> Writer:
    end = 1 << _BITS[kind]

    def write(value: Any) -> int:
        if type(value) is not int:
            raise _misfit(kind, value)
        if not -end <= value < end:
            raise DataFault(f"{value} does not fit {kind.value}")
        return value

    return write


_whole_64: Final = _whole(Type.INT64)


def _float(value: Any) -> Any:
    if type(value) is not float:
        raise _misfit(Type.FLOAT64, value)
    return value if math.isfinite(value) else double_text(value)


def _float_32(value: Any) -> Any:
    if type(value) is not float:
        raise _misfit(Type.FLOAT32, value)
    return _float(shortest_float(value))


def _bytes(value: Any) -> str:
    if type(value) is not bytes:
        raise DataFault(f"Invalid type for bytes type: {type(value).__name__}")
    return binascii.b2a_base64(value, newline=False).decode("ascii")


def _bytes_of(below: Writer) -> Writer:
    def write(value: Any) -> str:
        return _bytes(below(value))

    return write


def _of_type(kind: Type, python: type) -> Writer:
    def write(value: Any) -> Any:
        if type(value) is not python:
            raise _misfit(kind, value)
        return value

    return write


_SCALARS: Final[Mapping[Type, Writer]] = {
    Type.FLOAT32: _float_32,
    Type.FLOAT64: _float,
    Type.BOOLEAN: _of_type(Type.BOOLEAN, bool),
    Type.STRING: _of_type(Type.STRING, str),
    Type.BYTES: _bytes,
}


def _plain_number(value: Decimal) -> bytes:
    """Return the digits of a decimal without an exponent, as far as they are few."""
    text = format(value, "f") if abs(value.adjusted()) < 1000 else str(value)
    return text.encode("ascii")


def _misfit(kind: Type, value: Any) -> DataFault:
    return DataFault(f"Invalid type for {kind.name}: {type(value).__name__}")
