"""A descriptor whose custom options are fields, as their extensions say, and not unknown bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from google.protobuf.descriptor_pb2 import (
    DESCRIPTOR,
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_NAME: Final = FileDescriptorProto.DESCRIPTOR.full_name
_GOOGLES: Final = "google/"


@dataclass(frozen=True)
class Understood:
    """A file whose options have names.

    `file` has the fields of a `FileDescriptorProto`, but its class is made for this file: it must
    not be mixed with others.
    """

    file: FileDescriptorProto
    ambiguous: frozenset[str]
    """First parts of names that may mean something else inside the file."""

    @property
    def exact(self) -> bytes:
        """Bytes that two files share if, and only if, they mean and order all the same."""
        return self.file.SerializePartialToString(deterministic=True)


def understood(files: Sequence[FileDescriptorProto]) -> Understood:
    """Return the last of `files`, which come after what they import."""
    last = files[-1]
    if all(file.name != DESCRIPTOR.name for file in files):
        return Understood(last, frozenset())  # Without Google's own file, nothing extends it.
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    kind = GetMessageClass(pool.FindMessageTypeByName(_NAME))
    made = kind.FromString(last.SerializeToString())
    return Understood(cast(FileDescriptorProto, made), frozenset(_inner_names(files)))


def _inner_names(files: Sequence[FileDescriptorProto]) -> Iterator[str]:
    for file in files:
        yield from file.package.split(".")[1:]
        if not file.name.startswith(_GOOGLES):
            yield from _of_message_or_file(file.message_type, file.enum_type)
            yield from (field.name for field in file.extension)
            yield from (service.name for service in file.service)


def _of_message_or_file(
    messages: Sequence[DescriptorProto], enums: Sequence[EnumDescriptorProto]
) -> Iterator[str]:
    for message in messages:
        yield message.name
        yield from (field.name for field in (*message.field, *message.extension))
        yield from (oneof.name for oneof in message.oneof_decl)
        yield from _of_message_or_file(message.nested_type, message.enum_type)
    for enum in enums:
        yield enum.name
        yield from (value.name for value in enum.value)
