"""Which tests run which lines of which function, so that a mutant meets only those that reach it.

Lines are counted from the first of their function: what is known of a test file outlives changes
elsewhere in the module. It is kept in a cache, by the contents of the test file.
"""

import ast
import hashlib
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Self

from tests.mutants.mutations import Function, Mutant, functions


@dataclass(frozen=True, slots=True)
class Trace:
    """What one test did."""

    seconds: float
    ran: Mapping[str, frozenset[int]]
    """Lines, by `storage/head/head.py:append`."""


Known = dict[str, dict[str, Trace]]
"""Tests that pass, by the file (and its contents) and their names."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where the lines of a function are now."""

    start: int
    end: int

    @classmethod
    def of(cls, function: Function) -> Self:
        decorated = [decorator.lineno for decorator in function.decorator_list]
        return cls(min([function.lineno, *decorated]), function.end_lineno or function.lineno)


def spans(source: str) -> dict[str, Span]:
    """Return where every function is; of several with one name, like a property, all of them."""
    found: dict[str, Span] = {}
    for name, function in functions(ast.parse(source)):
        span = Span.of(function)
        before = found.get(name, span)
        found[name] = Span(min(before.start, span.start), max(before.end, span.end))
    return found


@contextmanager
def tracing(files: Iterable[str]) -> Iterator[dict[str, set[int]]]:
    """Collect the lines of `files` that run inside, in this thread and those it starts."""
    lines: dict[str, set[int]] = {name: set() for name in files}

    def enter(frame: FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
        ran = lines.get(frame.f_code.co_filename)
        if ran is None:
            return None

        def step(frame: FrameType, event: str, _arg: object) -> Callable[..., Any]:
            if event == "line":
                ran.add(frame.f_lineno)
            return step

        return step

    threading.settrace(enter)
    sys.settrace(enter)
    try:
        yield lines
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]


def by_function(module: str, source: str, lines: Iterable[int]) -> dict[str, frozenset[int]]:
    """Return the lines that ran in each function, counted from where it starts."""
    ran = set(lines)
    found = {}
    for name, span in spans(source).items():
        inside = {line - span.start for line in ran if span.start <= line <= span.end}
        if inside:
            found[f"{module}:{name}"] = frozenset(inside)
    return found


@dataclass
class Traces:
    """What is known of tests that pass."""

    of_test: dict[str, Trace] = field(default_factory=dict)

    def reaching(self, mutant: Mutant, start: int) -> list[str]:
        """Return the tests that run the mutant's line, those first that are most worth asking.

        One of every way through the function comes first, then the next of each; among equals,
        those that run the least. A line in the middle of a long expression may have no event of
        its own. Then whoever enters the function will do.
        """
        function = f"{mutant.module}:{mutant.function}"
        entering = [test for test, trace in self.of_test.items() if function in trace.ran]
        line = mutant.line - start
        reaching = [test for test in entering if line in self.of_test[test].ran[function]]
        ways: Counter[frozenset[int]] = Counter()
        ranked = []
        for test in sorted(reaching or entering, key=lambda test: (self._breadth(test), test)):
            way = self.of_test[test].ran[function]
            ranked.append((ways[way], len(ranked), test))
            ways[way] += 1
        return [test for _, _, test in sorted(ranked)]

    def _breadth(self, test: str) -> int:
        return sum(len(lines) for lines in self.of_test[test].ran.values())


def key_of(path: Path) -> str:
    """Return what the file is called in the cache, as long as it says what it says now."""
    return f"{path}:{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


def to_json(tests: Mapping[str, Trace]) -> dict[str, Any]:
    return {
        test: [trace.seconds, {name: sorted(lines) for name, lines in trace.ran.items()}]
        for test, trace in tests.items()
    }


def from_json(stored: Mapping[str, Any]) -> dict[str, Trace]:
    return {
        test: Trace(seconds, {name: frozenset(lines) for name, lines in ran.items()})
        for test, (seconds, ran) in stored.items()
    }


def load(path: Path) -> Known:
    """Return what the cache knows."""
    if not path.exists():
        return {}
    return {file: from_json(tests) for file, tests in json.loads(path.read_text()).items()}


def save(path: Path, known: Known) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({file: to_json(tests) for file, tests in known.items()}))
