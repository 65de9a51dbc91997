"""Pairs of shapes, old and new, and what becomes of them when schemas refer to themselves.

All pairs are taken for compatible until a rule says that one is not. Then the pairs that relied
on it are looked at again, and so on, until nothing changes: a pair changes once at most, and
pairs are finite. No recursion, so schemas may refer to each other as they like. Only then is
what is wrong written down, for at most `FOUND_MAX` places: some are reached on very many ways.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from service.registry.formats.json_schema.rules import MEANINGS
from service.registry.formats.json_schema.shapes import Shape, ShapeKind, Shapes
from storage.schemas.json_schema.documents import SchemaPlace
from storage.schemas.source import InvalidSchema

STEPS_MAX: Final = 20_000
"""Pairs, and properties, values and items of pairs; some 20 µs each."""

FOUND_MAX: Final = 100
_REPORTED_DEPTH_MAX: Final = 60

Thing: TypeAlias = Shape | SchemaPlace
Found: TypeAlias = list[tuple[str, str]]
"""Rules that are broken, each with its path relative to the pair."""


@dataclass(slots=True)
class _Side:
    """Which shapes write, and which read."""

    olds: Shapes
    news: Shapes


@dataclass(slots=True)
class _Known:
    """What is known of a pair, and which pairs relied on it."""

    old: Shape
    new: Shape
    side: _Side
    unfit: bool = False
    dependents: "list[_Known]" = field(default_factory=list)
    queued: bool = True
    found: Found | None = None


class Comparison:
    """All pairs of two schemas that matter."""

    def __init__(self, rule: Callable[["Pair"], None]) -> None:
        self._rule = rule
        self._known: dict[tuple[int, int], _Known] = {}
        self._queue: deque[_Known] = deque()
        self._steps = 0

    def differences(self, olds: Shapes, old: SchemaPlace, news: Shapes, new: SchemaPlace) -> Found:
        """Return which rules are broken between `old` and `new`."""
        root = self.known(_Side(olds, news), old, new)
        while self._queue:
            known = self._queue.popleft()
            known.queued = False
            if not known.unfit:
                self._decide(known)
        return self.report(root, 0) or ([("TYPE_CHANGED", "")] if root.unfit else [])

    def spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise InvalidSchema(
                f"the two schemas take more than {STEPS_MAX:,} steps to compare: too many "
                "alternatives, or properties of alternatives"
            )

    def known(self, side: _Side, old: Thing, new: Thing) -> _Known:
        """Return what is known of a pair; one that is new is compatible until looked at."""
        old_shape, new_shape = side.olds.of(old), side.news.of(new)
        key = (id(old_shape), id(new_shape))
        if (known := self._known.get(key)) is None:
            known = self._known[key] = _Known(old_shape, new_shape, side)
            self._queue.append(known)
        return known

    def report(self, known: _Known, depth: int) -> Found:
        """Return what is wrong with a pair, once all pairs are decided."""
        if known.found is None:
            known.found = []  # Which is what it is to itself, further below.
            if known.unfit and depth > _REPORTED_DEPTH_MAX:
                known.found = [("TYPE_CHANGED", "")]
            elif known.unfit:
                pair = Pair(known, self, reported_depth=depth)
                self._rule(pair)
                known.found = pair.found
        return known.found

    def _decide(self, known: _Known) -> None:
        self.spend(1)
        pair = Pair(known, self)
        self._rule(pair)
        if pair.found:
            known.unfit = True
            for dependent in known.dependents:
                if not dependent.queued and not dependent.unfit:
                    dependent.queued = True
                    self._queue.append(dependent)
            known.dependents.clear()


class Pair:
    """An old and a new shape that are compared; rules report to it what they find."""

    def __init__(
        self, known: _Known, comparison: Comparison, reported_depth: int | None = None
    ) -> None:
        self.old: Final = known.old
        self.new: Final = known.new
        self.found: Final[Found] = []
        self._known = known
        self._comparison = comparison
        self._depth = reported_depth

    def spend(self, steps: int) -> None:
        """Account for work in proportion to what is compared; a pair itself is one step."""
        if self._depth is None:
            self._comparison.spend(steps)

    def keyword(self, name: str) -> tuple[Any, Any]:
        """Return the values of a keyword in both."""
        return self.old.keywords.get(name), self.new.keywords.get(name)

    def broken(self, rule: str, path: str = "") -> None:
        """Report that `rule` is broken at `path`."""
        assert rule in MEANINGS, rule
        if len(self.found) < FOUND_MAX:
            self.found.append((rule, path))

    def between(self, old: Thing, new: Thing, path: str) -> bool:
        """Report what is wrong between parts, which stand at `path`; return whether they fit."""
        part = self._part(self._known.side, old, new)
        if not part.unfit:
            return True
        if self._depth is None:
            self.broken("TYPE_CHANGED", path)
        else:
            for rule, below in self._comparison.report(part, self._depth + 1):
                self.broken(rule, f"{path}/{below}" if below else path)
        return False

    def fits(self, old: Thing, new: Thing) -> bool:
        """Whether a part of the new shape can read all that one of the old shape writes."""
        return not self._part(self._known.side, old, new).unfit

    def fits_reversed(self, old: Thing, new: Thing) -> bool:
        """Whether a part of the old shape can read all that one of the new shape writes."""
        side = self._known.side
        return not self._part(_Side(side.news, side.olds), new, old).unfit

    def kind_of_old(self, old: Thing) -> ShapeKind:
        return self._known.side.olds.of(old).kind

    def kind_of_new(self, new: Thing) -> ShapeKind:
        return self._known.side.news.of(new).kind

    def _part(self, side: _Side, old: Thing, new: Thing) -> _Known:
        part = self._comparison.known(side, old, new)
        if not part.unfit and self._depth is None:
            part.dependents.append(self._known)
        return part
