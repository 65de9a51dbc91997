"""Batches as other programs build them."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import strategies as st

from storage.formats.kafka import batches
from storage.formats.kafka.batches import Batches
from storage.formats.records import record_batch

GZIP = 1
LIMIT = 1 << 24

PAYLOADS = st.none() | st.binary(max_size=80)
HEADERS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": PAYLOADS}), min_size=1, max_size=4
)
STAMPS = st.integers(-1, 3 * 10**12)
RECORDS = st.tuples(STAMPS, PAYLOADS, PAYLOADS, st.none() | HEADERS)


def batch_of_rows(rows: Sequence[tuple[int, Any, Any, Any]]) -> pa.RecordBatch:
    stamps, keys, values, headers = zip(*rows, strict=True)
    return record_batch(stamps, keys, values, headers if any(headers) else None)


@st.composite
def record_batches(draw: st.DrawFn, rows_max: int = 200) -> pa.RecordBatch:
    """Few different records, repeated to any number: those of more than 63 go another way."""
    rows = draw(st.lists(RECORDS, min_size=1, max_size=5))
    count = draw(st.integers(1, rows_max))
    return batch_of_rows([rows[index * index % len(rows)] for index in range(count)])


def built(
    batch: pa.RecordBatch,
    *,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return the batch that aiokafka's builder makes, its leader epoch 0 instead of -1."""
    builder = DefaultRecordBatchBuilder(2, attributes, 0, *producer, LIMIT)
    for offset, row in enumerate(batch.to_pylist()):
        headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
        assert builder.append(offset, row["timestamp"], row["key"], row["value"], headers)
    data = bytes(builder.build())
    return data[:12] + bytes(4) + data[16:]


def checked(data: bytes, **options: Any) -> Batches:
    limits = {"record_bytes_max": LIMIT, "decompressed_bytes_max": LIMIT, "needs_keys": False}
    return batches.check(data, **{**limits, **options})
