"""Shares: how many bytes of records may be on their way to readers at once.

A fetch may always return less than it was asked for: its reader goes on from where it ended. So
nobody is refused here and nobody waits, not even for readers who never read what they asked for.
When much is on its way, each new response gets less, down to a size that a thousand readers
can have at once.
"""

from typing import Final

SHARE_BYTES_MIN: Final = 64 * 1024


class Share:
    """Bytes of one response. They are given back when nobody refers to the share any more."""

    __slots__ = ("_held_bytes", "_shares", "size_bytes")

    def __init__(self, shares: "Shares", size_bytes: int) -> None:
        self.size_bytes: Final = size_bytes
        """How much may be read."""
        self._shares = shares
        self._held_bytes = 0
        self.hold(size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Hold as much as was read, rather than as much as may be."""
        self._shares.held_bytes += size_bytes - self._held_bytes
        self._held_bytes = size_bytes

    def __del__(self) -> None:
        self.hold(0)


class Shares:
    def __init__(self, held_bytes_max: int) -> None:
        self._held_bytes_max = held_bytes_max
        self.held_bytes = 0

    def take(self, wanted_bytes: int) -> Share:
        """Return a share of `wanted_bytes` at most, and of half of what is left at most."""
        half_bytes = (self._held_bytes_max - self.held_bytes) // 2
        return Share(self, max(0, min(wanted_bytes, max(half_bytes, SHARE_BYTES_MIN))))
