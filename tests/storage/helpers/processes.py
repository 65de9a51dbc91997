"""Programs that a test runs as processes, that report line by line, and that are killed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]


@contextmanager
def program(source: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run `source` in a Python process of its own; kill it at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:  # Closes the pipe and waits.
        try:
            yield process
        finally:
            process.kill()


def killed_after(source: str, line_count: int, *arguments: str) -> list[str]:
    """Run `source`, kill -9 it after `line_count` lines, and return all that it printed."""
    with program(source, *arguments) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(line_count)]
        process.kill()
        lines += process.stdout.readlines()
    # The last line may have been cut by the kill.
    return [line.removesuffix("\n") for line in lines if line.endswith("\n")]
