"""A gateway does not load pandas, even if it is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pandas")

MAKES_AN_ARRAY = """
import sys
import pyarrow as pa
{first}
pa.array([1, 2])
print("pandas" in sys.modules)
"""


def loaded(first: str, data: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", MAKES_AN_ARRAY.format(first=first)],
        env={**os.environ, "RIACHO_DATA": str(data)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_gateway_does_not_import_pandas(tmp_path: Path) -> None:
    assert loaded("", tmp_path) == "True", "pyarrow no longer imports it: nothing is to be refused"
    assert loaded("from service.app import create_app; create_app()", tmp_path) == "False"
