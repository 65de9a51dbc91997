"""Tasks whose result several callers share, and waiting for several tasks to end.

Callers await a shared task through `asyncio.shield`, so that a cancelled caller stops neither the
work nor the other callers. If all callers are cancelled and the work then fails, the error is
dropped and not logged: the next caller starts the work again and meets the error itself.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def shared(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start `work` for callers that await it through `asyncio.shield`."""
    task = asyncio.create_task(work)
    task.add_done_callback(drop_error)
    return task


def drop_error(future: "asyncio.Future[Any]") -> None:
    """Mark an error as seen, so that asyncio does not report it if no caller awaits `future`."""
    if not future.cancelled():
        future.exception()


async def finish_all(works: Iterable[Awaitable[None]]) -> None:
    """Wait until all have ended, then raise the error of the first one that failed."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
