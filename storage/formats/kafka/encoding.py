"""Arrow to batches, for Kafka's readers of records that came by another door or were compacted.

The varints between keys and values are computed for all records at once; then Arrow's `take`
puts everything into order, and the buffer that it fills is the body of the batch.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.formats.kafka import layout, varints
from storage.formats.kafka.columns import int64s
from storage.formats.kafka.compression import COMPRESSIONS, Compression, pack
from storage.formats.kafka.small import FEW
from storage.formats.kafka.varints import Ints, write_one

BATCH_BYTES: Final = 512 * 1024
"""Approximate maximum of a batch's records before compression, if there are several."""

_OVERHEAD: Final = 12
"""Bytes of a record besides its key, value and headers, about."""

_ROWS_MIN: Final = 1


def encode(
    batch: pa.RecordBatch,
    *,
    base_offset: int,
    codec: Compression,
    offsets: Ints | None = None,
    end: int | None = None,
) -> bytearray:
    """Return the records as one batch that covers the offsets from `base_offset` to `end`.

    `offsets` are those of the records, where compaction left gaps; None: they follow each other.
    The codec is Kafka's number in the attributes, so any client reads it.
    """
    count = batch.num_rows
    assert count, "Kafka has no empty batches"
    deltas = np.arange(count) if offsets is None else offsets - base_offset
    stamps = batch.column(0).to_numpy()
    base_ms = int(stamps[0])
    body = _few(batch, deltas) if count < FEW else _many(batch, stamps - base_ms, deltas)
    header = layout.BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=0,
        magic=layout.MAGIC,
        crc=0,
        attributes=COMPRESSIONS.index(codec),
        last_delta=int(deltas[-1]) if end is None else end - 1 - base_offset,
        base_ms=base_ms,
        max_ms=int(stamps.max()),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=count,
    )
    return layout.sealed(header, body if codec == "none" else pack(codec, body))


def encode_all(
    batch: pa.RecordBatch,
    *,
    base_offset: int,
    codec: Compression,
    offsets: Ints | None = None,
    end: int | None = None,
    bytes_max: int = BATCH_BYTES,
) -> Iterator[bytearray]:
    """Yield the records as batches of at most `bytes_max` before compression, or of one record.

    Together they cover all offsets from `base_offset` to `end`: each begins where the one before
    ends, which is where its own first record lies, or earlier.
    """
    if end is None:
        end = base_offset + batch.num_rows if offsets is None else int(offsets[-1]) + 1
    cuts = [*_cuts(batch, bytes_max)]
    for start, stop in pairwise(cuts):
        theirs = None if offsets is None else offsets[start:stop]
        if stop == batch.num_rows:
            until = end
        else:
            until = base_offset + stop - start if offsets is None else int(offsets[stop])
        yield encode(
            batch.slice(start, stop - start),
            base_offset=base_offset,
            codec=codec,
            offsets=theirs,
            end=until,
        )
        base_offset = until


def _cuts(batch: pa.RecordBatch, bytes_max: int) -> Iterator[int]:
    """Yield the rows at which batches begin, and the number of rows."""
    yield 0
    if batch.nbytes + _OVERHEAD * batch.num_rows > bytes_max:
        totals = np.cumsum(_record_bytes(batch))
        row = 0
        while True:
            before = int(totals[row - 1]) if row else 0
            following = int(np.searchsorted(totals, before + bytes_max, side="right"))
            row = max(following, row + _ROWS_MIN)
            if row >= batch.num_rows:
                break
            yield row
    yield batch.num_rows


def _record_bytes(batch: pa.RecordBatch) -> Ints:
    sizes = np.maximum(_lengths(batch.column(1)), 0) + np.maximum(_lengths(batch.column(2)), 0)
    headers = batch.column(3)
    if headers.null_count < len(headers):
        sizes += _header_columns(headers)[1]
    total: Ints = sizes + _OVERHEAD
    return total


def _lengths(column: pa.Array) -> Ints:
    """Return the bytes of each element, -1 for null."""
    lengths: Ints = pc.fill_null(pc.binary_length(column), -1).to_numpy().astype(np.int64)
    return lengths


def _few(batch: pa.RecordBatch, deltas: Ints) -> bytes:
    stamps, keys, values, headers = (column.to_pylist() for column in batch.columns)
    base_ms = stamps[0]
    parts: list[bytes] = []
    for stamp, delta, key, value, theirs in zip(
        stamps, deltas.tolist(), keys, values, headers, strict=True
    ):
        record = [
            b"\x00",
            write_one(stamp - base_ms),
            write_one(delta),
            *_sized(key),
            *_sized(value),
            write_one(len(theirs or ())),
        ]
        for header in theirs or ():
            record += *_sized(header["key"].encode()), *_sized(header["value"])
        content = b"".join(record)
        parts += write_one(len(content)), content
    return b"".join(parts)


def _sized(content: bytes | None) -> tuple[bytes, bytes]:
    return (b"\x01", b"") if content is None else (write_one(len(content)), content)


def _many(batch: pa.RecordBatch, time_deltas: Ints, offset_deltas: Ints) -> memoryview:
    keys, values, headers = batch.columns[1:]
    key_bytes, value_bytes = _lengths(keys), _lengths(values)
    has_headers = headers.null_count < len(headers)
    counts, header_bytes, packed = (
        _header_columns(headers) if has_headers else (np.zeros(len(keys), np.int64), None, None)
    )
    sizes = [
        varints.sizes(each) for each in (time_deltas, offset_deltas, key_bytes, value_bytes, counts)
    ]
    lengths = 1 + sum(sizes) + np.maximum(key_bytes, 0) + np.maximum(value_bytes, 0)
    if header_bytes is not None:
        lengths += header_bytes
    # The attributes, a byte of zero, go between the length and the rest.
    front = _numbers(lengths, None, time_deltas, offset_deltas, key_bytes)
    columns = [front, keys, _numbers(value_bytes), values, _numbers(counts)]
    if packed is not None:
        columns.append(packed)
    return _woven(columns)


def _numbers(*columns: Ints | None) -> pa.Array:
    """Return an element for each row: its numbers as varints; None: a byte of zero."""
    rows = next(len(column) for column in columns if column is not None)
    widths = sum(
        np.ones(rows, np.int64) if column is None else varints.sizes(column) for column in columns
    )
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(widths, out=offsets[1:])
    octets = np.zeros(int(offsets[-1]), np.uint8)
    at: Ints = offsets[:-1].astype(np.int64)
    for column in columns:
        at = at + 1 if column is None else varints.write(octets, at, column)
    return pa.BinaryArray.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(octets)]
    )


def _woven(columns: Sequence[pa.Array]) -> memoryview:
    """Return the bytes of the first element of each column, then the second, and so on."""
    rows, width = len(columns[0]), len(columns)
    order = (np.arange(width) * rows + np.arange(rows)[:, np.newaxis]).ravel()
    woven = pa.concat_arrays(columns).take(int64s(order))
    # A buffer may be larger than what was put into it.
    _, offsets, content = woven.buffers()
    start, end = np.frombuffer(offsets, np.int32)[[woven.offset, woven.offset + len(woven)]]
    return memoryview(content)[start:end]


def _header_columns(headers: pa.ListArray) -> tuple[Ints, Ints, pa.Array]:
    """Return how many headers each record has, their bytes as encoded, and these bytes."""
    counts: Ints = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    entries = headers.flatten()
    keys, values = entries.field(0).cast(pa.binary()), entries.field(1)
    key_bytes, value_bytes = _lengths(keys), _lengths(values)
    each = (
        varints.sizes(key_bytes)
        + key_bytes
        + varints.sizes(value_bytes)
        + np.maximum(value_bytes, 0)
    )
    totals = np.concatenate([[0], np.cumsum(each)])
    ends = np.concatenate([[0], np.cumsum(counts)])
    offsets = totals[ends]
    packed: bytes | memoryview = b""
    if len(entries):
        packed = _woven([_numbers(key_bytes), keys, _numbers(value_bytes), values])
    column = pa.BinaryArray.from_buffers(
        pa.binary(),
        len(headers),
        [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(packed)],
    )
    return counts, np.diff(offsets), column
