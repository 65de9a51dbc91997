"""A file in normal order: what order does not mean anything is sorted.

Sorted are imports, fields and choices of a oneof (by number), values of enums (by number, but for
the first, which is the default), extensions of one message, reserved numbers and names, ranges of
extensions. Kept is the order of messages, since serialized records say by place which message they
hold; of enums, services and methods, as in Confluent's registry; and of fields among which there
are groups, since a group is a field and a message.
"""

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, TypeVar

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

T = TypeVar("T")


def normal_order(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return a copy of `file` in normal order."""
    ordered = type(file)()
    ordered.CopyFrom(file)
    _sort_imports(ordered)
    _sort_extensions(ordered.extension)
    for message in ordered.message_type:
        _sort_message(message)
    for enum in ordered.enum_type:
        _sort_enum(enum)
    return ordered


def _sort_imports(file: FileDescriptorProto) -> None:
    public = {file.dependency[place] for place in file.public_dependency}
    weak = {file.dependency[place] for place in file.weak_dependency}
    names = sorted(set(file.dependency), key=lambda name: (name in public, name))
    file.dependency[:] = names
    file.public_dependency[:] = [place for place, name in enumerate(names) if name in public]
    file.weak_dependency[:] = [place for place, name in enumerate(names) if name in weak]
    file.option_dependency[:] = sorted(set(file.option_dependency))


def _sort_message(message: DescriptorProto) -> None:
    if not _has_group(message.field):
        _sort_fields(message)
        _sort_entries(message)
    _sort_extensions(message.extension)
    _sort(message.extension_range, lambda span: span.start)
    _sort(message.reserved_range, lambda span: span.start)
    message.reserved_name[:] = sorted(message.reserved_name)
    for nested in message.nested_type:
        _sort_message(nested)
    for enum in message.enum_type:
        _sort_enum(enum)


def _has_group(fields: Sequence[FieldDescriptorProto]) -> bool:
    return any(field.type == FieldDescriptorProto.TYPE_GROUP for field in fields)


def _sort_fields(message: DescriptorProto) -> None:
    """Sort fields by number, the choices of a oneof together, where the lowest of them is."""
    lowest: dict[int, int] = {}
    for field in message.field:
        if field.HasField("oneof_index"):
            index = field.oneof_index
            lowest[index] = min(field.number, lowest.get(index, field.number))

    def place(field: FieldDescriptorProto) -> tuple[int, int]:
        group = lowest[field.oneof_index] if field.HasField("oneof_index") else field.number
        return group, field.number

    _sort(message.field, place)
    # Oneofs stand in the order of their first fields; those of `optional` come last.
    synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
    order = sorted(lowest, key=lambda index: (index in synthetic, lowest[index]))
    oneofs = [_copied(message.oneof_decl[index]) for index in order]
    del message.oneof_decl[:]
    message.oneof_decl.extend(oneofs)
    new_index = {old: new for new, old in enumerate(order)}
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = new_index[field.oneof_index]


def _sort_entries(message: DescriptorProto) -> None:
    """Sort the entries of maps like their fields, without moving another message."""
    place_of = {
        tuple(field.type_name.split(".")[-2:]): place
        for place, field in reversed(list(enumerate(message.field)))
    }
    slots = [at for at, nested in enumerate(message.nested_type) if nested.options.map_entry]
    entries = [_copied(message.nested_type[slot]) for slot in slots]
    entries.sort(key=lambda entry: place_of[message.name, entry.name])
    for slot, entry in zip(slots, entries, strict=True):
        message.nested_type[slot].CopyFrom(entry)


def _sort_extensions(fields: MutableSequence[FieldDescriptorProto]) -> None:
    """Put the extensions of one message together, by number; messages stay in their order."""
    if _has_group(fields):
        return
    first: dict[str, int] = {}
    for place, field in enumerate(fields):
        first.setdefault(field.extendee, place)
    _sort(fields, lambda field: (first[field.extendee], field.number))


def _sort_enum(enum: EnumDescriptorProto) -> None:
    _sort(enum.reserved_range, lambda span: span.start)
    enum.reserved_name[:] = sorted(enum.reserved_name)
    first = enum.value[0].name
    _sort(enum.value, lambda value: (value.name != first, value.number, value.name))


def _sort(items: Any, key: Callable[[Any], Any]) -> None:
    items.sort(key=key)


def _copied(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
