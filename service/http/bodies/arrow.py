"""Arrow produce bodies: a stream is converted to records, usually without copying.

Columns `timestamp`, `key`, `value`, `headers` and `partition` may come in any order and in
any type that a data frame library writes; `key` or `value` is required. Columns that already
have the stored type are not copied: they stay in the request's own bytes.

A batch with the size and the exact schema of a slice need not be encoded again: its bytes are
what would be stored, and are returned along with it (`Sent`). That schema is compared byte by
byte, which excludes everything else Arrow allows (other byte orders, dictionaries, names).

The sender is not trusted. Sizes are checked before anything is unpacked or multiplied by a
dictionary, and every array is validated in full before anything reads through its offsets.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import pyarrow as pa
from pyarrow import ipc

from service.http.bodies.arrow_messages import MessageSpan, checked_messages
from service.http.bodies.arrow_types import (
    bytes_column,
    check_schema,
    headers_column,
    timestamp_column,
    too_large,
)
from service.process.limits.record_limits import RecordLimits, check_batch
from storage.errors import InvalidRequest
from storage.formats import slices
from storage.formats.records import RECORD_SCHEMA
from storage.formats.slices import Sent

Decoded: TypeAlias = "tuple[pa.RecordBatch, pa.Array | None]"
"""The records, and the requested partition of each; None: there is no such column."""

_OPTIONS: Final = ipc.IpcReadOptions(use_threads=False)
SENT_BYTES_MIN: Final = slices.SLICE_BYTES // 4
"""Smaller batches are merged: each slice takes an entry of the index."""
SENT_BYTES_MAX: Final = 2 * slices.SLICE_BYTES
"""Larger batches are cut, so that a random read decodes little."""
DESCRIPTION_BYTES_MAX: Final = 4096
"""Generous maximum of a message's bytes besides its records. More would store useless bytes."""
_REFUSALS: Final = (pa.ArrowException, OSError, UnicodeDecodeError)


def decode_arrow(
    body: bytes, *, now_ms: int, limits: RecordLimits
) -> "tuple[pa.RecordBatch, pa.Array | None, Sequence[Sent]]":
    """Return the records of an Arrow stream; those without a timestamp get `now_ms`.

    Also the requested partition of each, and the same records as they may be stored.
    """
    try:
        batches, spans = _validated(body, limits)
        batch, partitions = _joined(_parts(batches, now_ms, limits))
    except _REFUSALS as error:
        raise InvalidRequest(f"the body is not a valid Arrow stream: {error}") from error
    check_batch(batch, limits, batch.nbytes)
    return batch, partitions, _sent(body, batches, spans)


def _validated(body: bytes, limits: RecordLimits) -> tuple[list[pa.RecordBatch], list[MessageSpan]]:
    with ipc.open_stream(body, options=_OPTIONS) as reader:
        check_schema(reader.schema)
        spans = checked_messages(body, limits)
        batches = [batch for batch in reader if batch.num_rows]
    for batch in batches:
        batch.validate(full=True)
    return batches, spans


def _sent(
    body: bytes, batches: Sequence[pa.RecordBatch], spans: Sequence[MessageSpan]
) -> list[Sent]:
    """Return the batches as they may be stored, or nothing if some of them may not."""
    if not body.startswith(slices.SCHEMA_MESSAGE):
        return []
    view, found = memoryview(body), []
    filled = [span for span in spans[1:] if span.rows or span.codec is None]
    if len(filled) != len(batches):
        return []
    for span, batch in zip(filled, batches, strict=True):
        data = view[span.start : span.end]
        if (
            span.codec is None
            or span.rows != batch.num_rows
            or not body.startswith(slices.CONTINUATION, span.start)
            or len(data) % slices.ALIGNMENT
            or not SENT_BYTES_MIN <= batch.nbytes <= SENT_BYTES_MAX
            or len(data) > batch.nbytes + DESCRIPTION_BYTES_MAX
            or batch.column(0).null_count  # The stored records get a timestamp instead.
        ):
            return []
        found.append(Sent(data, span.codec, batch))
    return found


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
