"""Records as the JSON of a fetch response: `records` items, NDJSON lines, or one SSE line.

    {"offset": 7, "timestamp": 1700000000000, "key": "k", "value": "v", "headers": []}

`value_format` says how bytes become JSON:

    text     a string; bytes that are not UTF-8 come as key_base64 or value_base64 instead
    json     the value itself, if it is JSON, embedded as it was stored; else as text. Keys
             stay text, so that a key such as 42 or true does not change its type. Keys and values
             that name a schema are decoded (`schema_fetch.py`)
    base64   always key_base64 and value_base64

A header's value is text, or `value_base64` when it is not UTF-8, whatever the format. Nothing
here contains a line break, so a record is always one line.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from service.http.bodies.fields import Base64
from service.http.bodies.schema_fetch import (
    HasSchemas,
    SchemaLookup,
    decoded_columns,
    names_schemas,
    rows_of,
)
from storage.reading.fetched import Batches, Data

ValueFormat: TypeAlias = Literal["text", "json", "base64"]

_Text: TypeAlias = str | UnsetType | None
_Bytes: TypeAlias = Base64 | UnsetType | None
_SchemaId: TypeAlias = Annotated[
    int | UnsetType, Meta(description="of the schema that it was decoded by")
]
_Error: TypeAlias = Annotated[str | UnsetType, Meta(description="why it comes as base64")]


class FetchedHeader(Struct, gc=False):
    key: str
    value: _Text = UNSET
    value_base64: _Bytes = UNSET


class _TextRecord(Struct, gc=False):
    offset: int
    timestamp: int
    key: str | None
    value: str | Raw | None
    headers: Sequence[FetchedHeader]


class _Base64Record(Struct, gc=False):
    offset: int
    timestamp: int
    key_base64: bytes | None
    value_base64: bytes | None
    headers: Sequence[FetchedHeader]


# The widest form, so the OpenAPI document shows it; for batches with bytes that are not UTF-8.
class FetchedRecord(Struct, gc=False):
    """A record; key and value as text, JSON or base64, or decoded by their schema."""

    offset: int
    timestamp: int
    key: _Text = UNSET
    key_base64: _Bytes = UNSET
    value: str | Raw | UnsetType | None = UNSET
    value_base64: _Bytes = UNSET
    headers: Sequence[FetchedHeader] = ()
    key_schema_id: _SchemaId = UNSET
    key_error: _Error = UNSET
    value_schema_id: _SchemaId = UNSET
    value_error: _Error = UNSET


_ENCODER: Final = msgspec.json.Encoder()
_JSON: Final = msgspec.json.Decoder(Raw)
_JSON_STARTS: Final = frozenset('{["-0123456789tfn \t\r\n')
_NO_HEADERS: Final[tuple[FetchedHeader, ...]] = ()


def json_pieces(
    batches: Batches,
    *,
    value_format: ValueFormat = "text",
    schemas: SchemaLookup | None = None,
) -> list[Data]:
    """Return pieces that, concatenated, are the JSON array of the records.

    One piece per batch, so that only one batch at a time is in memory as Python objects.

    With `value_format` json, raises `HasSchemas` for records that name schemas, if it has none.
    """
    pieces: list[Data] = []
    for batch in batches:
        encoded = memoryview(_ENCODER.encode([*_records([batch], value_format, schemas)]))
        if len(encoded) > len(b"[]"):
            pieces += [b"," if pieces else b"[", encoded[1:-1]]
    return [*(pieces or [b"["]), b"]"]


def ndjson_pieces(
    batches: Batches,
    *,
    value_format: ValueFormat = "text",
    schemas: SchemaLookup | None = None,
) -> list[Data]:
    """Return pieces that, concatenated, are the records, one per line, each line ended."""
    return [_ENCODER.encode_lines([*_records([batch], value_format, schemas)]) for batch in batches]


def encode_each(
    batches: Batches,
    *,
    value_format: ValueFormat = "text",
    schemas: SchemaLookup | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the JSON of every record: the id and data of server-sent events."""
    for record in _records(batches, value_format, schemas):
        yield record.offset, _ENCODER.encode(record)


def _records(
    batches: Batches, value_format: ValueFormat, schemas: SchemaLookup | None
) -> Iterator[Any]:
    for offsets, batch in batches:
        if value_format == "base64":
            yield from _base64_records(offsets, batch)
        else:
            yield from _text_records(offsets, batch, value_format == "json", schemas)


def _base64_records(offsets: Sequence[int], batch: pa.RecordBatch) -> Iterator[_Base64Record]:
    timestamps, keys, values, headers = batch.columns
    return map(
        _Base64Record,
        offsets,
        timestamps.to_pylist(),
        keys.to_pylist(),
        values.to_pylist(),
        _headers(headers),
    )


def _text_records(
    offsets: Sequence[int], batch: pa.RecordBatch, as_json: bool, schemas: SchemaLookup | None
) -> Iterator[Any]:
    timestamps = batch.column("timestamp").to_pylist()
    keys = _texts(batch.column("key"))
    values = _texts(batch.column("value"))
    names = _header_names(batch.column("headers"))
    if as_json:
        # What begins a value with a schema is no JSON, so few values are looked at again.
        values = [_embedded(value) for value in values]
        if names_schemas(keys, values, names):
            if schemas is None:
                raise HasSchemas
            return _decoded_records(offsets, batch, schemas)
    headers = _headers(batch.column("headers"), names)
    if bytes not in {*map(type, keys), *map(type, values)}:
        return map(_TextRecord, offsets, timestamps, keys, values, headers)
    return map(FetchedRecord, offsets, timestamps, *_split(keys), *_split(values), headers)


def _decoded_records(
    offsets: Sequence[int], batch: pa.RecordBatch, schemas: SchemaLookup
) -> Iterator[FetchedRecord]:
    timestamps = batch.column("timestamp").to_pylist()
    headers = _headers(batch.column("headers"))
    keys, values = decoded_columns(batch, schemas)
    values.plain = [
        _embedded(value) if schema_id is UNSET else value
        for value, schema_id in zip(values.plain, values.ids, strict=True)
    ]
    for offset, timestamp, key, value, those in zip(
        offsets, timestamps, rows_of(keys), rows_of(values), headers, strict=True
    ):
        yield FetchedRecord(
            offset, timestamp, key[0], key[1], value[0], value[1], those, *key[2:], *value[2:]
        )


def _texts(column: pa.Array) -> list[Any]:
    """Return str where the bytes are UTF-8, else the bytes."""
    try:
        return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        return [_text(value) for value in column.to_pylist()]


def _text(value: bytes | None) -> str | bytes | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _split(fields: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the text and the base64 form of fields: one of the two is left out of each."""
    return (
        [UNSET if type(field) is bytes else field for field in fields],
        [field if type(field) is bytes else UNSET for field in fields],
    )


def _embedded(value: Any) -> Any:
    """Return `value` as JSON within JSON, on one line, if it is JSON."""
    # The first character rules out most text that is not JSON; an exception costs more.
    if not isinstance(value, str) or value[:1] not in _JSON_STARTS:
        return value
    try:
        raw = _JSON.decode(value)
        if "\n" in value or "\r" in value:
            return Raw(msgspec.json.format(bytes(raw), indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return value
    return raw


def _header_names(column: pa.ListArray) -> Sequence[str]:
    if column.null_count == len(column):
        return ()
    names: list[str] = column.flatten().field("key").to_pylist()
    return names


def _headers(
    column: pa.ListArray, names: Sequence[str] | None = None
) -> Sequence[Sequence[FetchedHeader]]:
    count = len(column)
    if column.null_count == count:
        return [_NO_HEADERS] * count
    names = _header_names(column) if names is None else names
    values = column.flatten().field("value")
    flat = [*map(FetchedHeader, names, *_split(_texts(values)))]
    headers: list[Sequence[FetchedHeader]] = []
    start = 0
    for size in column.value_lengths().to_pylist():
        end = start + (size or 0)
        headers.append(flat[start:end])
        start = end
    return headers
