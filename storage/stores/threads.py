"""Threads for blocking calls, at a third of the cost of asyncio's executor.

Switching to another thread and back is a good part of a small write's time. The executor of the
standard library uses two futures, a condition and two callbacks for it. One queue and one future,
as here, took 50 µs where the executor took 150.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Job: TypeAlias = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Threads:
    """Up to `count_max` threads, each started by the first call that could use it."""

    def __init__(self, count_max: int, name: str) -> None:
        self._count_max = count_max
        self._name = name
        self._count = 0
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in another thread, and return what it returns or raise what it raises.

        A caller that stops waiting does not stop the work.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, future))
        if self._count < self._count_max:
            self._count += 1
            # Daemons: a caller that needs the work to be done waits for its result.
            Thread(target=_serve, args=(self._jobs,), name=self._name, daemon=True).start()
        return await future

    def close(self) -> None:
        """Let every thread end, after the work that is already waiting."""
        for _ in range(self._count):
            self._jobs.put(None)


def _serve(jobs: "SimpleQueue[Job | None]") -> None:
    while (job := jobs.get()) is not None:
        work, future = job
        result, failure = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - It is raised where the result is awaited.
            failure = error
        with suppress(RuntimeError):  # The caller's loop is closed.
            future.get_loop().call_soon_threadsafe(_settle, future, result, failure)
        # Else an idle thread would keep them, perhaps megabytes, in memory.
        del job, work, future, result, failure


def _settle(future: "asyncio.Future[Any]", result: object, failure: Exception | None) -> None:
    if future.done():  # Its caller stopped waiting.
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
