"""Partitions as Kafka's clients choose them, for one key and for a column of keys."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import UnknownTopicOrPartition
from storage.formats.partitioner import (
    RUNS_MAX,
    Explicit,
    Spreader,
    assign,
    murmur2,
    partition_for,
    partitions_for,
)
from storage.formats.records import record_batch

KEYS = st.lists(st.binary(max_size=40) | st.binary(min_size=250, max_size=300), max_size=100)


def batch_of(keys: list[bytes | None]) -> pa.RecordBatch:
    """Return records whose timestamp is their position in the request."""
    return record_batch(range(len(keys)), keys, [b"%d" % row for row in range(len(keys))])


def rows_of(parts: dict[int, pa.RecordBatch]) -> dict[int, list[int]]:
    return {partition: part.column("timestamp").to_pylist() for partition, part in parts.items()}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_match_those_in_kafkas_tests(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32
    assert partition_for(key, 1000) == (expected & 0x7FFFFFFF) % 1000


@given(KEYS, st.integers(1, 2**31 - 1), st.integers(0, 5))
def test_a_column_of_keys_gets_the_partitions_that_each_key_gets_alone(
    keys: list[bytes], count: int, skipped: int
) -> None:
    column = pa.array(keys, pa.binary()).slice(skipped)

    assert partitions_for(column, count).tolist() == [
        partition_for(key, count) for key in keys[skipped:]
    ]


def test_a_key_of_a_megabyte_is_hashed_like_a_short_one() -> None:
    keys = pa.array([b"ab" * 500_000 + b"c", b"ab"])

    assert partitions_for(keys, 7).tolist() == [partition_for(key, 7) for key in keys.to_pylist()]


def test_null_keys_do_not_change_the_partitions_of_other_keys() -> None:
    keys = pa.array([None, b"foobar", None, b"21"], pa.binary())

    assert partitions_for(keys, 100).tolist()[1::2] == [
        partition_for(b"foobar", 100),
        partition_for(b"21", 100),
    ]


@given(st.integers(0, 500), st.integers(1, 200))
def test_runs_cover_all_records_and_their_sizes_differ_by_at_most_one(
    records: int, count: int
) -> None:
    runs = Spreader().runs(records, count)

    sizes = [size for _, size in runs]
    assert sum(sizes) == records
    assert len(runs) == len({partition for partition, _ in runs}) == min(records, count, RUNS_MAX)
    assert all(0 <= partition < count for partition, _ in runs)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


@given(st.lists(st.integers(1, 64), max_size=50), st.integers(1, 64))
def test_requests_of_any_size_fill_few_partitions_evenly(sizes: list[int], count: int) -> None:
    spreader = Spreader()
    total: Counter[int] = Counter(dict.fromkeys(range(count), 0))

    for records in sizes:
        total.update(dict(spreader.runs(records, count)))

    assert max(total.values()) - min(total.values()) <= 1


@given(st.integers(1, 300), st.integers(1, 200))
def test_requests_of_equal_size_fill_partitions_equally(records: int, count: int) -> None:
    spreader = Spreader()
    total: Counter[int] = Counter()

    for _ in range(count):
        total.update(dict(spreader.runs(records, count)))

    assert set(total.values()) == {records}


def test_single_records_rotate_over_partitions() -> None:
    spreader = Spreader()

    assert [spreader.runs(1, 3)[0][0] for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@given(st.data(), st.integers(1, 300), st.integers(1, 12), st.booleans())
def test_every_record_is_assigned_once_and_in_order(
    data: st.DataObject, rows: int, count: int, as_arrow: bool
) -> None:
    some_key = st.none() | st.sampled_from([b"", b"a", b"b", b"c", b"a longer key than a word"])
    keys = data.draw(st.lists(some_key, min_size=rows, max_size=rows))
    wanted = data.draw(
        st.none() | st.lists(st.none() | st.integers(0, count - 1), min_size=rows, max_size=rows)
    )
    explicit: Explicit = wanted
    if as_arrow and wanted is not None:
        explicit = pa.array(wanted, pa.int32())

    parts = assign(batch_of(keys), explicit, count, Spreader())

    placed = rows_of(parts)
    assert sorted(row for part in placed.values() for row in part) == list(range(rows))
    assert all(part == sorted(part) for part in placed.values())
    firsts = [part[0] for part in placed.values()]
    assert firsts == sorted(firsts)
    for partition, part in placed.items():
        for row in part:
            asked, key = wanted[row] if wanted else None, keys[row]
            if asked is not None:
                assert partition == asked
            elif key is not None:
                assert partition == partition_for(key, count)
    for partition, part in parts.items():
        part.validate(full=True)
        assert part.column("value").to_pylist() == [b"%d" % row for row in placed[partition]]


@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("partition", [4, -1])
@pytest.mark.parametrize("as_arrow", [False, True])
def test_the_error_names_the_record_whose_partition_does_not_exist(
    rows: int, count: int, partition: int, as_arrow: bool
) -> None:
    wanted = [None, partition] + [None] * (rows - 2)
    explicit = pa.array(wanted, pa.int64()) if as_arrow else wanted

    with pytest.raises(UnknownTopicOrPartition) as refusal:
        assign(batch_of([None] * rows), explicit, count, Spreader())

    assert f"records[1].partition is {partition}" in str(refusal.value)
    assert f"{count} partitions" in str(refusal.value)


@pytest.mark.parametrize("rows", [2, 200])
def test_records_of_one_partition_are_not_copied(rows: int) -> None:
    batch = batch_of([b"same"] * rows)

    [part] = assign(batch, None, 12, Spreader()).values()

    assert part is batch


def test_keyless_records_are_cut_without_being_copied() -> None:
    batch = batch_of([None] * 120)

    parts = assign(batch, None, 12, Spreader())

    assert rows_of(parts) == {p: list(range(p * 10, p * 10 + 10)) for p in range(12)}
    address = batch.column("value").buffers()[2].address
    assert {part.column("value").buffers()[2].address for part in parts.values()} == {address}


def test_no_records_are_assigned_to_no_partition() -> None:
    assert assign(batch_of([]), None, 3, Spreader()) == {}
