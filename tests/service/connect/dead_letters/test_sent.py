"""Ranges of letters that were sent again."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.connect.dead_letters.sent import SentLetters, decode_sent, encode_sent, union
from tests.examples import some

OFFSETS = st.lists(st.lists(st.integers(0, 40), max_size=8), max_size=6)


@some
@given(OFFSETS, st.integers(0, 40))
def test_ranges_hold_what_was_sent_since_the_log_start(
    batches: list[list[int]], log_start: int
) -> None:
    sent = SentLetters("origin")
    for batch in batches:
        sent = sent.with_offsets(batch, log_start, 7)

    expected = {offset for batch in batches for offset in batch if offset >= log_start}
    assert {offset for offset in range(log_start, 50) if offset in sent} == expected
    assert all(end < start for (_, end), (start, _) in pairwise(sent.ranges))
    assert decode_sent(encode_sent(sent)) == sent


def test_what_was_sent_anywhere() -> None:
    here = SentLetters("origin").with_offsets([1, 2, 9], 0, 0)
    there = SentLetters("topic:t").with_offsets([3], 0, 0)

    assert union([here, there]).ranges == [(1, 4), (9, 10)]
