"""Reading ranges of a file: only from the page cache, or waiting for the disk."""

import errno
import os
from collections.abc import Sequence
from typing import Final

from storage.errors import Corrupt
from storage.stores.ranges import Range, cut, merged

CACHED_READ_BYTES_MAX: Final = 512 * 1024
"""Maximum size of a read from the page cache on the caller's thread: copying costs less than
waking another thread. Larger reads would block the event loop."""

COALESCE_GAP_BYTES_MAX: Final = 16 * 1024
"""Ranges this close are read together; the bytes between cost less than another call."""

NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
"""Flag that tells the system not to wait for the disk; 0 where it is not supported."""


def read(key: str, path: str, ranges: Sequence[Range] | None, flags: int = 0) -> list[bytes] | None:
    """Return the bytes of `ranges` (None: of everything) or, with `NOWAIT`, None if not cached."""
    file = os.open(path, os.O_RDONLY)
    try:
        size_bytes = os.fstat(file).st_size
        wanted = [(0, size_bytes)] if ranges is None else ranges
        if any(end > size_bytes for _, end in wanted):
            raise Corrupt(f"{key} ends at {size_bytes}, before the range asked for")
        if not flags:
            # Read each range separately: cutting merged ranges apart would copy them.
            return [_read_patiently(file, each) for each in wanted]
        spans = merged(wanted, COALESCE_GAP_BYTES_MAX)
        if sum(end - start for start, end in spans) > CACHED_READ_BYTES_MAX:
            return None
        read = [_read_span(file, span, flags) for span in spans]
    except OSError:
        # Not in the page cache, or the flag is not supported. The caller reads again without it.
        if flags:
            return None
        raise
    finally:
        os.close(file)
    return [cut(spans, read, span) for span in wanted]


def _read_patiently(file: int, span: Range) -> bytes:
    start, end = span
    body = os.pread(file, end - start, start)
    while len(body) < end - start:
        more = os.pread(file, end - start - len(body), start + len(body))
        if not more:
            raise OSError(errno.EIO, "the file was cut short while it was read")
        body += more
    return body


def _read_span(file: int, span: Range, flags: int) -> bytes:
    start, end = span
    body = bytearray(end - start)
    filled = 0
    while filled < len(body):
        count = os.preadv(file, [memoryview(body)[filled:]], start + filled, flags)
        if count == 0:
            raise OSError(errno.EIO, "the file was cut short while it was read")
        filled += count
    return bytes(body)
