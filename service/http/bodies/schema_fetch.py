"""Fetched records whose keys or values name a schema, decoded to JSON.

    {"offset": 7, …, "value": {"amount": 3}, "value_schema_id": 1, "headers": []}
    {"offset": 8, …, "value_base64": "AAAAAAkG", "value_error": "schema 9 not found", "headers": []}

What cannot be decoded is base64, with the reason: a fetch never fails because of a record.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa
from msgspec import UNSET, Raw

from storage.schemas.codec import Codec
from storage.schemas.framing import KEY_HEADER, VALUE_HEADER, split, split_header
from storage.schemas.source import SchemaType

_TEXTS: Final = frozenset({str, bytes})
_FRAME_STARTS: Final[frozenset[str | bytes]] = frozenset({"\x00", b"\x00"})
"""What keys and values begin with that may name a schema, as text or bytes."""

_NAMES: Final = frozenset({KEY_HEADER, VALUE_HEADER})
_RAW: Final = msgspec.json.Decoder(Raw)


@dataclass(frozen=True, slots=True)
class FoundSchema:
    """A schema with its codec."""

    schema_id: int
    type: SchemaType
    codec: Codec


class SchemaLookup(Protocol):
    """The schemas that a reader may use."""

    def find(self, name: int | str) -> FoundSchema | str | None:
        """Return the schema with an id or a GUID, or why there is none.

        None: that is not known yet; it will be, when all that is missing has been looked up.
        """


class HasSchemas(Exception):
    """Raised by an encoder that was given no schemas, for records that name some."""


@dataclass(slots=True)
class SchemaColumn:
    """Keys or values, and what is said of them: each list has an item for each record."""

    plain: list[Any]
    base64: list[Any]
    ids: list[Any]
    errors: list[Any]


def names_schemas(keys: Sequence[Any], values: Sequence[Any], names: Sequence[str]) -> bool:
    """Whether a record may name a schema.

    `keys` and `values` are text, or bytes where they are none; `values` that are JSON are raw.
    `names` are those of all headers.
    """
    kinds = {*map(type, values)}
    if (str in kinds or bytes in kinds) and _have_frames(values):
        return True
    try:
        if "\x00" in "".join(filter(None, keys)):
            return True
    except TypeError:  # Some are bytes.
        if _have_frames(keys):
            return True
    return bool(names) and not _NAMES.isdisjoint(names)


def _have_frames(fields: Sequence[Any]) -> bool:
    return any(type(each) in _TEXTS and each[:1] in _FRAME_STARTS for each in fields)


def decoded_columns(
    batch: pa.RecordBatch, schemas: SchemaLookup
) -> tuple[SchemaColumn, SchemaColumn]:
    """Return the keys and the values of records."""
    headers = batch.column("headers").to_pylist()
    return (
        _decoded(batch.column("key"), headers, KEY_HEADER, schemas),
        _decoded(batch.column("value"), headers, VALUE_HEADER, schemas),
    )


def _decoded(
    column: pa.Array, headers: Sequence[Any], header: str, schemas: SchemaLookup
) -> SchemaColumn:
    data: list[bytes | None] = column.to_pylist()
    count = len(data)
    found = SchemaColumn([UNSET] * count, [UNSET] * count, [UNSET] * count, [UNSET] * count)
    named: dict[int | str, tuple[list[int], list[bytes]]] = {}
    for row, (value, those) in enumerate(zip(data, headers, strict=True)):
        mark = None if value is None else _mark(value, those, header)
        if mark is None or value is None:
            _plain(found, row, value)
        else:
            rows, bodies = named.setdefault(mark[0], ([], []))
            rows.append(row)
            bodies.append(mark[1])
    for name, (rows, bodies) in named.items():
        _decode(found, data, rows, bodies, schemas.find(name))
    return found


def _mark(value: bytes, headers: Any, header: str) -> tuple[int | str, bytes] | None:
    """Return the id or the GUID of the schema of a value, and its body."""
    for each in reversed(headers or ()):
        if each["key"] == header:
            named = split_header(each["value"] or b"")
            return split(value) if named is None else (named[0], named[1] + value)
    return split(value)


def _plain(found: SchemaColumn, row: int, value: bytes | None) -> None:
    """Note a value without a schema, as text or bytes."""
    if value is None:
        found.plain[row] = None
        return
    try:
        found.plain[row] = value.decode()
    except UnicodeDecodeError:
        found.base64[row] = value


def _decode(
    found: SchemaColumn,
    data: Sequence[bytes | None],
    rows: Sequence[int],
    bodies: Sequence[bytes],
    schema: FoundSchema | str | None,
) -> None:
    if schema is None:
        return
    if isinstance(schema, str):
        for row in rows:
            found.base64[row], found.errors[row] = data[row], schema
        return
    values, errors = _values(schema, bodies)
    for at, row in enumerate(rows):
        found.ids[row] = schema.schema_id
        if at in errors:
            found.base64[row], found.errors[row] = data[row], errors[at]
        else:
            found.plain[row] = values[at]


def _values(schema: FoundSchema, bodies: Sequence[bytes]) -> tuple[Sequence[Any], dict[int, str]]:
    if schema.type is not SchemaType.JSON:
        decoded = schema.codec.decode_many(bodies)
        return decoded.values, {
            each.index: f"{each.path}: {each.reason}" if each.path else each.reason
            for each in decoded.refused
        }
    values: list[Any] = []
    errors: dict[int, str] = {}
    for at, body in enumerate(bodies):
        try:
            # As it was stored, on one line.
            body.decode()
            raw = _RAW.decode(body)
            if b"\n" in body or b"\r" in body:
                raw = Raw(msgspec.json.format(bytes(raw), indent=-1))
            values.append(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            values.append(None)
            errors[at] = f"it is not JSON: {error}"
    return values, errors


def rows_of(column: SchemaColumn) -> Iterator[tuple[Any, Any, Any, Any]]:
    return zip(column.plain, column.base64, column.ids, column.errors, strict=True)
