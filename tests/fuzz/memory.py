"""How much memory a call takes at most, of Python and of Arrow."""

import tracemalloc
from collections.abc import Callable

import pyarrow as pa

SPARE_BYTES = 64 * 1024
"""Of any call: frames, messages of errors, tracebacks, small objects."""


def taken_bytes(call: Callable[[], object]) -> int:
    """Return how many bytes `call` took at most.

    Arrow's pool has no peak that could be set back, so all that it was asked for meanwhile is
    counted: never less than the peak.
    """
    pool = pa.default_memory_pool()
    arrow_bytes = pool.total_bytes_allocated()
    # Only for the call: whoever makes up the input would be many times slower.
    tracemalloc.start()
    try:
        call()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak_bytes + int(pool.total_bytes_allocated() - arrow_bytes)
