"""Time in a process that is frozen between calls.

While a Lambda environment is frozen, its monotonic clock may stop, too. Data that was read a second
ago by that clock may then be an hour old, and a write begun before may be committed after a sweeper
has treated its object as an orphan. So each call first compares the monotonic clock with the wall
clock, and adds the time that the monotonic clock has missed.
"""

from collections.abc import Callable


class ThawingClock:
    """A monotonic clock that also counts the time it was stopped."""

    def __init__(self, monotonic_s: Callable[[], float], now_ms: Callable[[], int]) -> None:
        self._inner_s = monotonic_s
        self._now_ms = now_ms
        self._missed_s = 0.0
        self._behind_s = self._difference_s()

    def monotonic_s(self) -> float:
        return self._inner_s() + self._missed_s

    def thaw(self) -> None:
        """Catch up with the wall clock. A wall clock that was set back is ignored."""
        behind_s = self._difference_s()
        self._missed_s += max(0.0, behind_s - self._behind_s)
        self._behind_s = behind_s

    def _difference_s(self) -> float:
        return self._now_ms() / 1000 - self._inner_s()
