"""The last offset of each key, compared with a dictionary."""

import random
from collections import defaultdict
from itertools import chain

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.compacted import SCHEMA
from storage.formats.records import HEADERS_TYPE
from storage.maintenance.compaction import keyed
from storage.maintenance.compaction.keyed import PAIRS, LastOffsets

Row = tuple[bytes | None, bytes | None]

ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=2) | st.integers(0, 9).map(lambda n: b"key-%d" % n),
        st.none() | st.binary(max_size=3),
    ),
    max_size=80,
)
OFFSETS = st.integers(0, 100)


def batch_of(rows: list[Row], first: int = 0, gap: int = 1) -> pa.RecordBatch:
    keys, values = [row[0] for row in rows], [row[1] for row in rows]
    offsets = [first + gap * n for n in range(len(rows))]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64()),
            pa.array(offsets, pa.int64()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.nulls(len(rows), HEADERS_TYPE),
        ],
        schema=SCHEMA,
    )


def cut(batch: pa.RecordBatch, chance: random.Random) -> list[pa.RecordBatch]:
    pieces, start = [], 0
    while start < batch.num_rows:
        count = chance.randint(1, 20)
        pieces.append(batch.slice(start, count))
        start += count
    return pieces


def last_offsets(batches: list[pa.RecordBatch]) -> pa.Table:
    last = LastOffsets()
    for batch in batches:
        last.add(batch)
    return last.table()


def expected(rows: list[Row], floor: int = 0) -> list[int]:
    last: dict[bytes, int] = {}
    keyless = []
    for offset, (key, _) in enumerate(rows):
        if offset < floor:
            continue
        if key is None:
            keyless.append(offset)
        else:
            last[key] = offset
    return sorted([*last.values(), *keyless])


@given(ROWS, st.integers(1, 30), st.randoms(use_true_random=False))
def test_the_last_of_each_key_survives(
    rows: list[Row], reduce_rows: int, chance: random.Random
) -> None:
    last = LastOffsets(reduce_rows)
    for batch in cut(batch_of(rows), chance):
        last.add(keyed.pairs(batch))
    assert keyed.survivors(last.table()).tolist() == expected(rows)


@given(ROWS, OFFSETS)
def test_what_is_before_the_log_start_does_not_count(rows: list[Row], floor: int) -> None:
    table = last_offsets([keyed.pairs(batch_of(rows), floor)])
    assert keyed.survivors(table).tolist() == expected(rows, floor)


@given(ROWS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_a_shuffle_finds_the_same_survivors(
    rows: list[Row], buckets: int, chance: random.Random
) -> None:
    groups: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    ranges = cut(batch_of(rows), chance)
    for number, batch in enumerate(ranges):
        table = last_offsets([keyed.pairs(batch)])
        for spread in keyed.spread(table, number, buckets):
            for group in set(spread.column(0).to_pylist()):
                mask = pa.array([each == group for each in spread.column(0).to_pylist()])
                groups[group].append(spread.filter(mask))
    found: dict[int, list[int]] = defaultdict(list)
    for batches in groups.values():
        for batch in keyed.regroup(pa.Table.from_batches(batches)):
            for row in batch.to_pylist():
                found[row["group"]].append(row["offset"])
    assert sorted(found) == list(range(len(ranges)))
    kept = {n: keyed.survivors(pa.table({"offset": each})) for n, each in found.items()}
    assert sorted(chain.from_iterable(kept.values())) == expected(rows)
    for number, offsets in kept.items():
        assert set(offsets) <= set(ranges[number].column(0).to_pylist())


@given(ROWS, OFFSETS, OFFSETS, st.booleans(), st.integers(1, 3))
def test_rows_are_kept_by_offset_log_start_and_horizon(
    rows: list[Row], floor: int, horizon: int, is_keyed: bool, gap: int
) -> None:
    batch = batch_of(rows, gap=gap)
    chosen = [gap * each for each in expected(rows)] if is_keyed else None
    wanted = None if chosen is None else np.array(chosen, np.int64)

    found = keyed.kept(batch, wanted, floor=floor, horizon=horizon)

    stays = []
    for row in batch.to_pylist():
        is_tombstone = row["key"] is not None and row["value"] is None
        if (
            row["offset"] >= floor
            and (chosen is None or row["offset"] in chosen)
            and not (is_tombstone and row["offset"] < horizon)
        ):
            stays.append(row)
    assert found.to_pylist() == stays
    assert keyed.tombstone_count(found) == sum(
        row["key"] is not None and row["value"] is None for row in stays
    )


@given(st.lists(st.none() | st.binary(max_size=9), max_size=50), st.integers(0, 20))
def test_a_bucket_depends_on_the_key_alone(keys: list[bytes | None], skipped: int) -> None:
    array = pa.array(keys, pa.binary())
    buckets = keyed.bucket_of(array, 7).tolist()
    assert keyed.bucket_of(array.slice(skipped), 7).tolist() == buckets[skipped:]
    by_key = dict(zip(keys, buckets, strict=True))
    assert buckets == [by_key[key] for key in keys]
    assert all(0 <= each < 7 for each in buckets)


def test_keys_are_spread_evenly_over_buckets() -> None:
    keys = pa.array([b"user-%d" % n for n in range(70_000)], pa.binary())
    counts = np.bincount(keyed.bucket_of(keys, 7), minlength=7)
    assert counts.min() > 9_000
    assert counts.max() < 11_000


def test_nothing_is_nothing() -> None:
    assert keyed.survivors(last_offsets([])).tolist() == []
    assert last_offsets([]).schema == PAIRS
    assert [each.num_rows for each in keyed.spread(last_offsets([]), 0, 4)] == [1]
    assert keyed.bucket_of(pa.array([], pa.binary()), 4).tolist() == []
