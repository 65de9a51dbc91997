"""Progress of a job on stderr: a bar on a terminal, otherwise a line every few seconds."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

LINE_S: Final = 5.0
"""Minimum time between progress lines in a log."""


class Meter(Protocol):
    """Receives the progress of a job."""

    def planned(self, steps: int) -> None:
        """Add this many steps to the plan."""

    def done(self, steps: int, text: str = "") -> None:
        """Count this many steps as done; `text` describes the progress so far."""

    def say(self, text: str) -> None:
        """Show a message once."""


class NoMeter:
    """A `Meter` that shows nothing."""

    def planned(self, steps: int) -> None: ...

    def done(self, steps: int, text: str = "") -> None: ...

    def say(self, text: str) -> None: ...


class LineMeter:
    """A `Meter` for logs."""

    def __init__(self, title: str, stream: TextIO, monotonic_s: Callable[[], float]) -> None:
        self._title = title
        self._stream = stream
        self._monotonic_s = monotonic_s
        self._said_s = monotonic_s()
        self._planned = 0
        self._done = 0

    def planned(self, steps: int) -> None:
        self._planned += steps

    def done(self, steps: int, text: str = "") -> None:
        self._done += steps
        now_s = self._monotonic_s()
        if now_s - self._said_s >= LINE_S:
            self._said_s = now_s
            share = f"{100 * self._done // self._planned} %" if self._planned else f"{self._done}"
            self.say(", ".join(filter(None, (share, text))))

    def say(self, text: str) -> None:
        try:
            self._stream.write(f"{self._title}: {text}\n")
            self._stream.flush()
        except (OSError, ValueError):
            return  # The stream is closed; that must not stop the job.


@contextmanager
def shown(
    title: str, monotonic_s: Callable[[], float], stream: TextIO | None = None
) -> Iterator[Meter]:
    """Yield a meter that shows the progress of the job `title`."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield LineMeter(title, stream, monotonic_s)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(title),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    console = Console(file=stream)
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress, console)


class _Bar:
    def __init__(self, progress: "Progress", console: "Console") -> None:
        self._progress = progress
        self._console = console
        self._task = progress.add_task("", total=None)
        self._planned = 0

    def planned(self, steps: int) -> None:
        self._planned += steps
        self._progress.update(self._task, total=self._planned)

    def done(self, steps: int, text: str = "") -> None:
        self._progress.update(self._task, advance=steps, description=text)

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)


def size(count: float) -> str:
    """Return a number of bytes in a human-readable unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
