"""Why data written with one Protobuf schema cannot be read with another.

The rules are those of Confluent's registry, and have its names. Data knows fields by their numbers
and nothing of names, so that fields are compared by number; messages by name, since they have
nothing else. A path is `#/Message/Inner/3`: names of messages, then the number of a field; of a
choice of a oneof, with the name of the oneof before it.

Readers do not mind fields that are removed or renamed, enums and values of enums that are added,
renamed or removed, messages in another order, a oneof that is added, renamed, or removed with all
its fields, and a choice that becomes a field of its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from service.registry.formats.form import Incompatibility
from service.registry.formats.protobuf.declared_types import DeclaredType, DeclaredTypes
from service.registry.formats.protobuf.field_kinds import (
    FieldKind,
    is_required,
    kind_of,
    label_of,
    map_entry,
)
from service.registry.formats.protobuf.numbered_fields import NumberedFields

Path = tuple[str, ...]

_SAME_LABELS: Final = (("", "optional"), ("optional", ""), ("", "required"), ("required", ""))
"""A field without a label is `optional` or `required` in ways that are compared elsewhere."""


def differences(
    writer: Sequence[FileDescriptorProto], reader: Sequence[FileDescriptorProto]
) -> list[Incompatibility]:
    """Return what keeps a reader with the last of `reader` from data of the last of `writer`."""
    return _Comparison(writer, reader).compare_files()


@dataclass(frozen=True)
class _Side:
    """A schema, or a file that it imports while types of that are compared."""

    types: DeclaredTypes
    file: FileDescriptorProto

    def kind(self, field: FieldDescriptorProto) -> FieldKind:
        return kind_of(field, self.types, self.file)


Pair = tuple[DeclaredType, DeclaredType]


@dataclass(frozen=True)
class _Use:
    """A field whose type is a pair of messages of imported files."""

    field: Incompatibility
    """What is said of the field if the pair is not compatible."""
    inside: str
    """The pair of messages that has the field, or an empty string: it is in the schemas."""


class _Comparison:
    """Compares the schemas, then the imported messages that they use, one after the other.

    Messages that hold each other may be many, in any shape, so that none waits for another: that
    a field has a message that changed is said at the end.
    """

    def __init__(
        self, writer: Sequence[FileDescriptorProto], reader: Sequence[FileDescriptorProto]
    ) -> None:
        self._found: list[Incompatibility] = []
        self._main = writer[-1], reader[-1]
        self._old = _Side(DeclaredTypes(writer), writer[-1])
        self._new = _Side(DeclaredTypes(reader), reader[-1])
        self._inside = ""
        self._changed: dict[str, None] = {}
        """Pairs of which something was reported."""
        self._imported: dict[str, Pair] = {}
        self._uses: dict[str, list[_Use]] = {}

    def compare_files(self) -> list[Incompatibility]:
        old, new = self._main
        if old.package != new.package:
            self._report(
                "PACKAGE_CHANGED",
                (),
                f"the package was {old.package!r} in the writer's schema and is {new.package!r} in"
                " the reader's",
            )
        self._compare_messages(old.message_type, new.message_type, ())
        compared = 0
        while compared < len(self._imported):  # They bring others.
            for name in list(self._imported)[compared:]:
                self._compare_imported(name, *self._imported[name])
                compared += 1
        self._report_uses()
        return self._found

    def _compare_imported(self, name: str, old: DeclaredType, new: DeclaredType) -> None:
        assert isinstance(old.declaration, DescriptorProto), old.local_name
        assert isinstance(new.declaration, DescriptorProto), new.local_name
        self._inside = name
        self._old = replace(self._old, file=old.file)
        self._new = replace(self._new, file=new.file)
        path = tuple(old.local_name.split("."))
        self._compare_message(old.declaration, new.declaration, path)

    def _report_uses(self) -> None:
        changed = list(self._changed)
        for name in changed:  # It grows while messages are found to hold one that changed.
            for use in self._uses.get(name, []):
                self._found.append(use.field)
                if use.inside and use.inside not in self._changed:
                    self._changed[use.inside] = None
                    changed.append(use.inside)

    def _report(self, kind: str, path: Path, message: str) -> None:
        self._found.append(_incompatibility(kind, path, message))
        if self._inside:
            self._changed[self._inside] = None

    def _compare_messages(
        self, old: Iterable[DescriptorProto], new: Iterable[DescriptorProto], path: Path
    ) -> None:
        new_by_name = {message.name: message for message in new}
        for message in old:
            if message.options.map_entry:
                continue  # Fields that are maps compare them.
            inner = (*path, message.name)
            counterpart = new_by_name.get(message.name)
            if counterpart is not None:
                self._compare_message(message, counterpart, inner)
            else:
                name = ".".join(inner)
                self._report(
                    "MESSAGE_REMOVED",
                    inner,
                    f"the reader's schema has no message {name!r}, the writer's has",
                )

    def _compare_message(self, old: DescriptorProto, new: DescriptorProto, path: Path) -> None:
        old_fields, new_fields = NumberedFields(old), NumberedFields(new)
        self._compare_oneofs(old_fields, new_fields, path)
        for number in sorted(old_fields.fields.keys() | new_fields.fields.keys()):
            before, after = old_fields.fields.get(number), new_fields.fields.get(number)
            if after is None:
                self._report_removed(old_fields, new_fields, number, path)
            elif before is None:
                self._report_added(after, new_fields.path(number, path))
            else:
                self._compare_fields(before, after, new_fields.path(number, path))
        self._compare_messages(old.nested_type, new.nested_type, path)

    def _compare_oneofs(self, old: NumberedFields, new: NumberedFields, path: Path) -> None:
        """Report fields of which data may have several, and the reader keeps one."""
        for name, numbers in new.oneofs.items():
            known = [number for number in numbers if number in old.fields]
            loose = [number for number in known if number not in old.oneof_of]
            groups = {old.oneof_of[number] for number in known if number in old.oneof_of}
            if len(loose) + len(groups) < 2:
                continue
            listed = " and ".join(str(number) for number in known)
            message = (
                f"the fields {listed} exclude each other in the reader's oneof {name!r}, and may"
                " stand together in data of the writer"
            )
            is_many = len(loose) > 1
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if is_many else "FIELD_MOVED_TO_EXISTING_ONEOF"
            self._report(kind, (*path, name), message)

    def _report_removed(
        self, old: NumberedFields, new: NumberedFields, number: int, path: Path
    ) -> None:
        field, oneof = old.fields[number], old.oneof_of.get(number)
        inner = old.path(number, path)
        if oneof is None:
            if is_required(field):
                self._report(
                    "REQUIRED_FIELD_REMOVED",
                    inner,
                    f"the reader's schema has no field {number}, which is required ({field.name!r})"
                    " in the writer's",
                )
            return
        is_whole = oneof not in new.oneofs and not any(
            other in new.fields for other in old.oneofs[oneof]
        )
        if not is_whole:
            self._report(
                "ONEOF_FIELD_REMOVED",
                inner,
                f"the reader's schema has no field {number} ({field.name!r}) of oneof {oneof!r},"
                " which the writer's has",
            )

    def _report_added(self, field: FieldDescriptorProto, path: Path) -> None:
        if is_required(field):
            self._report(
                "REQUIRED_FIELD_ADDED",
                path,
                f"the reader requires field {field.number} ({field.name!r}), which the writer's"
                " schema does not have",
            )

    def _compare_fields(
        self, old: FieldDescriptorProto, new: FieldDescriptorProto, path: Path
    ) -> None:
        kinds = self._old.kind(old), self._new.kind(new)
        if kinds[0] == kinds[1]:
            self._compare_same_kind(old, new, kinds[0], path)
            return
        are_scalars = kinds[0].is_scalar and kinds[1].is_scalar
        self._report(
            "FIELD_SCALAR_KIND_CHANGED" if are_scalars else "FIELD_KIND_CHANGED",
            path,
            f"field {_called(old, new)} is {kinds[0]} in the writer's schema and {kinds[1]} in the"
            " reader's",
        )

    def _compare_same_kind(
        self, old: FieldDescriptorProto, new: FieldDescriptorProto, kind: FieldKind, path: Path
    ) -> None:
        if kind in (FieldKind.MESSAGE, FieldKind.GROUP):
            self._compare_types(old, new, path)
        elif kind == FieldKind.MAP:
            old_entry = map_entry(old, self._old.types)
            new_entry = map_entry(new, self._new.types)
            assert old_entry is not None, old
            assert new_entry is not None, new
            for before, after in zip(old_entry.field, new_entry.field, strict=True):
                self._compare_fields(before, after, path)
        elif kind != FieldKind.TEXT:
            labels = label_of(old, self._old.file), label_of(new, self._new.file)
            # A reader of several takes one, too, where one has no label that says otherwise.
            is_one_to_many = labels == ("", "repeated")
            if labels[0] != labels[1] and not is_one_to_many and labels not in _SAME_LABELS:
                self._report(
                    "FIELD_NUMERIC_LABEL_CHANGED",
                    path,
                    f"the number in field {_called(old, new)} is {labels[0] or 'one'} in the"
                    f" writer's schema and {labels[1] or 'one'} in the reader's",
                )

    def _compare_types(
        self, old: FieldDescriptorProto, new: FieldDescriptorProto, path: Path
    ) -> None:
        before = self._old.types.find(old.type_name)
        after = self._new.types.find(new.type_name)
        are_own = before.file is self._main[0] and after.file is self._main[1]
        if before.local_name != after.local_name:
            types = f"{before.local_name!r} in the writer's schema and {after.local_name!r}"
            message = f"field {_called(old, new)} is {types} in the reader's"
            self._report("FIELD_NAMED_TYPE_CHANGED", path, message)
        elif not are_own:  # Those of the schemas are compared anyway.
            types = f"{before.local_name!r} in the writer's schema and another"
            message = f"field {_called(old, new)} is an imported {types} in the reader's"
            said = _incompatibility("FIELD_NAMED_TYPE_CHANGED", path, message)
            name = f"{before.file.name}:{before.local_name}:{after.file.name}"
            self._imported.setdefault(name, (before, after))
            if name != self._inside:
                self._uses.setdefault(name, []).append(_Use(said, self._inside))


def _incompatibility(kind: str, path: Path, message: str) -> Incompatibility:
    return Incompatibility(kind, f"#/{'/'.join(path)}", message)


def _called(old: FieldDescriptorProto, new: FieldDescriptorProto) -> str:
    names = repr(new.name) if old.name == new.name else f"{old.name!r}, now {new.name!r}"
    return f"{new.number} ({names})"
