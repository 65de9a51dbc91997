"""The command `python -m tests.checker`: its output and its exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.checker import __main__ as command
from tests.checker.history import RULES, History
from tests.checker.log_rules import Produced
from tests.checker.operations import dump

GOOD = History([Produced(0, 0, ("a",), 0, 1, 0, False)], final={0: [(0, "a")]})
BAD = History([Produced(0, 0, ("a",), 0, 1, 0, False)], final={0: [(0, "b")], 1: [(0, "c")]})


def write(folder: Path, *histories: History) -> list[str]:
    paths = [str(folder / f"{number}.jsonl") for number in range(len(histories))]
    for path, history in zip(paths, histories, strict=True):
        dump(history, path)
    return paths


def test_a_history_without_violations_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(write(tmp_path, GOOD)) == 0
    assert capsys.readouterr().out == f"2 operations, {len(RULES)} rules, nothing wrong\n"


def test_several_files_are_checked_as_one_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written, read = History(GOOD.produced), History(final=GOOD.final)

    assert command.main(write(tmp_path, written, read)) == 0
    assert command.main(write(tmp_path, written)) == 1
    assert "0 was not read back" in capsys.readouterr().out


def test_every_broken_rule_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(write(tmp_path, BAD)) == 1

    *found, summary = capsys.readouterr().out.splitlines()
    assert "acked_records_are_at_their_offset: 'a' was acked at 0/0, where there is 'b'" in found
    assert {line.partition(":")[0] for line in found} == {
        "acked_records_are_at_their_offset",
        "one_offset_one_value",
        "nothing_comes_from_nowhere",
    }
    assert summary == f"3 operations, {len(RULES)} rules, 3 of them broken"


def test_violations_of_one_rule_are_printed_up_to_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(write(tmp_path, History(stuck=[str(n) for n in range(99)]))) == 1

    printed = capsys.readouterr().out.splitlines()
    assert printed[-2] == f"after_the_faults_nothing_is_stuck: and {99 - command.SHOWN_MAX} more"


def test_the_smallest_history_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--smallest", *write(tmp_path, BAD)]) == 1

    operations = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert len(operations) == 2
    assert '"op":"produce"' in operations[0]
    assert '"op":"read_back"' in operations[1]


@pytest.mark.parametrize("text", [None, "{", '{"op": "sing"}'])
def test_a_file_that_is_not_a_history_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    path = tmp_path / "history.jsonl"
    if text is not None:
        path.write_text(text)

    assert command.main([str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_the_module_runs_as_a_command_and_prints_help() -> None:
    asked = [sys.executable, "-m", "tests.checker", "--help"]
    helped = subprocess.run(asked, capture_output=True, text=True, check=True)
    refused = subprocess.run(asked[:-1], capture_output=True, text=True, check=False)

    assert "exit code is 0 if nothing is wrong" in helped.stdout
    assert refused.returncode == 2
    assert "which FILE?" in refused.stderr
