"""Where offsets of a source's partition are here: a sparse map that never points too far.

A pair (there, here) says: all records from `there` on have offsets from `here` on. So a group that
has read everything before `there` goes on at `here` and misses nothing. Between two pairs the
earlier one holds, so a group may read some records again.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

PAIRS_MAX: Final = 32
NEWEST_KEPT: Final = 16
"""When there are too many, every second one of those before is forgotten."""

Pair: TypeAlias = tuple[int, int]


class OffsetMap:
    def __init__(self, pairs: Sequence[Pair] = ()) -> None:
        self._pairs = sorted(pairs)

    @property
    def pairs(self) -> list[list[int]]:
        """As JSON."""
        return [list(pair) for pair in self._pairs]

    @property
    def newest(self) -> int:
        """The last offset of the source that is known here; -1: none."""
        return self._pairs[-1][0] if self._pairs else -1

    def add(self, there: int, here: int) -> None:
        if self._pairs and there <= self._pairs[-1][0]:
            return
        self._pairs.append((there, here))
        if len(self._pairs) > PAIRS_MAX:
            older = self._pairs[:-NEWEST_KEPT]
            self._pairs = older[::2] + self._pairs[-NEWEST_KEPT:]

    def translate(self, there: int) -> int | None:
        """Return where a group that goes on at `there` goes on here; None: not known."""
        found = bisect_right(self._pairs, there, key=lambda pair: pair[0])
        return self._pairs[found - 1][1] if found else None


def map_of(said: Any) -> OffsetMap:
    """Return the map that `pairs` of another one gave; an empty one of anything else."""
    try:
        return OffsetMap([(int(there), int(here)) for there, here in said or ()])
    except (TypeError, ValueError):
        return OffsetMap()
