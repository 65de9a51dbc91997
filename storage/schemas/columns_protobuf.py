"""Protobuf as columns.

    message                                       struct
    repeated, map                                 list, map with text as keys
    int32, sint32, sfixed32; other 32 and 64      int32; int64
    uint64, fixed64                               decimal of 20 digits
    enum                                          text, the name of the value, else its number
    google.protobuf.Timestamp                     timestamp in microseconds
    google.protobuf.StringValue and the like      what they hold
    google.protobuf.Struct, Any and the like      JSON text
    a message inside itself                       JSON text

A field that knows whether it is set is null if it is not; others have their default.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from storage.schemas.codec import ROOM_BYTES, ROOM_RATIO
from storage.schemas.columns import JSON_TEXT, CellsLeft, SchemaPart, each_or_none
from storage.schemas.protobuf.sizes import ANY, ANYS_MAX, MessageSizes

Convert: TypeAlias = Callable[[Any], Any]
Typed: TypeAlias = tuple[pa.DataType, Convert | None]

_UNSIGNED: Final = pa.decimal128(20, 0)
_SIMPLE: Final[dict[int, Typed]] = {
    FieldDescriptor.TYPE_DOUBLE: (pa.float64(), None),
    FieldDescriptor.TYPE_FLOAT: (pa.float32(), None),
    FieldDescriptor.TYPE_INT32: (pa.int32(), None),
    FieldDescriptor.TYPE_SINT32: (pa.int32(), None),
    FieldDescriptor.TYPE_SFIXED32: (pa.int32(), None),
    FieldDescriptor.TYPE_INT64: (pa.int64(), None),
    FieldDescriptor.TYPE_SINT64: (pa.int64(), None),
    FieldDescriptor.TYPE_SFIXED64: (pa.int64(), None),
    FieldDescriptor.TYPE_UINT32: (pa.int64(), None),
    FieldDescriptor.TYPE_FIXED32: (pa.int64(), None),
    FieldDescriptor.TYPE_UINT64: (_UNSIGNED, Decimal),
    FieldDescriptor.TYPE_FIXED64: (_UNSIGNED, Decimal),
    FieldDescriptor.TYPE_BOOL: (pa.bool_(), None),
    FieldDescriptor.TYPE_STRING: (pa.string(), None),
    FieldDescriptor.TYPE_BYTES: (pa.binary(), None),
}
_GOOGLE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_GOOGLE}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_AS_JSON: Final = frozenset(
    f"{_GOOGLE}{name}"
    for name in ("Any", "Struct", "Value", "ListValue", "Duration", "FieldMask", "Empty")
)


class ProtobufDecoder:
    """Reads one message of a schema."""

    def __init__(self, files: Sequence[FileDescriptorProto], indexes: Sequence[int] = (0,)) -> None:
        """Read messages of the last of `files`, which come after what they import.

        `indexes` lead to the message: its place in the file, then in each message around it. Raises
        `ValueError` if there is none, or if it has no fields.
        """
        pool = DescriptorPool()
        for file in files:
            pool.Add(file)
        found = _message(pool, files[-1], indexes)
        self._cells = CellsLeft()
        typed = _Fields(self._cells).of_message(found, SchemaPart())
        if typed is None:
            raise ValueError(f"the message {found.full_name} has no fields")
        self.type, self._convert = typed
        self._parse = GetMessageClass(found).FromString
        self._sizes = MessageSizes(found)

    def decode(self, data: Sequence[bytes]) -> list[Any]:
        return each_or_none(self._read, data)

    def _read(self, data: bytes) -> Any:
        if self._sizes.has_any and data.count(ANY.encode()) > ANYS_MAX:
            raise ValueError("it is too large")
        self._cells.begin()
        message = self._parse(data)
        self._sizes.check(message, len(data), ROOM_BYTES + ROOM_RATIO * len(data))
        return self._convert(message)


def _message(pool: DescriptorPool, file: FileDescriptorProto, indexes: Sequence[int]) -> Descriptor:
    scope, names = file.message_type, [file.package] if file.package else []
    for index in indexes:
        if not 0 <= index < len(scope):
            raise ValueError(f"there is no message at {indexes}")
        names.append(scope[index].name)
        scope = scope[index].nested_type
    return pool.FindMessageTypeByName(".".join(names))


class _Fields:
    """Types of messages and their fields."""

    def __init__(self, cells: CellsLeft) -> None:
        self._cells = cells

    def of_message(
        self, message: Descriptor, part: SchemaPart
    ) -> tuple[pa.DataType, Convert] | None:
        """Return the type of a message, and what makes values of it; None: it has no fields."""
        fields: list[pa.Field] = []
        reads: list[tuple[str, bool, Convert | None]] = []
        for each in message.fields:
            kind, convert = self._field(each, part.within(message.full_name))
            fields.append(pa.field(each.name, kind))
            reads.append((each.name, each.has_presence, convert))
        if not fields:
            return None

        def read(value: Message) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for name, may_lack, convert in reads:
                if may_lack and not value.HasField(name):
                    continue
                held = getattr(value, name)
                found[name] = held if convert is None else convert(held)
            return found

        return pa.struct(fields), read

    def _field(self, field: FieldDescriptor, part: SchemaPart) -> Typed:
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            return self._map(message, part)
        kind, change = self._single(field, part)
        if not field.is_repeated:
            return kind, change

        def read(values: Any) -> list[Any]:
            self._cells.take(len(values), kind)
            return list(values) if change is None else [change(each) for each in values]

        return pa.list_(kind), read

    def _map(self, entry: Descriptor, part: SchemaPart) -> Typed:
        kind, change = self._single(entry.fields_by_name["value"], part)

        def read(values: Any) -> list[tuple[str, Any]]:
            self._cells.take(len(values), kind)
            if change is None:
                return [(_key(key), values[key]) for key in values]
            return [(_key(key), change(values[key])) for key in values]

        return pa.map_(pa.string(), kind), read

    def _single(self, field: FieldDescriptor, part: SchemaPart) -> Typed:
        if field.enum_type is not None:
            names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
            return pa.string(), lambda number: names.get(number) or str(number)
        message = field.message_type
        if message is None:
            return _SIMPLE[field.type]
        if message.full_name == f"{_GOOGLE}Timestamp":
            return pa.timestamp("us", "UTC"), lambda at: at.seconds * 1_000_000 + at.nanos // 1000
        if message.full_name in _WRAPPERS:
            kind, change = self._single(message.fields_by_name["value"], part)
            if change is None:
                return kind, lambda wrapper: wrapper.value
            return kind, lambda wrapper: change(wrapper.value)
        if message.full_name in _AS_JSON or message.full_name in part or part.is_deep:
            return JSON_TEXT, _json_text
        return self.of_message(message, part) or (JSON_TEXT, _json_text)


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _json_text(message: Message) -> str:
    pool = cast(DescriptorPool, message.DESCRIPTOR.file.pool)
    return MessageToJson(
        message, indent=None, preserving_proto_field_name=True, descriptor_pool=pool
    )
