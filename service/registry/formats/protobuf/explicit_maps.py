"""Map entries written as messages, which Confluent's Java client sends and protoc refuses.

    repeated .acme.Order.TotalsEntry totals = 1;
    message TotalsEntry { option map_entry = true; string key = 1; int64 value = 2; }

is what that client makes of `map<string, int64> totals = 1` in a generated class. The option is
taken out before protoc reads the text, and put into the descriptor that it returns.
"""

import re
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from storage.schemas.source import InvalidSchema

# Repetitions are possessive, and what is never closed reaches to the end of its line or of the
# text: no text is looked at twice.
_TOKEN: Final = re.compile(
    r"""//[^\n]*+ | /\*.*?(?:\*/|\Z)
      | "(?:\\.|[^"\\\n])*+ "? | '(?:\\.|[^'\\\n])*+ '?
      | (?P<open>\{) | (?P<close>\})
      | \bmessage\s++(?P<message>\w++)\s*+(?=\{)
      | (?P<option>\boption\s++map_entry\s*+=\s*+true\s*+;)""",
    re.VERBOSE | re.DOTALL,
)

_OPTIONAL: Final = FieldDescriptorProto.LABEL_OPTIONAL
_ENTRY_FIELDS: Final = [("key", 1, _OPTIONAL), ("value", 2, _OPTIONAL)]
_KEY_TYPES: Final = frozenset(
    kind
    for name, kind in FieldDescriptorProto.Type.items()
    if name.endswith(("INT32", "INT64", "FIXED32", "FIXED64", "BOOL", "STRING"))
)

MapEntries = frozenset[tuple[str, ...]]
"""The messages that are entries, as paths of names."""


def without_explicit_maps(text: str) -> tuple[str, MapEntries]:
    """Return `text` without the option, and the messages that have it."""
    if "map_entry" not in text:
        return text, frozenset()
    parts: list[str] = []
    found: set[tuple[str, ...]] = set()
    path: list[str] = []
    coming, end = "", 0
    for token in _TOKEN.finditer(text):
        if token["message"]:
            coming = token["message"]
        elif token["open"]:
            path.append(coming)
            coming = ""
        elif token["close"] and path:
            path.pop()
        elif token["option"] and path and all(path):
            # Blanks keep the lines and columns of what protoc may complain about.
            parts += [text[end : token.start()], re.sub(r"\S", " ", token[0])]
            end = token.end()
            found.add(tuple(path))
    return "".join([*parts, text[end:]]), frozenset(found)


def mark_maps(file: FileDescriptorProto, entries: MapEntries) -> None:
    """Set the option in the messages that `without_explicit_maps` found.

    Raises `InvalidSchema` if one of them is not what `map<...>` makes.
    """
    if not entries:
        return
    for message in file.message_type:
        if (message.name,) in entries:
            raise _no_entry(message.name)
        prefix = f".{file.package}" if file.package else ""
        _mark(message, entries, (message.name,), f"{prefix}.{message.name}")


def _mark(
    message: DescriptorProto, entries: MapEntries, path: tuple[str, ...], full_name: str
) -> None:
    fields = {field.type_name: field for field in message.field if field.type_name}
    for nested in message.nested_type:
        name = f"{full_name}.{nested.name}"
        inner = (*path, nested.name)
        if inner in entries:
            field = fields.get(name)
            if field is None or not _is_entry(nested, field):
                raise _no_entry(".".join(inner))
            nested.options.map_entry = True
        _mark(nested, entries, inner, name)


def _is_entry(entry: DescriptorProto, field: FieldDescriptorProto) -> bool:
    """Return whether `map<...>` in place of `field` would make `entry`."""
    name = "".join(word[:1].upper() + word[1:] for word in field.name.split("_"))
    fields = [(each.name, each.number, each.label) for each in entry.field]
    only = DescriptorProto(name=f"{name}Entry", field=entry.field)
    if entry.HasField("options"):
        only.options.CopyFrom(entry.options)
    return (
        entry == only
        and field.label == FieldDescriptorProto.LABEL_REPEATED
        and fields == _ENTRY_FIELDS
        and entry.field[0].type in _KEY_TYPES
    )


def _no_entry(name: str) -> InvalidSchema:
    return InvalidSchema(
        f"the message {name!r:.500} has the option map_entry, and is not the entry of a map: write"
        " map<key, value> in the field instead"
    )
