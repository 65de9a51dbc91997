"""Stored ranges as they lie in files: slices and row groups, whole and in part; no gateway."""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from riacho.records import TopicPartition
from riacho.spark.read.columns import RecordPiece
from riacho.spark.read.planning import Span
from riacho.spark.read.ranges import EVERYTHING, StoredRange
from riacho.spark.read.reading import arrow_schema
from riacho.spark.read.spans import SpanReader, Wishes
from storage.formats import compacted, slices
from storage.formats.records import record_batch
from tests.riacho.spark.reads import ALL, columns

NOWHERE = "http://127.0.0.1:1"
"""No gateway is asked here; if one is, the test fails."""


def records(offsets: Sequence[int]) -> pa.RecordBatch:
    return record_batch(
        [offset * 10 for offset in offsets],
        [b"k%d" % (offset % 7) for offset in offsets],
        [None if offset % 11 == 0 else b"value %d" % offset for offset in offsets],
        [[{"key": "h", "value": b"%d" % offset}] if offset % 3 else None for offset in offsets],
    )


def parquet(path: Path, offsets: Sequence[int], end: int) -> tuple[StoredRange, ...]:
    """Write a segment of several row groups and return its ranges, as the gateway would."""
    writer = compacted.CompactedWriter(
        path, topic_id=bytes(16), partition=0, start_offset=0, row_group_bytes=2_000
    )
    rows = records(offsets)
    writer.write(
        pa.RecordBatch.from_arrays(
            [pa.array(offsets, pa.int64()), *rows.columns], schema=compacted.SCHEMA
        )
    )
    written = writer.close(end)
    assert written is not None
    body = path.read_bytes()
    footer = compacted.parse_footer(body[-written.footer_bytes :], written.footer_crc)
    return tuple(
        StoredRange(
            base_offset=group.start_offset,
            end_offset=group.end_offset,
            count=group.count,
            format="parquet",
            url=path.as_uri(),
            start=group.position,
            end=group.end,
            crc32c=group.crc,
            min_timestamp=group.min_ms,
            max_timestamp=group.max_ms,
            row_group=group.number,
            footer_start=len(body) - written.footer_bytes,
            footer_end=len(body),
            footer_crc32c=written.footer_crc,
        )
        for group in footer.row_groups
    )


def arrow(path: Path, start: int, end: int) -> tuple[StoredRange, ...]:
    """Write slices of ten records and return their ranges."""
    cuts = [records(range(at, min(at + 10, end))) for at in range(start, end, 10)]
    made = slices.encode(cuts, "lz4")
    path.write_bytes(b"front" + b"".join(each.data for each in made))
    ranges = []
    position, offset = len(b"front"), start
    for each in made:
        ranges.append(
            StoredRange(
                base_offset=offset,
                end_offset=offset + each.count,
                count=each.count,
                format="arrow",
                url=path.as_uri(),
                start=position,
                end=position + len(each.data),
                crc32c=each.crc,
                min_timestamp=each.min_ms,
                max_timestamp=each.max_ms,
            )
        )
        position += len(each.data)
        offset += each.count
    return tuple(ranges)


def read(span: Span, schema: StructType = ALL) -> pa.Table:
    wishes = Wishes(
        url=NOWHERE, schema=arrow_schema(schema), bounds=EVERYTHING, fail_on_data_loss=True
    )
    with SpanReader(wishes) as reader:
        batches = [*reader.batches(span, 0)]
        assert (reader.relocations, reader.fetches) == (0, 0)
    return pa.Table.from_batches(batches, wishes.schema)


def span(ranges: tuple[StoredRange, ...], start: int, end: int) -> Span:
    return Span(partition=TopicPartition("t", 0), start=start, end=end, ranges=ranges)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[StoredRange, ...], list[int]]:
    """A partition of which the first half was compacted: its ranges and its offsets."""
    folder = tmp_path_factory.mktemp("stored")
    dice = random.Random(1)
    survivors = sorted(dice.sample(range(500), 200))
    ranges = parquet(folder / "a.parquet", survivors, 500) + arrow(folder / "b.seg", 500, 1000)
    return ranges, [*survivors, *range(500, 1000)]


@given(st.data())
def test_any_stretch_is_read_exactly(
    stored: tuple[tuple[StoredRange, ...], list[int]], data: st.DataObject
) -> None:
    ranges, offsets = stored
    start = data.draw(st.integers(0, 999))
    end = data.draw(st.integers(start + 1, 1000))

    found = read(span(ranges, 0, 1000).between(start, end))

    expected = [offset for offset in offsets if start <= offset < end]
    rows = records(expected)
    assert found.column("offset").to_pylist() == expected
    assert found.column("key").to_pylist() == rows.column("key").to_pylist()
    assert found.column("value").to_pylist() == rows.column("value").to_pylist()
    assert found.column("headers").to_pylist() == rows.column("headers").to_pylist()


@pytest.mark.parametrize(
    "names", [["offset"], ["key"], ["value", "offset"], ["timestamp", "topic"], ["partition"]]
)
def test_some_columns_are_as_in_all_of_them(
    stored: tuple[tuple[StoredRange, ...], list[int]], names: list[str]
) -> None:
    ranges, _ = stored

    assert read(span(ranges, 30, 700), columns(*names)) == read(span(ranges, 30, 700)).select(names)


@given(st.lists(st.integers(0, 30), unique=True), st.integers(0, 30), st.integers(0, 31))
def test_a_piece_is_cut_by_offset(held: list[int], start: int, end: int) -> None:
    offsets = sorted(held)
    sparse = RecordPiece(pa.array(offsets, pa.int64()), len(offsets), None).between(
        start, max(start, end)
    )
    dense = RecordPiece(5, 10, None).between(start, max(start, end))

    assert not isinstance(sparse.offsets, int)
    assert sparse.offsets.to_pylist() == [o for o in offsets if start <= o < end]
    assert isinstance(dense.offsets, int)
    cut = [*range(dense.offsets, dense.offsets + dense.count)]
    assert cut == [o for o in range(5, 15) if start <= o < end]


def test_a_new_worker_need_not_wait_for_pandas() -> None:
    program = """if True:
        import sys
        import pyarrow as pa
        import riacho.spark.read.reading
        from riacho.spark.read.columns import FIELDS, RecordPiece, SourceColumns
        from storage.formats.records import RECORD_SCHEMA

        schema = pa.schema([(n, t) for n, t in FIELDS.items() if n != "headers"])
        arrays = [pa.nulls(0, field.type) for field in RECORD_SCHEMA]
        rows = pa.RecordBatch.from_arrays(arrays, RECORD_SCHEMA.names)
        batch = SourceColumns(schema, "t", 0, 0).batch([RecordPiece(0, 0, rows)])
        few = pa.schema([("offset", "int64"), ("topic", "string")])
        assert SourceColumns(few, "t", 0, 0).batch([RecordPiece(7, 3, None)]).num_rows == 3
        assert batch.num_rows == 0 and "pandas" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", program], check=True)
