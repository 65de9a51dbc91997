"""Each rule of compacted topics notices what breaks it, and nothing else."""

import pytest

from tests.checker.history import History, violations
from tests.checker.keyed_rules import KEYED_RULES, KeyedHistory, Look, Record, Written

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


@pytest.mark.parametrize(
    ("rule", "history"),
    [
        ("what_is_last_survives", keyed(BOTH)),
        ("what_is_last_survives", keyed(BOTH, B, partition=1)),
        ("what_is_last_survives", keyed(BOTH, A)),
        ("what_is_last_survives", keyed(BOTH, Record(1, "k", "a"))),
        ("what_is_last_survives", keyed(REMOVED, A)),
        # Acknowledged out of their order: the offset counts.
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
        ("nothing_comes_from_nowhere", keyed(BOTH, B, looks=(look(2, OTHER),))),
        (
            "nothing_comes_from_nowhere",
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
    ],
)
def test_a_broken_rule_is_noticed(rule: str, history: KeyedHistory) -> None:
    found = violations(History(keyed=history))

    assert any(line.startswith(f"{rule}:") for line in found), found


@pytest.mark.parametrize(
    "history",
    [
        keyed(BOTH, B, looks=(look(0, B), look(1, B), look(2), look(0, A, end=1))),
        # A tombstone is there, until it is not.
        keyed(REMOVED, GONE, looks=(look(0, A, GONE), look(0, GONE), look(0, end=2))),
        keyed(REMOVED, looks=(look(0, end=2, at_s=300),), tombstone_s=200),
        # Nobody knows whether it is in the log, and what it has replaced.
        keyed([written(A), written(B, acked=False, maybe=True)], A),
        keyed([written(A), written(B, acked=False, maybe=True)], B, looks=(look(0, B),)),
        # It was written while the fetch was on its way.
        keyed(BOTH, B, looks=(look(0, end=2, at_s=2.5),)),
        # Another partition has offsets of its own.
        KeyedHistory(written=BOTH, looks=[Look(1, 0, 5, (), 2)], final={0: [B], 1: []}),
    ],
)
def test_what_may_happen_is_not_held_against_anyone(history: KeyedHistory) -> None:
    assert [problem for rule in KEYED_RULES for problem in rule(history)] == []
