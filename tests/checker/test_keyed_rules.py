"""Each rule of compacted topics reports the histories that break it, and no others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checker.history import History, violations
from tests.checker.keyed_rules import (
    SKEW_S,
    KeyedHistory,
    Look,
    Record,
    Written,
    a_fetch_skips_only_what_was_replaced,
    last_acked,
)

A, B, GONE = Record(0, "k", "a"), Record(1, "k", "b"), Record(1, "k", None)
OTHER = Record(2, "other", "c")


def written(record: Record, *, at_s: float = 0, acked: bool = True, maybe: bool = False) -> Written:
    offset = record.offset if acked else None
    return Written(0, record.key, record.value, at_s, at_s + 1, offset, maybe)


def look(asked: int, *records: Record, end: int | None = None, at_s: float = 5) -> Look:
    if end is None:
        end = records[-1].offset + 1 if records else asked
    return Look(0, asked, at_s, records, end)


def keyed(
    sent: list[Written],
    *final: Record,
    looks: tuple[Look, ...] = (),
    partition: int = 0,
    tombstone_s: float = 0,
) -> KeyedHistory:
    return KeyedHistory(
        written=sent, looks=list(looks), final={partition: list(final)}, tombstone_s=tombstone_s
    )


BOTH = [written(A), written(B, at_s=2)]
REMOVED = [written(A), written(GONE, at_s=2)]


BROKEN_KEYED = [
    ("what_is_last_survives", keyed(BOTH)),
    ("what_is_last_survives", keyed(BOTH, B, partition=1)),
    ("what_is_last_survives", keyed(BOTH, A)),
    ("what_is_last_survives", keyed(BOTH, Record(1, "k", "a"))),
    ("what_is_last_survives", keyed(REMOVED, A)),
    # Acknowledged in another order: offsets decide which record is the last.
    ("what_is_last_survives", keyed(BOTH[::-1], A)),
    ("only_the_last_survives", keyed(BOTH, A, B)),
    ("only_the_last_survives", keyed(REMOVED, A, GONE)),
    ("an_offset_keeps_its_record", keyed(BOTH, Record(1, "k", "a"))),
    ("an_offset_keeps_its_record", keyed(BOTH, Record(1, "other", "b"))),
    ("an_offset_keeps_its_record", keyed(BOTH, B, looks=(look(1, GONE),))),
    (
        "an_offset_keeps_its_record",
        keyed([], Record(0, "k", "b"), looks=(look(0, A),)),
    ),
    ("no_key_comes_from_nowhere", keyed(BOTH, B, looks=(look(2, OTHER),))),
    (
        "no_key_comes_from_nowhere",
        keyed([written(A, acked=False)], looks=(look(0, A),)),
    ),
    ("a_fetch_goes_forward", keyed(BOTH, B, looks=(look(1, A),))),
    ("a_fetch_goes_forward", keyed(BOTH, B, looks=(look(0, B, A, end=2),))),
    ("a_fetch_goes_forward", keyed(BOTH, B, looks=(look(0, A, A),))),
    ("a_fetch_goes_forward", keyed(BOTH, B, looks=(look(0, A, B, end=1),))),
    ("a_fetch_goes_forward", keyed(BOTH, B, looks=(look(2, end=1),))),
    ("a_fetch_skips_only_what_was_replaced", keyed(BOTH, B, looks=(look(0, end=2),))),
    ("a_fetch_skips_only_what_was_replaced", keyed(BOTH, B, looks=(look(0, A, end=2),))),
    (
        "a_fetch_skips_only_what_was_replaced",
        keyed([*BOTH, written(OTHER)], B, OTHER, looks=(look(0, OTHER),)),
    ),
    (
        "a_fetch_skips_only_what_was_replaced",
        keyed(REMOVED, looks=(look(0, end=2),), tombstone_s=200),
    ),
    ("no_key_comes_from_nowhere", keyed([written(A)], A, OTHER)),
]
BROKEN = [(rule, History(keyed=keyed)) for rule, keyed in BROKEN_KEYED]


@pytest.mark.parametrize(("rule", "history"), BROKEN)
def test_a_history_that_breaks_a_rule_is_reported(rule: str, history: History) -> None:
    found = violations(history)

    assert any(line.startswith(f"{rule}:") for line in found), found


@pytest.mark.parametrize(
    "history",
    [
        keyed(BOTH, B, looks=(look(0, B), look(1, B), look(2), look(0, A, end=1))),
        # A tombstone is read until it is removed.
        keyed(REMOVED, GONE, looks=(look(0, A, GONE), look(0, GONE), look(0, end=2))),
        keyed(REMOVED, looks=(look(0, end=2, at_s=300),), tombstone_s=200),
        # It is unknown whether B is in the log and has replaced A.
        keyed([written(A), written(B, acked=False, maybe=True)], A),
        keyed([written(A), written(B, acked=False, maybe=True)], B, looks=(look(0, B),)),
        # If the tombstone was written, it may be removed together with its key.
        keyed([written(A), written(GONE, acked=False, maybe=True)]),
        # It was written while the fetch was in progress.
        keyed(BOTH, B, looks=(look(0, end=2, at_s=2.5),)),
        # Another partition has offsets of its own.
        KeyedHistory(written=BOTH, looks=[Look(1, 0, 5, (), 2)], final={0: [B], 1: []}),
    ],
)
def test_allowed_histories_break_no_rule(history: KeyedHistory) -> None:
    assert violations(History(keyed=history)) == []


RECORDS = st.builds(
    Record, st.integers(0, 12), st.sampled_from("abcdef"), st.sampled_from(["v", None])
)


@given(
    st.lists(st.builds(written, RECORDS, at_s=st.integers(0, 300)), max_size=12),
    st.lists(
        st.builds(
            Look,
            st.just(0),
            st.integers(0, 12),
            st.integers(0, 400),
            st.lists(RECORDS, max_size=4).map(tuple),
            st.integers(0, 14),
        ),
        max_size=4,
    ),
)
def test_skipped_records_are_found_as_by_comparing_all_pairs(
    sent: list[Written], looks: list[Look]
) -> None:
    history = keyed(sent, looks=tuple(looks), tombstone_s=200)
    wanted = {
        (str(one), look.words)
        for one in last_acked(history).values()
        for look in looks
        if look.asked <= (one.offset or 0) < look.next_offset
        and one.offset not in {record.offset for record in look.records}
        and one.ended_s < look.began_s
        and (one.value is not None or look.began_s - one.began_s < 200 - SKEW_S)
    }

    problems = list(a_fetch_skips_only_what_was_replaced(history))

    found = {
        (str(o), look.words) for o in sent for look in looks for p in problems if is_of(p, o, look)
    }
    assert found == wanted


def is_of(problem: str, one: Written, look: Look) -> bool:
    return problem.startswith(f"{one} was passed over by {look.words},")
