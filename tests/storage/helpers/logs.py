"""Records, runs and entries to test with."""

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
from hypothesis import strategies as st

from storage.formats.entries import Entry, Kind
from storage.formats.records import record_batch
from storage.head.head import Run, RunSlice
from storage.keys import ID_BYTES

IDS = st.binary(min_size=ID_BYTES, max_size=ID_BYTES)
INT64 = st.integers(-(2**63), 2**63 - 1)
STAMPS = st.integers(0, 2**45)
OPTIONAL_BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=8), "value": OPTIONAL_BYTES}), max_size=3
)
ROWS = st.lists(st.tuples(INT64, OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS), min_size=1, max_size=8)


def batch_of_rows(rows: list[tuple[int, bytes | None, bytes | None, object]]) -> pa.RecordBatch:
    stamps, keys, values, headers = zip(*rows, strict=True)
    return record_batch(stamps, keys, values, headers)


BATCHES = ROWS.map(batch_of_rows)


def batch_of(*values: bytes, stamps: list[int] | None = None) -> pa.RecordBatch:
    """Return records without keys, stamped 0, 1, 2, … unless `stamps` are given."""
    return record_batch(stamps or range(len(values)), [None] * len(values), values)


def run_of(
    object_id: bytes, counts: dict[int, int], stamps: dict[int, tuple[int, int]] | None = None
) -> Run:
    """Return a run of one slice per partition, with that many records, 10 bytes each."""
    spans = {p: (stamps or {}).get(p, (0, 0)) for p in counts}
    base_ms = min((low for low, _ in spans.values()), default=0)
    return Run(
        object_id=object_id,
        position=8,
        base_ms=base_ms,
        slices=tuple(
            RunSlice(p, n, 10 * n, spans[p][0] - base_ms, spans[p][1] - spans[p][0], 7)
            for p, n in counts.items()
        ),
        zones=1,
    )


def numbered_ids() -> Iterator[bytes]:
    return (number.to_bytes(ID_BYTES) for number in count(1))


ENTRIES = st.builds(
    Entry,
    partition=st.integers(0, 63),
    end_offset=st.integers(1, 2**62),
    record_count=st.integers(1, 2**40),
    kind=st.sampled_from([int(kind) for kind in Kind]),
    object_id=IDS,
    position=st.integers(0, 2**50),
    length=st.integers(1, 2**50),
    min_ms=INT64,
    max_ms=INT64,
    crc=st.integers(0, 2**32 - 1),
    zones=st.integers(0, 2**32 - 1),
    data_key=st.just(0),
    segment=st.none(),
    row_group=st.just(-1),
    covers_from=st.just(-1),
)
