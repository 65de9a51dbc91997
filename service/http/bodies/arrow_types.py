"""Convert columns of an Arrow produce body, of any suitable type, to those of records.

A column that has the stored type is returned as it is. Arrays have been validated before,
but their sender is still not trusted: a dictionary or a view can name the same megabyte in
every row, so the expanded size is computed before expanding.
"""

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from service.process.limits.record_limits import RecordLimits
from storage.errors import InvalidRecord, InvalidRequest, RequestTooLarge
from storage.formats.records import HEADERS_TYPE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_COLUMNS: Final = ("timestamp", "key", "value", "headers", "partition")
_SHOWN_CHARS: Final = 64
_BYTES_TYPES: Final = (
    types.is_binary,
    types.is_string,
    types.is_large_binary,
    types.is_large_string,
    types.is_binary_view,
    types.is_string_view,
    types.is_fixed_size_binary,
)


def check_schema(schema: pa.Schema) -> None:
    """Raise `InvalidRequest` unless these columns can be converted to records."""
    for field in schema:
        if field.name not in _COLUMNS:
            shown = field.name[:_SHOWN_CHARS]
            raise InvalidRequest(f'unknown column "{shown}"; allowed are {", ".join(_COLUMNS)}')
        if schema.names.count(field.name) > 1:
            raise InvalidRequest(f'there are two columns "{field.name}"; send one')
        if not _is_acceptable(field):
            shown = str(field.type)[:_SHOWN_CHARS]
            raise InvalidRequest(f'the column "{field.name}" cannot be of type {shown}')
    if "key" not in schema.names and "value" not in schema.names:
        raise InvalidRequest("there is neither a key nor a value column; send one of them")


def bytes_column(column: pa.Array, kind: pa.DataType, limits: RecordLimits) -> pa.Array:
    """Return `column` as `kind`, binary or string; raise if it would grow too large."""
    if column.type == kind:
        return column
    if _expanded_bytes(column) > limits.request_bytes_max:
        raise too_large(limits)
    if types.is_dictionary(column.type):
        return bytes_column(column.dictionary, kind, limits).take(column.indices)
    return (_without_views_of_nulls(column) if _is_view(column.type) else column).cast(kind)


def timestamp_column(column: pa.Array, now_ms: int) -> pa.Array:
    """Return milliseconds since 1970; nulls become `now_ms`."""
    if types.is_timestamp(column.type):
        # Microseconds are truncated on purpose; seconds must not overflow.
        cut = column.type.unit in ("us", "ns")
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=not cut)
    stamps = column.cast(pa.int64())
    lowest = pc.min(stamps).as_py()
    if lowest is not None and lowest < 0:
        row = pc.index(pc.less(stamps, 0), True)
        raise InvalidRequest(f"records[{row}].timestamp: {stamps[row.as_py()]} is below 0")
    return pc.fill_null(stamps, now_ms) if stamps.null_count else stamps


def headers_column(column: pa.Array, limits: RecordLimits) -> pa.Array:
    """Return `column` as lists of (key, value), each of them with a key."""
    if types.is_null(column.type):
        return column.cast(HEADERS_TYPE)
    # A type of zero width can name any number of headers in a few bytes.
    if len(column.values) > len(column) * limits.header_count_max:
        raise InvalidRecord(f"a record may have {limits.header_count_max} headers")
    if column.values.null_count:
        raise InvalidRecord("a header is null; send an empty list for no headers")
    if column.type != HEADERS_TYPE:
        column = _rebuilt_headers(column, limits)
    if column.flatten().field("key").null_count:
        raise InvalidRecord("the key of a header is null; every header needs a key")
    return column


def too_large(limits: RecordLimits) -> RequestTooLarge:
    return RequestTooLarge(
        f"the columns expand to more than {limits.request_bytes_max} bytes; send several requests"
    )


def _rebuilt_headers(column: pa.Array, limits: RecordLimits) -> pa.Array:
    key, value = 0, 1
    if not types.is_map(column.type):
        key, value = (column.type.value_type.get_field_index(name) for name in ("key", "value"))
    entries = pa.StructArray.from_arrays(
        [
            bytes_column(column.values.field(key), pa.string(), limits),
            bytes_column(column.values.field(value), pa.binary(), limits),
        ],
        fields=list(HEADERS_TYPE.value_type),
    )
    offsets = column.offsets.cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, entries, type=HEADERS_TYPE, mask=column.is_null())


def _is_acceptable(field: pa.Field) -> bool:
    if types.is_null(field.type):
        return True
    match field.name:
        case "timestamp":
            return bool(types.is_integer(field.type) or types.is_timestamp(field.type))
        case "partition":
            return bool(types.is_integer(field.type))
        case "headers":
            return _is_headers(field.type)
        case _:
            return _is_bytes(field.type)


def _is_headers(kind: pa.DataType) -> bool:
    if types.is_map(kind):
        return _is_bytes(kind.key_type) and _is_bytes(kind.item_type)
    if not (types.is_list(kind) or types.is_large_list(kind)):
        return False
    entry = kind.value_type
    if not types.is_struct(entry) or sorted(child.name for child in entry) != ["key", "value"]:
        return False
    return all(_is_bytes(child.type) for child in entry)


def _is_bytes(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return any(accepts(kind) for accepts in _BYTES_TYPES)


def _is_view(kind: pa.DataType) -> bool:
    return bool(types.is_binary_view(kind) or types.is_string_view(kind))


def _expanded_bytes(column: pa.Array) -> int:
    """Return the size of `column` once each row has its own bytes."""
    if types.is_null(column.type):
        return 0
    if types.is_dictionary(column.type):
        lengths = _lengths(column.dictionary).take(column.indices)
    else:
        lengths = _lengths(column)
    return pc.sum(lengths, min_count=0).as_py() or 0


def _lengths(column: pa.Array) -> pa.Array:
    if not _is_view(column.type):
        return pc.binary_length(column).cast(pa.int64())
    return pa.array(_views(column)[column.offset :, 0].astype("i8"))


def _without_views_of_nulls(column: pa.Array) -> pa.Array:
    """Return `column` with zeros where it is null.

    Arrow validates only the views of values that are not null, but a cast follows all views: a
    null whose view points anywhere would be read from there.
    """
    validity, _, *data = column.buffers()
    buffers = [validity, pa.py_buffer(_views(column)), *data]
    return pa.Array.from_buffers(column.type, len(column), buffers, offset=column.offset)


def _views(column: pa.Array) -> "NDArray[np.int32]":
    """Return a view per row, four numbers each, the first its length; zeros for a null."""
    import numpy as np

    words = np.frombuffer(column.buffers()[1], "<i4", (column.offset + len(column)) * 4)
    views = words.reshape(-1, 4).copy()
    views[column.offset :][column.is_null().to_numpy(zero_copy_only=False)] = 0
    return views
