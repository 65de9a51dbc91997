"""Trials of mutants: a pytest run that collects once, and then forks a process for every mutant.

The child installs the mutant's code in the loaded functions, and runs the tests that reach it,
until one fails. Nothing is imported or collected again, so a trial takes only as long as its tests.
"""

import ast
import gc
import importlib
import os
import signal
import tempfile
import time
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

from tests.mutants import traces
from tests.mutants.children import Job, run_all
from tests.mutants.kills import Kills
from tests.mutants.mutations import Mutant, mutants, mutated
from tests.mutants.traces import Trace, Traces

ROOT: Final = Path(__file__).parent.parent.parent
TRACES: Final = ROOT / ".mutants" / "traces.json"

SECONDS_MAX: Final = 1.5
"""Maximum computing time of a quick test, while it is traced."""

BUDGET_S: Final = 20.0
"""Maximum total time of the tests that are run for a mutant, as measured while traced."""

_FILE_TIMEOUT_S: Final = 600.0
_UNUSED_MARKS: Final = ("aws", "slow")


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    killer: str | None
    """The test that failed; None if no test ended in time, and empty if all of them passed."""
    tests: int


Say = Callable[[str], None]


class Court:
    """The pytest plugin that runs mutants instead of tests."""

    def __init__(
        self,
        modules: Sequence[str],
        processes: int,
        say: Say,
        *,
        fresh: bool = False,
        only: str = "",
    ) -> None:
        self._sources = {module: (ROOT / module).read_text() for module in modules}
        self._processes = processes
        self._say = say
        self._fresh = fresh
        self._only = only
        self._failed = ""
        self._limit_s = 0.0
        self._loaded: list[FunctionType] = []
        self.verdicts: list[Verdict] = []

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # Not before pytest has loaded it.

        # Failures are not shrunk: only their existence matters.
        phases = (Phase.explicit, Phase.reuse, Phase.generate)
        settings.register_profile("mutants", settings.default, phases=phases, database=None)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        # The signal ends a test that computes for longer.
        signal.setitimer(signal.ITIMER_PROF, self._limit_s)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)  # To report a failure may take longer than that.

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {
            item.nodeid: item
            for item in session.items
            if not any(item.get_closest_marker(mark) for mark in _UNUSED_MARKS)
        }
        with suppress(ImportError):  # Arrow imports it, and every child would load it again.
            importlib.import_module("pandas")
        self._loaded = loaded_functions({str(ROOT / module) for module in self._sources})
        gc.freeze()  # Else garbage collection would copy most of the memory in every child.
        with tempfile.TemporaryDirectory() as scratch:
            os.environ["PYTEST_DEBUG_TEMPROOT"] = scratch
            known = self._traced(items)
            for part in parts():
                here = {file: traces for file, traces in known.items() if file in part.tests}
                tests = Traces(
                    {
                        test: trace
                        for file in here.values()
                        for test, trace in file.items()
                        if trace.seconds <= SECONDS_MAX
                    }
                )
                for module in part.modules:
                    if module in self._sources:
                        self.verdicts += self._judged(module, tests, items)
        return True

    def _traced(self, items: dict[str, pytest.Item]) -> dict[str, dict[str, Trace]]:
        """Return the traces of all tests, from the cache or by running those not in it."""
        known = {} if self._fresh else traces.load(TRACES)
        by_path: dict[Path, list[pytest.Item]] = {}
        for item in items.values():
            by_path.setdefault(item.path.relative_to(ROOT), []).append(item)
        by_file = {traces.key_of(path): found for path, found in by_path.items()}
        unknown = [file for file in by_file if file not in known]
        jobs = [Job(partial(self._trace, by_file[file]), _FILE_TIMEOUT_S) for file in unknown]
        for done, (number, found) in enumerate(run_all(jobs, self._processes), 1):
            self._say(f"tracing tests: {done} of {len(jobs)} files")
            known[unknown[number]] = traces.from_json(found or {})
            traces.save(TRACES, known)
        return {str(path): known[traces.key_of(path)] for path in by_path}

    def _trace(self, items: Sequence[pytest.Item]) -> dict[str, Any]:
        """Return the traces of the tests that pass and are quick."""
        modules = {str(ROOT / module): module for module in every_module()}
        sources = {module: Path(file).read_text() for file, module in modules.items()}
        found: dict[str, Trace] = {}
        for item in items:
            started = time.process_time()
            with traces.tracing(modules) as lines:
                passed = not self._fails([item])
            seconds = time.process_time() - started
            if passed:
                ran: dict[str, frozenset[int]] = {}
                for file, module in modules.items():
                    ran |= traces.by_function(module, sources[module], lines[file])
                found[item.nodeid] = Trace(seconds, ran)
        return traces.to_json(found)

    def _judged(
        self, module: str, known: Traces, items: dict[str, pytest.Item]
    ) -> Iterator[Verdict]:
        source = self._sources[module]
        starts = {name: span.start for name, span in traces.spans(source).items()}
        everyone = [m for m in mutants(module, source) if self._only in m.name]
        kills = Kills(ROOT, source, fresh=self._fresh)
        alive = []
        for mutant in everyone:
            if kills.knows(mutant):
                yield Verdict(mutant, kills.killer(mutant), tests=1)
            else:
                alive.append(mutant)
        recent: dict[str, list[str]] = {}
        chosen: list[list[str]] = []
        jobs: list[Job] = []
        for mutant in alive:
            tests, seconds = _affordable(known, known.reaching(mutant, starts[mutant.function]))
            chosen.append(tests)
            killers = recent.setdefault(mutant.function, [])
            limits_s = {test: 4 * known.of_test[test].seconds + 3 for test in tests}
            job = partial(self._try, mutant, source, tests, limits_s, items, killers)
            jobs.append(Job(job, computing_s=3 * seconds + 5))
        for done, (number, killer) in enumerate(run_all(jobs, self._processes), 1):
            if killer:
                recent[alive[number].function].insert(0, killer)
            if killer != "":
                kills.add(alive[number], killer)
            news = f", alive: {alive[number].name}" if killer == "" else ""
            self._say(f"{module}: {done} of {len(jobs)}{news}")
            yield Verdict(alive[number], killer, len(chosen[number]))

    def _try(
        self,
        mutant: Mutant,
        source: str,
        tests: Sequence[str],
        limits_s: Mapping[str, float],
        items: dict[str, pytest.Item],
        recent: Sequence[str],
    ) -> str:
        """Return the test that fails with the mutant, or an empty string if none does."""
        file = str(ROOT / mutant.module)
        install(self._loaded, file, mutant.function, mutated(source, mutant.number))
        # Tests that noticed another mistake in this function often notice this one, too.
        first = [test for test in dict.fromkeys(recent) if test in tests][:3]
        return self._fails([items[test] for test in dict.fromkeys([*first, *tests])], limits_s)

    def _fails(
        self, items: Sequence[pytest.Item], limits_s: Mapping[str, float] | None = None
    ) -> str:
        """Return the first test that fails, or an empty string if none does."""
        limits_s = limits_s or {}
        self._failed = ""
        if not items:
            return ""
        for item, following in zip(items, [*items[1:], None], strict=True):
            self._limit_s = limits_s.get(item.nodeid, 0.0)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                break
        return self._failed


def _affordable(known: Traces, tests: Sequence[str]) -> tuple[list[str], float]:
    """Return as many of the tests as the budget allows, and their total time."""
    seconds = 0.0
    for number, test in enumerate(tests):
        seconds += known.of_test[test].seconds
        if seconds > BUDGET_S:
            return list(tests[: number + 1]), seconds
    return list(tests), seconds


@dataclass(frozen=True, slots=True)
class Part:
    """Modules, and the files with the tests that must notice their mistakes."""

    modules: Sequence[str]
    tests: Sequence[str]


def parts() -> list[Part]:
    listed = tomllib.loads((Path(__file__).parent / "modules.toml").read_text())
    return [Part(part["modules"], part["tests"]) for part in listed.values()]


def every_module() -> list[str]:
    return [module for part in parts() for module in part.modules]


def loaded_functions(files: Collection[str]) -> list[FunctionType]:
    """Return the functions of these files, however they are wrapped."""
    return [
        thing
        for thing in gc.get_objects()
        if isinstance(thing, FunctionType) and thing.__code__.co_filename in files
    ]


def install(loaded: Sequence[FunctionType], file: str, name: str, tree: ast.Module) -> None:
    """Give the function, wherever it is referenced, the code that it has in `tree`."""
    wanted = {
        code.co_firstlineno: code
        for code in _codes(compile(tree, file, "exec"))
        if code.co_qualname == name
    }
    changed = 0
    for function in loaded:
        before = function.__code__
        if (before.co_filename, before.co_qualname) == (file, name):
            function.__code__ = wanted[before.co_firstlineno]
            changed += 1
    if not changed:
        raise LookupError(f"{name} of {file} is not loaded")


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of functions and methods, but not of functions within functions."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            if "<locals>" not in constant.co_qualname:
                yield from _codes(constant)


def hold_court(court: Court, tests: Sequence[str]) -> int:
    """Collect the tests of these files, and let the court try the mutants."""
    options = [
        "-qq",
        "-s",
        "--no-header",
        "--no-summary",
        "--tb=native",
        "--continue-on-collection-errors",
    ]
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler"]
    return pytest.main([*options, *plugins, "-o", "timeout=0", *tests], plugins=[court])
