"""The messages and enums that a schema and the files it imports declare, by name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
)


@dataclass(frozen=True)
class DeclaredType:
    declaration: DescriptorProto | EnumDescriptorProto
    file: FileDescriptorProto
    local_name: str
    """Without the package, and without a dot in front."""


class DeclaredTypes:
    """All types of files."""

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        self._by_name = {
            (f".{file.package}." if file.package else ".") + found.local_name: found
            for file in files
            for found in _declared(file, file.message_type, file.enum_type, "")
        }

    def find(self, name: str) -> DeclaredType:
        """Return the type of this name, which has a dot in front."""
        return self._by_name[name]


def _declared(
    file: FileDescriptorProto,
    messages: Sequence[DescriptorProto],
    enums: Sequence[EnumDescriptorProto],
    prefix: str,
) -> Iterator[DeclaredType]:
    for enum in enums:
        yield DeclaredType(enum, file, f"{prefix}{enum.name}")
    for message in messages:
        name = f"{prefix}{message.name}"
        yield DeclaredType(message, file, name)
        yield from _declared(file, message.nested_type, message.enum_type, f"{name}.")
