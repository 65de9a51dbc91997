"""Final reads, and the highest numbers known before a time: how rules look up and word both.

A rule that misses a record relies on what *was* read, so its words name that: the neighbours of a
gap, or the end of the log. So a history without this evidence gives other words.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, Generic, TypeVar

K = TypeVar("K")


class ReadBack(Generic[K]):
    """Logs in their final state: every record by its offset."""

    def __init__(self, final: Mapping[K, Iterable[tuple[int, Any]]]) -> None:
        self.logs: Mapping[K, Mapping[int, Any]] = {key: dict(of) for key, of in final.items()}

    @cached_property
    def _offsets(self) -> Mapping[K, Sequence[int]]:
        return {key: sorted(log) for key, log in self.logs.items()}

    def get(self, key: K, offset: int) -> Any:
        return self.logs.get(key, {}).get(offset)

    def at(self, key: K, offset: int) -> str:
        """Describe what is at an offset, or around it."""
        if offset in self.logs.get(key, {}):
            return f"there is {self.get(key, offset)!r}"
        offsets = self._offsets.get(key, ())
        place = bisect_left(offsets, offset)
        if 0 < place < len(offsets):
            return f"there is nothing between {offsets[place - 1]} and {offsets[place]}"
        if not place and offsets:
            return f"the log begins only at {offsets[0]}"
        return f"there is nothing: {self.extent(key)}"

    def extent(self, key: K) -> str:
        """Describe how far a log was read."""
        if key not in self.logs:
            return f"{key} was not read back"
        offsets = self._offsets[key]
        return f"{key} ends behind {offsets[-1]}" if offsets else f"{key} is empty"


class Highest:
    """Numbers with the time they became known: gives the highest one known before any time."""

    def __init__(self, told: Iterable[tuple[float, int, Any]]) -> None:
        """Each item has a time, a number, and the operation that learned it."""
        in_order = sorted(told, key=itemgetter(0))
        self._times = [at_s for at_s, _, _ in in_order]
        self._tops: list[tuple[int, Any]] = []
        top: tuple[int, Any] = (-1, None)
        for _, number, who in in_order:
            # Of equal numbers keep the first, so that later ones do not change the words.
            top = top if number <= top[0] else (number, who)
            self._tops.append(top)

    def before(self, at_s: float) -> tuple[int, Any]:
        """Return the highest number known before, and who learned it; -1 if there is none."""
        count = bisect_left(self._times, at_s)
        return self._tops[count - 1] if count else (-1, None)

    def ever(self) -> tuple[int, Any]:
        return self._tops[-1] if self._tops else (-1, None)
