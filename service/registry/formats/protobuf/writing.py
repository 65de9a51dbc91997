"""`.proto` text of a descriptor, in the one form under which schemas are stored.

    protoc(text(descriptor)) == descriptor          but for its name, which no text holds

The id of a schema depends on every character of this form, so it never changes: golden files in
the tests hold it. Types are named from the root, with a dot in front, as Confluent's registry
names them. The order is that of the descriptor. Only where a descriptor cannot hold an order
(options, reserved ranges and names, what stands between messages and enums) there is one: reserved,
options, fields, extension ranges, extensions, messages, enums.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    MethodDescriptorProto,
    OneofDescriptorProto,
    ServiceDescriptorProto,
    SymbolVisibility,
)

from service.registry.formats.protobuf.option_text import option_items, quoted
from service.registry.formats.protobuf.understanding import Understood

FIELD_NUMBER_END: Final = 1 << 29
"""The numbers of fields are below. A range that ends here is written with `max`."""
MESSAGE_SET_NUMBER_END: Final = (1 << 31) - 1
ENUM_NUMBER_MAX: Final = (1 << 31) - 1

_Field = FieldDescriptorProto
_SCALARS: Final = {
    _Field.TYPE_DOUBLE: "double",
    _Field.TYPE_FLOAT: "float",
    _Field.TYPE_INT64: "int64",
    _Field.TYPE_UINT64: "uint64",
    _Field.TYPE_INT32: "int32",
    _Field.TYPE_FIXED64: "fixed64",
    _Field.TYPE_FIXED32: "fixed32",
    _Field.TYPE_BOOL: "bool",
    _Field.TYPE_STRING: "string",
    _Field.TYPE_BYTES: "bytes",
    _Field.TYPE_UINT32: "uint32",
    _Field.TYPE_SFIXED32: "sfixed32",
    _Field.TYPE_SFIXED64: "sfixed64",
    _Field.TYPE_SINT32: "sint32",
    _Field.TYPE_SINT64: "sint64",
}
_VISIBILITIES: Final = {
    SymbolVisibility.VISIBILITY_UNSET: "",
    SymbolVisibility.VISIBILITY_LOCAL: "local ",
    SymbolVisibility.VISIBILITY_EXPORT: "export ",
}


def text_of(understood: Understood, *, keeps_entries: bool = False) -> str:
    """Return the text of a file.

    `keeps_entries` writes the entries of maps as messages where `map<...>` would change the place
    that Confluent's Java client counts for a message after them, and so what it reads as what.
    """
    return _Writer(understood, keeps_entries=keeps_entries).text()


def type_name(field: FieldDescriptorProto) -> str:
    """Return the type of a field as its declaration writes it; a map is not one of them."""
    return _SCALARS.get(field.type, field.type_name)


def json_name_of(name: str) -> str:
    """Return the name in JSON that a field has if nothing else is said."""
    head, *words = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in words)


class _Scope:
    """Messages of one file or message, of which maps and groups are written by their fields."""

    def __init__(
        self, messages: Sequence[DescriptorProto], prefix: str, *, keeps_entries: bool
    ) -> None:
        self.messages = messages
        self.maps_are_fields = not (keeps_entries and _has_message_after_entry(messages))
        self.prefix = prefix
        self.places = {f"{prefix}.{message.name}": at for at, message in enumerate(messages)}
        self.written = 0
        """All before this place are written, or are maps or groups of fields that follow."""
        self.of_fields: set[int] = set()

    def place_of(self, field: FieldDescriptorProto) -> int | None:
        """Return the place of the message that the field itself declares, if it does."""
        place = self.places.get(field.type_name)
        if place is None:
            return None
        is_map = self.maps_are_fields and self.messages[place].options.map_entry
        return place if is_map or field.type == _Field.TYPE_GROUP else None


class _Writer:
    def __init__(self, understood: Understood, *, keeps_entries: bool) -> None:
        self._file = file = understood.file
        self._ambiguous = understood.ambiguous
        self._keeps_entries = keeps_entries
        self._lines: list[str] = []
        self._indent = ""
        self._has_section = False
        self._is_edition = file.syntax == "editions"
        self._shows_optional = file.syntax in ("", "proto2")

    def text(self) -> str:
        file = self._file
        if self._is_edition:
            edition = Edition.Name(file.edition).removeprefix("EDITION_").lower()
            self._line(f'edition = "{edition}";')
        else:
            self._line(f'syntax = "{file.syntax or "proto2"}";')
        if file.package:
            self._line(f"package {file.package};")
        self._has_section = True
        self._section(list(self._imports()))
        self._option_lines(file.options)
        scope = self._scope(file.message_type, f".{file.package}" if file.package else "")
        self._find_declared(scope, file.extension)
        self._extensions(file.extension, scope)
        self._types(scope, file.enum_type)
        for service in file.service:
            self._break()
            self._service(service)
        return "".join(self._lines)

    def _scope(self, messages: Sequence[DescriptorProto], prefix: str) -> _Scope:
        return _Scope(messages, prefix, keeps_entries=self._keeps_entries)

    def _imports(self) -> Iterator[str]:
        public, weak = set(self._file.public_dependency), set(self._file.weak_dependency)
        for place, name in enumerate(self._file.dependency):
            kind = "public " if place in public else "weak " if place in weak else ""
            yield f"import {kind}{quoted(name)};"
        for name in self._file.option_dependency:
            yield f"import option {quoted(name)};"

    def _line(self, text: str) -> None:
        self._lines.append(f"{self._indent}{text}\n")

    def _break(self) -> None:
        """Separate what follows from what is above it in the same block."""
        if self._has_section:
            self._lines.append("\n")
        self._has_section = True

    def _section(self, lines: list[str]) -> None:
        if lines:
            self._break()
            for line in lines:
                self._line(line)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._line(f"{head} {{")
        start, self._has_section = len(self._lines), False
        self._indent += "  "
        yield
        self._indent = self._indent[:-2]
        self._has_section = True
        if len(self._lines) == start:
            self._lines[-1] = f"{self._indent}{head} {{}}\n"
        else:
            self._line("}")

    def _option_lines(self, options: Any) -> None:
        items = self._options(options)
        self._section([f"option {item};" for item in items])

    def _options(self, options: Any) -> list[str]:
        # An empty message of options is common, and reading its fields is not for nothing.
        return option_items(options, self._ambiguous) if options.ByteSize() else []

    def _types(self, scope: _Scope, enums: Sequence[EnumDescriptorProto]) -> None:
        self._messages_before(len(scope.messages), scope)
        for enum in enums:
            self._break()
            self._enum(enum)

    def _messages_before(self, end: int, scope: _Scope) -> bool:
        """Write the messages that stand before place `end` and are not written yet."""
        waiting = [at for at in range(scope.written, end) if at not in scope.of_fields]
        for place in waiting:
            self._break()
            self._message(scope.messages[place], scope.prefix)
        scope.written = max(scope.written, end)
        return bool(waiting)

    def _find_declared(self, scope: _Scope, *fields: Sequence[FieldDescriptorProto]) -> None:
        for each in fields:
            for field in each:
                if field.type in (_Field.TYPE_MESSAGE, _Field.TYPE_GROUP):
                    place = scope.place_of(field)
                    if place is not None:
                        scope.of_fields.add(place)

    def _message(self, message: DescriptorProto, prefix: str) -> None:
        with self._block(f"{_VISIBILITIES[message.visibility]}message {message.name}"):
            self._message_body(message, f"{prefix}.{message.name}")

    def _message_body(self, message: DescriptorProto, name: str) -> None:
        is_set = message.options.message_set_wire_format
        end = MESSAGE_SET_NUMBER_END if is_set else FIELD_NUMBER_END
        reserved = [_range(span.start, span.end, end) for span in message.reserved_range]
        self._reserved(reserved, message.reserved_name)
        self._option_lines(message.options)
        scope = self._scope(message.nested_type, name)
        self._find_declared(scope, message.field, message.extension)
        self._fields(message, scope)
        ranges = []
        for span in message.extension_range:
            items = self._options(span.options)
            options = f" [{', '.join(items)}]" if items else ""
            ranges.append(f"extensions {_range(span.start, span.end, end)}{options};")
        self._section(ranges)
        self._extensions(message.extension, scope)
        self._types(scope, message.enum_type)

    def _reserved(self, ranges: list[str], names: Sequence[str]) -> None:
        written = list(names) if self._is_edition else [quoted(name) for name in names]
        statements = (", ".join(parts) for parts in (ranges, written) if parts)
        self._section([f"reserved {statement};" for statement in statements])

    def _fields(self, message: DescriptorProto, scope: _Scope) -> None:
        fields = message.field
        before, place = "", 0
        while place < len(fields):
            field, end = fields[place], place + 1
            is_choice = field.HasField("oneof_index") and not field.proto3_optional
            if is_choice:
                while end < len(fields) and _is_choice(fields[end], field.oneof_index):
                    end += 1
            now = "oneof" if is_choice else "field"
            if self._messages_for(fields[place:end], scope) or before != now:
                self._break()
            if is_choice:
                oneof = message.oneof_decl[field.oneof_index]
                self._oneof(oneof, fields[place:end], scope)
            else:
                self._field(field, scope, is_choice=False)
            before, place = now, end

    def _messages_for(self, fields: Sequence[FieldDescriptorProto], scope: _Scope) -> bool:
        """Write the messages that must stand before what `fields` declare; return if any."""
        declared = (scope.place_of(field) for field in fields if field.type_name)
        first = next((place for place in declared if place is not None), None)
        return first is not None and self._messages_before(first, scope)

    def _oneof(
        self, oneof: OneofDescriptorProto, choices: Sequence[FieldDescriptorProto], scope: _Scope
    ) -> None:
        with self._block(f"oneof {oneof.name}"):
            self._option_lines(oneof.options)
            self._break()
            for field in choices:
                self._field(field, scope, is_choice=True)

    def _field(self, field: FieldDescriptorProto, scope: _Scope, *, is_choice: bool) -> None:
        declared = scope.place_of(field) if field.type_name else None
        items = [*self._special_options(field), *self._options(field.options)]
        end = f" = {field.number}" + (f" [{', '.join(items)}]" if items else "")
        if declared is None:
            label = "" if is_choice else self._label(field)
            self._line(f"{label}{type_name(field)} {field.name}{end};")
            return
        scope.written = max(scope.written, declared + 1)
        message = scope.messages[declared]
        if message.options.map_entry:
            key, value = message.field
            self._line(f"map<{type_name(key)}, {type_name(value)}> {field.name}{end};")
            return
        label = "" if is_choice else self._label(field)
        with self._block(f"{label}group {message.name}{end}"):
            self._message_body(message, field.type_name)

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == _Field.LABEL_REPEATED:
            return "repeated "
        if field.label == _Field.LABEL_REQUIRED:
            return "required "
        return "optional " if self._shows_optional or field.proto3_optional else ""

    def _special_options(self, field: FieldDescriptorProto) -> Iterator[str]:
        """Yield the options that a descriptor keeps in the field itself."""
        if field.HasField("default_value"):
            default = field.default_value
            if field.type == _Field.TYPE_STRING:
                default = quoted(default)
            elif field.type == _Field.TYPE_BYTES:
                default = f'"{default}"'  # A descriptor has it escaped.
            yield f"default = {default}"
        # The name in JSON of an extension cannot be chosen.
        has_json_name = field.HasField("json_name") and not field.extendee
        if has_json_name and field.json_name != json_name_of(field.name):
            yield f"json_name = {quoted(field.json_name)}"

    def _extensions(self, fields: Sequence[FieldDescriptorProto], scope: _Scope) -> None:
        place = 0
        while place < len(fields):
            extendee, start = fields[place].extendee, place
            while place < len(fields) and fields[place].extendee == extendee:
                place += 1
            run = fields[start:place]
            self._messages_for(run, scope)
            self._break()
            with self._block(f"extend {extendee}"):
                for field in run:
                    self._field(field, scope, is_choice=False)

    def _enum(self, enum: EnumDescriptorProto) -> None:
        with self._block(f"{_VISIBILITIES[enum.visibility]}enum {enum.name}"):
            spans = [(span.start, span.end) for span in enum.reserved_range]
            self._reserved([_enum_range(*span) for span in spans], enum.reserved_name)
            self._option_lines(enum.options)
            self._section([self._enum_value(value) for value in enum.value])

    def _enum_value(self, value: EnumValueDescriptorProto) -> str:
        items = self._options(value.options)
        options = f" [{', '.join(items)}]" if items else ""
        return f"{value.name} = {value.number}{options};"

    def _service(self, service: ServiceDescriptorProto) -> None:
        with self._block(f"service {service.name}"):
            self._option_lines(service.options)
            if service.method:
                self._break()
            for method in service.method:
                self._method(method)

    def _method(self, method: MethodDescriptorProto) -> None:
        given = ("stream " if method.client_streaming else "") + method.input_type
        answer = ("stream " if method.server_streaming else "") + method.output_type
        head = f"rpc {method.name} ({given}) returns ({answer})"
        items = self._options(method.options)
        if not items:
            self._line(f"{head};")
            return
        with self._block(head):
            for item in items:
                self._line(f"option {item};")


def _has_message_after_entry(messages: Sequence[DescriptorProto]) -> bool:
    are_entries = [message.options.map_entry for message in messages]
    return True in are_entries and not all(are_entries[are_entries.index(True) :])


def _is_choice(field: FieldDescriptorProto, oneof_index: int) -> bool:
    return field.HasField("oneof_index") and field.oneof_index == oneof_index


def _range(start: int, end: int, most: int) -> str:
    """Return the numbers from `start` to before `end`, which is at most `most`."""
    return f"{start} to max" if end == most else _numbers(start, end - 1)


def _enum_range(start: int, last: int) -> str:
    return f"{start} to max" if last == ENUM_NUMBER_MAX else _numbers(start, last)


def _numbers(start: int, last: int) -> str:
    return str(start) if start == last else f"{start} to {last}"
