"""Keep memory that was freed, for the next request, instead of giving it back to the system.

A body, its records and their slices are some megabytes that live for milliseconds. By default
what is freed goes back to the system at once, and the next request gets it again page by page,
each one emptied first: hundreds of page faults a megabyte, which took as much time as decoding it.
"""

import ctypes
from typing import Final

import pyarrow as pa

MIB: Final = 1024 * 1024

KEPT_BYTES: Final = 256 * MIB
"""So much that is free at the end of the heap is kept. More is never held by requests in all."""

HEAP_BYTES_MAX: Final = 64 * MIB
"""What is larger gets pages of its own, which go when it does: no body is."""

ARENAS_MAX: Final = 2
"""What one thread frees another can use; by default each has a heap that keeps its own."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # As in glibc's malloc.h.


def keep_freed_memory() -> bool:
    """Tell the allocator of this process; return whether it is one that listens."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False  # Only glibc's has these; others do as they think best.
    wanted = {_TRIM_THRESHOLD: KEPT_BYTES, _MMAP_THRESHOLD: HEAP_BYTES_MAX, _ARENA_MAX: ARENAS_MAX}
    done = [mallopt(name, value) == 1 for name, value in wanted.items()]
    # Arrow's own allocator gives back as eagerly, and cannot be told otherwise.
    pa.set_memory_pool(pa.system_memory_pool())
    return all(done)
