"""Which offsets of a partition are compacted, and how the work is divided, in every state."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.segment_list import Cleaned
from storage.maintenance.compaction import plan
from storage.maintenance.compaction.hot import Hot
from storage.maintenance.compaction.plan import FANOUT, MIB, CompactionOptions, Rewrite, Skip, State
from storage.topics.config import TopicConfig
from tests.storage.maintenance.compaction.states import NOW_MS, entry, segment, state

DELETE = TopicConfig({})
COMPACT = TopicConfig({"cleanup.policy": "compact"})
NOW = CompactionOptions(now_ms=NOW_MS)
FORCE = CompactionOptions(now_ms=NOW_MS, force=True)
DAY_MS = 86_400_000


def rewrite(decided: Skip | Rewrite) -> Rewrite:
    assert isinstance(decided, Rewrite), decided
    return decided


def reason(decided: Skip | Rewrite) -> str:
    assert isinstance(decided, Skip), decided
    return decided.reason


def test_slices_are_merged_when_enough_is_new() -> None:
    few = state(entries=[entry(10, 10, MIB)])
    assert "--force" in reason(plan.decide(DELETE, few, NOW))
    assert rewrite(plan.decide(DELETE, few, FORCE)).kind == "merge"

    many = state(entries=[entry(10, 10, 5 * MIB), entry(20, 10, 5 * MIB)])
    made = rewrite(plan.decide(DELETE, many, NOW))
    assert (made.start_offset, made.end_offset, made.covers) == (0, 20, 20)
    assert made.size_bytes == 10 * MIB


def test_slices_are_merged_when_they_are_old() -> None:
    old = state(entries=[entry(10, 10, 100, ms=NOW_MS - 7 * DAY_MS), entry(11, 1, 100)])
    assert rewrite(plan.decide(DELETE, old, NOW)).end_offset == 11


def test_a_partition_without_new_records_is_skipped() -> None:
    done = state([segment(0, 10, 100)])
    assert "nothing is new" in reason(plan.decide(DELETE, done, FORCE))
    assert "nothing is new" in reason(
        plan.decide(COMPACT, replace(done, listed=replace_cleaned(done, 10)), FORCE)
    )


def replace_cleaned(given: State, end: int, at_ms: int = NOW_MS) -> "plan.SegmentList":
    return plan.SegmentList(given.listed.segments, (Cleaned(end, at_ms),))


def test_segments_before_the_log_start_are_unlisted() -> None:
    partly = state([segment(0, 10, 100), segment(10, 20, 100)], log_start=10)
    made = rewrite(plan.decide(DELETE, partly, NOW))
    assert made.kind == "trim"
    assert plan.applied(made, [], 10).segments == partly.listed.segments[1:]
    assert made.covers == 20


def test_a_merge_begins_at_the_log_start() -> None:
    made = rewrite(plan.decide(DELETE, state(entries=[entry(10, 10, 100)], log_start=4), FORCE))
    assert (made.start_offset, made.end_offset) == (4, 10)


def test_small_segments_at_the_end_are_merged_again_and_large_ones_are_not() -> None:
    assert plan.tail([1, 1, 1], 1, 100) == 3
    assert plan.tail([1, 1], 1, 100) == 0
    assert plan.tail([50, 1, 1, 1], 1, 50) == 3
    assert plan.tail([50, 1, 1, 1], 1, 51) == 3
    assert plan.tail([4, 4, 4, 1, 1, 1], 1, 100) == 6


@given(st.lists(st.integers(1, 64), min_size=1, max_size=300))
def test_a_byte_is_rewritten_a_logarithmic_number_of_times(flushes: list[int]) -> None:
    full = 4096
    segments: list[int] = []
    written = 0
    for size in flushes:
        count = plan.tail(segments, size, full)
        merged = size + sum(segments[len(segments) - count :])
        segments = [*segments[: len(segments) - count], merged]
        written += merged
        small = [each for each in segments if each < full]
        # Each is larger than a third of the sum of those after it: see `tail`.
        assert len(small) <= 40
    # A byte that is rewritten is in a segment FANOUT times as large; 64 bytes are one write.
    assert written <= sum(flushes) * (2 + full.bit_length() / (FANOUT.bit_length() - 1))


def test_compaction_waits_for_the_minimum_dirty_ratio() -> None:
    clean = segment(0, 90, 900)
    little = state([clean], [entry(100, 10, 100)], cleaned=[Cleaned(90, NOW_MS)])
    assert reason(plan.decide(COMPACT, little, NOW)) == (
        "dirty ratio 0.10 is below min.cleanable.dirty.ratio 0.5; --force compacts anyway"
    )
    made = rewrite(plan.decide(COMPACT, little, FORCE))
    assert (made.segments, made.start_offset, made.end_offset) == ((clean,), 0, 100)
    assert made.cleaned == (Cleaned(90, NOW_MS), Cleaned(100, NOW_MS))

    much = state([clean], [entry(190, 100, 900)], cleaned=[Cleaned(90, NOW_MS)])
    assert rewrite(plan.decide(COMPACT, much, NOW)).covers == 190


def test_compaction_waits_at_most_max_compaction_lag() -> None:
    config = TopicConfig({"cleanup.policy": "compact", "max.compaction.lag.ms": "5000"})
    for age_ms, is_due in ((4999, False), (5000, True)):
        given = state(
            [segment(0, 90, 900)],
            [entry(100, 10, 10, ms=NOW_MS - age_ms)],
            cleaned=[Cleaned(90, NOW_MS)],
        )
        assert isinstance(plan.decide(config, given, NOW), Rewrite) == is_due


@pytest.mark.parametrize("options", [NOW, FORCE])
def test_compaction_never_takes_what_is_too_young(options: CompactionOptions) -> None:
    config = TopicConfig({"cleanup.policy": "compact", "min.compaction.lag.ms": "5000"})
    old, young = NOW_MS - 5000, NOW_MS - 4999
    given = state(
        entries=[entry(10, 10, 9, ms=old), entry(20, 10, 9, ms=young), entry(30, 10, 9, ms=old)]
    )
    made = rewrite(plan.decide(config, given, options))
    assert (made.end_offset, made.covers, len(made.hot)) == (10, 10, 1)

    all_young = state(entries=[entry(10, 10, 9, ms=young)])
    assert "too young" in reason(plan.decide(config, all_young, options))


def test_segments_younger_than_min_compaction_lag_are_kept_after_the_rewrite() -> None:
    config = TopicConfig({"cleanup.policy": "compact", "min.compaction.lag.ms": "5000"})
    old, young = segment(0, 10, 9, max_ms=NOW_MS - 9000), segment(10, 20, 9, max_ms=NOW_MS)
    given = state([old, young], [entry(30, 10, 9, ms=NOW_MS - 9000)])
    made = rewrite(plan.decide(config, given, FORCE))
    assert (made.segments, made.kept_after, len(made.hot)) == ((old,), (young,), 0)
    assert (made.covers, made.end_offset) == (20, 10)
    assert made.cleaned == (Cleaned(10, NOW_MS),)


def test_tombstones_past_their_retention_are_a_reason_to_compact() -> None:
    config = TopicConfig({"cleanup.policy": "compact", "delete.retention.ms": "1000"})
    held = segment(0, 10, 100, tombstones=1)
    for at_ms, horizon in ((NOW_MS - 999, None), (NOW_MS - 1000, 10)):
        given = state([held], cleaned=[Cleaned(10, at_ms)])
        decided = plan.decide(config, given, NOW)
        if horizon is None:
            assert isinstance(decided, Skip)
        else:
            assert rewrite(decided).horizon == horizon
            assert rewrite(decided).cleaned == (Cleaned(10, at_ms),)


def test_a_cleaned_offset_is_a_horizon_only_once() -> None:
    config = TopicConfig({"cleanup.policy": "compact", "delete.retention.ms": "1000"})
    held = segment(0, 20, 100, tombstones=1)
    given = state([held], cleaned=[Cleaned(10, 5), Cleaned(20, NOW_MS)])
    made = rewrite(plan.decide(config, given, NOW))
    assert made.horizon == 10
    after = replace(given, listed=plan.applied(made, [held], 0))
    # The tombstone was after the horizon, and the next horizon is not due yet.
    assert isinstance(plan.decide(config, after, NOW), Skip)


SLICES = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60)
SEGMENTS = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=20)


@given(SEGMENTS, SLICES, st.integers(1, 20_000), st.integers(0, 3000))
def test_ranges_cover_the_rewrite_without_overlap_and_are_about_equal(
    segments: list[tuple[int, int]], slices: list[tuple[int, int]], size: int, log_start: int
) -> None:
    given = built(segments, slices, log_start)
    decided = plan.decide(COMPACT, given, FORCE)
    if isinstance(decided, Skip) or decided.kind == "trim":
        return
    cut = plan.ranges(decided, size)
    assert cut[0].start_offset == decided.start_offset
    assert cut[-1].end_offset == decided.end_offset
    assert all(one.end_offset == other.start_offset for one, other in pairwise(cut))
    assert tuple(each for one in cut for each in one.segments) == decided.segments
    assert Hot.joined([one.hot for one in cut]).rows() == decided.hot.rows()
    assert all(one.size_bytes <= size + 5000 for one in cut)
    assert all(one.start_offset < one.end_offset for one in cut)


def built(segments: list[tuple[int, int]], slices: list[tuple[int, int]], log_start: int) -> State:
    offset, made, entries = 0, [], []
    for count, size in segments:
        made.append(segment(offset, offset + count, size))
        offset += count
    for count, size in slices:
        offset += count
        entries.append(entry(offset, count, size))
    return state(made, entries, log_start=min(log_start, offset))


@given(SEGMENTS, SLICES, st.integers(0, 3000), st.booleans())
def test_after_any_decision_the_segment_list_covers_all_live_offsets(
    segments: list[tuple[int, int]], slices: list[tuple[int, int]], log_start: int, keyed: bool
) -> None:
    given = built(segments, slices, log_start)
    decided = plan.decide(COMPACT if keyed else DELETE, given, FORCE)
    if isinstance(decided, Skip):
        return
    new = (
        [segment(decided.start_offset, decided.end_offset, 1)]
        if decided.end_offset > decided.start_offset
        else []
    )
    after = plan.applied(decided, new, given.log_start).segments
    assert all(one.end_offset <= other.start_offset for one, other in pairwise(after))
    covered = {offset for each in after for offset in range(each.start_offset, each.end_offset)}
    assert covered >= set(range(given.log_start, decided.covers))


@given(st.lists(st.integers(0, 40 * MIB), max_size=600), st.integers(1, 64))
def test_packs_hold_every_unit_once_in_order_and_stay_within_their_limits(
    sizes: list[int], parallelism: int
) -> None:
    packed = plan.packs(sizes, parallelism, 256 * MIB)
    assert [number for pack in packed for number in pack] == list(range(len(sizes)))
    for pack in packed:
        assert len(pack) <= plan.TASK_UNITS_MAX
        assert len(pack) == 1 or sum(sizes[number] for number in pack) <= 256 * MIB


def test_ten_thousand_tiny_partitions_keep_every_core_busy() -> None:
    packed = plan.packs([1000] * 10_000, 8, 256 * MIB)
    assert 32 <= len(packed) <= 64


def test_one_huge_partition_keeps_every_core_busy() -> None:
    slices = [entry((n + 1) * 100, 100, 256 * 1024) for n in range(16 * 1024)]  # 4 GiB
    made = rewrite(plan.decide(DELETE, state(entries=slices), NOW))
    for cores, count in ((2, 16), (16, 48), (64, 64)):
        size = plan.range_bytes(made.size_bytes, cores, DELETE.segment_bytes, NOW)
        assert len(plan.ranges(made, size)) == pytest.approx(count, abs=2)


@given(SLICES)
def test_hot_slices_are_encoded_and_decoded(slices: list[tuple[int, int]]) -> None:
    hot = built([], slices, 0).hot
    assert Hot.decode(hot.encode()).rows() == hot.rows()
