"""Each rule of transactions reports the histories that break it, and no others."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checker.ending_rules import ends_are_remembered, zombies_commit_nothing
from tests.checker.history import History, violations
from tests.checker.transaction_rules import (
    ABORTED,
    BY_KAFKA,
    COMMITTED,
    ENDS_REMEMBERED,
    FENCED,
    OUTDATED,
    REFUSED,
    UNAVAILABLE,
    UNKNOWN,
    Attempt,
    Ending,
    Instance,
    Moment,
    Place,
    Shown,
    TransactionHistory,
)

COPIES = "copies"
P: Place = (COPIES, 0)
Q: Place = (COPIES, 1)

ONE, TWO = "c.1.0", "c.1.1"
A, B, C = f"0:0@{ONE}", f"0:1@{ONE}", f"0:2@{TWO}"
BOTH = Attempt(ONE, {P: (A,), Q: (B,)}, {0: 2})
LAST = Attempt(TWO, {P: (C,)}, {0: 3})
SOURCE = {0: ["0:0", "0:1", "0:2"]}


def ending(
    answer: str,
    name: str = ONE,
    *,
    wants: str = COMMITTED,
    at_s: float = 0,
    following: int | None = None,
    bases: Mapping[Place, int] | None = None,
) -> Ending:
    next_epoch = None if following is None else (1, following)
    return Ending(name, wants, at_s, at_s + 1, answer, next_epoch, bases)


def shown(place: Place, end: int, *values: str, at_s: float = 5) -> Shown:
    start = end - len(values)
    return Shown(place, at_s, at_s + 1, tuple(enumerate(values, start)), end, is_end_of_now=True)


def log(*values: str) -> list[tuple[int, str]]:
    return list(enumerate(values))


def history(
    *endings: Ending,
    p: list[tuple[int, str]] | None = None,
    q: list[tuple[int, str]] | None = None,
    looks: list[Shown] | None = None,
    instances: list[Instance] | None = None,
    attempts: tuple[Attempt, ...] = (BOTH, LAST),
) -> TransactionHistory:
    return TransactionHistory(
        source=SOURCE,
        copies_to=COPIES,
        final={P: p or [], Q: q or []},
        attempts=list(attempts),
        endings=list(endings),
        shown=looks or [],
        instances=instances or [],
    )


BROKEN_TRANSACTIONS = [
    ("a_transaction_is_all_or_nothing", history(p=log(A))),
    ("a_transaction_is_all_or_nothing", history(p=log(A), q=log(B, B))),
    (
        "a_transaction_is_all_or_nothing",
        history(p=log(A, C, B), attempts=(Attempt(ONE, {P: (A, B)}), LAST)),
    ),
    (
        "no_read_shows_a_part",
        history(p=log(A, B), looks=[shown(P, 1, A)], attempts=(Attempt(ONE, {P: (A, B)}),)),
    ),
    (
        "no_read_shows_a_part",
        history(p=log(A), q=log(B), looks=[shown(P, 1, A), shown(Q, 0, at_s=7)]),
    ),
    ("what_was_answered_committed_is_visible", history(ending(COMMITTED))),
    (
        "what_was_answered_committed_is_visible",
        history(ending(COMMITTED), p=log(A), q=log(B), looks=[shown(Q, 0)]),
    ),
    (
        "nothing_of_an_aborted_or_unfinished_transaction_is_read",
        history(ending(UNKNOWN), ending(ABORTED, wants=ABORTED), p=log(A), q=log(B)),
    ),
    (
        "nothing_of_an_aborted_or_unfinished_transaction_is_read",
        history(ending(REFUSED), ending(UNKNOWN), looks=[shown(P, 1, A)]),
    ),
    (
        "nothing_of_an_aborted_or_unfinished_transaction_is_read",
        history(ending(UNAVAILABLE), p=log(A), q=log(B)),
    ),
    (
        "repeats_agree_with_the_first_answer",
        history(ending(COMMITTED), ending(ABORTED, wants=ABORTED)),
    ),
    ("repeats_agree_with_the_first_answer", history(ending(COMMITTED), ending(REFUSED))),
    (
        "repeats_agree_with_the_first_answer",
        history(ending(COMMITTED, following=1), ending(COMMITTED, following=2)),
    ),
    (
        "repeats_agree_with_the_first_answer",
        history(ending(COMMITTED, bases={P: 0, Q: 0}), ending(COMMITTED, bases={P: 0, Q: 1})),
    ),
    (
        "ends_are_remembered",
        history(
            ending(COMMITTED),
            ending(FENCED, at_s=3),
            instances=[Instance("c", 1, 2, at_s=6, began_s=5)],
        ),
    ),
    (
        "ends_are_remembered",
        history(
            ending(ABORTED, wants=ABORTED),
            ending(FENCED, wants=ABORTED, at_s=3),
            ending(COMMITTED, "c.1.10", at_s=5),
        ),
    ),
    (
        "ends_are_remembered",
        history(
            ending(COMMITTED, "writer-0.1.5"),
            ending(FENCED, "writer-0.1.5", at_s=3),
            ending(COMMITTED, "writer-0.2.6", at_s=5),
        ),
    ),
    (
        "ends_are_remembered",
        history(ending(COMMITTED, "key-1.0.5"), ending(FENCED, "key-1.0.5", at_s=3)),
    ),
    (
        "committed_records_are_where_they_were_said_to_be",
        history(ending(COMMITTED, bases={P: 0, Q: 1}), p=log(A), q=log(B)),
    ),
    (
        "committed_records_are_where_they_were_said_to_be",
        history(ending(COMMITTED, bases={P: 0}), p=log(A), q=log(B)),
    ),
    (
        "every_instance_has_an_epoch_of_its_own",
        history(instances=[Instance("c", 1, 4, 2), Instance("c", 1, 4, 3)]),
    ),
    (
        "every_instance_has_an_epoch_of_its_own",
        history(
            instances=[
                Instance("c", 1, 0, 1),
                Instance("d", 1, 1, 1),
                Instance("c", 1, 1, 2),
                Instance("c", 1, 0, 9),
            ]
        ),
    ),
    (
        "zombies_commit_nothing",
        history(ending(COMMITTED, at_s=3), instances=[Instance("c", 1, 1, 2)]),
    ),
    (
        "zombies_commit_nothing",
        history(
            ending(COMMITTED, TWO, at_s=3),
            ending(COMMITTED, TWO, at_s=8),
            instances=[Instance("c", 1, 7, 2)],
        ),
    ),
    ("there_is_one_copy_of_each_record_in_order", history(p=log(A), q=log(A))),
    ("there_is_one_copy_of_each_record_in_order", history(p=log(C, A))),
    ("there_is_one_copy_of_each_record_in_order", history(p=log("what nobody wrote"))),
    (
        "nothing_of_an_aborted_or_unfinished_transaction_is_read",
        history(ending(FENCED, "no such name"), p=log("what nobody wrote", "0:0@no such name")),
    ),
    ("there_is_one_copy_of_each_record_in_order", history(p=log(f"0:9@{ONE}"))),
    (
        "numbered_calls_are_in_order",
        TransactionHistory(final={P: log("0@writer-0.0.1", "0@writer-0.0.0")}),
    ),
    (
        "numbered_calls_are_in_order",
        TransactionHistory(final={P: log("0@writer-0.1.1", "0@writer-0.0.2")}),
    ),
    (
        "offsets_and_output_agree_at_every_moment",
        TransactionHistory(moments=[Moment(0, {0: 2}, 2), Moment(1, {0: 3}, 2)]),
    ),
    (
        "offsets_and_output_agree_at_every_moment",
        TransactionHistory(moments=[Moment(0, {}, 1), Moment(1, {0: 1}, 1)]),
    ),
    (
        "copied_offsets_never_go_back",
        TransactionHistory(moments=[Moment(0, {0: 2}, 2), Moment(1, {0: 1}, 1)]),
    ),
    (
        "copied_offsets_never_go_back",
        TransactionHistory(moments=[Moment(0, {0: 2, 1: 1}, 3), Moment(1, {0: 3, 1: 0}, 3)]),
    ),
    (
        "nothing_is_read_before_its_commit",
        history(ending(COMMITTED, at_s=9), looks=[shown(P, 1, A)]),
    ),
    (
        "nothing_is_read_before_its_commit",
        history(ending(UNKNOWN, at_s=9), ending(UNKNOWN, at_s=8), looks=[shown(Q, 1, B)]),
    ),
    ("one_place_one_value", history(p=log(A), looks=[shown(P, 1, C)])),
    ("one_place_one_value", history(p=log(), looks=[shown(P, 1, A)])),
    ("one_place_one_value", history(looks=[shown(P, 1, A), shown(P, 1, C)])),
    ("places_are_dense", history(p=[(1, A)])),
    ("places_are_dense", history(p=[(0, A), (2, C)])),
    (
        "places_are_dense",
        history(p=log(A, B, C), looks=[Shown(P, 5, 6, ((0, A), (2, C)), 3, True)]),
    ),
    ("places_are_dense", history(p=log(A), looks=[Shown(P, 5, 6, ((0, A),), 0, True)])),
    ("ends_of_places_never_go_back", history(looks=[shown(P, 2), shown(P, 1, at_s=7)])),
    ("ends_of_places_never_go_back", history(p=log(A), looks=[shown(P, 2)])),
    (
        "all_partitions_have_one_order_of_transactions",
        history(p=log(A, C), q=log(f"0:4@{TWO}", B)),
    ),
    (
        "all_partitions_have_one_order_of_transactions",
        TransactionHistory(
            final={
                P: log("0@a.0.0", "0@x.0.0", "0@b.0.0"),
                Q: log("0@b.0.0", "0@c.0.0"),
                ("other", 0): log("0@y.0.0", "0@c.0.0", "0@a.0.0"),
            }
        ),
    ),
    (
        "transactions_keep_the_order_of_time",
        history(ending(COMMITTED), ending(COMMITTED, TWO, at_s=2), p=log(C, A), q=log(B)),
    ),
    (
        "transactions_keep_the_order_of_time",
        history(ending(COMMITTED), ending(UNKNOWN, TWO, at_s=2), p=log(C, A), q=log(B)),
    ),
    (
        "zombies_commit_nothing",
        history(ending(UNKNOWN, at_s=3), p=log(A), instances=[Instance("c", 1, 1, 2)]),
    ),
    ("after_the_faults_all_is_copied", TransactionHistory(is_drained=False)),
    ("after_the_faults_all_is_copied", TransactionHistory(source=SOURCE, is_drained=False)),
    ("nobody_meets_other_errors", TransactionHistory(errors=["500"])),
    ("nobody_meets_other_errors", TransactionHistory(errors=["404", "500"])),
    (
        "there_is_one_copy_of_each_record_in_order",
        replace(history(p=log(A), q=log(B)), is_drained=True),
    ),
]
BROKEN = [(rule, History(transactions=broken)) for rule, broken in BROKEN_TRANSACTIONS]


@pytest.mark.parametrize(("rule", "broken"), BROKEN)
def test_a_history_that_breaks_a_rule_is_reported(rule: str, broken: History) -> None:
    found = violations(broken)

    assert any(line.startswith(f"{rule}:") for line in found), found


def test_an_allowed_history_breaks_no_rule() -> None:
    lost = Attempt("c.1.2", {P: ("0:3@c.1.2",)}, {0: 4})
    seen = history(
        ending(UNKNOWN, at_s=1),
        ending(COMMITTED, at_s=3, following=1, bases={P: 0, Q: 0}),
        ending(COMMITTED, at_s=5, following=1),
        ending(REFUSED, wants=ABORTED, at_s=6),
        # It was sent before the newer instance was announced, and answered later.
        ending(COMMITTED, TWO, at_s=5, following=2, bases={P: 1}),
        ending(COMMITTED, TWO, at_s=9, following=2),
        # Aborted by a newer instance, and so long ago that it is no longer remembered.
        ending(OUTDATED, "c.1.2", at_s=4),
        ending(FENCED, "c.1.2", at_s=9),
        ending(FENCED, at_s=30),
        p=log(A, C),
        q=log(B),
        looks=[shown(P, 0, at_s=1), shown(P, 1, A, at_s=3), shown(Q, 1, B), shown(P, 2, C, at_s=8)],
        instances=[Instance("c", 1, 3, 7, 6), Instance("c", 1, 20, 33, 32)],
        attempts=(BOTH, LAST, lost),
    )
    seen.moments = [Moment(2, {0: 2}, 2), Moment(6, {0: 3}, 3)]
    seen.is_drained = True

    assert violations(History(transactions=seen)) == []


@pytest.mark.parametrize(
    "seen",
    [
        # Its outcome is unknown: all of it is in the log, or nothing.
        history(ending(UNKNOWN)),
        history(ending(UNKNOWN), p=log(A), q=log(B)),
        history(ending(UNKNOWN), ending(ABORTED, wants=ABORTED, at_s=3)),
        # Two concurrent commits may be in either order.
        history(ending(COMMITTED), ending(COMMITTED, TWO, at_s=0.5), p=log(A, C), q=log(B)),
        history(
            ending(COMMITTED),
            ending(COMMITTED, "d.2.0"),
            q=log("0:0@d.2.0", B),
            attempts=(Attempt(ONE, {Q: (B,)}),),
        ),
        # Read during the commit, and by a reader that began before it.
        history(ending(COMMITTED, at_s=4), p=log(A), q=log(B), looks=[shown(P, 1, A, at_s=4)]),
        history(ending(COMMITTED, at_s=4), p=log(A), q=log(B), looks=[shown(Q, 0, at_s=4.5)]),
        # A reader before the end gets a slightly old end.
        history(
            ending(COMMITTED),
            ending(COMMITTED, TWO, at_s=2),
            p=log(A, C),
            q=log(B),
            looks=[
                shown(P, 2, A, C, at_s=5),
                Shown(P, 6.5, 7, ((0, A),), 1, is_end_of_now=False),
            ],
        ),
        # A newer instance was announced during the commit.
        history(
            ending(UNKNOWN, at_s=1),
            ending(COMMITTED, at_s=5),
            p=log(A),
            q=log(B),
            instances=[Instance("c", 1, 1, at_s=3, began_s=2)],
        ),
    ],
)
def test_unknown_outcomes_may_go_either_way(seen: TransactionHistory) -> None:
    assert violations(History(transactions=seen)) == []


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=8),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=8),
)
def test_zombies_are_found_as_by_comparing_all_pairs(
    commits: list[tuple[int, int]], announced: list[tuple[int, int]]
) -> None:
    endings = [ending(COMMITTED, f"c.1.{epoch}", at_s=at_s) for epoch, at_s in commits]
    instances = [Instance("c", 1, epoch, at_s) for epoch, at_s in announced]
    asked_s = {e.name: min(o.began_s for o in endings if o.name == e.name) for e in endings}

    problems = list(zombies_commit_nothing(history(*endings, instances=instances)))

    assert [one for one in endings if any(p.startswith(str(one)) for p in problems)] == [
        one
        for one in endings
        if any(
            newer.epoch > int(one.name[4:]) and newer.at_s < asked_s[one.name]
            for newer in instances
        )
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([COMMITTED, ABORTED, FENCED, UNKNOWN]),
            st.integers(0, 15),
            st.integers(0, 9),
        ),
        max_size=12,
    ),
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 9)), max_size=5),
)
def test_forgotten_ends_are_found_as_by_comparing_all_pairs(
    asked: list[tuple[str, int, int]], announced: list[tuple[int, int]]
) -> None:
    endings = [ending(answer, f"c.1.{epoch}", at_s=at_s) for answer, epoch, at_s in asked]
    instances = [Instance("c", 1, epoch, at_s, at_s) for epoch, at_s in announced]
    settled = [e for e in endings if e.answer in {COMMITTED, ABORTED}]
    committed = {e.name for e in endings if e.answer == COMMITTED}
    known = [(instance.began_s, instance.epoch) for instance in instances]
    known += [
        (min(e.began_s for e in endings if e.name == name), int(name[4:])) for name in committed
    ]

    def is_forgotten(one: Ending) -> bool:
        had_ended = any(e.name == one.name and e.ended_s < one.began_s for e in settled)
        later = [epoch for at_s, epoch in known if at_s >= one.ended_s]
        is_recent = bool(later) and min(later) <= int(one.name[4:]) + ENDS_REMEMBERED
        return one.answer == FENCED and had_ended and is_recent

    problems = list(ends_are_remembered(history(*endings, instances=instances)))

    found = [one for one in endings if any(p.startswith(str(one)) for p in problems)]
    assert found == [one for one in endings if is_forgotten(one)]


def test_a_numbered_call_is_remembered_until_its_caller_raises_the_epoch() -> None:
    raised = ending(UNKNOWN, "writer-0.2.6", at_s=2)
    repeat = ending(FENCED, "writer-0.1.5", at_s=3)
    first = ending(COMMITTED, "writer-0.1.5")
    other = ending(COMMITTED, "writer-2.2.6", at_s=2)
    later = ending(COMMITTED, "writer-0.1.10", at_s=5)

    assert not list(ends_are_remembered(history(first, raised, repeat, later)))
    assert not list(ends_are_remembered(history(repeat, later)))
    assert len(list(ends_are_remembered(history(first, other, repeat, later)))) == 1


def test_a_transaction_of_kafkas_clients_is_remembered_until_the_next_epoch() -> None:
    first = ending(COMMITTED, f"c.1.0{BY_KAFKA}4")
    repeat = ending(FENCED, f"c.1.0{BY_KAFKA}4", at_s=3)
    same_epoch = ending(COMMITTED, f"c.1.0{BY_KAFKA}5", at_s=5)
    next_epoch = ending(COMMITTED, f"c.1.1{BY_KAFKA}5", at_s=5)

    assert not list(ends_are_remembered(history(first, repeat, next_epoch)))
    assert len(list(ends_are_remembered(history(first, repeat, same_epoch)))) == 1
