"""The mutation check in action: traces, children that hang, and installed code."""

import ast
import functools
import itertools
import json
import sys
import threading
from pathlib import Path

import pytest

from tests.mutants import accepted, children, traces
from tests.mutants.__main__ import Summary, report
from tests.mutants.children import ChildFailed, Job, run_all
from tests.mutants.kills import Kills
from tests.mutants.mutations import Mutant, mutants
from tests.mutants.traces import Trace, Traces
from tests.mutants.trials import ROOT, Verdict, install, loaded_functions, parts


@functools.cache
def doubled(number: int) -> int:
    return number + number


class Numbers:
    @property
    def next(self) -> int:
        return doubled(2) + 1


def test_an_installed_function_changes_wherever_it_is_referenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Path(__file__).read_text()
    tree = ast.parse(source.replace("return number + number", "return number * number + 3"))
    before = doubled.__wrapped__.__code__
    loaded = loaded_functions({__file__})

    install(loaded, __file__, "doubled", tree)
    try:
        assert Numbers().next == 8
    finally:
        doubled.__wrapped__.__code__ = before
        doubled.cache_clear()
    assert Numbers().next == 5
    with pytest.raises(LookupError):
        install(loaded, __file__, "tripled", tree)


def test_lines_are_traced_in_threads_too_and_counted_from_the_start_of_their_function() -> None:
    doubled.cache_clear()
    with traces.tracing([__file__]) as lines:
        thread = threading.Thread(target=lambda: Numbers().next)
        thread.start()
        thread.join()
    assert sys.gettrace() is None

    ran = traces.by_function("m.py", Path(__file__).read_text(), lines[__file__])

    assert ran["m.py:doubled"] == {2}
    assert ran["m.py:Numbers.next"] == {2}


def test_tests_of_every_path_through_a_function_come_first_ordered_by_length() -> None:
    known = Traces(
        {
            "wide": Trace(1.0, {"m.py:f": frozenset({1, 2}), "m.py:g": frozenset({1, 2, 3})}),
            "narrow": Trace(1.0, {"m.py:f": frozenset({1, 2})}),
            "longer": Trace(1.0, {"m.py:f": frozenset({1, 2, 3})}),
            "early": Trace(1.0, {"m.py:f": frozenset({1})}),
            "other": Trace(1.0, {"m.py:g": frozenset({2})}),
        }
    )

    def reaching(line: int) -> list[str]:
        return known.reaching(Mutant("m.py", "f", "…", 10 + line, 0), start=10)

    assert reaching(2) == ["narrow", "longer", "wide"]
    assert reaching(1) == ["early", "narrow", "longer", "wide"]
    assert reaching(9) == ["early", "narrow", "longer", "wide"]


def test_traces_are_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "traces.json"
    known = {"file": {"test": Trace(0.5, {"m.py:f": frozenset({1, 2})})}}

    assert traces.load(path) == {}
    traces.save(path, known)
    assert traces.load(path) == known


def test_children_return_results_and_those_that_hang_are_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(children, "IDLE_S_MAX", 0.2)
    monkeypatch.setattr(children, "LOOK_S", 0.05)
    jobs = [
        Job(lambda: ["an answer"], computing_s=10),
        Job(lambda: all(itertools.count(1)), computing_s=1),
        Job(lambda: threading.Event().wait(), computing_s=10),
    ]

    assert sorted(run_all(jobs, 2)) == [(0, ["an answer"]), (1, None), (2, None)]


def test_an_error_in_a_child_is_raised_in_the_parent() -> None:
    with pytest.raises(ChildFailed, match="JSONDecodeError"):
        list(run_all([Job(lambda: json.loads("{"), computing_s=10)], 1))


def test_killed_mutants_are_remembered_until_their_function_or_killer_changes(
    tmp_path: Path,
) -> None:
    source = "def f(a):\n    return a + 1\n"
    _, noticed, endless, alive = [*mutants("m.py", source), *mutants("n.py", source)][:4]
    killer = tmp_path / "tests.py"
    killer.write_text("assert f(1) == 2")
    kills = Kills(tmp_path, source)
    kills.add(noticed, "tests.py::test_f")
    kills.add(endless, None)

    again = Kills(tmp_path, "import x\n" + source)
    assert [again.knows(mutant) for mutant in (noticed, endless, alive)] == [True, True, False]
    assert (again.killer(noticed), again.killer(endless)) == ("tests.py::test_f", None)
    assert not Kills(tmp_path, source, fresh=True).knows(noticed)
    assert not Kills(tmp_path, source.replace("1", "2")).knows(noticed)
    killer.write_text("pass")
    assert not again.knows(noticed)
    killer.unlink()
    assert not again.knows(noticed)


def verdicts() -> list[Verdict]:
    found = mutants("m.py", "def f(a, b):\n    g(a < b)\n    return a + b\n")
    assert len(found) == 4
    return [
        Verdict(mutant, killer, tests=1)
        for mutant, killer in zip(found, ["a test", "a test", None, ""], strict=True)
    ]


def test_a_survivor_without_a_reason_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    alive = verdicts()[3].mutant.name
    many = verdicts()[:1] * 10
    unexplained = Summary("m.py", [*verdicts(), *many], {})
    explained = Summary("m.py", [*verdicts(), *many], {alive: "because"})

    assert report([unexplained], partial=False) == 1
    assert alive in capsys.readouterr().out
    assert report([explained], partial=False) == 0
    assert report([Summary("m.py", verdicts(), {alive: "because"})], partial=False) == 1
    assert report([Summary("m.py", [], {})], partial=False) == 1


def test_a_reason_for_a_killed_or_missing_mutant_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    killed, alive = verdicts()[0].mutant.name, verdicts()[3].mutant.name
    summary = Summary("m.py", verdicts() * 1, {alive: "because", killed: "because", "f: old": "?"})

    report([summary], partial=False)

    said = capsys.readouterr().out
    assert f"no survivor: {killed}" in said
    assert "no survivor: f: old" in said
    assert f"no survivor: {alive}" not in said
    assert "75.0% killed (1 timed out), 1 survived, 1 of them accepted" in said


def test_every_accepted_mutant_follows_its_reason(tmp_path: Path) -> None:
    (tmp_path / "a.b.txt").write_text("# One\n# reason.\nf: x\nf: y\n\n# Another.\ng: z\n")
    (tmp_path / "bad.txt").write_text("f: x\n")
    (tmp_path / "twice.txt").write_text("# Why.\nf: x\nf: x\n")

    assert accepted.read("a/b.py", tmp_path) == {
        "f: x": "One reason.", "f: y": "One reason.", "g: z": "Another.",
    }  # fmt: skip
    assert accepted.read("none.py", tmp_path) == {}
    for name in ("bad.py", "twice.py"):
        with pytest.raises(ValueError, match="line"):
            accepted.read(name, tmp_path)


def test_listed_modules_and_tests_exist() -> None:
    for part in parts():
        for file in (*part.modules, *part.tests):
            assert (ROOT / file).is_file(), file
    modules = [module for part in parts() for module in part.modules]
    assert len(set(modules)) == len(modules)


def test_every_accepted_mutant_exists() -> None:
    for part in parts():
        for module in part.modules:
            names = {mutant.name for mutant in mutants(module, (ROOT / module).read_text())}
            assert accepted.read(module).keys() <= names, module
