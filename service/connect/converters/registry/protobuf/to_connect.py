"""Schemas and values of Connect from Protobuf, as Confluent's `ProtobufData` reads them.

Every field is optional, unless `optional.for.nullables` is set; its number is a parameter. A
`oneof` is a STRUCT with a field for each of its own, called after it and its index. Messages that
contain themselves have no schema here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from service.connect.converters.registry.converter import PartsLeft
from service.connect.converters.registry.protobuf import names
from service.connect.data.errors import DataFault
from service.connect.data.logical import decimal_from_bytes, time_from_ms, timestamp_from_ms
from service.connect.data.schema import (
    DATE_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectField,
    ConnectSchema,
    Type,
    array,
    decimal,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message

Read = Callable[[Any], Any]

_KINDS: Final[Mapping[int, tuple[Type, str | None]]] = {
    FieldDescriptor.TYPE_INT32: (Type.INT32, None),
    FieldDescriptor.TYPE_SINT32: (Type.INT32, "sint32"),
    FieldDescriptor.TYPE_SFIXED32: (Type.INT32, "sfixed32"),
    FieldDescriptor.TYPE_INT64: (Type.INT64, None),
    FieldDescriptor.TYPE_UINT32: (Type.INT64, "uint32"),
    FieldDescriptor.TYPE_FIXED32: (Type.INT64, "fixed32"),
    FieldDescriptor.TYPE_UINT64: (Type.INT64, "uint64"),
    FieldDescriptor.TYPE_SINT64: (Type.INT64, "sint64"),
    FieldDescriptor.TYPE_FIXED64: (Type.INT64, "fixed64"),
    FieldDescriptor.TYPE_SFIXED64: (Type.INT64, "sfixed64"),
    FieldDescriptor.TYPE_FLOAT: (Type.FLOAT32, None),
    FieldDescriptor.TYPE_DOUBLE: (Type.FLOAT64, None),
    FieldDescriptor.TYPE_BOOL: (Type.BOOLEAN, None),
    FieldDescriptor.TYPE_STRING: (Type.STRING, None),
    FieldDescriptor.TYPE_BYTES: (Type.BYTES, None),
}
_SHORT: Final = {"int8": Type.INT8, "int16": Type.INT16}
_INT64_END: Final = 1 << 63


class ReadableMessage(NamedTuple):
    schema: ConnectSchema
    read: Read


@dataclass(frozen=True, slots=True)
class _Part:
    """A field of a message, or a `oneof`, as a field of a STRUCT."""

    name: str
    schema: ConnectSchema
    read: Callable[["Message"], Any]
    """Of the message around it; None: it is not there."""


def connect_of(descriptor: Descriptor, *, optional_for_nullables: bool) -> ReadableMessage:
    """Return the schema of messages, and what reads them. Raises `DataFault`."""
    return _Reading(optional_for_nullables).message(descriptor)


class _Reading:
    def __init__(self, optional_for_nullables: bool) -> None:
        self._optional_for_nullables = optional_for_nullables
        self._around: list[str] = []
        self._left = PartsLeft()

    def message(self, descriptor: Descriptor) -> ReadableMessage:
        if descriptor.full_name in self._around:
            raise DataFault(
                f"{descriptor.full_name} contains itself, which a schema of Connect cannot do here"
            )
        self._around.append(descriptor.full_name)
        unions = [each for each in descriptor.oneofs if not _is_synthetic(each)]
        parts = [self._union(each, index) for index, each in enumerate(unions)]
        parts += [
            self._field(each)
            for each in descriptor.fields
            if each.containing_oneof is None or _is_synthetic(each.containing_oneof)
        ]
        self._around.pop()
        return ReadableMessage(_struct(descriptor.name, parts), _struct_reader(parts))

    def _union(self, oneof: OneofDescriptor, index: int) -> _Part:
        parts = [self._field(each, in_union=True) for each in oneof.fields]
        by_name = {part.name: part for part in parts}
        schema = _struct(f"{names.UNION}{oneof.name}", parts).optional()
        name = oneof.name

        def read(message: "Message") -> dict[str, Any] | None:
            chosen = message.WhichOneof(name)
            return None if chosen is None else {chosen: by_name[chosen].read(message)}

        return _Part(f"{name}_{index}", schema, read)

    def _field(self, field: FieldDescriptor, *, in_union: bool = False) -> _Part:
        one, read = self._typed(field)
        name = field.name
        has_presence = field.has_presence and not in_union
        if field.is_repeated:
            schema, read_field = _repeated(one, read, name)
        else:
            schema = one

            def read_field(message: "Message") -> Any:
                if has_presence and not message.HasField(name):
                    return None
                return read(getattr(message, name))

        is_optional = schema.is_optional or in_union or not self._optional_for_nullables
        is_optional |= field.has_presence
        parameters = (*schema.parameters, (names.TAG, str(field.number)))
        schema = replace(schema, is_optional=is_optional, parameters=parameters)
        return _Part(name, schema, read_field)

    def _typed(self, field: FieldDescriptor) -> ReadableMessage:
        """Return the type of one value of a field; of a map's field, of the whole map."""
        self._left.take()
        if field.type == FieldDescriptor.TYPE_ENUM:
            return _enum(field)
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            return _scalar(field)
        descriptor = field.message_type
        assert descriptor is not None, field
        if descriptor.full_name == names.DECIMAL_TYPE:
            return _decimal(field)
        known = _LOGICAL.get(descriptor.full_name)
        if known is not None:
            return ReadableMessage(known[0].optional(), known[1])
        if field.is_repeated and _is_entry(descriptor):
            return self._map(descriptor)
        schema, read = self.message(descriptor)
        return ReadableMessage(schema.optional(), read)

    def _map(self, descriptor: Descriptor) -> ReadableMessage:
        key, value = (self._field(descriptor.fields_by_name[name]) for name in ("key", "value"))
        schema = ConnectSchema(
            Type.MAP,
            is_optional=True,
            name=descriptor.name.removesuffix(names.ENTRY),
            key_schema=key.schema,
            value_schema=value.schema,
        )
        if isinstance(key.schema, ConnectSchema) and key.schema.type in (Type.STRUCT, Type.ARRAY):
            raise DataFault("a map whose keys are messages")
        if descriptor.GetOptions().map_entry:
            inner = self._typed(descriptor.fields_by_name["value"]).read
            return ReadableMessage(
                schema, lambda found: {key: inner(each) for key, each in found.items()}
            )
        return ReadableMessage(
            schema, lambda found: {key.read(each): value.read(each) for each in found}
        )


def _struct(name: str, parts: Sequence[_Part]) -> ConnectSchema:
    fields = tuple(ConnectField(part.name, part.schema) for part in parts)
    if len({field.name for field in fields}) != len(fields):
        raise DataFault(f"Cannot create field because of field name duplication in {name}")
    return ConnectSchema(Type.STRUCT, name=name, fields=fields)


def _struct_reader(parts: Sequence[_Part]) -> Read:
    readers = [(part.name, part.read) for part in parts]
    return lambda message: {name: read(message) for name, read in readers}


def _repeated(one: ConnectSchema, read: Read, name: str) -> tuple[ConnectSchema, Read]:
    if one.type is Type.MAP:
        return one, lambda message: read(getattr(message, name))
    return array(one.optional(), is_optional=True), lambda message: [
        read(each) for each in getattr(message, name)
    ]


def _is_synthetic(oneof: OneofDescriptor) -> bool:
    """Whether a `oneof` is how a field with `optional` is stored."""
    return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"


def _is_entry(descriptor: Descriptor) -> bool:
    fields = descriptor.fields
    return (
        descriptor.name.endswith(names.ENTRY)
        and [field.name for field in fields] == ["key", "value"]
        and not any(field.is_repeated for field in fields)
    )


def _scalar(field: FieldDescriptor) -> ReadableMessage:
    kind, other = _KINDS.get(field.type, (None, None))
    if kind is None:
        raise DataFault(f"the field {field.full_name} is of a type that is not known here")
    if kind is Type.INT32:
        kind = _SHORT.get(_meta(field).get(names.CONNECT_TYPE, ""), kind)
    parameters = () if other is None else ((names.TYPE, other),)
    read = _signed if other in ("uint64", "fixed64") else _same
    return ReadableMessage(ConnectSchema(kind, parameters=parameters), read)


def _enum(field: FieldDescriptor) -> ReadableMessage:
    enum = field.enum_type
    assert enum is not None, field
    symbols = {each.number: each.name for each in reversed(enum.values)}
    parameters = [(names.ENUM, enum.name)]
    parameters += [(f"{names.ENUM}.{each.name}", str(each.number)) for each in enum.values]
    schema = ConnectSchema(
        Type.STRING, is_optional=True, name=enum.name, parameters=tuple(parameters)
    )
    return ReadableMessage(schema, lambda number: symbols.get(number, str(number)))


def _decimal(field: FieldDescriptor) -> ReadableMessage:
    meta = _meta(field)
    scale = meta.get("scale", "0")
    precision = meta.get("precision")
    more = ((names.PRECISION, precision),) if precision is not None else ()
    return ReadableMessage(
        decimal(int(scale) if scale.lstrip("-").isdecimal() else 0, parameters=more).optional(),
        lambda message: decimal_from_bytes(message.value or b"\x00", message.scale),
    )


def _meta(field: FieldDescriptor) -> dict[str, str]:
    """Return the parameters of the option `confluent.field_meta`."""
    # Read as a message that knows no fields: what this process has imported may know the option.
    options = Empty.FromString(field.GetOptions().SerializeToString())
    unknown: Any = UnknownFieldSet(options)
    for option in unknown:
        if option.field_number == names.META_NUMBER:
            message: Any = field.containing_type
            pool = message.file.pool
            try:
                meta: Any = GetMessageClass(pool.FindMessageTypeByName(names.META_TYPE))()
            except KeyError:
                return {}
            meta.MergeFromString(option.data)
            return dict(meta.params)
    return {}


def _same(value: Any) -> Any:
    return value


def _signed(value: int) -> int:
    """Return an unsigned number as Java's `long` has it."""
    return value - 2 * _INT64_END if value >= _INT64_END else value


def _date(message: Any) -> date:
    try:
        return date(message.year, message.month, message.day)
    except ValueError as error:
        raise DataFault(f"a google.type.Date that is no day: {error}") from None


def _time(message: Any) -> Any:
    seconds = (message.hours * 60 + message.minutes) * 60 + message.seconds
    return time_from_ms(seconds * 1000 + message.nanos // 1_000_000)


def _timestamp(message: Any) -> datetime:
    return timestamp_from_ms(message.seconds * 1000 + message.nanos // 1_000_000).astimezone(UTC)


_LOGICAL: Final[Mapping[str, tuple[ConnectSchema, Read]]] = {
    names.DATE_TYPE: (DATE_SCHEMA, _date),
    names.TIME_TYPE: (TIME_SCHEMA, _time),
    names.TIMESTAMP_TYPE: (TIMESTAMP_SCHEMA, _timestamp),
}
