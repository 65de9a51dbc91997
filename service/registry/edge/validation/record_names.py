"""What a schema calls its records, read from its text alone: no library is needed for it."""

import re
from typing import Any, Final

import msgspec

from storage.schemas.source import SchemaType

_TOKEN: Final = re.compile(
    r""" "(?:\\.|[^"\\])*+" | '(?:\\.|[^'\\])*+'
      | \bpackage\s++(?P<package>[\w.]++)\s*+;
      | \bmessage\s++(?P<message>\w++)\s*+\{
      | (?P<open>\{) | (?P<close>\}) """,
    re.VERBOSE,
)


def record_names(kind: SchemaType, text: str) -> list[str]:
    """Return the names that a record of this schema may have; `text` is canonical."""
    if kind is SchemaType.PROTOBUF:
        return _messages(text)
    schema = msgspec.json.decode(text)
    found = _title(schema) if kind is SchemaType.JSON else _full_name(schema)
    return [found] if found else []


def _title(schema: Any) -> str:
    found = schema.get("title") if isinstance(schema, dict) else None
    return found if isinstance(found, str) else ""


def _full_name(schema: Any) -> str:
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        return ""
    name: str = schema["name"]
    space = schema.get("namespace")
    return name if "." in name or not space else f"{space}.{name}"


def _messages(text: str) -> list[str]:
    """Return the full names of all messages of a `.proto` file, which has no comments."""
    package, scopes, found = "", [""], []
    for token in _TOKEN.finditer(text):
        if token["package"]:
            package = scopes[0] = f"{token['package']}."
        elif token["message"]:
            name = scopes[-1] + token["message"]
            found.append(name)
            scopes.append(f"{name}.")
        elif token["open"]:
            scopes.append(scopes[-1])
        elif token["close"] and len(scopes) > 1:
            scopes.pop()
    assert all(name.startswith(package) for name in found), package
    return found
