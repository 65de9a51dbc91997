"""Sets of zones, by their numbers in the `zones` of a head.

    stored     an integer, bit n for zone n; -1, with all bits, is `EVERYWHERE`
    in types   `ZoneSet`, which has only what a set has: `&`, `|`, `==`, and whether it is empty
    here       everything else; no other module shifts, inverts or counts bits of zones

A set is the integer that is stored, so heads, runs and entries are read and written without
converting anything. To mypy it is a class of its own, so that a number, or a zone, or arithmetic
with bits where a set is meant is an error before the program runs (docs/decisions/0036).
"""

from collections.abc import Iterable
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:

    class ZoneSet:
        """An immutable set of zones."""

        def __and__(self, other: "ZoneSet") -> "ZoneSet": ...
        def __or__(self, other: "ZoneSet") -> "ZoneSet": ...
        def __bool__(self) -> bool: ...
else:
    ZoneSet = int

NONE: Final[ZoneSet] = 0  # type: ignore[assignment]

EVERYWHERE: Final[ZoneSet] = -1  # type: ignore[assignment]
"""All zones, including future ones."""


def of(numbers: Iterable[int]) -> ZoneSet:
    """Return the set of these zones; a zone may be given twice."""
    zones = 0
    for number in numbers:
        zones |= 1 << number
    return zones  # type: ignore[return-value]


def first(count: int) -> ZoneSet:
    """Return the set of the zones below `count`."""
    return (1 << count) - 1  # type: ignore[return-value]


def has(zones: ZoneSet, number: int) -> bool:
    return zones >> number & 1 == 1  # type: ignore[operator]


def numbers(zones: ZoneSet) -> list[int]:
    """Return the zones in ascending order. Not for a set that has all future zones."""
    assert zones >= 0, zones  # type: ignore[operator]
    return [number for number in range(zones.bit_length()) if has(zones, number)]  # type: ignore[attr-defined]


def count(zones: ZoneSet) -> int:
    """Return how many zones there are. Not for a set that has all future zones."""
    assert zones >= 0, zones  # type: ignore[operator]
    return zones.bit_count()  # type: ignore[attr-defined, no-any-return]


def without(zones: ZoneSet, others: ZoneSet) -> ZoneSet:
    """Return the zones that are not among `others`."""
    return zones & ~others  # type: ignore[operator, no-any-return]


def is_within(zones: ZoneSet, others: ZoneSet) -> bool:
    """Whether all `zones` are among `others`."""
    return not zones & ~others  # type: ignore[operator]


def in_all(sets: Iterable[ZoneSet]) -> ZoneSet:
    """Return the zones that are in each of the sets: everywhere, if there are no sets."""
    return reduce(and_, sets, EVERYWHERE)


def in_any(sets: Iterable[ZoneSet]) -> ZoneSet:
    """Return the zones that are in at least one of the sets."""
    return reduce(or_, sets, NONE)
