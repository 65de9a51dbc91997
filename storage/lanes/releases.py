"""Releases waiters for the same event a few at a time.

Thousands of readers may wait for one commit, and answering each of them takes time in the event
loop. If all were released at once, the acknowledgement of that commit, and every request that
arrives meanwhile, would wait behind all of them. So each turn of the loop releases a few, and
other work runs in between.

While an append, which is urgent, is under way, there are also pauses between the turns: an append
needs threads too, and these make no progress while the loop is always busy.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

T = TypeVar("T")

PER_TURN: Final = 2
"""Number of waiters released in one turn of the event loop. A turn costs next to nothing, but a
request that needs several turns (a produce takes about ten) waits in each for as many answers."""

PAUSE_S: Final = 0.004
"""Pause between two turns while urgent work is under way."""


class Releases:
    """Gives futures their results, in order, at most `per_turn` in one turn of the event loop."""

    def __init__(self, per_turn: int = PER_TURN) -> None:
        self._per_turn = per_turn
        self._due: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._urgent = 0

    @contextmanager
    def yielding(self) -> Iterator[None]:
        """Mark the work inside the context as urgent: meanwhile, release with pauses."""
        self._urgent += 1
        try:
            yield
        finally:
            self._urgent -= 1

    def release(self, waiters: "Iterable[asyncio.Future[T]]", result: T) -> None:
        """Set `result` on each of `waiters`, over several turns; skip those done by then."""
        is_idle = not self._due
        self._due.extend((waiter, result) for waiter in waiters if not waiter.done())
        if is_idle:
            self._turn()

    def _turn(self) -> None:
        left = self._per_turn
        while left and self._due:
            waiter, result = self._due.popleft()
            # A waiter that is already done costs no time, so it does not count.
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
