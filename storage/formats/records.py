"""Records as columns: the Arrow schema that memory, slices and clients share.

A batch of records is a `pyarrow.RecordBatch` with `RECORD_SCHEMA`, from the moment a request
is decoded to the moment a response is encoded. Offsets are not in it: a record's offset is
the base offset of its batch plus its row, and the base is known only after the commit.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import pyarrow as pa

Header: TypeAlias = dict[str, "str | bytes | None"]
"""One header as Arrow takes it: `{"key": str, "value": str | bytes | None}`."""

HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
)

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)

# Not `pa.array`, which would import pandas where that is installed.
_NO_HEADERS: Final = pa.nulls(0, HEADERS_TYPE.value_type)


def record_batch(
    timestamps: Sequence[int],
    keys: Sequence[str | bytes | None],
    values: Sequence[str | bytes | None],
    headers: Sequence[Sequence[Header] | None] | None = None,
) -> pa.RecordBatch:
    """Return the records as one batch. Text becomes UTF-8; `headers` None: no record has any."""
    count = len(timestamps)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(timestamps, pa.int64()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            no_headers(count) if headers is None else pa.array(headers, HEADERS_TYPE),
        ],
        schema=RECORD_SCHEMA,
    )


def no_headers(count: int) -> pa.ListArray:
    """Return `count` nulls. `pa.nulls` would also make, and store, `count` empty headers."""
    return pa.ListArray.from_buffers(
        HEADERS_TYPE,
        count,
        [pa.py_buffer(bytes(count // 8 + 1)), pa.py_buffer(bytes(4 * (count + 1)))],
        null_count=count,
        children=[_NO_HEADERS],
    )
