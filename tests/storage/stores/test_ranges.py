"""Ranges read together give the same bytes as ranges read one by one."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from storage.stores.ranges import Range, cut, merged

BODY = bytes(range(256))
RANGES = st.lists(
    st.tuples(st.integers(0, 256), st.integers(0, 256)).map(lambda pair: (min(pair), max(pair)))
)


@given(RANGES, st.integers(0, 64))
def test_every_range_is_cut_from_the_merged_range_that_covers_it(
    ranges: list[Range], gap_bytes_max: int
) -> None:
    covering = merged(ranges, gap_bytes_max)
    bodies = [BODY[start:end] for start, end in covering]

    for start, end in ranges:
        assert cut(covering, bodies, (start, end)) == BODY[start:end]


@given(RANGES, st.integers(0, 64))
def test_ranges_that_are_not_merged_are_further_apart_than_the_gap(
    ranges: list[Range], gap_bytes_max: int
) -> None:
    covering = merged(ranges, gap_bytes_max)

    for (_, end), (start, _) in pairwise(covering):
        assert start - end > gap_bytes_max
