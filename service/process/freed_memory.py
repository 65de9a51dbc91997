"""Keep some freed memory for the next request, and return the rest to the system.

A body, its records and their slices are some megabytes that live for milliseconds. By default
freed memory returns to the system at once, and the next request gets it again page by page, each
one zeroed first: hundreds of page faults per megabyte, which took as much time as decoding it.

So freed memory is kept, but not forever: large pieces, which few requests have, are returned at
once, and everything is returned when a gateway has been idle for a while.
"""

import ctypes
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

import pyarrow as pa

MIB: Final = 1024 * 1024

KEPT_BYTES: Final = 64 * MIB
"""Maximum free memory kept at the end of the heap while there is work."""

HEAP_BYTES_MAX: Final = 4 * MIB
"""Larger pieces get their own pages, which are returned when freed. Most bodies, and all slices,
are smaller; decoding a larger body takes much longer than getting its pages."""

ARENAS_MAX: Final = 2
"""Few heaps, so that threads reuse each other's freed memory; by default each has its own."""

LOOK_S: Final = 0.5
"""How often to check whether there is work."""

QUIET_LOOKS: Final = 6
"""After this many checks without work, all free memory returns to the system."""

BUSY_BYTES: Final = MIB
"""Work is when requests and answers hold more than this; less leaves little memory to return."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # As in glibc's malloc.h.


def keep_freed_memory() -> bool:
    """Configure the allocator of this process; return whether it accepted the settings."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False  # Only glibc has these settings.
    wanted = {_TRIM_THRESHOLD: KEPT_BYTES, _MMAP_THRESHOLD: HEAP_BYTES_MAX, _ARENA_MAX: ARENAS_MAX}
    done = [mallopt(name, value) == 1 for name, value in wanted.items()]
    # Arrow's own allocator returns memory as eagerly, and cannot be configured otherwise.
    pa.set_memory_pool(pa.system_memory_pool())
    return all(done)


def return_freed_memory() -> bool:
    """Return all free memory to the system; return whether the allocator supports that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True


class Quiet:
    """Reports when work has been over for a while, once each time."""

    def __init__(self) -> None:
        self._looks_left = 0

    def look(self, held_bytes: int) -> bool:
        """Return whether to return memory now; `held_bytes` are in use by requests and answers."""
        if held_bytes > BUSY_BYTES:
            self._looks_left = QUIET_LOOKS
            return False
        if not self._looks_left:
            return False
        self._looks_left -= 1
        return not self._looks_left


def return_memory_when_quiet(
    held_bytes: Callable[[], int], give_back: Callable[[], object] = return_freed_memory
) -> Callable[[], None]:
    """Return memory in a thread whenever work is over; return a function that stops this.

    In a thread, because returning hundreds of megabytes would block the event loop for a while.
    """
    is_over = Event()
    quiet = Quiet()

    def watch() -> None:
        while not is_over.wait(LOOK_S):
            if quiet.look(held_bytes()):
                give_back()

    Thread(target=watch, name="riacho-memory", daemon=True).start()
    return is_over.set
