"""Limits of calls that stay open: tails, and fetches and polls that wait for records.

Each costs a gateway memory and a connection for as long as its caller likes, so no principal may
have more of them than its share.
"""

from collections import Counter
from typing import Final

from storage.errors import QuotaExceeded

RETRY_MS: Final = 1000


class OpenCalls:
    """The open calls of one kind, counted by principal."""

    def __init__(self, what: str, count_max: int) -> None:
        self._what = what
        self._count_max = count_max
        self._open: Counter[str] = Counter()

    def take(self, principal: str) -> "OpenCall":
        """Count one more call until it is closed. Raises `QuotaExceeded`."""
        count = self._open[principal]
        if count >= self._count_max:
            raise QuotaExceeded(
                f"{principal} has {count} {self._what} open at this gateway, which is the limit;"
                " close some",
                RETRY_MS,
            )
        self._open[principal] = count + 1
        return OpenCall(self._open, principal)

    @property
    def principals(self) -> int:
        """How many principals have an open call."""
        return len(self._open)


class OpenCall:
    """One open call. It ends with the context, or as soon as it is closed; once."""

    __slots__ = ("_open", "_principal")

    def __init__(self, opened: Counter[str] | None = None, principal: str = "") -> None:
        """Without `opened`, nothing is counted."""
        self._open = opened
        self._principal = principal

    def close(self) -> None:
        if self._open is None:
            return
        self._open[self._principal] -= 1
        if not self._open[self._principal]:
            del self._open[self._principal]
        self._open = None

    def __enter__(self) -> "OpenCall":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
