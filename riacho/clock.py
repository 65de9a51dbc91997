"""The wall clock of the client: where timestamps of records come from."""

import time


def now_ms() -> int:
    """Return the milliseconds since 1970, the unit of every timestamp in Riacho."""
    return time.time_ns() // 1_000_000
