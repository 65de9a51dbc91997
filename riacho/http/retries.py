"""When to try again: exponential backoff with jitter, and how long trouble may last."""

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
"""Each wait is longer or shorter by up to this share, so that clients spread out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that double from `first_ms` to `most_ms`."""

    first_ms: float = 100
    most_ms: float = 1000

    def wait_s(self, attempt: int, random: float, at_least_s: float = 0.0) -> float:
        """Return how long to wait after the failure of try number `attempt`, counted from 1.

        `random` is a number from 0 to 1. `at_least_s` is what the server asked for.
        """
        # The power is bounded because a float is: 2.0 ** 1100 overflows.
        doubled_ms = min(self.first_ms * 2.0 ** min(attempt - 1, 60), self.most_ms)
        return max(doubled_ms * (1 - JITTER + 2 * JITTER * random) / 1000, at_least_s)


class Trouble:
    """Failures in a row, for as long as there is hope."""

    def __init__(self, backoff: Backoff, most_s: float) -> None:
        self._backoff = backoff
        self._most_s = most_s
        self._since_s: float | None = None
        self._failures_in_a_row = 0

    def note(self, error: RiachoError, *, may_pass: bool = False) -> bool:
        """Count a failure; return whether to tell the caller, as trying again will not do.

        `may_pass` says that it may, though the error does not.
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
        """Let some time pass before anyone tries again."""
        attempt = max(self._failures_in_a_row, 1)
        await asyncio.sleep(self._backoff.wait_s(attempt, chance.random(), retry_after_s_of(error)))

    def over(self) -> None:
        self._since_s, self._failures_in_a_row = None, 0


async def patiently(ask: Callable[[], Awaitable[T]], backoff: Backoff, timeout_s: float) -> T:
    """Ask, and ask again while that may help, for `timeout_s`; then raise the last error.

    Only for what may be repeated.
    """
    give_up_s = time.monotonic() + timeout_s
    attempt = 0
    while True:
        attempt += 1
        try:
            return await ask()
        except RiachoError as error:
            wait_s = backoff.wait_s(attempt, chance.random(), retry_after_s_of(error))
            if not error.retryable or time.monotonic() + wait_s > give_up_s:
                raise
        await asyncio.sleep(wait_s)
