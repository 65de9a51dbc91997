"""Protobuf as a form of schema: what is stored of a text, and what can be read with what.

A schema comes as `.proto` text or as base64 of a serialized `FileDescriptorProto`, as Confluent's
Python client sends it. Stored is always text, in the form of `writing.py`, without comments. What
is stored always means what was sent: where the text is not simply a copy, it is compiled again and
compared.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import DecodeError

from service.registry.formats.form import Incompatibility, Parsed
from service.registry.formats.protobuf.comparing import differences
from service.registry.formats.protobuf.compiler import check_descriptor, compile_text
from service.registry.formats.protobuf.explicit_maps import (
    MapEntries,
    mark_maps,
    without_explicit_maps,
)
from service.registry.formats.protobuf.normal_order import normal_order
from service.registry.formats.protobuf.understanding import Understood, understood
from service.registry.formats.protobuf.writing import text_of
from storage.schemas.source import InvalidSchema, Named

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]++[=\s]*+")
_FILE_NAME: Final = "default"
"""What Confluent's registry and clients call a file of which they know only the content."""


@dataclass(frozen=True)
class ProtobufSchema:
    """One schema, with the files that it imports."""

    files: tuple[FileDescriptorProto, ...]
    """Those that are imported come before those that import them; the schema is the last."""
    canonical: str

    @cached_property
    def normalized(self) -> str:
        found = understood(self.files)
        return text_of(Understood(normal_order(found.file), found.ambiguous))

    def serialized(self) -> str:
        named = FileDescriptorProto()
        named.CopyFrom(self.files[-1])
        named.name = _FILE_NAME
        return base64.b64encode(named.SerializeToString()).decode()

    def resolved(self) -> str:
        return self.canonical

    @property
    def field_names(self) -> frozenset[str]:
        messages = self.files[-1].message_type
        return frozenset(field.name for message in messages for field in message.field)

    def unreadable(self, writer: Self) -> list[Incompatibility]:
        return differences(writer.files, self.files)


class ProtobufForm:
    """The `SchemaForm` of Protobuf."""

    def parse(self, text: str, references: Sequence[Named]) -> ProtobufSchema:
        sources = _References(references)
        given = _descriptor(text)
        if given is not None:
            files = sources.marked(check_descriptor(given, sources.texts))
            return _checked(files, sources, keeps_entries=True)
        files, has_entries = _compiled(text, sources)
        if has_entries or _has_group(files[-1]):
            return _checked(files, sources, keeps_entries=has_entries)
        return ProtobufSchema(tuple(files), text_of(understood(files)))


FORM: Final = ProtobufForm()


def _descriptor(text: str) -> FileDescriptorProto | None:
    """Return the descriptor that `text` is, or None if it is not base64."""
    if _BASE64.fullmatch(text) is None:
        return None
    try:
        return FileDescriptorProto.FromString(base64.b64decode("".join(text.split())))
    except (binascii.Error, DecodeError):
        raise InvalidSchema(
            "the schema is neither .proto text nor base64 of a serialized FileDescriptorProto"
        ) from None


class _References:
    """Texts of references as protoc takes them, and the entries of maps that were taken out."""

    def __init__(self, references: Sequence[Named]) -> None:
        self.texts: dict[str, str] = {}
        self._entries: dict[str, MapEntries] = {}
        for each in references:
            self.texts[each.name], self._entries[each.name] = without_explicit_maps(each.text)

    def marked(self, files: list[FileDescriptorProto]) -> list[FileDescriptorProto]:
        for file in files:
            mark_maps(file, self._entries.get(file.name, frozenset()))
        return files


def _compiled(text: str, references: _References) -> tuple[list[FileDescriptorProto], bool]:
    """Return the descriptors, and whether entries of maps were written as messages."""
    plain, entries = without_explicit_maps(text)
    files = references.marked(compile_text(plain, references.texts))
    mark_maps(files[-1], entries)
    return files, bool(entries)


def _checked(
    files: list[FileDescriptorProto], references: _References, *, keeps_entries: bool
) -> ProtobufSchema:
    """Return the schema, or raise `InvalidSchema` if its text would mean something else."""
    meant = understood(files)
    canonical = text_of(meant, keeps_entries=keeps_entries)
    again, _ = _compiled(canonical, references)
    if understood(again).exact != meant.exact:
        raise InvalidSchema(
            "the descriptor holds what no .proto file can say: register the .proto file of which"
            " it was made"
        )
    return ProtobufSchema(tuple(again), canonical)


def _has_group(file: FileDescriptorProto) -> bool:
    return any(
        field.type == FieldDescriptorProto.TYPE_GROUP
        for fields in _all_fields(file)
        for field in fields
    )


def _all_fields(
    scope: FileDescriptorProto | DescriptorProto,
) -> Iterator[Sequence[FieldDescriptorProto]]:
    yield scope.extension
    if isinstance(scope, DescriptorProto):
        yield scope.field
        for message in scope.nested_type:
            yield from _all_fields(message)
    else:
        for message in scope.message_type:
            yield from _all_fields(message)


def descriptors_of(parsed: Parsed) -> bytes:
    """Return a Protobuf schema and what it imports as a serialized `FileDescriptorSet`."""
    assert isinstance(parsed, ProtobufSchema), parsed
    return FileDescriptorSet(file=parsed.files).SerializeToString()
