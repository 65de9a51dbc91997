"""Time in a process that is frozen between calls.

While a Lambda environment is frozen, its monotonic clock may stop, too. Data that was read a second
ago by that clock may then be an hour old, and a write begun before may be committed after a sweeper
has treated its object as an orphan. So whenever the time is read, the monotonic clock is compared
with the wall clock, and the time that it has missed is added.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from service.world.clock import World

PAUSE_S_MIN: Final = 0.05
"""Smaller differences are those of two clocks that both run."""


def thawing(world: World) -> World:
    """Return `world` with a monotonic clock that also counts the time it was stopped."""
    return replace(world, monotonic_s=ThawingClock(world.monotonic_s, world.now_ms).monotonic_s)


class ThawingClock:
    """A monotonic clock that also counts the time it was stopped."""

    def __init__(self, monotonic_s: Callable[[], float], now_ms: Callable[[], int]) -> None:
        self._inner_s = monotonic_s
        self._now_ms = now_ms
        self._missed_s = 0.0
        self._behind_s = self._difference_s()

    def monotonic_s(self) -> float:
        """Return the time, after catching up with the wall clock unless that was set back."""
        behind_s = self._difference_s()
        if abs(behind_s - self._behind_s) >= PAUSE_S_MIN:
            self._missed_s += max(0.0, behind_s - self._behind_s)
            self._behind_s = behind_s
        return self._inner_s() + self._missed_s

    def _difference_s(self) -> float:
        return self._now_ms() / 1000 - self._inner_s()
