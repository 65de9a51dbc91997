"""Arrow produce bodies: a stream that becomes records, mostly without being copied.

Columns `timestamp`, `key`, `value`, `headers` and `partition` may come in any order and in
whatever type a data frame library writes them; one of `key` and `value` must be there. What
has the stored type already stays where it is, in the request's own bytes.

The sender is not trusted. Sizes are checked before anything is unpacked or multiplied by a
dictionary, and every array is validated in full before anything reads through its offsets.
"""

from typing import Final, TypeAlias

import pyarrow as pa
from pyarrow import ipc

from service.arrow_messages import check_messages
from service.arrow_types import (
    bytes_column,
    check_schema,
    headers_column,
    timestamp_column,
    too_large,
)
from service.record_limits import RecordLimits, check_batch
from storage.errors import InvalidRequest
from storage.records import RECORD_SCHEMA

Decoded: TypeAlias = "tuple[pa.RecordBatch, pa.Array | None]"
"""The records, and the partition that each one asks for, unless there is no such column."""

_OPTIONS: Final = ipc.IpcReadOptions(use_threads=False)
_REFUSALS: Final = (pa.ArrowException, OSError, UnicodeDecodeError)


def decode_arrow(body: bytes, *, now_ms: int, limits: RecordLimits) -> Decoded:
    """Return the records of an Arrow stream; those without a timestamp get `now_ms`."""
    try:
        parts = _parts(_validated(body, limits), now_ms, limits)
        batch, partitions = _joined(parts)
    except _REFUSALS as error:
        raise InvalidRequest(f"the body is not a valid Arrow stream: {error}") from error
    check_batch(batch, limits, batch.nbytes)
    return batch, partitions


def _validated(body: bytes, limits: RecordLimits) -> list[pa.RecordBatch]:
    with ipc.open_stream(body, options=_OPTIONS) as reader:
        check_schema(reader.schema)
        check_messages(body, limits)
        batches = [batch for batch in reader if batch.num_rows]
    for batch in batches:
        batch.validate(full=True)
    return batches


def _parts(batches: list[pa.RecordBatch], now_ms: int, limits: RecordLimits) -> list[Decoded]:
    parts: list[Decoded] = []
    size_bytes = 0
    for batch in batches:
        parts.append(_converted(batch, now_ms, limits))
        # Batches share dictionaries, so that many of them can expand to anything.
        size_bytes += parts[-1][0].nbytes
        if size_bytes > limits.request_bytes_max:
            raise too_large(limits)
    return parts


def _converted(batch: pa.RecordBatch, now_ms: int, limits: RecordLimits) -> Decoded:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    rows = batch.num_rows
    records = pa.RecordBatch.from_arrays(
        [
            timestamp_column(columns.get("timestamp", pa.nulls(rows)), now_ms),
            bytes_column(columns.get("key", pa.nulls(rows)), pa.binary(), limits),
            bytes_column(columns.get("value", pa.nulls(rows)), pa.binary(), limits),
            headers_column(columns.get("headers", pa.nulls(rows)), limits),
        ],
        schema=RECORD_SCHEMA,
    )
    partitions = columns.get("partition")
    return records, None if partitions is None else partitions.cast(pa.int64())


def _joined(parts: list[Decoded]) -> Decoded:
    if len(parts) == 1:
        return parts[0]
    batch = pa.concat_batches([batch for batch, _ in parts])
    if parts[0][1] is None:
        return batch, None
    return batch, pa.concat_arrays([partitions for _, partitions in parts])
