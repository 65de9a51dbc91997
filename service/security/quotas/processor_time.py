"""The time that the event loop spends on a request: what `request_percentage` limits.

A request runs in steps, from one wait to the next, and only its own steps are counted. Work in
threads and writes that several requests share are not.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any


class Timed:
    """Runs `work` when awaited, and reports how long its steps took."""

    def __init__(
        self,
        work: Awaitable[None],
        monotonic_s: Callable[[], float],
        report: Callable[[float], None],
    ) -> None:
        self._work = work
        self._monotonic_s = monotonic_s
        self._report = report

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._work.__await__()
        spent_s = 0.0
        error: BaseException | None = None
        try:
            while True:
                began_s = self._monotonic_s()
                try:
                    # What asyncio waits for is passed on, and what ends the wait is passed in.
                    waits_for = next(steps) if error is None else _thrown(steps, error)
                except StopIteration:
                    return
                finally:
                    spent_s += self._monotonic_s() - began_s
                error = None
                try:
                    yield waits_for
                except GeneratorExit:
                    raise
                except BaseException as thrown:  # noqa: BLE001 - A cancelled wait, for example.
                    error = thrown
        finally:
            self._report(spent_s)


def _thrown(steps: Generator[Any, Any, None], error: BaseException) -> Any:
    return steps.throw(error)
