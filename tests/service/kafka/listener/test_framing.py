"""Requests are found in a stream of bytes, however it is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.kafka.listener.framing import (
    FIRST_STEP_BYTES,
    STEP_BYTES,
    BadFrame,
    FrameReader,
)
from tests.examples import some

FRAMES = st.lists(st.binary(min_size=8, max_size=300), max_size=8)


def framed(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    """Give `data` to a reader as a transport does; return the requests found in it."""
    found = []
    while data:
        buffer = reader.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        reader.received(count)
        while (frame := reader.next()) is not None:
            found.append(bytes(frame))
        reader.keep()
    return found


@some
@given(FRAMES, st.data())
def test_whatever_the_pieces_the_requests_are_the_same(
    frames: list[bytes], data: st.DataObject
) -> None:
    scratch = memoryview(bytearray(data.draw(st.integers(1, 400))))
    reader = FrameReader(scratch, 300, lambda size, length: True)
    left, found = framed(frames), []
    while left:
        count = data.draw(st.integers(1, len(left)))
        found += feed(reader, left[:count])
        scratch[:] = bytes(len(scratch))
        left = left[count:]

    assert found == frames
    assert reader.is_between


@pytest.mark.parametrize("length", [-1, 0, 7, 301, 2**31 - 1, -(2**31)])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    reader = FrameReader(memoryview(bytearray(64)), 300, lambda size, length: True)
    with pytest.raises(BadFrame):
        feed(reader, length.to_bytes(4, "big", signed=True))


def test_a_request_without_room_waits_and_goes_on() -> None:
    rooms = [False, True]
    reader = FrameReader(memoryview(bytearray(64)), 300, lambda size, length: rooms.pop(0))

    assert feed(reader, framed([b"x" * 50])) == []
    assert reader.is_blocked
    assert bytes(reader.next() or b"") == b"x" * 50
    assert not reader.is_blocked


def test_a_long_request_takes_room_as_it_comes() -> None:
    taken: list[int] = []

    def grow(size: int, length: int) -> bool:
        taken.append(size)
        return True

    length = 3 * 1024 * 1024
    reader = FrameReader(memoryview(bytearray(1024)), length, grow)
    feed(reader, length.to_bytes(4, "big"))
    assert taken == [FIRST_STEP_BYTES], "what was only announced takes next to nothing"
    [frame] = feed(reader, b"x" * length)
    assert len(frame) == length
    ahead = [after - before for before, after in pairwise(taken)]
    assert all(step <= min(before, STEP_BYTES) for step, before in zip(ahead, taken, strict=False))
    assert taken[-1] == length
