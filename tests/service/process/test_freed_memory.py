"""Memory that is free goes back to the system when work is over, and not before."""

import ctypes
import threading

from service.process import freed_memory
from service.process.freed_memory import BUSY_BYTES, QUIET_LOOKS, Quiet, return_memory_when_quiet

TIMEOUT_S = 60.0


def test_memory_goes_back_once_after_work() -> None:
    quiet = Quiet()
    looks = [0, 0, BUSY_BYTES + 1, *[0] * (3 * QUIET_LOOKS)]

    due = [number for number, held_bytes in enumerate(looks) if quiet.look(held_bytes)]

    assert due == [2 + QUIET_LOOKS]


def test_who_goes_on_working_keeps_it() -> None:
    quiet = Quiet()

    looks = ([BUSY_BYTES + 1] + [0] * (QUIET_LOOKS - 1)) * 10

    assert not any(quiet.look(held_bytes) for held_bytes in looks)


def test_a_thread_looks_after_it() -> None:
    held = iter([BUSY_BYTES + 1])
    given_back = threading.Event()

    end = return_memory_when_quiet(lambda: next(held, 0), given_back.set)

    assert given_back.wait(TIMEOUT_S)
    end()


def test_where_there_is_glibc_it_is_asked_to() -> None:
    assert freed_memory.return_freed_memory() == hasattr(ctypes.CDLL(None), "malloc_trim")
