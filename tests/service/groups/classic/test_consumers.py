"""What is understood of the metadata of consumers."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.groups.classic import rounds
from service.groups.classic.consumers import assigned, subscribed
from service.groups.state import Group
from tests import examples
from tests.service.groups.classic.makers import classic, joining, me


def text(name: str) -> bytes:
    return struct.pack(">h", len(name.encode())) + name.encode()


def subscription(*topics: str) -> bytes:
    return struct.pack(">hi", 3, len(topics)) + b"".join(map(text, topics)) + b"\xff\xff\xff\xff"


def assignment(**places: list[int]) -> bytes:
    body = b"".join(
        text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in places.items()
    )
    return struct.pack(">hi", 1, len(places)) + body + b"\xff\xff\xff\xff"


def test_topics_and_partitions_are_read() -> None:
    assert subscribed(subscription("a", "ü")) == ["a", "ü"]
    assert assigned(assignment(a=[0, 2], b=[])) == [("a", 0), ("a", 2)]


@pytest.mark.parametrize("size", range(len(subscription("a", "b")) - 4))
def test_what_is_cut_off_says_nothing(size: int) -> None:
    assert subscribed(subscription("a", "b")[:size]) == []
    assert assigned(assignment(a=[0, 1, 2])[:size]) == []


@examples.some
@given(st.binary(max_size=60))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    for each in (data, b"\0\1\0\0\0\1" + data):
        subscribed(each)
        assigned(each)


def test_a_group_shows_what_its_consumers_read() -> None:
    about = joining("a", metadata=b"-")
    about = type(about)(
        **{f: getattr(about, f) for f in about.__dataclass_fields__ if f != "protocols"},
        protocols=(("range", subscription("t")), ("sticky", subscription("t", "u"))),
    )
    group = rounds.join(Group(), about)
    group = rounds.sync(group, me(group, "a"), None, None, {"a": assignment(t=[1, 3])})

    assert group.assignment("a") == [("t", 1), ("t", 3)]
    assert group.assignment("b") == []
    assert group.subscription("a") == ["t", "u"]
    assert classic(group).protocol == "range"


def test_other_programs_show_nothing() -> None:
    group = rounds.join(Group(), joining("a", protocol_type="connect"))
    group = rounds.sync(group, me(group, "a"), None, None, {"a": assignment(t=[1])})

    assert group.assignment("a") == []
    assert group.subscription("a") == []
