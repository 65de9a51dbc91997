"""The time of a request's own steps, and nothing else."""

import asyncio

import pytest

from service.security.quotas.processor_time import Timed

pytestmark = pytest.mark.anyio


class Work:
    """A clock that moves only while somebody computes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.reported: list[float] = []

    def compute(self, seconds: float) -> None:
        self.now_s += seconds

    def timed(self, work) -> Timed:
        return Timed(work, lambda: self.now_s, self.reported.append)


async def test_only_the_steps_of_the_request_are_counted() -> None:
    work = Work()
    ready = asyncio.Event()

    async def request() -> None:
        work.compute(1)
        await ready.wait()
        work.compute(2)

    async def other() -> None:
        work.compute(100)
        ready.set()

    async def serve() -> None:
        await work.timed(request())

    await asyncio.gather(serve(), other())

    assert work.reported == [3]


async def test_errors_pass_and_are_counted() -> None:
    work = Work()

    async def request() -> None:
        work.compute(1)
        await asyncio.sleep(0)
        work.compute(1)
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        await work.timed(request())

    assert work.reported == [2]


async def test_a_cancelled_request_ends_its_wait_and_cleans_up() -> None:
    work = Work()
    cleaned = asyncio.Event()

    async def request() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            work.compute(1)
            cleaned.set()

    async def serve() -> None:
        await work.timed(request())

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert cleaned.is_set()
    assert work.reported == [1]


async def test_a_request_may_catch_its_timeout() -> None:
    work = Work()

    async def request() -> None:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            work.compute(5)

    await work.timed(request())

    assert work.reported == [5]
