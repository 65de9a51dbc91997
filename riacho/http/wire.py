"""Bodies of requests and replies: Arrow where it is installed, JSON where it is not.

Arrow is the format that the gateway itself works with, so it does not parse batches.
Both formats carry the same records, bit for bit.

An Arrow reply is an ordinary IPC stream. A batch holds no offsets: `riacho.base_offsets` in
the schema's metadata lists the first offset of each batch. Where compaction left gaps the
batches have a column `offset` instead. A batch may begin before the requested offset; the
reader skips those rows.
"""

import gzip
import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from riacho.errors import new_error
from riacho.http.gateway import ARROW, JSON
from riacho.records import HeaderPairs, Record
from storage.errors import Corrupt, RiachoError

Compression: TypeAlias = Literal["lz4", "zstd", "gzip", "none"]
COMPRESSIONS: Final = ("lz4", "zstd", "gzip", "none")

_BASE_OFFSETS: Final = b"riacho.base_offsets"

UNREADABLE: Final = (
    *(ValueError, TypeError, LookupError, AttributeError, OSError),
    *(NotImplementedError, RecursionError, MemoryError),
)
"""What Arrow, JSON and the code that reads them may raise for a malformed reply."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Records to be sent, as columns of equal length."""

    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[HeaderPairs]
    partitions: Sequence[int] | None = None
    """The partition of each record, unless the request gives one for all."""


@cache
def has_arrow() -> bool:
    """Whether pyarrow can be imported here."""
    try:
        import pyarrow.ipc
    except ImportError:
        return False
    return pyarrow.ipc is not None


def load() -> None:
    """Import what the first batch needs, which takes seconds where pandas is installed."""
    if has_arrow():
        import storage.formats.records  # noqa: F401


def encode_records(columns: Columns, compression: Compression) -> tuple[bytes, dict[str, str]]:
    """Return the body that carries `columns`, and the headers that describe it."""
    if has_arrow():
        body, headers = _encode_arrow(columns, compression), {"content-type": ARROW}
        encoding = "gzip" if compression == "gzip" else None
    else:
        body, headers = _encode_json(columns), {"content-type": JSON}
        # JSON is large; of the encodings the gateway reads, Python always has gzip.
        encoding = None if compression == "none" else "gzip"
    if encoding is None:
        return body, headers
    return gzip.compress(body, compresslevel=1), headers | {"content-encoding": encoding}


def _encode_arrow(columns: Columns, compression: Compression) -> bytes:
    import pyarrow as pa
    from pyarrow import ipc

    from storage.formats import slices
    from storage.formats.records import RECORD_SCHEMA, Header, record_batch

    headers: list[list[Header]] | None = None
    if any(columns.headers):
        headers = [[{"key": k, "value": v} for k, v in pairs] for pairs in columns.headers]
    batch = record_batch(columns.timestamps, columns.keys, columns.values, headers)
    schema = RECORD_SCHEMA
    if columns.partitions is not None:
        partitions = pa.array(columns.partitions, pa.int32())
        batch = batch.append_column("partition", partitions)
        schema = batch.schema
    sink = pa.BufferOutputStream()
    codec = compression if compression in ("lz4", "zstd") else None
    options = ipc.IpcWriteOptions(compression=codec, use_threads=False)
    with ipc.new_stream(sink, schema, options=options) as writer:
        # Slice-sized pieces can be stored by the gateway unchanged.
        for piece in slices.cut(batch, batch.nbytes):
            writer.write_batch(piece)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _encode_json(columns: Columns) -> bytes:
    import msgspec

    rows = zip(columns.timestamps, columns.keys, columns.values, columns.headers, strict=True)
    records = [record_document(*row) for row in rows]
    for record, partition in zip(records, columns.partitions or (), strict=False):
        record["partition"] = partition
    return msgspec.json.encode({"records": records})


def record_document(
    timestamp: int, key: bytes | None, value: bytes | None, headers: HeaderPairs
) -> dict[str, Any]:
    """Return a record as it is sent in JSON: bytes become base64, whatever they hold."""
    return {
        "timestamp": timestamp,
        "key_base64": key,
        "value_base64": value,
        "headers": [{"key": name, "value_base64": text} for name, text in headers],
    }


def decode_arrow(topic: str, partition: int, body: bytes, start: int) -> list[Record]:
    """Return the records of an Arrow reply from offset `start` on, or raise `Corrupt`."""
    try:
        return _decode_arrow(topic, partition, body, start)
    except UNREADABLE as error:
        raise _unreadable(error) from error


def _whole(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield validated batches: Arrow trusts every offset, and may crash on a wrong one."""
    for batch in batches:
        batch.validate(full=True)
        yield batch


def _decode_arrow(topic: str, partition: int, body: bytes, start: int) -> list[Record]:
    from pyarrow import ipc

    if not body:
        return []
    records: list[Record] = []
    # Waking up threads takes longer than reading a batch.
    options = ipc.IpcReadOptions(use_threads=False)
    with ipc.open_stream(body, options=options) as reader:
        if "offset" in reader.schema.names:
            for batch in _whole(reader):
                records += _rows(topic, partition, batch.column("offset").to_pylist(), batch)
            return [record for record in records if record.offset >= start]
        base_offsets = json.loads((reader.schema.metadata or {}).get(_BASE_OFFSETS, b"[]"))
        for base_offset, batch in zip(base_offsets, _whole(reader), strict=True):
            skipped = max(start - base_offset, 0)
            if skipped < batch.num_rows:
                rest = batch.slice(skipped)
                offsets = range(base_offset + skipped, base_offset + batch.num_rows)
                records += _rows(topic, partition, offsets, rest)
    return records


def _rows(topic: str, partition: int, offsets: Sequence[int], batch: Any) -> list[Record]:
    timestamps, keys, values, headers = (
        batch.column(name) for name in ("timestamp", "key", "value", "headers")
    )
    count = batch.num_rows
    pairs: Sequence[HeaderPairs] = [()] * count
    if headers.null_count < count:
        pairs = [
            tuple((header["key"], header["value"]) for header in row or ())
            for row in headers.to_pylist()
        ]
    columns = (timestamps.to_pylist(), keys.to_pylist(), values.to_pylist(), pairs)
    return [
        Record(topic, partition, offset, timestamp, key, value, own)
        for offset, timestamp, key, value, own in zip(offsets, *columns, strict=True)
    ]


def decode_json(topic: str, partition: int, records: Sequence[Mapping[str, Any]]) -> list[Record]:
    """Return the `records` of a JSON reply, or raise `Corrupt`."""
    try:
        return _decode_json(topic, partition, records)
    except UNREADABLE as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> RiachoError:
    return new_error(Corrupt, f"the reply cannot be read: {error!r}")


def _decode_json(topic: str, partition: int, records: Sequence[Mapping[str, Any]]) -> list[Record]:
    return [
        Record(
            topic,
            partition,
            record["offset"],
            record["timestamp"],
            _payload(record, "key"),
            _payload(record, "value"),
            tuple((h["key"], _payload(h, "value")) for h in record.get("headers") or ()),
        )
        for record in records
    ]


def _payload(fields: Mapping[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return b64decode(encoded)
    text = fields.get(name)
    return None if text is None else str(text).encode()
