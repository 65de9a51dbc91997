"""Options as `.proto` text: of any file, message, field, range, enum, service or method.

    option java_package = "a.b";                       file, message, oneof, enum, service, method
    [deprecated = true, (acme.unit) = {name: "kg"}]    field, value of an enum, range of extensions

Options are in the order of their numbers, which is also that of a descriptor. Maps are in the
order of their keys.
"""

import math
import struct
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_FEATURES: Final = "google.protobuf.FeatureSet"
_OCTAL: Final = {code: f"\\{code:03o}" for code in (*range(32), *range(127, 256))}
_SHORT: Final = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"})
_BYTE_ESCAPES: Final = _OCTAL | _SHORT
_ESCAPES: Final = {code: text for code, text in _BYTE_ESCAPES.items() if code < 128}


def option_items(options: Message, ambiguous: frozenset[str] = frozenset()) -> list[str]:
    """Return each option as `name = value`.

    A custom option is named from the root, with a dot in front, if the first part of its name is
    `ambiguous`: it may mean something else where it is used.
    """
    return [
        f"{name} = {value}"
        for field, found in options.ListFields()
        for name, value in _items(_name(field, ambiguous), field, found, ambiguous)
    ]


def quoted(text: str) -> str:
    """Return `text` as a literal: controls escaped, all other characters as they are."""
    return f'"{text.translate(_ESCAPES)}"'


def _quoted_bytes(value: bytes) -> str:
    # Latin-1 makes one character of each byte.
    return f'"{value.decode("latin-1").translate(_BYTE_ESCAPES)}"'


def _name(field: FieldDescriptor, ambiguous: frozenset[str]) -> str:
    if not field.is_extension:
        return str(field.name)
    dot = "." if field.full_name.partition(".")[0] in ambiguous else ""
    return f"({dot}{field.full_name})"


def _items(
    name: str, field: FieldDescriptor, found: Any, ambiguous: frozenset[str]
) -> Iterator[tuple[str, str]]:
    message = field.message_type
    if message is not None and message.full_name == _FEATURES:
        # A feature is set by its own name: that is how everybody writes them.
        for part, value in found.ListFields():
            yield from _items(f"{name}.{_name(part, ambiguous)}", part, value, ambiguous)
    elif field.is_repeated:
        for value in found:
            yield name, _value(field, value)
    else:
        yield name, _value(field, found)


def _value(field: FieldDescriptor, value: Any) -> str:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_MESSAGE:
            return _aggregate(value)
        case FieldDescriptor.CPPTYPE_ENUM:
            assert field.enum_type is not None, field.full_name
            known = field.enum_type.values_by_number.get(value)
            return str(value) if known is None else str(known.name)
        case FieldDescriptor.CPPTYPE_BOOL:
            return "true" if value else "false"
        case FieldDescriptor.CPPTYPE_STRING:
            return _quoted_bytes(value) if isinstance(value, bytes) else quoted(value)
        case FieldDescriptor.CPPTYPE_FLOAT:
            return _float_text(value)
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return _double_text(value)
    return str(value)


def _double_text(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def _float_text(value: float) -> str:
    """Return the shortest text that means this number of 32 bits."""
    if not math.isfinite(value):
        return _double_text(value)
    exact = struct.pack("<f", value)
    # Nine digits tell any two of them apart.
    candidates = (float(f"{value:.{digits}g}") for digits in range(1, 10))
    return next(repr(number) for number in candidates if _single(number) == exact)


def _single(number: float) -> bytes | None:
    try:
        return struct.pack("<f", number)
    except OverflowError:
        return None


def _aggregate(message: Message) -> str:
    """Return `{name: value, ...}`, which is Protobuf's text format on one line."""
    parts = []
    for field, found in message.ListFields():
        name = f"[{field.full_name}]" if field.is_extension else _text_name(field)
        values = list(_entries(field, found))
        parts.append(
            f"{name}: {values[0]}" if len(values) == 1 else f"{name}: [{', '.join(values)}]"
        )
    return f"{{{', '.join(parts)}}}"


def _text_name(field: FieldDescriptor) -> str:
    """Return the name of a field in text format: for a group that is the name of its type."""
    if field.type == FieldDescriptor.TYPE_GROUP and field.message_type is not None:
        own = str(field.message_type.name)
        return own if own.lower() == field.name else str(field.name)
    return str(field.name)


def _entries(field: FieldDescriptor, found: Any) -> Iterator[str]:
    if not field.is_repeated:
        yield _value(field, found)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        kinds = field.message_type.fields_by_name
        for key in sorted(found):
            value = _value(kinds["value"], found[key])
            yield f"{{key: {_value(kinds['key'], key)}, value: {value}}}"
    else:
        for value in found:
            yield _value(field, value)
