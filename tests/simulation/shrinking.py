"""The fewest faults and actors with which a seed still fails: the same rule is broken.

Whole parts are removed first, then single events, then calls; repeatedly, until nothing more can be
removed or the time is over. Each try is a separate run in which much else differs, so the result
is small, but not the smallest.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.cuts import (
    CONNECT_PARTS,
    JANITOR_PARTS,
    KAFKA_PARTS,
    PARTS,
    SCHEMA_PARTS,
    WHOLE,
    Cut,
)
from tests.simulation.trouble import KINDS

Broken = Callable[[Cut], set[str]]
"""Runs a seed with a cut, and returns the names of the broken rules."""


def shrunk(
    broken: Broken,
    rule: str,
    events: int,
    *,
    seconds_max: float,
    now_s: Callable[[], float] = time.monotonic,
) -> Cut:
    """Return a cut with which `rule` is still broken; `events` is the seed's number of events."""
    cut, give_up_s = WHOLE, now_s() + seconds_max
    while True:
        before = cut
        for less in _smaller(cut, events):
            if now_s() >= give_up_s:
                return cut
            smaller = less(cut)
            if smaller != cut and rule in broken(smaller):
                cut = smaller
        if cut == before:
            return cut


def _smaller(cut: Cut, events: int) -> Iterator[Callable[[Cut], Cut]]:
    """Yield ways to remove something that the cut still contains."""
    for name in (*PARTS, *JANITOR_PARTS, *KAFKA_PARTS, *SCHEMA_PARTS, *CONNECT_PARTS, *KINDS):
        if name not in cut.without:
            yield _without(name)
    for number in range(events, 0, -1):
        if number not in cut.skipped:
            yield _skipping(number)
    calls = 16 if cut.calls_max is None else cut.calls_max // 2
    while calls:
        yield _with_calls(calls)
        calls //= 2


def _without(name: str) -> Callable[[Cut], Cut]:
    return lambda cut: replace(cut, without=(*cut.without, name))


def _skipping(number: int) -> Callable[[Cut], Cut]:
    return lambda cut: replace(cut, skipped=tuple(sorted((*cut.skipped, number))))


def _with_calls(calls: int) -> Callable[[Cut], Cut]:
    return lambda cut: replace(cut, calls_max=calls)
