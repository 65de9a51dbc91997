"""Commands as tests type them.

`riacho` and `exit_code` run one in this process: it takes milliseconds, where an interpreter takes
a second. What only a process can show (signals, pipes, what `python -m riacho` returns) is tested
with processes, in the environment that `environment` returns; so is `serve`, which changes that of
its process.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from typer.testing import CliRunner

from riacho.cli.main import cli
from tests.gateway import free_port


@dataclass(frozen=True)
class Done:
    """What a command wrote."""

    stdout: bytes
    stderr: bytes


def riacho(*args: str, url: str = "", stdin: bytes = b"", code: int = 0) -> Done:
    """Run a command to its end; `code` is the exit code that it must return."""
    returned, done = exit_code(*args, env={"RIACHO_URL": url or nowhere()}, stdin=stdin)
    assert returned == code, done.stderr.decode()
    return done


def exit_code(*args: str, env: Mapping[str, str], stdin: bytes = b"") -> tuple[int, Done]:
    """Run a command to its end, whatever comes of it."""
    done = CliRunner().invoke(
        cli, args, input=stdin, env=env, catch_exceptions=False, prog_name="riacho"
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.exit_code, Done(done.stdout_bytes, done.stderr_bytes)


def riacho_process(*args: str, code: int = 0) -> Done:
    """Run a command in a process of its own, to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "riacho", *args],
        capture_output=True,
        timeout=120,
        env=environment(),
    )
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return Done(done.stdout, done.stderr)


def environment(url: str = "") -> dict[str, str]:
    return {**os.environ, "RIACHO_URL": url or nowhere()}


def nowhere() -> str:
    """Return a URL that nobody listens on."""
    return f"http://127.0.0.1:{free_port()}"
