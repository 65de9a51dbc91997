"""What the bytes of a field depend on: scalars whose encodings agree are of one kind."""

from enum import StrEnum
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from service.registry.formats.protobuf.declared_types import DeclaredTypes

_Field = FieldDescriptorProto


class FieldKind(StrEnum):
    """Kinds of fields, named as a person would: they are in messages."""

    NUMBER = "a varint"
    SIGNED = "a zigzag varint"
    TEXT = "a string or bytes"
    FIXED32 = "an integer of 4 bytes"
    FIXED64 = "an integer of 8 bytes"
    FLOAT = "a float"
    DOUBLE = "a double"
    MESSAGE = "a message"
    GROUP = "a group"
    MAP = "a map"

    @property
    def is_scalar(self) -> bool:
        return self not in (FieldKind.MESSAGE, FieldKind.GROUP, FieldKind.MAP)


_KINDS: Final = {
    _Field.TYPE_INT32: FieldKind.NUMBER,
    _Field.TYPE_INT64: FieldKind.NUMBER,
    _Field.TYPE_UINT32: FieldKind.NUMBER,
    _Field.TYPE_UINT64: FieldKind.NUMBER,
    _Field.TYPE_BOOL: FieldKind.NUMBER,
    _Field.TYPE_ENUM: FieldKind.NUMBER,
    _Field.TYPE_SINT32: FieldKind.SIGNED,
    _Field.TYPE_SINT64: FieldKind.SIGNED,
    _Field.TYPE_STRING: FieldKind.TEXT,
    _Field.TYPE_BYTES: FieldKind.TEXT,
    _Field.TYPE_FIXED32: FieldKind.FIXED32,
    _Field.TYPE_SFIXED32: FieldKind.FIXED32,
    _Field.TYPE_FIXED64: FieldKind.FIXED64,
    _Field.TYPE_SFIXED64: FieldKind.FIXED64,
    _Field.TYPE_FLOAT: FieldKind.FLOAT,
    _Field.TYPE_DOUBLE: FieldKind.DOUBLE,
    _Field.TYPE_MESSAGE: FieldKind.MESSAGE,
    _Field.TYPE_GROUP: FieldKind.GROUP,
}


def kind_of(
    field: FieldDescriptorProto, types: DeclaredTypes, file: FileDescriptorProto
) -> FieldKind:
    """Return the kind of a field of `file` whose type is among `types`."""
    if map_entry(field, types) is not None:
        return FieldKind.MAP
    kind = _KINDS[field.type]
    return FieldKind.GROUP if kind == FieldKind.MESSAGE and _is_delimited(field, file) else kind


def _is_delimited(field: FieldDescriptorProto, file: FileDescriptorProto) -> bool:
    for options in (field.options, file.options):
        if options.features.HasField("message_encoding"):
            return options.features.message_encoding == FeatureSet.DELIMITED
    return False


def label_of(field: FieldDescriptorProto, file: FileDescriptorProto) -> str:
    """Return the label that the text of a field has, or an empty string."""
    if field.label == _Field.LABEL_REPEATED:
        return "repeated"
    if is_required(field):
        return "required"
    return "optional" if file.syntax in ("", "proto2") or field.proto3_optional else ""


def is_required(field: FieldDescriptorProto) -> bool:
    """Return whether data without the field is refused."""
    presence = field.options.features.field_presence
    return field.label == _Field.LABEL_REQUIRED or presence == FeatureSet.LEGACY_REQUIRED


def map_entry(field: FieldDescriptorProto, types: DeclaredTypes) -> DescriptorProto | None:
    """Return the entry of a map, or None if the field is no map."""
    if field.type != _Field.TYPE_MESSAGE:
        return None
    entry = types.find(field.type_name).declaration
    assert not isinstance(entry, EnumDescriptorProto), field.type_name
    return entry if entry.options.map_entry else None
