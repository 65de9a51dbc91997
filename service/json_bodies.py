"""JSON and NDJSON produce bodies, decoded to Arrow.

    {"records": [{"key", "value", "headers", "timestamp", "partition"}]}      or one per line

Every field may be left out. A string stands for its UTF-8 bytes, null for null, any other
JSON for its text exactly as it was sent; `key_base64` and `value_base64` carry other bytes.
`headers` is an object, or an array of {"key", "value" | "value_base64"}.

Mostly keys and values are strings, and a typed decoder makes them in one pass. It refuses
anything else, and then a second decoder keeps each value's text as it finds it. What that
one refuses is the sender's mistake, so it is also where errors get their words.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import Meta, Raw, Struct

from service.json_errors import explained, not_json
from service.record_limits import RecordLimits, check_batch, check_count
from storage.errors import InvalidRequest
from storage.records import HEADERS_TYPE, RECORD_SCHEMA

Decoded: TypeAlias = "tuple[pa.RecordBatch, list[int | None] | None]"
"""The records, and the partition that each one asks for, unless none does."""

_Timestamp: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Partition: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_NULL: Final = Raw(b"null")
# What the decoders raise: UTF-8 is checked apart from JSON, and nesting is Python's concern.
_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Header(Struct, gc=False, forbid_unknown_fields=True):
    key: str
    value: str | None = None
    value_base64: bytes | None = None


class _Record(Struct, gc=False, forbid_unknown_fields=True):
    key: str | None = None
    value: str | None = None
    headers: dict[str, str | None] | list[_Header] | None = None
    timestamp: _Timestamp | None = None
    partition: _Partition | None = None
    key_base64: bytes | None = None
    value_base64: bytes | None = None


class _Body(Struct, gc=False, forbid_unknown_fields=True):
    records: list[_Record]


class _RawHeader(Struct, gc=False, forbid_unknown_fields=True):
    key: str
    value: Raw = _NULL
    value_base64: bytes | None = None


class _RawRecord(Struct, gc=False, forbid_unknown_fields=True):
    key: Raw = _NULL
    value: Raw = _NULL
    headers: dict[str, Raw] | list[_RawHeader] | None = None
    timestamp: _Timestamp | None = None
    partition: _Partition | None = None
    key_base64: bytes | None = None
    value_base64: bytes | None = None


class _RawBody(Struct, gc=False, forbid_unknown_fields=True):
    records: list[_RawRecord]


_BODY: Final = msgspec.json.Decoder(_Body)
_RAW_BODY: Final = msgspec.json.Decoder(_RawBody)
_LINE: Final = msgspec.json.Decoder(_Record)
_RAW_LINE: Final = msgspec.json.Decoder(_RawRecord)
_TEXT: Final = msgspec.json.Decoder(str)

_Records: TypeAlias = Sequence[_Record] | Sequence[_RawRecord]
_Stored: TypeAlias = str | bytes | None


def decode_json(body: bytes, *, now_ms: int, limits: RecordLimits) -> Decoded:
    """Return the records of a JSON body; those without a timestamp get `now_ms`."""
    records: _Records
    try:
        records = _BODY.decode(body).records
    except msgspec.ValidationError:
        records = _raw_records(body)
    except _REFUSALS as error:
        raise not_json(body, error) from error
    return _decoded(records, len(body), now_ms, limits)


def decode_ndjson(body: bytes, *, now_ms: int, limits: RecordLimits) -> Decoded:
    """Return the records of an NDJSON body; those without a timestamp get `now_ms`."""
    records: _Records
    try:
        records = _LINE.decode_lines(body)
    except _REFUSALS:
        records = _raw_lines(body)
    else:
        # The decoder takes any white space between records; we take one record per line.
        if len(records) != body.count(b"\n") + (not body.endswith(b"\n")):
            records = _raw_lines(body)
    return _decoded(records, len(body), now_ms, limits)


def _raw_records(body: bytes) -> list[_RawRecord]:
    try:
        _check_utf8(body)
        return _RAW_BODY.decode(body).records
    except msgspec.ValidationError as error:
        raise explained(error) from error
    except _REFUSALS as error:
        raise not_json(body, error) from error


def _raw_lines(body: bytes) -> list[_RawRecord]:
    records: list[_RawRecord] = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            _check_utf8(line)
            records.append(_RAW_LINE.decode(line))
        except msgspec.ValidationError as error:
            raise explained(error, number) from error
        except _REFUSALS as error:
            raise not_json(line, error, number) from error
    return records


def _check_utf8(text: bytes) -> None:
    """Raise `UnicodeDecodeError` where the raw decoder, which skips over strings, would not."""
    if not text.isascii():
        text.decode()


def _decoded(records: _Records, body_bytes: int, now_ms: int, limits: RecordLimits) -> Decoded:
    count = len(records)
    check_count(count, limits)
    batch = pa.RecordBatch.from_arrays(
        [
            _timestamps([record.timestamp for record in records], now_ms),
            pa.array(_keys(records), pa.binary()),
            pa.array(_values(records), pa.binary()),
            _headers(records),
        ],
        schema=RECORD_SCHEMA,
    )
    # JSON is never shorter than the bytes it stands for.
    check_batch(batch, limits, body_bytes)
    partitions = [record.partition for record in records]
    return batch, None if partitions.count(None) == count else partitions


def _timestamps(stamps: list[int | None], now_ms: int) -> pa.Array:
    missing = stamps.count(None)
    if missing == len(stamps):
        return pa.repeat(pa.scalar(now_ms, pa.int64()), missing)
    return pa.array([now_ms if stamp is None else stamp for stamp in stamps], pa.int64())


def _keys(records: _Records) -> list[_Stored]:
    keys = _stored_all([record.key for record in records])
    return _merged("key", keys, [record.key_base64 for record in records])


def _values(records: _Records) -> list[_Stored]:
    values = _stored_all([record.value for record in records])
    return _merged("value", values, [record.value_base64 for record in records])


def _stored_all(fields: list[Any]) -> list[_Stored]:
    return [*map(_stored, fields)] if fields and type(fields[0]) is Raw else fields


def _stored(field: str | Raw | None) -> _Stored:
    """Return what is stored for a field: a string's own bytes, or the text of other JSON."""
    if field is None or type(field) is str:
        return field
    text = bytes(field)  # type: ignore[arg-type]  # Raw has the buffer protocol.
    if text[:1] != b'"':
        return None if text == b"null" else text
    return _TEXT.decode(text) if b"\\" in text else text[1:-1]


def _merged(name: str, plain: list[_Stored], decoded: list[bytes | None]) -> list[_Stored]:
    """Return one of the two for every record, and refuse records that have both."""
    if decoded.count(None) == len(decoded):
        return plain
    for index, (one, other) in enumerate(zip(plain, decoded, strict=True)):
        if one is not None and other is not None:
            raise InvalidRequest(f"records[{index}]: has both {name} and {name}_base64; send one")
    return [one if other is None else other for one, other in zip(plain, decoded, strict=True)]


def _headers(records: _Records) -> pa.Array:
    sent = [record.headers for record in records]
    if not any(sent):
        return pa.nulls(len(sent), HEADERS_TYPE)
    pairs = [[*_pairs(index, headers)] for index, headers in enumerate(sent)]
    flat = [pair for row in pairs for pair in row]
    entries = pa.StructArray.from_arrays(
        [
            pa.array([name for name, _ in flat], pa.string()),
            pa.array([value for _, value in flat], pa.binary()),
        ],
        fields=list(HEADERS_TYPE.value_type),
    )
    # Arrow takes a null offset for a null list: no headers, as when none were sent at all.
    ends = [*accumulate((len(row) for row in pairs), initial=0)]
    offsets = [start if row else None for start, row in zip(ends, pairs, strict=False)]
    return pa.ListArray.from_arrays(pa.array([*offsets, ends[-1]], pa.int32()), entries).cast(
        HEADERS_TYPE
    )


def _pairs(index: int, headers: Any) -> Iterable[tuple[str, _Stored]]:
    if not headers:
        return
    if isinstance(headers, dict):
        for name, value in headers.items():
            yield name, _stored(value)
        return
    for position, header in enumerate(headers):
        value = _stored(header.value)
        if value is not None and header.value_base64 is not None:
            raise InvalidRequest(
                f"records[{index}].headers[{position}]: has both value and value_base64; send one"
            )
        yield header.key, value if header.value_base64 is None else header.value_base64
