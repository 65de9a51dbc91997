"""Arithmetic of rounds: medians, spreads, ratios, percentiles. Nothing here measures."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Item = TypeVar("Item")

RATE = "records_per_s"
CPU = "cpu_s_per_mb"
P50, P99, P999 = "p50_ms", "p99_ms", "p99.9_ms"


@dataclass(frozen=True, slots=True)
class Spread:
    """What the rounds gave, in their order."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def least(self) -> float:
        return min(self.rounds)

    @property
    def most(self) -> float:
        return max(self.rounds)

    def document(self) -> dict[str, Any]:
        return {
            "median": self.median,
            "min": self.least,
            "max": self.most,
            "rounds": list(self.rounds),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    section: str
    size: int
    """Bytes of a value."""
    batch: int = 1
    partitions: int = 1
    in_flight: int = 0
    load: str = ""
    """Of latencies: which part of its capacity each peer is given, or `same`."""


@dataclass
class Results:
    """The measurements: for a workload, a peer and a measure, a number for each round."""

    measured: dict[tuple[Workload, str], dict[str, dict[int, float]]] = field(default_factory=dict)

    def add(
        self, workload: Workload, peer: str, number: int, measures: Mapping[str, float]
    ) -> None:
        """Note what round `number` gave."""
        of_peer = self.measured.setdefault((workload, peer), {})
        for measure, value in measures.items():
            of_peer.setdefault(measure, {})[number] = value

    def has(self, workload: Workload, peer: str) -> bool:
        return (workload, peer) in self.measured

    def measures(self, workload: Workload, peer: str) -> list[str]:
        return list(self.measured.get((workload, peer), {}))

    def spread(self, workload: Workload, peer: str, measure: str) -> Spread | None:
        rounds = self._rounds(workload, peer, measure)
        return Spread(tuple(rounds[number] for number in sorted(rounds))) if rounds else None

    def ratio(self, workload: Workload, ours: str, theirs: str, measure: str) -> Spread | None:
        """Return ours / theirs in each round that both have; None if there is none."""
        above = self._rounds(workload, ours, measure)
        below = self._rounds(workload, theirs, measure)
        both = sorted(number for number in above.keys() & below.keys() if below[number] > 0)
        return Spread(tuple(above[number] / below[number] for number in both)) if both else None

    def _rounds(self, workload: Workload, peer: str, measure: str) -> dict[int, float]:
        return self.measured.get((workload, peer), {}).get(measure, {})


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of `values` that `percent` % of them do not exceed."""
    ordered = sorted(values)
    # Rounded, because 99.9 % of 1,000 is a little more than 999 to a computer.
    rank = math.ceil(round(len(ordered) * percent / 100, 9))
    return ordered[max(0, rank - 1)]


def rotated(items: Sequence[Item], by: int) -> list[Item]:
    start = by % len(items) if items else 0
    return [*items[start:], *items[:start]]


def number(value: float) -> str:
    """Return the three digits that count, whatever the size: the others change every time."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def span(spread: Spread) -> str:
    return f"{number(spread.least)} to {number(spread.most)}"
