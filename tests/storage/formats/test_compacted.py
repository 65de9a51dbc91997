"""Compacted segments: any Parquet reader reads what was written; damage raises `Corrupt`."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt
from storage.formats import compacted
from storage.formats.compacted import SCHEMA, CompactedWriter, Footer, WrittenSegment
from storage.formats.records import RECORD_SCHEMA, Header, record_batch

TOPIC_ID = bytes(range(16))

Record = tuple[int, bytes | None, bytes | None, list[Header] | None]
"""Timestamp, key, value, headers."""


def batch_of(offsets: Sequence[int], records: Sequence[Record]) -> pa.RecordBatch:
    timestamps, keys, values, headers = zip(*records, strict=True) if records else ([],) * 4
    batch = record_batch(timestamps, keys, values, headers)
    return pa.RecordBatch.from_arrays(
        [pa.array(offsets, pa.int64()), *batch.columns], schema=SCHEMA
    )


def plain(offsets: Sequence[int]) -> pa.RecordBatch:
    return batch_of(offsets, [(o * 10, b"k%d" % (o % 7), b"v" * 90, None) for o in offsets])


def written(
    path: Path,
    batches: Sequence[pa.RecordBatch],
    *,
    start_offset: int = 0,
    end_offset: int = 1000,
    row_group_bytes: int = 2000,
) -> WrittenSegment:
    writer = CompactedWriter(
        path,
        topic_id=TOPIC_ID,
        partition=3,
        start_offset=start_offset,
        row_group_bytes=row_group_bytes,
    )
    for batch in batches:
        writer.write(batch)
    segment = writer.close(end_offset)
    assert segment is not None
    return segment


def footer_of(segment: WrittenSegment) -> Footer:
    data = segment.path.read_bytes()[-segment.footer_bytes :]
    return compacted.parse_footer(data, segment.footer_crc)


def decoded(path: Path, footer: Footer) -> pa.Table:
    data = path.read_bytes()
    return pa.Table.from_batches(
        [
            compacted.decode_row_group(footer, group.number, data[group.position : group.end])
            for group in footer.row_groups
        ]
    )


BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": BYTES}), max_size=3
)
RECORDS = st.lists(st.tuples(st.integers(0, 2**50), BYTES, BYTES, HEADERS), min_size=1, max_size=60)


@given(records=RECORDS, data=st.data())
def test_records_read_back_are_those_written_however_they_are_batched(
    records: list[Record], data: st.DataObject
) -> None:
    steps = data.draw(st.lists(st.integers(1, 5), min_size=len(records), max_size=len(records)))
    offsets = [sum(steps[: at + 1]) for at in range(len(steps))]
    whole = batch_of(offsets, records)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(records)), max_size=5)))
    pieces = [
        whole.slice(start, end - start)
        for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True)
    ]
    with TemporaryDirectory() as folder:
        segment = written(Path(folder) / "s", pieces, row_group_bytes=500)
        footer = footer_of(segment)

        found = decoded(segment.path, footer)

    assert found == pa.Table.from_batches([whole])
    groups = footer.row_groups
    assert segment.first_offset == offsets[0]
    assert (groups[0].start_offset, groups[-1].end_offset) == (0, 1000)
    assert [each.end_offset for each in groups[:-1]] == [each.start_offset for each in groups[1:]]
    for group in groups:
        inside = [
            record[0]
            for offset, record in zip(offsets, records, strict=True)
            if group.start_offset <= offset < group.end_offset
        ]
        assert (group.count, group.min_ms, group.max_ms) == (len(inside), min(inside), max(inside))
    assert (segment.min_ms, segment.max_ms) == (
        min(record[0] for record in records),
        max(record[0] for record in records),
    )


def test_row_groups_have_the_requested_size(tmp_path: Path) -> None:
    segment = written(tmp_path / "s", [plain(range(500)), plain(range(500, 1000))])

    footer = footer_of(segment)

    # 16 bytes of numbers, 2 of key and 90 of value: the 19th record fills a row group.
    assert {group.count for group in footer.row_groups[:-1]} == {19}
    assert footer.record_count == segment.record_count == 1000


def test_a_huge_record_ends_its_row_group_and_the_next_ones_have_full_size(tmp_path: Path) -> None:
    huge = batch_of([40], [(0, None, b"x" * 100_000, None)])
    segment = written(tmp_path / "s", [plain(range(40)), huge, plain(range(41, 80))])

    sizes = [group.count for group in footer_of(segment).row_groups]

    assert sizes == [19, 19, 3, 19, 19, 1]


def test_the_row_group_of_an_offset_is_the_first_that_ends_after_it(tmp_path: Path) -> None:
    segment = written(tmp_path / "s", [plain(range(100, 900, 20))], start_offset=50)

    footer = footer_of(segment)

    ends = [group.end_offset for group in footer.row_groups]
    assert ends == [461, 841, 1000]
    assert [footer.behind(offset) for offset in (0, 460, 461, 840, 841, 999)] == [0, 0, 1, 1, 2, 2]


def test_a_segment_without_records_is_no_file(tmp_path: Path) -> None:
    writer = CompactedWriter(tmp_path / "s", topic_id=TOPIC_ID, partition=0, start_offset=0)
    writer.write(plain([]))

    assert writer.close(10) is None
    assert not (tmp_path / "s").exists()


def test_a_segment_may_be_discarded_before_it_is_finished(tmp_path: Path) -> None:
    writer = CompactedWriter(tmp_path / "s", topic_id=TOPIC_ID, partition=0, start_offset=0)
    writer.write(plain(range(100)))
    writer.discard()

    assert list(tmp_path.iterdir()) == []


def test_some_columns_can_be_read_without_the_others(tmp_path: Path) -> None:
    segment = written(tmp_path / "s", [plain(range(100))])
    footer = footer_of(segment)
    data = segment.path.read_bytes()

    ranges = compacted.column_ranges(footer, 1, ["key", "offset"])
    pieces = [data[start:end] for start, end in ranges]
    found = compacted.decode_columns(footer, 1, ranges, pieces, ["key", "offset"])

    assert found.to_pydict() == plain(range(19, 38)).select(["offset", "key"]).to_pydict()
    group = footer.row_groups[1]
    assert sum(map(len, pieces)) < group.length // 2
    whole = data[group.position : group.end]
    assert compacted.decode_row_group(footer, 1, whole, ["key", "offset"]) == found
    assert compacted.column_ranges(footer, 1, SCHEMA.names) == [(group.position, group.end)]


def test_offsets_and_record_columns_are_separated(tmp_path: Path) -> None:
    offsets, records = compacted.to_record_columns(plain([3, 5]))

    assert offsets.to_pylist() == [3, 5]
    assert records.schema == RECORD_SCHEMA


def test_a_damaged_byte_anywhere_in_a_row_group_is_corrupt(tmp_path: Path) -> None:
    segment = written(tmp_path / "s", [plain(range(20))])
    footer = footer_of(segment)
    group = footer.row_groups[0]
    data = segment.path.read_bytes()[group.position : group.end]

    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(Corrupt):
            compacted.decode_row_group(footer, 0, bytes(damaged))
    with pytest.raises(Corrupt):
        compacted.decode_row_group(footer, 0, data[:-1])


def test_damaged_columns_are_corrupt_or_decode_to_the_right_values(tmp_path: Path) -> None:
    segment = written(tmp_path / "s", [plain(range(20))])
    footer = footer_of(segment)
    columns = ["offset", "key", "value"]
    ranges = compacted.column_ranges(footer, 0, columns)
    data = segment.path.read_bytes()
    right = compacted.decode_columns(footer, 0, ranges, [data[a:b] for a, b in ranges], columns)

    told = 0
    for start, end in ranges:
        for at in range(start, end):
            damaged = bytearray(data)
            damaged[at] ^= 1
            pieces = [bytes(damaged[a:b]) for a, b in ranges]
            try:
                found = compacted.decode_columns(footer, 0, ranges, pieces, columns)
            except Corrupt:
                told += 1
            else:
                assert found == right
    assert told > 100
    with pytest.raises(Corrupt):
        compacted.decode_columns(footer, 0, ranges, [data[a : b - 1] for a, b in ranges], columns)


def test_a_footer_with_another_checksum_is_corrupt(tmp_path: Path) -> None:
    segment = written(tmp_path / "s", [plain(range(20))])
    data = segment.path.read_bytes()[-segment.footer_bytes :]

    with pytest.raises(Corrupt):
        compacted.parse_footer(data, segment.footer_crc ^ 1)


@pytest.fixture(scope="module")
def footer_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    segment = written(tmp_path_factory.mktemp("footer") / "s", [plain(range(60))])
    return segment.path.read_bytes()[-segment.footer_bytes :]


@given(data=st.data())
def test_a_damaged_footer_is_corrupt_or_still_consistent(
    footer_bytes: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(footer_bytes)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        kept = data.draw(st.integers(at, len(damaged)))
        damaged[at : data.draw(st.sampled_from([at + 1, kept]))] = data.draw(st.binary(max_size=3))
        if not damaged:
            break

    if damaged != footer_bytes:
        with pytest.raises(Corrupt):
            compacted.parse_footer(bytes(damaged), crc32c(footer_bytes))
    try:
        footer = compacted.parse_footer(bytes(damaged), crc32c(damaged))
    except Corrupt:
        return
    assert footer.record_count == sum(group.count for group in footer.row_groups)
    reached = footer.row_groups[0].start_offset
    for group in footer.row_groups:
        assert group.start_offset == reached < group.end_offset
        reached = group.end_offset


@given(data=st.binary(max_size=100))
def test_random_bytes_are_a_corrupt_footer(data: bytes) -> None:
    for noise in (data, data + len(data).to_bytes(4, "little") + b"PAR1"):
        with pytest.raises(Corrupt):
            compacted.parse_footer(noise, crc32c(noise))


def test_a_parquet_file_that_is_not_a_segment_is_corrupt(tmp_path: Path) -> None:
    pq.write_table(pa.table({"offset": [1, 2]}), tmp_path / "other")
    data = (tmp_path / "other").read_bytes()
    footer = data[-(int.from_bytes(data[-8:-4], "little") + 8) :]

    with pytest.raises(Corrupt):
        compacted.parse_footer(footer, crc32c(footer))


def test_the_footer_of_another_segment_is_corrupt(tmp_path: Path) -> None:
    segment = written(tmp_path / "s", [plain(range(20))])
    listed = segment.segment(object_id=bytes(16), zones=1, written_ms=5)
    data = segment.path.read_bytes()[-segment.footer_bytes :]

    assert compacted.footer_of(listed, TOPIC_ID, data).record_count == 20
    with pytest.raises(Corrupt):
        compacted.footer_of(listed, bytes(16), data)


def test_a_plain_parquet_reader_reads_a_segment(tmp_path: Path) -> None:
    records: list[Record] = [
        (10, b"a", b"1", [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]),
        (11, None, None, []),
        (12, b"", b"", None),
    ]
    path = written(tmp_path / "s.parquet", [batch_of([4, 6, 9], records)]).path

    pandas = pytest.importorskip("pandas")
    by_arrow = pq.read_table(path)
    by_pandas = pandas.read_parquet(path)
    by_duckdb = duckdb.execute(f"SELECT * FROM '{path}'").fetchall()

    assert by_arrow.to_pydict()["key"] == [b"a", None, b""]
    assert by_pandas["offset"].tolist() == [4, 6, 9]
    assert by_duckdb == [
        (4, 10, b"a", b"1", [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]),
        (6, 11, None, None, []),
        (9, 12, b"", b"", None),
    ]
