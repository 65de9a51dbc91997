"""Requests wait for room, in order."""

import asyncio

import pytest

from service.kafka.listener.room import Room
from service.process.limits.admission import Admission

pytestmark = pytest.mark.anyio


def never() -> None:
    raise AssertionError("woken")


async def test_who_waits_is_woken_in_order() -> None:
    admission = Admission(100)
    room = Room(admission)
    first, second, third = room.claim(), room.claim(), room.claim()
    woken: list[str] = []

    assert room.grow(first, 80, never)
    room.whole(first)

    def wake(name: str, claim: object) -> None:
        woken.append(name)
        assert room.grow(claim, 50, lambda: None)  # type: ignore[arg-type]

    assert not room.grow(second, 50, lambda: wake("second", second))
    assert not room.grow(third, 10, lambda: wake("third", third)), "it would fit, but is later"
    room.release(first)
    async with asyncio.timeout(30):
        while len(woken) < 2:
            await asyncio.sleep(0.001)
    assert woken == ["second", "third"]
    room.release(second)
    room.release(third)
    assert admission.held_bytes == 0


async def test_parts_of_requests_do_not_wait_for_each_other_for_ever() -> None:
    admission = Admission(100)
    room = Room(admission)
    one, other = room.claim(), room.claim()

    assert room.grow(one, 60, never)
    assert room.grow(other, 40, never)
    assert room.grow(one, 120, never), "nothing else is held that would be released"
    room.whole(one)
    assert not room.grow(other, 80, lambda: None)
    room.release(other)
    room.release(one)
    room.close()
    assert admission.held_bytes == 0
