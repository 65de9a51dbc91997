"""A group as a value: who reads what while members come, go and let go."""

from service.groups import state
from service.groups.state import Group, Member, Places

ALL = {"t": 3}


def member(instance_id: str | None = None) -> Member:
    return Member(topics=("t",), instance_id=instance_id, session_timeout_ms=1000)


def group_of(target: dict[str, Places], held: dict[str, Places], **members: Member) -> Group:
    return Group(generation=4, members=members, target=target, held=held, counts=ALL)


def test_what_a_member_that_left_had_held_stays_with_whom_it_was_meant_for() -> None:
    group = group_of(
        target={"a": {}, "b": {"t": (2,)}, "c": {"t": (0, 1)}},
        held={"a": {"t": (0,)}},
        a=member(), b=member(), c=member(),
    )  # fmt: skip
    assert group.assignment("c") == [("t", 1)]

    left = state.leave(group, ["a"], ALL)

    assert left.target == {"b": {"t": (2,)}, "c": {"t": (0, 1)}}
    assert (left.held, left.generation) == ({}, 5)
    assert left.assignment("c") == [("t", 0), ("t", 1)]


def test_who_lets_go_of_some_holds_the_rest() -> None:
    group = group_of(
        target={"a": {}, "b": {"t": (0, 1, 2)}}, held={"a": {"t": (0, 1)}}, a=member(), b=member()
    )

    some = state.release(group, "a", [("t", 1), ("t", 2)], 4)
    none = state.release(some, "a", [], 4)

    assert (some.held, some.assignment("b")) == ({"a": {"t": (1,)}}, [("t", 0), ("t", 2)])
    assert (none.held, none.state) == ({}, "Stable")
    assert state.release(none, "a", [], 4) is none


def test_a_static_member_that_comes_back_holds_what_it_held() -> None:
    group = group_of(
        target={"a": {"t": (2,)}, "b": {"t": (0, 1)}},
        held={"a": {"t": (0,)}},
        a=member("one"), b=member(),
    )  # fmt: skip

    back = state.join(group, "a2", member("one"), ALL)

    assert back.generation == group.generation
    assert set(back.members) == {"a2", "b"}
    assert back.revocations("a2") == [("t", 0)]
    assert (back.assignment("a2"), back.assignment("b")) == ([("t", 2)], [("t", 1)])
