"""Those who wait for the same thing are released a few at a time.

One commit may be what thousands of readers wait for, and each of them then takes its time in the
event loop to be answered. If all were released at once, the acknowledgement of that commit, and
every request that comes meanwhile, would wait behind all of them. So each turn of the loop
releases a few, and whatever else is due takes its turn in between.

While something urgent is under way, an append, there are pauses in between, too: it also needs
threads, which get nothing done while the loop is always busy.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

T = TypeVar("T")

PER_TURN: Final = 2
"""So many are released in one turn of the event loop. A turn costs next to nothing, but whoever
needs several turns (a produce takes about ten) waits in each for as many answers."""

PAUSE_S: Final = 0.004
"""So long the loop is left to others between two turns, while something urgent is under way."""


class Releases:
    """Gives futures their results, in order, at most `per_turn` in one turn of the event loop."""

    def __init__(self, per_turn: int = PER_TURN) -> None:
        self._per_turn = per_turn
        self._due: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._urgent = 0

    @contextmanager
    def yielding(self) -> Iterator[None]:
        """Release with pauses, for the sake of what is done within."""
        self._urgent += 1
        try:
            yield
        finally:
            self._urgent -= 1

    def release(self, waiters: "Iterable[asyncio.Future[T]]", result: T) -> None:
        """Let every one of `waiters` have `result`, in time, unless it is done by then."""
        is_idle = not self._due
        self._due.extend((waiter, result) for waiter in waiters if not waiter.done())
        if is_idle:
            self._turn()

    def _turn(self) -> None:
        left = self._per_turn
        while left and self._due:
            waiter, result = self._due.popleft()
            # One that has gone meanwhile takes no time of anybody.
            if not waiter.done():
                waiter.set_result(result)
                left -= 1
        if not self._due:
            return
        loop = asyncio.get_running_loop()
        if self._urgent:
            loop.call_later(PAUSE_S, self._turn)
        else:
            loop.call_soon(self._turn)
