"""What `walk` found, as Arrow arrays: the bytes are copied by Arrow's own `take`."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from storage.formats.kafka.layout import Malformed
from storage.formats.kafka.varints import Ints
from storage.formats.kafka.walk import Entries, Walked
from storage.formats.records import HEADERS_TYPE, RECORD_SCHEMA, no_headers


def record_batch_of(body: bytes | memoryview, walked: Walked, stamps: Ints) -> pa.RecordBatch:
    """Return the records that `walked` found in `body`."""
    buffer = pa.py_buffer(body)
    return pa.RecordBatch.from_arrays(
        [
            int64s(stamps),
            taken(buffer, walked.key_at, walked.key_bytes),
            taken(buffer, walked.value_at, walked.value_bytes),
            no_headers(len(stamps))
            if walked.entries is None
            else headers_of(buffer, walked.entries),
        ],
        schema=RECORD_SCHEMA,
    )


def int64s(values: Ints) -> pa.Array:
    """Return the numbers without a copy, and without asking what else they might be."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def taken(buffer: pa.Buffer, at: Ints, sizes: Ints) -> pa.Array:
    """Return the bytes at each place, which is after the end of the one before; -1: null."""
    count = len(at)
    nulls = sizes < 0
    null_count = int(np.count_nonzero(nulls))
    if null_count == count:
        return pa.nulls(count, pa.binary())
    # What lies between them is an element, too, and is not taken.
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = at
    offsets[1::2] = at + np.maximum(sizes, 0) if null_count else at + sizes
    pieces = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), buffer]
    )
    rows = pa.Array.from_buffers(
        pa.int32(),
        count,
        [_validity(nulls) if null_count else None, pa.py_buffer(_evens(count))],
        null_count=null_count,
    )
    return pieces.take(rows)


def _evens(count: int) -> NDArray[np.int32]:
    return np.arange(0, 2 * count, 2, dtype=np.int32)


def _validity(nulls: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def names(buffer: pa.Buffer, entries: Entries) -> pa.Array:
    """Return the keys of all headers, or raise `Malformed` if one is not UTF-8."""
    try:
        return pc.cast(taken(buffer, entries.key_at, entries.key_bytes), pa.string())
    except pa.ArrowInvalid as error:
        raise Malformed("the key of a header is not UTF-8") from error


def headers_of(buffer: pa.Buffer, entries: Entries) -> pa.Array:
    """Return the headers of all records."""
    each = pa.StructArray.from_arrays(
        [
            names(buffer, entries),
            taken(buffer, entries.value_at, entries.value_bytes),
        ],
        fields=[*HEADERS_TYPE.value_type],
    )
    count = len(entries.counts)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(entries.counts, out=offsets[1:])
    nulls = entries.counts == 0
    return pa.ListArray.from_buffers(
        HEADERS_TYPE,
        count,
        [_validity(nulls), pa.py_buffer(offsets)],
        null_count=int(np.count_nonzero(nulls)),
        children=[each],
    )
