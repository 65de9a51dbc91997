"""Avro as columns.

    record                            struct
    array, map                        list, map of text
    null and one other type           that type
    int and long, float and double    the wider one
    other unions, recursion           JSON text
    bytes, fixed                      binary
    decimal                           decimal up to 38 digits, else text
    date, timestamp-*, time-*         date, timestamp and time in microseconds
    enum, uuid                        text

Logical types are read as what they are stored as, and given their meaning by Arrow: `datetime` has
no year 10000, and takes longer.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from functools import partial
from io import BytesIO
from typing import Any, Final, TypeAlias

import pyarrow as pa

from storage.schemas.columns import DECIMAL_DIGITS_MAX, JSON_TEXT, SchemaPart, decode_each

Convert: TypeAlias = Callable[[Any], Any]
Typed: TypeAlias = tuple[pa.DataType, Convert | None]
"""A type, and what makes values of it from what the library returns; None: nothing to do."""

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_UTC: Final = pa.timestamp("us", "UTC")
_LOCAL: Final = pa.timestamp("us")
_LOGICAL: Final[dict[tuple[str, str], Typed]] = {
    ("int", "date"): (pa.date32(), None),
    ("int", "time-millis"): (pa.time64("us"), lambda value: value * 1000),
    ("long", "time-micros"): (pa.time64("us"), None),
    ("long", "timestamp-millis"): (_UTC, lambda value: value * 1000),
    ("long", "timestamp-micros"): (_UTC, None),
    ("long", "timestamp-nanos"): (_UTC, lambda value: value // 1000),
    ("long", "local-timestamp-millis"): (_LOCAL, lambda value: value * 1000),
    ("long", "local-timestamp-micros"): (_LOCAL, None),
    ("long", "local-timestamp-nanos"): (_LOCAL, lambda value: value // 1000),
}
_WIDER: Final = (("int", "long"), ("float", "double"))
_RECURSIVE_BYTES_MAX: Final = 1000
"""Data of a recursive schema that is longer is not read: each byte may be a call in a call, and the
library, which is C, would end the process."""

_EXACT: Final = Context(prec=2 * DECIMAL_DIGITS_MAX)


class AvroDecoder:
    """Reads Avro's binary encoding of one schema."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        """Read data of the schema with that text; `references` are what it refers to, in order.

        Raises `ValueError` if it has no columns.
        """
        import fastavro

        named: dict[str, Any] = {}
        for each in references:
            fastavro.parse_schema(_plain(json.loads(each)), named)
        schema = fastavro.parse_schema(_plain(json.loads(text)), named)
        if _costs_nothing(schema, named):
            raise ValueError("an array may have any number of items in no bytes")
        typed = _typed(schema, named, SchemaPart())
        if typed is None:
            raise ValueError("it has no values")
        self.type, self._convert = typed
        self._bytes_max = _RECURSIVE_BYTES_MAX if _is_recursive(schema, named) else None
        self._read = partial(fastavro.schemaless_reader, writer_schema=schema, reader_schema=None)

    def decode(self, data: Sequence[bytes]) -> list[Any]:
        read, convert = self._read, self._convert
        if self._bytes_max is not None:
            data = [each if len(each) <= self._bytes_max else b"" for each in data]
        if convert is None:
            return decode_each(lambda each: read(BytesIO(each)), data)
        return decode_each(lambda each: convert(read(BytesIO(each))), data)


def _plain(schema: Any) -> Any:
    """Return the schema with its logical types under a name that the library ignores."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _plain(each) if name != "default" else each for name, each in schema.items()}
    if "logicalType" in found:
        found["_logical"] = found.pop("logicalType")
    return found


Names: TypeAlias = Mapping[str, Any]


def _typed(schema: Any, named: Names, place: SchemaPart) -> Typed | None:
    """Return type and conversion of a schema; None: it has no values but null."""
    if place.is_deep:
        return _json_text()
    if isinstance(schema, list):
        return _union(schema, named, place)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in named and isinstance(schema, str):
        return _json_text() if kind in place else _typed(named[kind], named, place)
    if isinstance(kind, dict | list):
        return _typed(kind, named, place)
    attributes = schema if isinstance(schema, dict) else {}
    if kind in ("record", "error"):
        return _record(attributes, named, place)
    if kind in ("array", "map"):
        return _items(kind, attributes, named, place)
    return None if kind == "null" else _leaf(kind, attributes)


def _leaf(kind: str, attributes: Mapping[str, Any]) -> Typed:
    logical = attributes.get("_logical", "")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(attributes)
    if kind == "enum":
        return pa.string(), None
    if kind == "fixed":
        return pa.binary(), None
    return _LOGICAL.get((kind, logical)) or (_SIMPLE[kind], None)


def _decimal(attributes: Mapping[str, Any]) -> Typed:
    digits, scale = int(attributes["precision"]), int(attributes.get("scale", 0))

    def number(value: bytes) -> Decimal:
        return _EXACT.scaleb(Decimal(int.from_bytes(value, "big", signed=True)), -scale)

    if not 0 <= scale <= digits or not 1 <= digits <= DECIMAL_DIGITS_MAX:
        return pa.string(), lambda value: str(number(value))
    return pa.decimal128(digits, scale), number


def _record(schema: Mapping[str, Any], named: Names, place: SchemaPart) -> Typed | None:
    fields: list[pa.Field] = []
    converts: list[tuple[str, Convert]] = []
    for each in schema["fields"]:
        typed = _typed(each["type"], named, place.within(schema["name"]))
        if typed is None:
            continue
        fields.append(pa.field(each["name"], typed[0]))
        if typed[1] is not None:
            converts.append((each["name"], typed[1]))
    if not fields:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for name, change in converts:
            if (found := value[name]) is not None:
                value[name] = change(found)
        return value

    return pa.struct(fields), convert if converts else None


def _items(kind: str, schema: Mapping[str, Any], named: Names, place: SchemaPart) -> Typed:
    typed = _typed(schema["items" if kind == "array" else "values"], named, place.within())
    if typed is None:
        return _json_text()
    inner, change = typed
    if kind == "map":
        if change is None:
            return pa.map_(pa.string(), inner), lambda value: list(value.items())
        return pa.map_(pa.string(), inner), lambda value: [
            (key, None if each is None else change(each)) for key, each in value.items()
        ]
    if change is None:
        return pa.list_(inner), None
    return pa.list_(inner), lambda value: [None if each is None else change(each) for each in value]


def _union(schema: list[Any], named: Names, place: SchemaPart) -> Typed | None:
    branches = [each for each in schema if each != "null"]
    for narrow, wide in _WIDER:
        if sorted(map(str, branches)) == sorted((narrow, wide)):
            branches = [wide]
    if not branches:
        return None
    return _typed(branches[0], named, place) if len(branches) == 1 else _json_text()


def _json_text() -> Typed:
    return JSON_TEXT, lambda value: json.dumps(value, ensure_ascii=False, default=_in_json)


def _in_json(value: Any) -> str:
    # Avro's own JSON has the bytes of strings and fixed as these characters.
    if isinstance(value, bytes):
        return value.decode("latin-1")
    raise TypeError(f"{type(value)} is not JSON")


def _is_recursive(schema: Any, named: Names) -> bool:
    """Whether values may hold values of the same type, to any depth."""
    done: set[str] = set()

    def look(part: Any, around: tuple[str, ...]) -> bool:
        if isinstance(part, str):
            if part in around:
                return True
            if part in done or part not in named:
                return False
            done.add(part)
            part = named[part]
        if isinstance(part, dict) and "name" in part:
            around = (*around, part["name"])
        return any(look(each, around) for each in _inner(part))

    return look(schema, ())


def _inner(part: Any) -> list[Any]:
    """Return the schemas in a schema."""
    if not isinstance(part, dict):
        return list(part)
    found = [each["type"] for each in part.get("fields", ())]
    found += [part[name] for name in ("items", "values") if name in part]
    return [*found, part["type"]] if isinstance(part["type"], dict | list) else found


def _costs_nothing(schema: Any, named: Names) -> bool:
    """Whether a few bytes may mean an array of any length."""
    seen: set[str] = set()

    def look(part: Any) -> bool:
        if isinstance(part, str):
            if part in seen or part not in named:
                return False
            seen.add(part)
            part = named[part]
        is_array = isinstance(part, dict) and part["type"] == "array"
        if is_array and _bytes_min(part["items"], named, {}) == 0:
            return True
        return any(map(look, _inner(part)))

    return look(schema)


def _bytes_min(schema: Any, named: Names, known: dict[str, int]) -> int:
    """Return 0 if values of the schema may have no bytes, else 1; `known` for those with names."""
    if isinstance(schema, list):
        return 1
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(schema, str) and kind in named:
        if kind not in known:
            # What contains itself does so in an array, a map or a union, which have bytes.
            known[kind] = 1
            known[kind] = _bytes_min(named[kind], named, known)
        return known[kind]
    if isinstance(kind, dict | list):
        return _bytes_min(kind, named, known)
    if kind in ("record", "error"):
        return max((_bytes_min(each["type"], named, known) for each in schema["fields"]), default=0)
    if kind == "fixed":
        return min(1, int(schema["size"]))
    return int(kind != "null")
