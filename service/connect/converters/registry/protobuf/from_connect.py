"""Protobuf of schemas of Connect: a file with one message, and what it needs inside it.

Null has no place in Protobuf: a field that is null is left out, and comes back as 0 or as empty
unless `optional.for.nullables` is set. Only a STRUCT is a message, and arrays hold no arrays.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from service.connect.converters.registry.converter import WrittenSchema
from service.connect.converters.registry.protobuf import names
from service.connect.data.errors import DataFault
from service.connect.data.java_text import double_text
from service.connect.data.logical import (
    date_to_days,
    decimal_to_bytes,
    scale_of,
    time_to_ms,
    timestamp_from_ms,
    timestamp_to_ms,
)
from service.connect.data.schema import (
    DATE,
    DECIMAL,
    SCALE,
    TIME,
    TIMESTAMP,
    ConnectSchema,
    Type,
    default_of,
)

_SCALARS: Final[Mapping[Type, str]] = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_OTHERS: Final[Mapping[Type, frozenset[str]]] = {
    Type.INT32: frozenset({"sint32", "sfixed32"}),
    Type.INT64: frozenset({"uint32", "fixed32", "uint64", "sint64", "fixed64", "sfixed64"}),
}
_LOGICAL: Final[Mapping[str, str]] = {
    DECIMAL: names.DECIMAL_TYPE,
    DATE: names.DATE_TYPE,
    TIME: names.TIME_TYPE,
    TIMESTAMP: names.TIMESTAMP_TYPE,
}
_BITS: Final[Mapping[Type, int]] = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_Write = Callable[[Any], Any]


@dataclass
class _Message:
    """A message as its text is made."""

    name: str
    lines: list[str] = field(default_factory=list)
    inside: dict[str, tuple[Any, list[str]]] = field(default_factory=dict)
    """What stands in it, by name: the schema it is of, and its text."""

    def text(self) -> list[str]:
        inner = [line for _, lines in self.inside.values() for line in lines]
        body = [f"  {line}" for line in (*inner, *self.lines)]
        return [f"message {self.name} {{", *body, "}"]


def protobuf_of(schema: ConnectSchema, *, optional_for_nullables: bool) -> WrittenSchema:
    """Return the file, and what makes of values the JSON of its message."""
    if schema.type is not Type.STRUCT or schema.name in _LOGICAL:
        raise DataFault(f"Unsupported root schema of type {schema.type.name}: it is no STRUCT")
    builder = _Builder(optional_for_nullables)
    full_name = schema.name or builder.unnamed()
    package, _, name = full_name.rpartition(".")
    lines, write = builder.message(schema, _checked(name))
    head = ['syntax = "proto3";']
    if package:
        head.append(f"package {'.'.join(map(_checked, package.split('.')))};")
    head += [f'import "{file}";' for file in sorted(builder.imports)]
    return WrittenSchema("\n".join((*head, *lines, "")), full_name, write)


class _Builder:
    def __init__(self, optional_for_nullables: bool) -> None:
        self._optional_for_nullables = optional_for_nullables
        self._unnamed = 0
        self.imports: set[str] = set()

    def unnamed(self) -> str:
        self._unnamed += 1
        return f"{names.DEFAULT}{self._unnamed}"

    def message(self, schema: ConnectSchema, name: str) -> tuple[list[str], _Write]:
        """Return the text of a message, and what writes its values."""
        made = _Message(name)
        writers: list[tuple[str, _Write]] = []
        number = 1
        for each in schema.fields:
            if each.schema.type is Type.STRUCT and (each.schema.name or "").startswith(names.UNION):
                writers.append((each.name, self._union(made, each.schema)))
                continue
            tag = each.schema.parameter(names.TAG)
            line, write = self._field(made, each.name, each.schema, tag or str(number))
            number += tag is None
            made.lines.append(line)
            writers.append((each.name, _named(each.name, each.schema, write)))
        return made.text(), _message_writer(schema, writers)

    def _union(self, made: _Message, schema: ConnectSchema) -> _Write:
        """Put a `oneof` into the message; return what makes its fields of a union's value."""
        assert schema.name is not None
        lines, writers = [], {}
        for each in schema.fields:
            tag = each.schema.parameter(names.TAG)
            if tag is None:
                raise DataFault(f"the field {each.name} of a union has no parameter {names.TAG}")
            of = replace(each.schema, is_optional=False)
            if of.type is Type.ARRAY or of.type is Type.MAP:
                raise DataFault(f"the field {each.name} of a union is repeated")
            line, write = self._field(made, each.name, of, tag)
            lines.append(f"  {line}")
            writers[each.name] = write
        name = _checked(names.short_name(schema.name))
        made.lines += [f"oneof {name} {{", *lines, "}"]

        def write_union(value: Any) -> dict[str, Any]:
            if value is None:
                return {}
            if type(value) is not dict:
                raise DataFault(f"Invalid type for STRUCT: {type(value).__name__}")
            return {
                key: writers[key](each)
                for key, each in value.items()
                if each is not None and key in writers
            }

        return write_union

    def _field(
        self, made: _Message, name: str, schema: ConnectSchema, tag: str
    ) -> tuple[str, _Write]:
        if not tag.isascii() or not tag.isdecimal():
            raise DataFault(f"the number of field {name} is {tag!r}")
        label, of = "", schema
        if schema.type is Type.ARRAY:
            if schema.value_schema is None or schema.value_schema.type in (Type.ARRAY, Type.MAP):
                raise DataFault("Array cannot be nested, and its elements need a schema")
            label, of = "repeated ", schema.value_schema
        elif schema.type is Type.MAP:
            label = "repeated "
        elif self._optional_for_nullables and schema.is_optional:
            label = "optional "
        kind, parameters, write = self._type(made, name, of)
        line = f"{label}{kind} {_checked(name)} = {tag}"
        if parameters:
            self.imports.add(names.META)
            said = " ".join(
                f'params: {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items()
            )
            line += f" [(confluent.field_meta) = {{ {said} }}]"
        return f"{line};", _array_writer(write) if schema.type is Type.ARRAY else write

    def _type(
        self, made: _Message, name: str, schema: ConnectSchema
    ) -> tuple[str, dict[str, str], _Write]:
        """Return the type of a field, what else says it, and what writes its values."""
        logical = _LOGICAL.get(schema.name or "")
        if logical is not None:
            self.imports.add(names.FILES[logical])
            return logical, _decimal_parameters(schema), _logical_writer(schema)
        if schema.type is Type.STRUCT:
            kind = names.short_name(schema.name or self.unnamed())
            kind += "Message" if kind == name else ""
            return kind, {}, self._inside(made, kind, schema)
        if schema.type is Type.MAP:
            kind = names.short_name(schema.name or self.unnamed()) + names.ENTRY
            return kind, {}, self._map(made, kind, schema)
        enum = schema.parameter(names.ENUM)
        if schema.type is Type.STRING and enum is not None:
            kind = names.short_name(schema.name or enum)
            self._enum(made, kind, schema)
            return kind, {}, _scalar_writer(schema)
        kind = _SCALARS[schema.type]
        other = schema.parameter(names.TYPE)
        if other in _OTHERS.get(schema.type, ()):
            assert other is not None
            kind = other
        is_short = schema.type in (Type.INT8, Type.INT16)
        parameters = {names.CONNECT_TYPE: schema.type.value} if is_short else {}
        write = _scalar_writer(schema)
        if kind in ("uint64", "fixed64"):
            # As in Java, whose `long` has a sign.
            return kind, parameters, lambda value: write(value) % (1 << 64)
        return kind, parameters, write

    def _inside(self, made: _Message, kind: str, schema: ConnectSchema) -> _Write:
        required = replace(schema, is_optional=False, parameters=_without_tag(schema))
        known = made.inside.get(kind)
        lines, write = self.message(required, _checked(kind))
        _keep(made, kind, required, lines, known)
        return write

    def _map(self, made: _Message, kind: str, schema: ConnectSchema) -> _Write:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        entry = _Message(_checked(kind))
        key, write_key = self._field(entry, "key", schema.key_schema, "1")
        value, write_value = self._field(entry, "value", schema.value_schema, "2")
        entry.lines += [key, value]
        required = replace(schema, is_optional=False, parameters=_without_tag(schema))
        _keep(made, kind, required, entry.text(), made.inside.get(kind))

        def write(given: Any) -> list[dict[str, Any]]:
            if type(given) is not dict:
                raise DataFault(f"Invalid type for MAP: {type(given).__name__}")
            return [
                {"key": write_key(one), **({} if other is None else {"value": write_value(other)})}
                for one, other in given.items()
            ]

        return write

    def _enum(self, made: _Message, kind: str, schema: ConnectSchema) -> None:
        prefix = f"{names.ENUM}."
        symbols = [
            f"  {_checked(key[len(prefix) :])} = {int(number)};"
            for key, number in schema.parameters
            if key.startswith(prefix) and number.lstrip("-").isdecimal()
        ]
        lines = [f"enum {_checked(kind)} {{", *symbols, "}"]
        _keep(made, kind, tuple(symbols), lines, made.inside.get(kind))


def _keep(
    made: _Message, kind: str, of: Any, lines: list[str], known: tuple[Any, list[str]] | None
) -> None:
    if known is None:
        made.inside[kind] = of, lines
    elif known[0] != of:
        raise DataFault(f"{made.name} has two types that are called {kind}")


def _without_tag(schema: ConnectSchema) -> tuple[tuple[str, str], ...]:
    return tuple(each for each in schema.parameters if each[0] != names.TAG)


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise DataFault(f"{name!r} is not a name in Protobuf")
    return name


def _decimal_parameters(schema: ConnectSchema) -> dict[str, str]:
    if schema.name != DECIMAL:
        return {}
    precision = schema.parameter(names.PRECISION)
    said = {"precision": precision} if precision is not None else {}
    return {**said, SCALE: str(scale_of(schema))}


def _message_writer(schema: ConnectSchema, writers: list[tuple[str, _Write]]) -> _Write:
    known = frozenset(schema.by_name)

    def write(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise DataFault(f"Invalid type for STRUCT: {type(value).__name__}")
        if not known.issuperset(value):
            raise DataFault(f"it has no field {sorted(value.keys() - known)[0]!r}")
        made: dict[str, Any] = {}
        for name, fields_of in writers:
            made.update(fields_of(value.get(name)))
        return made

    return write


def _named(name: str, schema: ConnectSchema, write: _Write) -> _Write:
    """Return what makes a field of a message of a value; null is no field."""
    default, is_optional = default_of(schema), schema.is_optional

    def fields_of(value: Any) -> dict[str, Any]:
        if value is None:
            value = default
        if value is None:
            if not is_optional:
                raise DataFault(f"Found null value for non-optional field {name}")
            return {}
        return {name: write(value)}

    return fields_of


def _array_writer(write: _Write) -> _Write:
    def write_array(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise DataFault(f"Invalid type for ARRAY: {type(value).__name__}")
        if None in value:
            raise DataFault("an array with null in it, which Protobuf cannot have")
        return [write(each) for each in value]

    return write_array


def _scalar_writer(schema: ConnectSchema) -> _Write:
    kind = schema.type
    python = {
        Type.FLOAT32: float,
        Type.FLOAT64: float,
        Type.BOOLEAN: bool,
        Type.STRING: str,
        Type.BYTES: bytes,
    }.get(kind, int)
    end = 1 << _BITS.get(kind, 63)

    def write(value: Any) -> Any:
        if type(value) is not python:
            raise DataFault(f"Invalid type for {kind.name}: {type(value).__name__}")
        if type(value) is int and not -end <= value < end:
            raise DataFault(f"{value} does not fit {kind.value}")
        if type(value) is bytes:
            return base64.b64encode(value).decode()
        if type(value) is float and value - value != 0:
            return double_text(value)
        return value

    return write


def _logical_writer(schema: ConnectSchema) -> _Write:
    if schema.name == DECIMAL:
        return _decimal_writer(schema)
    if schema.name == DATE:
        return _date
    return _time if schema.name == TIME else _timestamp


def _decimal_writer(schema: ConnectSchema) -> _Write:
    scale = scale_of(schema)

    def write(value: Decimal) -> dict[str, Any]:
        data = base64.b64encode(decimal_to_bytes(value, scale)).decode()
        return {"value": data, "precision": max(len(value.as_tuple().digits), 1), "scale": scale}

    return write


def _date(value: date) -> dict[str, int]:
    date_to_days(value)
    return {"year": value.year, "month": value.month, "day": value.day}


def _time(value: time) -> dict[str, int]:
    ms = time_to_ms(value)
    return {
        "hours": value.hour,
        "minutes": value.minute,
        "seconds": value.second,
        "nanos": ms % 1000 * 1_000_000,
    }


def _timestamp(value: datetime) -> str:
    moment = timestamp_from_ms(timestamp_to_ms(value))
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
