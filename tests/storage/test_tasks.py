"""Callers that share work, and callers that take turns."""

import asyncio

import pytest

from storage.tasks import Arrivals, SingleFlight, gathered, in_turns
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio


class Work:
    """Work that ends when `gate` is set, and returns how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.gate = asyncio.Event()

    async def do(self) -> int:
        self.begun += 1
        number = self.begun
        await self.gate.wait()
        return number


async def test_concurrent_callers_share_one_piece_of_work() -> None:
    flights, work = SingleFlight[str, int](), Work()
    callers = [asyncio.create_task(flights.do("a", work.do)) for _ in range(3)]
    await turns()

    callers[0].cancel()
    work.gate.set()

    assert await asyncio.gather(*callers[1:]) == [1, 1]
    assert await flights.do("a", work.do) == 2
    assert flights._running == {}


async def test_work_that_began_too_long_ago_is_not_joined() -> None:
    flights, work = SingleFlight[str, int](), Work()
    at = [
        asyncio.create_task(flights.do("a", work.do, now_s=now_s, age_max_s=1.0))
        for now_s in (0.0, 1.0, 1.5, 2.5)
    ]
    await turns()

    work.gate.set()

    assert await asyncio.gather(*at) == [1, 1, 2, 2]
    assert flights._running == {}


async def test_work_of_different_keys_is_not_shared() -> None:
    flights, work = SingleFlight[str, int](), Work()
    work.gate.set()

    assert await asyncio.gather(flights.do("a", work.do), flights.do("b", work.do)) == [1, 2]


async def test_callers_of_a_key_take_turns_in_the_order_of_arrival() -> None:
    arrivals = Arrivals[str]()
    events: list[str] = []

    async def caller(name: str) -> None:
        async with arrivals.in_turn("a"):
            events.append(name)
            await turns()
            events.append(name)

    await asyncio.gather(*(caller(name) for name in "xyz"))

    assert "".join(events) == "xxyyzz"
    assert arrivals._last == {}


async def test_another_key_does_not_wait() -> None:
    arrivals = Arrivals[str]()

    async with arrivals.in_turn("a"), arrivals.in_turn("b"):
        pass


async def test_who_leaves_early_lets_nobody_overtake() -> None:
    arrivals = Arrivals[str]()
    first, second, third = (arrivals.join("a") for _ in range(3))
    last = asyncio.create_task(third.turn())

    second.leave()
    await turns()
    assert not last.done()
    first.leave()
    await last

    third.leave()
    third.leave()  # To leave twice is harmless.
    assert arrivals._last == {}


async def test_who_is_cancelled_while_waiting_leaves() -> None:
    arrivals = Arrivals[str]()
    first = arrivals.join("a")

    async def caller() -> None:
        async with arrivals.in_turn("a"):
            raise AssertionError("it is not its turn")

    waiting = asyncio.create_task(caller())
    await turns()
    waiting.cancel()
    await asyncio.wait([waiting])
    following = asyncio.create_task(arrivals.join("a").turn())
    await turns()
    assert not following.done()

    first.leave()
    await following


async def test_other_tasks_run_while_very_many_items_are_worked_on() -> None:
    seen = 0

    async def other() -> None:
        nonlocal seen
        while True:
            seen += 1
            await asyncio.sleep(0)

    async def double(number: int) -> int:
        return 2 * number

    beside = asyncio.create_task(other())
    assert [number async for number in in_turns(range(1000))] == list(range(1000))
    assert seen > 20
    seen = 0
    assert await gathered(range(1000), double) == [2 * number for number in range(1000)]
    assert seen > 5
    beside.cancel()
