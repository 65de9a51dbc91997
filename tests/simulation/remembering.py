"""Less work in a run: equal bytes are decoded once, and garbage is collected later.

Gateways, jobs and readers of one run each decode the same heads and slices. The result depends
only on the bytes and is never changed, so it can be shared. Damaged bytes are different bytes, and
failed decodings are not cached.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from storage.formats import slices
from storage.head import head as heads

REMEMBERED_MAX = 4096


@contextlib.contextmanager
def decoding_once() -> Iterator[None]:
    """Decode heads and slices once for all users of the same bytes."""
    head, batch = heads.decode, slices.decode_unchecked
    try:
        heads.decode = lru_cache(REMEMBERED_MAX)(head)
        slices.decode_unchecked = _by_bytes(batch)
        yield
    finally:
        heads.decode, slices.decode_unchecked = head, batch


def _by_bytes(decode: Callable[[bytes], Any]) -> Callable[[bytes | memoryview], Any]:
    remembered = lru_cache(REMEMBERED_MAX)(decode)
    return lambda data: remembered(bytes(data))


@contextlib.contextmanager
def collecting_nothing() -> Iterator[None]:
    """Collect no garbage until the end: a run creates many cycles but needs little memory."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
