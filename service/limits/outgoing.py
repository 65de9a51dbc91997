"""Shares: the maximum bytes of records being sent to readers at once.

A fetch may always return less than requested: its reader continues from where it ended. So no
request is refused here and none waits, not even if some readers never read their responses. When
much is being sent, each new response gets less, down to a size that a thousand readers can have
at once.
"""

from typing import Final

SHARE_BYTES_MIN: Final = 64 * 1024


class Share:
    """Bytes of one response. They are released when the share is no longer referenced."""

    __slots__ = ("_held_bytes", "_shares", "size_bytes")

    def __init__(self, shares: "Shares", size_bytes: int) -> None:
        self.size_bytes: Final = size_bytes
        """Maximum bytes to read."""
        self._shares = shares
        self._held_bytes = 0
        self.hold(size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Hold `size_bytes`, the size actually read, instead of the maximum."""
        self._shares.held_bytes += size_bytes - self._held_bytes
        self._held_bytes = size_bytes

    def __del__(self) -> None:
        self.hold(0)


class Shares:
    def __init__(self, held_bytes_max: int) -> None:
        self._held_bytes_max = held_bytes_max
        self.held_bytes = 0

    def take(self, wanted_bytes: int) -> Share:
        """Return a share of at most `wanted_bytes` and half of what is left (or the minimum)."""
        half_bytes = (self._held_bytes_max - self.held_bytes) // 2
        return Share(self, max(0, min(wanted_bytes, max(half_bytes, SHARE_BYTES_MIN))))
