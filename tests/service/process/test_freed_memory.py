"""Freed memory is returned to the system when work is over, and not before."""

import ctypes
import threading

from service.process import freed_memory
from service.process.freed_memory import BUSY_BYTES, QUIET_LOOKS, Quiet, return_memory_when_quiet

TIMEOUT_S = 60.0


def test_memory_is_returned_once_after_work() -> None:
    quiet = Quiet()
    looks = [0, 0, BUSY_BYTES + 1, *[0] * (3 * QUIET_LOOKS)]

    due = [number for number, held_bytes in enumerate(looks) if quiet.look(held_bytes)]

    assert due == [2 + QUIET_LOOKS]


def test_memory_is_kept_while_work_continues() -> None:
    quiet = Quiet()

    looks = ([BUSY_BYTES + 1] + [0] * (QUIET_LOOKS - 1)) * 10

    assert not any(quiet.look(held_bytes) for held_bytes in looks)


def test_a_thread_returns_memory_when_quiet() -> None:
    held = iter([BUSY_BYTES + 1])
    given_back = threading.Event()

    end = return_memory_when_quiet(lambda: next(held, 0), given_back.set)

    assert given_back.wait(TIMEOUT_S)
    end()


def test_malloc_trim_is_called_if_the_c_library_has_it() -> None:
    assert freed_memory.return_freed_memory() == hasattr(ctypes.CDLL(None), "malloc_trim")
