"""Keep some memory that was freed, for the next request, and give the rest back to the system.

A body, its records and their slices are some megabytes that live for milliseconds. By default
what is freed goes back to the system at once, and the next request gets it again page by page,
each one emptied first: hundreds of page faults a megabyte, which took as much time as decoding it.

So what is freed is kept, but not for ever: large pieces, which few requests have, go back at once,
and when a gateway has had little to do for a while, everything does.
"""

import ctypes
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

import pyarrow as pa

MIB: Final = 1024 * 1024

KEPT_BYTES: Final = 64 * MIB
"""So much that is free at the end of the heap is kept while there is work."""

HEAP_BYTES_MAX: Final = 4 * MIB
"""What is larger gets pages of its own, which go when it does. Most bodies, and all slices, are
smaller; of what is larger, decoding takes much longer than getting its pages."""

ARENAS_MAX: Final = 2
"""What one thread frees another can use; by default each has a heap that keeps its own."""

LOOK_S: Final = 0.5
"""How often it is looked whether there is work."""

QUIET_LOOKS: Final = 6
"""After so many looks without work, all that is free goes back to the system."""

BUSY_BYTES: Final = MIB
"""Requests and answers that have more than this together are work that leaves something behind."""

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


def return_freed_memory() -> bool:
    """Give everything that is free back to the system; return whether there is a way to."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True


class Quiet:
    """Tells when work has been over for a while, once each time."""

    def __init__(self) -> None:
        self._looks_left = 0

    def look(self, held_bytes: int) -> bool:
        """Return whether it is time to give memory back; `held_bytes` are at work now."""
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
    """Give memory back whenever work is over, in a thread; return what ends that.

    The event loop does not wait for it: to give back hundreds of megabytes takes a while.
    """
    is_over = Event()
    quiet = Quiet()

    def watch() -> None:
        while not is_over.wait(LOOK_S):
            if quiet.look(held_bytes()):
                give_back()

    Thread(target=watch, name="riacho-memory", daemon=True).start()
    return is_over.set
