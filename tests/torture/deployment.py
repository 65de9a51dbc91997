"""What scenarios share: starting on a disk, the commands of an operator, waiting."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.commands import exit_code
from tests.gateway import GatewayProcess
from tests.integration.load import Ledger, check_through
from tests.integration.processes import TIMEOUT_S, Deployment, Json, embedded

ROOT: Final = Path(__file__).parents[2]

AS_OBJECTS: Final = {"RIACHO_TABLE_BATCH_BYTES_MAX": "0"}
"""With this every flush is an object; otherwise small ones are in the table."""


def deployment(folder: Path, *envs: Mapping[str, str]) -> Deployment:
    """Return an embedded deployment whose processes have these variables."""
    merged = {name: text for env in envs for name, text in env.items()}
    return replace(embedded(folder), env=merged)


def command(folder: Path, *args: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Run a command of `riacho` on the stores; return its exit code and what it said.

    With variables of its own it is a process, which a shim may be loaded into.
    """
    data = {"RIACHO_DATA": str(folder / "data")}
    if env is None:
        code, said = exit_code(*args, env=data)
        return code, said.stdout.decode(), said.stderr.decode()
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("RIACHO_")}
    done = subprocess.run(
        [sys.executable, "-m", "riacho", *args],
        env=inherited | data | dict(env),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=10 * TIMEOUT_S,
    )
    return done.returncode, done.stdout, done.stderr


def fsck(folder: Path) -> Json:
    """Return what `riacho fsck` finds; raises if it says nothing that a program can read."""
    code, out, err = command(folder, "fsck", "-o", "json")
    assert out, err
    found = json.loads(out)
    assert (code == 0) == found["ok"], (code, err)
    return found


def check_all(ledger: Ledger, gateway: GatewayProcess, folder: Path) -> None:
    """Compare the log with the book, and let `fsck` look at the stores."""
    check_through(ledger, gateway)
    found = fsck(folder)
    assert found["ok"], found


def stored_keys(folder: Path) -> set[str]:
    """Return the names of all files that hold objects."""
    data = folder / "data"
    return {
        str(path.relative_to(data))
        for path in data.rglob("*")
        if path.is_file() and not path.name.startswith("metadata.db")
    }
