"""What this process has recently seen of a zone: failures, latency, missing copies.

This affects only this process. For a while, a zone that failed several times in a row is asked
last and gets no hopeful writes, so that not every call has to meet the same failure.
"""

from dataclasses import dataclass
from typing import Final

FAILURES_MAX: Final = 3
"""Failures in a row after which a zone is avoided."""

AVOIDED_S: Final = 5.0
"""How long a zone is avoided after its last failure; then calls try it again."""

HEDGE_S_MIN: Final = 0.1
HEDGE_S_MAX: Final = 2.0
HEDGE_TIMES: Final = 4
"""A read that takes this many times the typical latency is also sent to another zone."""

_SHARE: Final = 0.1
"""Weight of the newest call in the typical latency."""


@dataclass(slots=True)
class ZoneHealth:
    failures: int = 0
    """In a row."""
    failed_s: float = 0.0
    last_error: str = ""
    read_s: float = 0.05
    write_s: float = 0.05
    """Typical latencies."""
    missing: int = 0
    """Reads of objects that should exist and did not."""
    damaged: int = 0

    def is_avoided(self, now_s: float) -> bool:
        return self.failures >= FAILURES_MAX and now_s - self.failed_s < AVOIDED_S

    @property
    def hedge_s(self) -> float:
        """How long to wait for a read before another zone is asked as well."""
        return min(HEDGE_S_MAX, max(HEDGE_S_MIN, HEDGE_TIMES * self.read_s))

    def was_read(self, took_s: float) -> None:
        self.failures = 0
        self.read_s += _SHARE * (took_s - self.read_s)

    def was_written(self, took_s: float) -> None:
        self.failures = 0
        self.write_s += _SHARE * (took_s - self.write_s)

    def failed(self, error: str, now_s: float) -> None:
        self.failures += 1
        self.failed_s = now_s
        self.last_error = error
