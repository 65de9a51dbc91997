"""How long a request waits for records.

A fetch, a fetch from several partitions and a tail each read, wait for news and read again. What
they read and send differs. When they stop waiting does not: at their deadline, or as soon as the
gateway stops. News are a commit that moved the partition, or one of the partitions
(`storage.lanes.watch.any_changed`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LongPoll:
    """The wait of one request, over as many reads as it takes."""

    until_s: float
    """The deadline, by the gateway's clock."""
    monotonic_s: Callable[[], float]
    draining: asyncio.Event
    """Set when the gateway stops: requests are then answered with what there is."""

    @property
    def left_s(self) -> float:
        """Time left to wait; 0: answer now."""
        return 0.0 if self.draining.is_set() else max(0.0, self.until_s - self.monotonic_s())


__all__ = ["LongPoll"]
