"""Admission: held bytes are counted, bounded, and always released."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.process.limits.admission import Admission, Hold
from storage.errors import Overloaded
from tests.examples import some


def test_a_request_beyond_the_limit_is_refused() -> None:
    admission = Admission(100)

    with admission.hold() as first:
        first.grow_to(60)
        with admission.hold() as second:
            second.grow_to(40)
            with pytest.raises(Overloaded, match=r"holds 100 bytes .* at most 100; send"):
                second.grow_to(41)
            assert admission.held_bytes == 100
        second = admission.hold()
        second.grow_to(40)
        second.release()
    assert admission.held_bytes == 0
    assert admission.refused_count == 1


def test_a_lone_request_is_always_admitted() -> None:
    admission = Admission(100)

    with admission.hold() as hold:
        hold.grow_to(1000)
        with pytest.raises(Overloaded):
            admission.hold().grow_to(1)

    assert admission.held_bytes == 0


def test_a_hold_never_shrinks_and_can_be_handed_over() -> None:
    admission = Admission(100)

    with admission.hold() as hold:
        hold.grow_to(50)
        hold.grow_to(20)
        assert admission.held_bytes == 50
        kept = hold.hand_over()
    assert admission.held_bytes == 50
    with kept:
        pass
    kept.release()
    assert admission.held_bytes == 0


@some
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 80))))
def test_held_bytes_equal_the_sum_of_all_holds(steps: list[tuple[int, int]]) -> None:
    admission = Admission(100)
    holds: list[Hold] = [admission.hold() for _ in range(4)]
    sizes = [0] * 4

    for number, size in steps:
        if size == 0:
            holds[number].release()
            sizes[number] = 0
            continue
        try:
            holds[number].grow_to(size)
        except Overloaded:
            continue
        sizes[number] = max(size, sizes[number])
        assert admission.held_bytes == sum(sizes)
    for hold in holds:
        hold.release()
    assert admission.held_bytes == 0


def test_announced_bytes_are_checked_but_not_held() -> None:
    admission = Admission(100)

    with admission.hold() as idle, admission.hold() as busy:
        idle.check(90)
        busy.grow_to(90)
        with pytest.raises(Overloaded):
            idle.check(90)

        assert admission.held_bytes == 90


def test_a_lone_request_can_grow_in_pieces_beyond_the_limit() -> None:
    admission = Admission(100)

    with admission.hold() as hold:
        for size_bytes in range(0, 1000, 50):
            hold.grow_to(size_bytes)

    assert admission.held_bytes == 0
