"""Map entries written as messages, which Confluent's Java client sends and protoc refuses.

    repeated .acme.Order.TotalsEntry totals = 1;
    message TotalsEntry { option map_entry = true; string key = 1; int64 value = 2; }

is what that client makes of `map<string, int64> totals = 1` in a generated class. The option is
taken out before protoc reads the text, and put into the descriptor that it returns.
"""

import re
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

_TOKEN: Final = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
      | (?P<open>\{) | (?P<close>\})
      | \bmessage\s+(?P<message>\w+)\s*(?=\{)
      | (?P<option>\boption\s+map_entry\s*=\s*true\s*;)""",
    re.VERBOSE | re.DOTALL,
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
    """Set the option in the messages that `without_explicit_maps` found."""
    for path in entries:
        inner: DescriptorProto | FileDescriptorProto = file
        for name in path:
            nested = (
                inner.message_type
                if isinstance(inner, FileDescriptorProto)
                else (inner.nested_type)
            )
            inner = next(message for message in nested if message.name == name)
        assert isinstance(inner, DescriptorProto), path
        inner.options.map_entry = True
