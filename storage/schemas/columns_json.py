"""JSON Schema as columns.

    object with properties        struct of the declared ones
    array with items              list
    string                        text; with format date or date-time: date, timestamp
    integer, number, boolean      64 bits, double, boolean
    null and one other type       that type
    everything else               JSON text

Values are compared with their schema nowhere but here, so each field is null by itself if its value
has another type than declared.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from storage.schemas.columns import (
    JSON_TEXT,
    CellsLeft,
    SchemaPart,
    each_or_none,
    is_column_name,
)

Convert: TypeAlias = Callable[[Any], Any]
Typed: TypeAlias = tuple[pa.DataType, Convert]

INT64: Final = range(-(2**63), 2**63)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value in INT64 and value is not True else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value is not True else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _date(value: Any) -> date | None:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def _time(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(value)
        return None if found.tzinfo is None else found.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_STRING: Final[Typed] = (pa.string(), _text)
_FORMATS: Final[dict[str, Typed]] = {
    "date": (pa.date32(), _date),
    "date-time": (pa.timestamp("us", "UTC"), _time),
}
_SIMPLE: Final[dict[str, Typed]] = {
    "integer": (pa.int64(), _integer),
    "number": (pa.float64(), _number),
    "boolean": (pa.bool_(), _boolean),
}
_OTHER: Final[Typed] = (JSON_TEXT, _json_text)
_CHOICES: Final = ("oneOf", "anyOf")
_MIXED: Final = ("allOf", "if", "not", "$dynamicRef", "$recursiveRef")
"""What these say of types is for a validator to find out."""


class JsonDecoder:
    """Reads JSON that one schema describes."""

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        """Read values of the schema with that text; `references` are texts by their URL."""
        documents = {url: json.loads(each) for url, each in (references or {}).items()}
        self._cells = CellsLeft()
        self.type, self._convert = _Types(json.loads(text), documents, self._cells).root()

    def decode(self, data: Sequence[bytes]) -> list[Any]:
        convert, parse, cells = self._convert, msgspec.json.Decoder().decode, self._cells

        def read(each: bytes) -> Any:
            cells.begin()
            value = parse(each)
            return None if value is None else convert(value)

        return each_or_none(read, data)


class _Types:
    def __init__(self, document: Any, documents: Mapping[str, Any], cells: CellsLeft) -> None:
        self._cells = cells
        self._document = document
        self._documents = documents

    def root(self) -> Typed:
        return self._typed(self._document, self._document, SchemaPart())

    def _typed(self, schema: Any, document: Any, place: SchemaPart) -> Typed:
        if not isinstance(schema, dict) or place.is_deep:
            return _OTHER
        if isinstance(schema.get("$ref"), str):
            return self._referenced(schema["$ref"], document, place)
        if any(name in schema for name in _MIXED):
            return _OTHER
        for name in _CHOICES:
            if isinstance(schema.get(name), list):
                some = [each for each in schema[name] if each != {"type": "null"}]
                return self._typed(some[0], document, place.within()) if len(some) == 1 else _OTHER
        return self._of_type(schema, document, place)

    def _of_type(self, schema: dict[str, Any], document: Any, place: SchemaPart) -> Typed:
        kind = schema.get("type")
        if isinstance(kind, list):
            some = [each for each in kind if each != "null"]
            kind = some[0] if len(some) == 1 else None
        properties, items = schema.get("properties"), schema.get("items")
        if isinstance(properties, dict) and kind in ("object", None):
            return self._object(properties, document, place)
        if isinstance(items, dict) and kind == "array":
            return self._array(items, document, place)
        if kind == "string":
            return _FORMATS.get(str(schema.get("format")), _STRING)
        return _SIMPLE.get(str(kind), _OTHER)

    def _referenced(self, reference: str, document: Any, place: SchemaPart) -> Typed:
        """Return the type of what a `$ref` names; itself inside itself is JSON text."""
        if reference in place:
            return _OTHER
        url, _, pointer = reference.partition("#")
        found = self._documents.get(url) if url else document
        document = found
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        if pointer and not pointer.startswith("/"):
            return _OTHER
        return self._typed(found, document, place.within(reference))

    def _object(self, properties: dict[str, Any], document: Any, place: SchemaPart) -> Typed:
        typed = {
            name: self._typed(each, document, place.within())
            for name, each in properties.items()
            if is_column_name(name)
        }
        if not typed:
            return _OTHER
        converts = {name: convert for name, (_, convert) in typed.items()}

        def convert(value: Any) -> dict[str, Any] | None:
            if not isinstance(value, dict):
                return None
            return {
                name: None if each is None else converts[name](each)
                for name, each in value.items()
                if name in converts
            }

        return pa.struct([pa.field(name, kind) for name, (kind, _) in typed.items()]), convert

    def _array(self, items: dict[str, Any], document: Any, place: SchemaPart) -> Typed:
        kind, change = self._typed(items, document, place.within())

        def convert(value: Any) -> list[Any] | None:
            if not isinstance(value, list):
                return None
            self._cells.take(len(value), kind)
            return [None if each is None else change(each) for each in value]

        return pa.list_(kind), convert
