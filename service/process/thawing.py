"""Time in a process that stands still between calls.

While an environment of Lambda is frozen its monotonic clock may stand still, too. What was read a
second ago by that clock may then be an hour old, and a write that was begun before may be committed
after a sweeper has taken its object for an orphan. So each call begins by comparing with the wall
clock how much time has gone by, and adds what the other one has missed.
"""

from collections.abc import Callable


class ThawingClock:
    """A monotonic clock that also counts the time in which it stood still."""

    def __init__(self, monotonic_s: Callable[[], float], now_ms: Callable[[], int]) -> None:
        self._inner_s = monotonic_s
        self._now_ms = now_ms
        self._missed_s = 0.0
        self._behind_s = self._difference_s()

    def monotonic_s(self) -> float:
        return self._inner_s() + self._missed_s

    def thaw(self) -> None:
        """Catch up with the wall clock. One that was set back changes nothing."""
        behind_s = self._difference_s()
        self._missed_s += max(0.0, behind_s - self._behind_s)
        self._behind_s = behind_s

    def _difference_s(self) -> float:
        return self._now_ms() / 1000 - self._inner_s()
