"""Avro as columns.

    record                            struct
    array, map                        list, map of text
    null and one other type           that type
    int and long, float and double    the wider one
    other unions, recursion           JSON text
    bytes, fixed                      binary
    decimal                           decimal up to 38 digits, else binary
    date, timestamp-*, time-*         date, timestamp and time in microseconds
    enum, uuid                        text

Logical types are read as what they are stored as, and given their meaning by Arrow: `datetime` has
no year 10000, and takes longer.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from storage.schemas.avro.codec import AvroCodec
from storage.schemas.avro.types import AvroArray, AvroMap, AvroNamed, AvroType, AvroUnion
from storage.schemas.columns import (
    DECIMAL_DIGITS_MAX,
    JSON_TEXT,
    SchemaPart,
    each_or_none,
    is_column_name,
)
from storage.schemas.source import Named, SchemaSource

Convert: TypeAlias = Callable[[Any], Any]
Typed: TypeAlias = tuple[pa.DataType, Convert | None]
"""A type, and what makes values of it from what the codec returns; None: nothing to do."""

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
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
_HIDDEN: Final = "riacho.logical"
"""What `logicalType` is called in the schema that the codec reads."""

_WIDER: Final = (("int", "long"), ("float", "double"))
_EXACT: Final = Context(prec=2 * DECIMAL_DIGITS_MAX)


class AvroDecoder:
    """A `Decoder` of Avro."""

    def __init__(self, source: SchemaSource) -> None:
        """Read data of a schema; raises `ValueError` if it has no columns."""
        plain = tuple(Named(each.name, _plain(each.text)) for each in source.references)
        self._codec = AvroCodec(SchemaSource(source.type, _plain(source.text), plain), natural=True)
        typed = _typed(self._codec.tree, SchemaPart())
        if typed is None:
            raise ValueError("it has no values")
        self.type, self._convert = typed

    def decode(self, data: Sequence[bytes]) -> list[Any]:
        values, convert = self._codec.decode_many(data).values, self._convert
        if convert is None:
            return values
        return each_or_none(lambda each: None if each is None else convert(each), values)


def _plain(text: str) -> str:
    """Return a schema whose logical types have another name, so the codec leaves values alone."""
    try:
        return json.dumps(_hidden(json.loads(text)))
    except ValueError:
        return text  # The name of a type, without quotes.


def _hidden(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_hidden(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _hidden(each) if name != "default" else each for name, each in schema.items()}
    if "logicalType" in found:
        found[_HIDDEN] = found.pop("logicalType")
    return found


def _typed(tree: AvroType, part: SchemaPart) -> Typed | None:
    """Return type and conversion of a schema; None: it has no values but null."""
    if part.is_deep:
        return _json_text()
    if isinstance(tree, AvroUnion):
        return _union(tree, part)
    if isinstance(tree, AvroArray):
        return _array(tree, part)
    if isinstance(tree, AvroMap):
        return _map(tree, part)
    if isinstance(tree, AvroNamed) and tree.kind in ("record", "error"):
        return _json_text() if tree.full_name in part else _record(tree, part)
    return None if tree.kind == "null" else _leaf(tree.kind, tree.props)


def _leaf(kind: str, props: Mapping[str, Any]) -> Typed:
    logical = props.get(_HIDDEN)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(props) or (pa.binary(), None)
    return _LOGICAL.get((kind, str(logical))) or (_SIMPLE[kind], None)


def _decimal(props: Mapping[str, Any]) -> Typed | None:
    """Return the type of decimals; None: Avro says to ignore it, because it is not valid."""
    digits, scale = props.get("precision"), props.get("scale", 0)
    if not isinstance(digits, int) or not isinstance(scale, int) or not 0 <= scale <= digits:
        return None

    def number(value: bytes) -> Decimal:
        return _EXACT.scaleb(Decimal(int.from_bytes(value, "big", signed=True)), -scale)

    if not 1 <= digits <= DECIMAL_DIGITS_MAX:
        return None
    return pa.decimal128(digits, scale), number


def _record(tree: AvroNamed, part: SchemaPart) -> Typed | None:
    fields: list[pa.Field] = []
    converts: list[tuple[str, Convert]] = []
    for each in tree.fields:
        typed = _typed(each.type, part.within(tree.full_name))
        if typed is None or not is_column_name(each.name):
            continue
        fields.append(pa.field(each.name, typed[0]))
        if typed[1] is not None:
            converts.append((each.name, typed[1]))
    if not fields:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for name, change in converts:
            if (found := value[name]) is not None:
                value[name] = change(found)
        return value

    return pa.struct(fields), convert if converts else None


def _array(tree: AvroArray, part: SchemaPart) -> Typed:
    typed = _typed(tree.items, part.within())
    if typed is None:
        return _json_text()
    inner, change = typed
    if change is None:
        return pa.list_(inner), None
    return pa.list_(inner), lambda value: [None if each is None else change(each) for each in value]


def _map(tree: AvroMap, part: SchemaPart) -> Typed:
    typed = _typed(tree.values, part.within())
    if typed is None:
        return _json_text()
    inner, change = typed
    if change is None:
        return pa.map_(pa.string(), inner), lambda value: list(value.items())
    return pa.map_(pa.string(), inner), lambda value: [
        (key, None if each is None else change(each)) for key, each in value.items()
    ]


def _union(tree: AvroUnion, part: SchemaPart) -> Typed | None:
    branches = [each for each in tree.branches if each.kind != "null"]
    if not branches:
        return None
    for narrow, wide in _WIDER:
        plain = all(not getattr(each, "props", {}).get(_HIDDEN) for each in branches)
        if plain and sorted(each.kind for each in branches) == sorted((narrow, wide)):
            return _SIMPLE[wide], None
    return _typed(branches[0], part) if len(branches) == 1 else _json_text()


def _json_text() -> Typed:
    return JSON_TEXT, lambda value: msgspec.json.encode(value).decode()
