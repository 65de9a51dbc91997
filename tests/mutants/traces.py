"""Which tests run which lines of which function, so that a mutant runs only tests that reach it.

Lines are counted from the first of their function, so traces stay valid after changes elsewhere in
the module. They are cached by the contents of the test file.
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
    """The duration of one test and the lines it ran."""

    seconds: float
    ran: Mapping[str, frozenset[int]]
    """Lines, by `storage/head/head.py:append`."""


Known = dict[str, dict[str, Trace]]
"""Tests that pass, by file (with its contents) and name."""


@dataclass(frozen=True, slots=True)
class Span:
    """The current lines of a function."""

    start: int
    end: int

    @classmethod
    def of(cls, function: Function) -> Self:
        decorated = [decorator.lineno for decorator in function.decorator_list]
        return cls(min([function.lineno, *decorated]), function.end_lineno or function.lineno)


def spans(source: str) -> dict[str, Span]:
    """Return the lines of every function; functions with one name, like a property, are joined."""
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
    """Return the lines that ran in each function, counted from its start."""
    ran = set(lines)
    found = {}
    for name, span in spans(source).items():
        inside = {line - span.start for line in ran if span.start <= line <= span.end}
        if inside:
            found[f"{module}:{name}"] = frozenset(inside)
    return found


@dataclass
class Traces:
    """The traces of tests that pass."""

    of_test: dict[str, Trace] = field(default_factory=dict)

    def reaching(self, mutant: Mutant, start: int) -> list[str]:
        """Return the tests that run the mutant's line, the most useful ones first.

        One test of every path through the function comes first, then the next of each; among
        equals, those that run the fewest lines. A line inside a long expression may have no event
        of its own. Then all tests that enter the function are returned.
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
    """Return the cache key of the file, which changes with its contents."""
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
    """Return the contents of the cache."""
    if not path.exists():
        return {}
    return {file: from_json(tests) for file, tests in json.loads(path.read_text()).items()}


def save(path: Path, known: Known) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({file: to_json(tests) for file, tests in known.items()}))
