"""The decisions of the driver: pure, so no Spark and no gateway."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    Not,
)

from riacho.records import TopicPartition
from riacho.spark.read import planning
from riacho.spark.read.filters import pushed
from riacho.spark.read.options import Boundary
from riacho.spark.read.planning import Extent, Span, kept, limited, resolved, tasks
from riacho.spark.read.ranges import EVERYTHING, GROUP_RANGES, Bounds, StoredRange, groups, wanted
from storage.errors import InvalidConfig, OffsetOutOfRange

MIB = 1024 * 1024
ZERO = TopicPartition("t", 0)
ONE = TopicPartition("t", 1)


def stored(base: int, end: int, *, url: str = "a", start: int = 0, size: int = 100) -> StoredRange:
    return StoredRange(
        base_offset=base,
        end_offset=end,
        count=end - base,
        format="arrow",
        url=url,
        start=start,
        end=start + size,
        crc32c=0,
        min_timestamp=base * 10,
        max_timestamp=end * 10 - 1,
    )


def span(*ends: int, size: int = 100) -> Span:
    starts = [0, *ends[:-1]]
    ranges = tuple(stored(a, b, size=size) for a, b in zip(starts, ends, strict=True))
    return Span(partition=ZERO, start=0, end=ends[-1], ranges=ranges)


def test_a_small_partition_is_one_task() -> None:
    assert [(each.start, each.end) for each in tasks([span(10, 20, 30)])] == [(0, 30)]


def test_a_large_partition_is_cut_where_slices_end() -> None:
    cut = tasks([span(*range(10, 110, 10), size=20 * MIB)])

    assert [(each.start, each.end) for each in cut] == [(0, 30), (30, 60), (60, 90), (90, 100)]
    assert sum(len(each.ranges or ()) for each in cut) == 10


def test_what_the_driver_did_not_locate_is_cut_by_its_size() -> None:
    unknown = Span(partition=ZERO, start=0, end=1000, size_bytes=planning.TASK_BYTES * 4)

    assert [(each.start, each.end) for each in tasks([unknown])] == [
        (0, 250),
        (250, 500),
        (500, 750),
        (750, 1000),
    ]


def test_nothing_is_no_task() -> None:
    assert tasks([Span(partition=ZERO, start=5, end=5), span(10).between(10, 10)]) == []


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=8),
    st.one_of(st.none(), st.integers(1, 30)),
    st.one_of(st.none(), st.integers(1, 30)),
)
def test_tasks_read_every_offset_once(
    counts: list[int], min_partitions: int | None, records_max: int | None
) -> None:
    ends = [sum(counts[: number + 1]) for number in range(len(counts))]
    cut = tasks(
        [span(*ends, size=planning.TASK_BYTES // 3)],
        min_partitions=min_partitions,
        records_max=records_max,
    )

    offsets = [offset for each in cut for offset in range(each.start, each.end)]
    assert offsets == [*range(ends[-1])]
    for each in cut:
        held = {o for r in each.ranges or () for o in range(r.base_offset, r.end_offset)}
        assert held >= {*range(each.start, each.end)}
        assert records_max is None or each.offset_count <= records_max
    if min_partitions is not None:
        assert len(cut) >= min(min_partitions, ends[-1]) * 0.5


def test_ranges_that_touch_are_read_at_once() -> None:
    neighbours = [stored(n, n + 1, start=100 * n) for n in range(GROUP_RANGES + 2)]
    elsewhere = [stored(90, 91, url="b", start=0), stored(91, 92, url="b", start=300)]

    assert [len(run) for run in groups([*neighbours, *elsewhere])] == [GROUP_RANGES, 2, 1, 1]


@given(
    st.dictionaries(st.integers(0, 5), st.integers(0, 1000), min_size=1, max_size=6),
    st.integers(1, 500),
)
def test_a_limit_is_shared_by_what_waits_and_starves_nobody(
    waiting: dict[int, int], most: int
) -> None:
    start = {TopicPartition("t", p): 7 for p in waiting}
    end = {TopicPartition("t", p): 7 + count for p, count in waiting.items()}

    reached = limited(start, end, most)

    taken = {p: reached[p] - start[p] for p in reached}
    total = sum(waiting.values())
    assert sum(taken.values()) <= max(most, 0) + len(waiting)
    for partition, count in taken.items():
        waits = end[partition] - start[partition]
        assert 0 <= count <= waits
        assert count > 0 or waits == 0
        assert total > most or count == waits


def test_without_a_limit_in_sight_everything_is_read() -> None:
    assert limited({ZERO: 3}, {ZERO: 9, ONE: 4}, 10) == {ZERO: 9, ONE: 4}


def late(partition: TopicPartition, extent: Extent) -> int:
    return extent.end


def test_places_are_offsets_of_each_partition() -> None:
    extents = {ZERO: Extent(log_start=3, end=9), ONE: Extent(log_start=0, end=5)}

    def at(place: Boundary, found: dict[TopicPartition, int | None] | None = None) -> list[int]:
        return [*resolved("startingOffsets", place, extents, found or {}, late).values()]

    assert at(Boundary(end="earliest")) == [3, 0]
    assert at(Boundary(end="latest")) == [9, 5]
    assert at(Boundary(offsets={ZERO: -2, ONE: -1})) == [3, 5]
    assert at(Boundary(offsets={ZERO: 7, ONE: 2})) == [7, 2]
    assert at(Boundary(at_ms=1), {ZERO: 4, ONE: None}) == [4, 5]


def test_a_place_names_exactly_the_partitions_that_are_read() -> None:
    extents = {ZERO: Extent(log_start=0, end=9), ONE: Extent(log_start=0, end=9)}

    with pytest.raises(InvalidConfig, match="leaves out t/1"):
        resolved("startingOffsets", Boundary(offsets={ZERO: 1}), extents, {}, late)
    named = {ZERO: 1, ONE: 1, TopicPartition("u", 0): 1}
    with pytest.raises(InvalidConfig, match="names u/0"):
        planning.times_of("startingOffsetsByTimestamp", Boundary(times_ms=named), extents)


def test_deleted_records_are_named_or_skipped() -> None:
    extent = Extent(log_start=5, end=20)

    assert kept(ZERO, 5, 20, extent, fail_on_data_loss=True) == (5, 20)
    assert kept(ZERO, 2, 30, extent, fail_on_data_loss=False) == (5, 20)
    assert kept(ZERO, 1, 3, extent, fail_on_data_loss=False) == (5, 5)
    assert kept(ZERO, 25, 30, extent, fail_on_data_loss=False) == (20, 20)
    with pytest.raises(OffsetOutOfRange, match=r"t/0: offsets from 2 to 10 .* 5 <= offset < 20"):
        kept(ZERO, 2, 10, extent, fail_on_data_loss=True)


def test_offsets_in_the_checkpoint_are_equal_text_when_they_are_equal() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}

    document = planning.to_json(offsets)

    assert str(document) == "{'a': {'0': 3}, 'b': {'9': 2, '10': 1}}"
    assert planning.from_json(document) == offsets


def narrowed(*filters: Filter) -> tuple[Bounds, list[Filter]]:
    return pushed(filters, EVERYTHING)


def test_filters_on_partition_and_offset_are_done_with() -> None:
    bounds, left = narrowed(
        IsNotNull(("offset",)),
        In(("partition",), (1, 2)),
        GreaterThan(("partition",), 1),
        GreaterThanOrEqual(("offset",), 10),
        LessThan(("offset",), 20),
        EqualTo(("topic",), "t"),
    )

    assert left == []
    assert (bounds.start, bounds.end) == (10, 20)
    assert [p for p in range(5) if bounds.takes("t", p)] == [2]
    assert not bounds.takes("u", 2)


def test_filters_on_time_leave_out_ranges_and_stay_with_spark() -> None:
    def moment(ms: int) -> datetime:
        return datetime.fromtimestamp(ms / 1000, UTC)

    filters = [GreaterThan(("timestamp",), moment(150)), LessThan(("timestamp",), moment(250))]
    bounds, left = narrowed(*filters)

    assert left == filters
    ranges = [stored(n, n + 10) for n in range(0, 50, 10)]
    assert [each.base_offset for each in wanted(ranges, bounds)] == [10, 20]


def test_other_filters_stay_with_spark() -> None:
    filters = [
        EqualTo(("key",), b"k"),
        IsNotNull(("key",)),
        Not(EqualTo(("partition",), 1)),
        GreaterThan(("offset",), 1.5),
        In(("offset",), (1, 9)),
    ]

    bounds, left = narrowed(*filters)

    assert left == filters
    # Of offsets that are no neighbours, only those before and behind are left out here.
    assert (bounds.start, bounds.end) == (1, 10)
