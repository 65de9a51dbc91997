"""Less work for a run: the same bytes are decoded once, and garbage is left for later.

Gateways, jobs and readers of one run decode the same heads and slices again and again, each for
itself. What comes out depends on the bytes alone and is never changed, so one may stand for all.
Bytes that are damaged are other bytes, and what cannot be decoded is not remembered.
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
    """Have heads and slices decoded once for all who meet the same bytes."""
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
    """Leave cycles alone until the end: a run makes many, and needs little memory."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
