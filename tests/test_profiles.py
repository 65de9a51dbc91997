"""The suite tries the same examples in every run; `make proof` tries others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TOLD = """
import tests.conftest
from tests.examples import few, some
from tests.fuzz.cases import cases
from tests.service.groups.test_protocol import Groups
print(*{each.derandomize for each in (few, some, cases(1), Groups.TestCase.settings)})
print(*{each.deadline for each in (few, some, cases(1), Groups.TestCase.settings)})
"""


@pytest.mark.parametrize(("profile", "is_steady"), [("steady", True), ("explore", False)])
def test_the_profile_says_which_examples_are_tried(profile: str, is_steady: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOLD],
        env={**os.environ, "RIACHO_EXAMPLES": profile, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == [str(is_steady), "None"]


def test_no_test_chooses_for_itself() -> None:
    sources = {path: path.read_text() for path in ROOT.glob("tests/**/*.py")}

    chosen = {path.name for path, text in sources.items() if "derandomize=" in text}
    assert chosen == {"conftest.py", Path(__file__).name}
