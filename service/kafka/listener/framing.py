"""From a stream of bytes to requests: each is a 4-byte length and so many bytes. Pure.

What has come is in a scratch buffer that all connections share, so that an idle one has none. A
request that is there as a whole is copied out of it, once. A longer one gets a buffer of its own,
into which the rest is read directly.

A long request takes room a step at a time, as its bytes come: a client that announces a hundred
megabytes and sends nothing holds a small first step.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from service.process.wrong_protocol import HEAD_BYTES

LENGTH_BYTES: Final = 4
HEADER_BYTES_MIN: Final = 8
"""Key, version and correlation id: no request is shorter."""

FIRST_STEP_BYTES: Final = 16 * 1024
STEP_BYTES: Final = 1024 * 1024
"""How much room a long request takes at most ahead of its bytes, and never more than have come."""


class BadFrame(Exception):
    """The length of a request is none, or too large."""

    def __init__(self, text: str, head: bytes) -> None:
        super().__init__(text)
        self.head = head
        """Where it should begin, as far as it is here."""


class FrameReader:
    """The bytes of one connection."""

    __slots__ = (
        "_filled",
        "_frame",
        "_granted",
        "_grow",
        "_is_direct",
        "_scratch",
        "_waiting",
        "is_blocked",
        "length_max",
    )

    def __init__(
        self, scratch: memoryview, length_max: int, grow: Callable[[int, int], bool]
    ) -> None:
        """`grow(size, length)`: whether a request of `length` bytes may take `size` of them."""
        self._scratch = scratch
        self.length_max = length_max
        self._grow = grow
        self._waiting = memoryview(b"")
        """What has come and is in no request yet."""
        self._frame: memoryview | None = None
        """The request of which a part has come."""
        self._filled = 0
        self._granted = 0
        self._is_direct = False
        self.is_blocked = False
        """Whether `next` returned nothing only for lack of room."""

    @property
    def is_between(self) -> bool:
        """Whether no part of a request has come."""
        return self._frame is None and not self._waiting

    def buffer(self) -> memoryview:
        """Return what to read into; then call `received`."""
        if self._frame is not None and not self._waiting and self._filled < self._granted:
            self._is_direct = True
            return self._frame[self._filled : self._granted]
        self._is_direct = False
        return self._scratch

    def received(self, count: int) -> None:
        """Take `count` bytes of the buffer. Call `keep` before anything else uses the scratch."""
        if self._is_direct:
            self._filled += count
        elif self._waiting:
            self._waiting = memoryview(bytes(self._waiting) + self._scratch[:count])
        else:
            self._waiting = self._scratch[:count]

    def keep(self) -> None:
        """Copy what waits out of the scratch buffer."""
        if self._waiting and self._waiting.obj is self._scratch.obj:
            self._waiting = memoryview(bytes(self._waiting))

    def next(self) -> memoryview | None:
        """Return the next whole request, without its length; None: there is none yet.

        Raises `BadFrame`.
        """
        self.is_blocked = False
        if self._frame is None:
            if len(self._waiting) < LENGTH_BYTES:
                return None
            length = int.from_bytes(self._waiting[:LENGTH_BYTES], "big", signed=True)
            if not HEADER_BYTES_MIN <= length <= self.length_max:
                raise BadFrame(
                    f"a request of {length} bytes, at most {self.length_max}",
                    bytes(self._waiting[:HEAD_BYTES]),
                )
            self._waiting = self._waiting[LENGTH_BYTES:]
            # Not zeroed, so that memory is used only as bytes come.
            self._frame = np.empty(length, np.uint8).data
            self._filled = self._granted = 0
        frame = self._frame
        while self._filled < len(frame) and self._has_room(len(frame)):
            count = min(len(self._waiting), self._granted - self._filled)
            frame[self._filled : self._filled + count] = self._waiting[:count]
            self._filled += count
            self._waiting = self._waiting[count:]
            if self._filled < self._granted:
                return None
        if self._filled < len(frame):
            return None
        self._frame = None
        return frame

    def _has_room(self, length: int) -> bool:
        if self._filled < self._granted:
            return True
        step = min(STEP_BYTES, max(FIRST_STEP_BYTES, self._granted))
        wanted = min(length, self._granted + step)
        if not self._grow(wanted, length):
            self.is_blocked = True
            return False
        self._granted = wanted
        return True
