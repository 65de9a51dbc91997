"""Tasks whose result several callers share, and several whose end one caller waits for.

Callers await a shared task through `asyncio.shield`, so that one who hangs up stops neither the
work nor the others. If all hang up and the work then fails, the error is nobody's: whoever
asks next starts anew and meets it again, so it is dropped and not logged.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def shared(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start `work`, for whoever shields it."""
    task = asyncio.create_task(work)
    task.add_done_callback(drop_error)
    return task


def drop_error(future: "asyncio.Future[Any]") -> None:
    """Call an error seen, so that none is reported if nobody waits for `future` any more."""
    if not future.cancelled():
        future.exception()


async def finish_all(works: Iterable[Awaitable[None]]) -> None:
    """Wait until all have ended, then raise what the first that failed raised."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
