"""Room for the bytes of requests: they wait for it instead of being refused.

All requests of a gateway share `gateway.admission`. HTTP refuses what does not fit; a Kafka client
that sends too much is simply not read until there is room, in the order in which they began to
wait. Small requests never wait: heartbeats and fetches must get through when records do not.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from service.process.limits.admission import Admission, Hold

SMALL_BYTES_MAX: Final = 16 * 1024
"""Requests up to this size, and the beginning of longer ones, need no room: the number of
connections bounds them."""

LOOK_S: Final = 0.01
"""How often to look for room that requests of HTTP have left, while a connection waits."""


class RoomClaim:
    """The room of one request, from its first byte until its reply is made."""

    __slots__ = ("hold", "is_whole")

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.is_whole = False


class Room:
    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._line: dict[RoomClaim, Callable[[], None]] = {}
        """Claims that wait, in order, and how to wake them."""
        self._partial_bytes = 0
        """Held by requests of which a part has come."""
        self._timer: asyncio.TimerHandle | None = None

    def claim(self) -> RoomClaim:
        return RoomClaim(self._admission.hold())

    def grow(self, claim: RoomClaim, size_bytes: int, wake: Callable[[], None]) -> bool:
        """Let `claim` have `size_bytes` in all, or put it in line and `wake` it later."""
        more = size_bytes - claim.hold.size_bytes
        first = next(iter(self._line), claim)
        # If nothing but parts of requests is held, none would ever end: the first in line goes on.
        is_stuck = self._admission.held_bytes <= self._partial_bytes
        if first is claim and (self._admission.has_room(more) or is_stuck):
            self._line.pop(claim, None)
            claim.hold.force_to(size_bytes)
            self._partial_bytes += more
            return True
        self._line[claim] = wake
        self._look_later()
        return False

    def whole(self, claim: RoomClaim) -> None:
        """Take note that all bytes of the request have come."""
        if not claim.is_whole:
            claim.is_whole = True
            self._partial_bytes -= claim.hold.size_bytes

    def release(self, claim: RoomClaim) -> None:
        """Give the room back: the bytes are in memory no longer, or never will be."""
        self._line.pop(claim, None)
        self.whole(claim)
        claim.hold.release()
        if self._line:
            self._look_later(0)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self, delay_s: float = LOOK_S) -> None:
        if self._timer is not None:
            if delay_s:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        """Wake those in line, as long as the first one goes on."""
        self._timer = None
        while self._line:
            first, wake = next(iter(self._line.items()))
            wake()
            if first in self._line:
                self._look_later()
                return
