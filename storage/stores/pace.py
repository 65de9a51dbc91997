"""Whether a short blocking call may run on the caller's thread, instead of in another one.

Switching to a thread and back costs a lone small write as much as the disk does, because no other
work could use the time. So a small call runs on the caller's thread if no other call is running
and such calls have been fast lately. It blocks the event loop for less than a millisecond, and no
other call waits for the loop. After one slow call the next ones run in threads, until they are
measured to be fast again.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

QUICK_S: Final = 0.002
"""Calls that take longer do not run on the caller's thread."""

_SHARE: Final = 0.2
"""Weight of the newest call in the moving average."""


class Pace:
    """How long calls of one kind take. They count as slow until they were measured."""

    def __init__(self, quick_s: float = QUICK_S) -> None:
        self._quick_s = quick_s
        self._typical_s = 2 * quick_s

    @property
    def is_quick(self) -> bool:
        return self._typical_s < self._quick_s

    def took(self, seconds: float) -> None:
        # A stall replaces the average at once; fast calls lower it again step by step.
        share = 1.0 if seconds > 2 * self._quick_s else _SHARE
        self._typical_s += share * (min(seconds, 10 * self._quick_s) - self._typical_s)

    @contextmanager
    def measured(self) -> Iterator[None]:
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self.took(time.perf_counter() - began_s)
