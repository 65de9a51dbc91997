"""The peak memory of a call, in Python and in Arrow."""

import tracemalloc
from collections.abc import Callable

import pyarrow as pa

SPARE_BYTES = 64 * 1024
"""Memory that any call needs: frames, error messages, tracebacks, small objects."""


def taken_bytes(call: Callable[[], object]) -> int:
    """Return an upper bound of the peak memory of `call`.

    The peak of Arrow's pool cannot be reset, so all its allocations during the call are counted,
    which is never less than the peak.
    """
    pool = pa.default_memory_pool()
    arrow_bytes = pool.total_bytes_allocated()
    # Only during the call: generating the input would be many times slower.
    tracemalloc.start()
    try:
        call()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak_bytes + int(pool.total_bytes_allocated() - arrow_bytes)
