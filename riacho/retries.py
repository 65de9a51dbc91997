"""When to try again: exponential backoff with jitter, as a pure function."""

from dataclasses import dataclass
from typing import Final

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
