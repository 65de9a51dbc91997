"""When to retry: exponential backoff with jitter, and for how long."""

import asyncio
import random as chance
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from riacho.errors import retry_after_s_of
from storage.errors import RiachoError

T = TypeVar("T")

JITTER: Final = 0.2
"""Each wait varies by up to this share, so that clients spread out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that double from `first_ms` to `most_ms`."""

    first_ms: float = 100
    most_ms: float = 1000

    def wait_s(self, attempt: int, random: float, at_least_s: float = 0.0) -> float:
        """Return how long to wait after attempt number `attempt` failed, counted from 1.

        `random` is a number from 0 to 1. `at_least_s` is what the server asked for.
        """
        # The exponent is bounded because 2.0 ** 1100 overflows.
        doubled_ms = min(self.first_ms * 2.0 ** min(attempt - 1, 60), self.most_ms)
        return max(doubled_ms * (1 - JITTER + 2 * JITTER * random) / 1000, at_least_s)


class FailureCount:
    """Counts consecutive failures, and decides when to stop retrying."""

    def __init__(self, backoff: Backoff, most_s: float) -> None:
        self._backoff = backoff
        self._most_s = most_s
        self._since_s: float | None = None
        self._failures_in_a_row = 0

    def note(self, error: RiachoError, *, may_pass: bool = False) -> bool:
        """Count a failure; return whether to report it, because retrying will not help.

        `may_pass` says that retrying may help although the error is not retryable.
        """
        self._failures_in_a_row += 1
        if self._since_s is None:
            self._since_s = time.monotonic()
        lasted_s = time.monotonic() - self._since_s
        is_final = not (error.retryable or may_pass) or lasted_s > self._most_s
        if is_final:
            self._since_s = None
        return is_final

    async def wait(self, error: RiachoError) -> None:
        """Wait before the next retry."""
        attempt = max(self._failures_in_a_row, 1)
        wait_s = self._backoff.wait_s(attempt, _chance(), retry_after_s_of(error))
        await asyncio.sleep(wait_s)

    def over(self) -> None:
        self._since_s, self._failures_in_a_row = None, 0


async def patiently(ask: Callable[[], Awaitable[T]], backoff: Backoff, timeout_s: float) -> T:
    """Call `ask`, retrying retryable errors for `timeout_s`; then raise the last error.

    Only for requests that may be repeated.
    """
    give_up_s = time.monotonic() + timeout_s
    attempt = 0
    while True:
        attempt += 1
        try:
            return await ask()
        except RiachoError as error:
            wait_s = backoff.wait_s(attempt, _chance(), retry_after_s_of(error))
            if not error.retryable or time.monotonic() + wait_s > give_up_s:
                raise
        await asyncio.sleep(wait_s)


def _chance() -> float:
    return chance.random()  # noqa: S311 - It only spreads retries.
