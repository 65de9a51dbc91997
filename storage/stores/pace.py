"""Whether a short blocking call may be done right here, instead of in another thread.

A hop to a thread and back costs a lone small write as much as the disk does, because nothing else
is going on that could use the time. So when a call is small and alone, and such calls have been
quick lately, it is done on the caller's thread. It blocks the event loop for less than a
millisecond, and nobody is there to notice. One slow call is enough to move those after it to
threads, until they are seen to be quick again.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

QUICK_S: Final = 0.002
"""Calls that take longer are not done here."""

_SHARE: Final = 0.2
"""How much the newest call counts for what is typical."""


class Pace:
    """How long calls of one kind take. They begin as slow ones, until they were measured."""

    def __init__(self, quick_s: float = QUICK_S) -> None:
        self._quick_s = quick_s
        self._typical_s = 2 * quick_s

    @property
    def is_quick(self) -> bool:
        return self._typical_s < self._quick_s

    def took(self, seconds: float) -> None:
        # A stall counts at once, for its full length; trust comes back step by step.
        share = 1.0 if seconds > 2 * self._quick_s else _SHARE
        self._typical_s += share * (min(seconds, 10 * self._quick_s) - self._typical_s)

    @contextmanager
    def measured(self) -> Iterator[None]:
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self.took(time.perf_counter() - began_s)
