"""Maximum sizes of records and requests, checked for a whole batch at once."""

from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRecord, InvalidRequest, RecordTooLarge, RequestTooLarge

PARTITION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLimits:
    """Limits of one produce request.

    A record's bytes are those of its key, value and headers. `request_bytes_max` bounds the
    expanded size of a compressed or dictionary-encoded Arrow body.
    """

    record_bytes_max: int = 1_048_588  # Kafka's max.message.bytes.
    record_count_max: int = 100_000
    header_count_max: int = 100
    header_name_bytes_max: int = 256
    request_bytes_max: int = 104_857_600  # Kafka's socket.request.max.bytes.


DEFAULT_LIMITS: Final = RecordLimits()


def check_count(count: int, limits: RecordLimits) -> None:
    """Raise `InvalidRequest` for no records, `RequestTooLarge` for too many."""
    if count == 0:
        raise InvalidRequest("the request has no records; send at least one")
    if count > limits.record_count_max:
        raise RequestTooLarge(
            f"the request has {count} records and may have {limits.record_count_max};"
            " send several requests"
        )


def refuse_count(limits: RecordLimits) -> NoReturn:
    """Raise `RequestTooLarge` for too many records, without an exact count."""
    raise RequestTooLarge(
        f"the request has more than {limits.record_count_max} records, which is as many as it may"
        " have; send several requests"
    )


def check_batch(batch: pa.RecordBatch, limits: RecordLimits, size_bytes: int) -> None:
    """Raise `RecordTooLarge` or `InvalidRecord` for the first record beyond the limits.

    `size_bytes` is at least the total size of the records: if it is small, none is too large.
    """
    headers = batch.column("headers")
    if headers.null_count < len(headers):
        _check_headers(headers, limits)
    if size_bytes > limits.record_bytes_max:
        _check_sizes(batch, limits.record_bytes_max)


def _check_headers(headers: pa.ListArray, limits: RecordLimits) -> None:
    counts = pc.list_value_length(headers)
    if (row := _first_above(counts, limits.header_count_max)) is not None:
        raise InvalidRecord(
            f"records[{row}].headers: {counts[row]} headers;"
            f" a record may have {limits.header_count_max}"
        )
    name_bytes = pc.binary_length(headers.flatten().field("key"))
    if (entry := _first_above(name_bytes, limits.header_name_bytes_max)) is not None:
        ends = pc.cumulative_sum(pc.fill_null(counts, 0))
        row = pc.sum(pc.less_equal(ends, entry))
        raise InvalidRecord(
            f"records[{row}].headers: a name of {name_bytes[entry]} bytes;"
            f" a name may have {limits.header_name_bytes_max}"
        )


def record_bytes(batch: pa.RecordBatch) -> pa.Array:
    """Return the size of each record: its key, value and headers."""
    sizes = pc.add(_lengths(batch.column("key")), _lengths(batch.column("value")))
    headers = batch.column("headers")
    if headers.null_count < len(headers):
        sizes = pc.add(sizes, _header_bytes(headers))
    return sizes


def _check_sizes(batch: pa.RecordBatch, record_bytes_max: int) -> None:
    sizes = record_bytes(batch)
    if (row := _first_above(sizes, record_bytes_max)) is not None:
        raise RecordTooLarge(
            f"records[{row}] has {sizes[row]} bytes of key, value and headers;"
            f" a record may have {record_bytes_max}"
        )


def _header_bytes(headers: pa.ListArray) -> pa.Array:
    """Return the bytes of each record's headers: the difference of two running totals."""
    entries = headers.flatten()
    bytes_each = pc.add(_lengths(entries.field("key")), _lengths(entries.field("value")))
    totals = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(bytes_each)])
    counts = pc.fill_null(pc.list_value_length(headers), 0)
    ends = pc.cumulative_sum(counts)
    return pc.subtract(totals.take(ends), totals.take(pc.subtract(ends, counts)))


def _lengths(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _first_above(numbers: pa.Array, limit: int) -> int | None:
    """Return the index of the first number above `limit`, ignoring nulls."""
    highest: Any = pc.max(numbers).as_py()
    if highest is None or highest <= limit:
        return None
    index: int = pc.index(pc.greater(numbers, limit), True).as_py()
    return index
