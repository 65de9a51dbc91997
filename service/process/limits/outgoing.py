"""Shares: the maximum bytes of records being sent to readers at once.

A fetch may always return less than requested: its reader continues from where it ended. So no
request is refused here and none waits, not even if some readers never read their responses. When
much is being sent, each new response gets less, down to a size that a thousand readers can have
at once.

A request owns the shares it takes (`RequestShares`) until its response is sent, its connection is
lost, or it fails. An answer to several requests has a share of its own, with several users.
"""

from typing import Final

SHARE_BYTES_MIN: Final = 64 * 1024


class Share:
    """Bytes of records in memory, held until each of its users has released it."""

    __slots__ = ("_held_bytes", "_shares", "_users", "size_bytes")

    def __init__(self, shares: "Shares", size_bytes: int) -> None:
        self.size_bytes: Final = size_bytes
        """Maximum bytes to read."""
        self._shares = shares
        self._held_bytes = 0
        self._users = 1
        self.hold(size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Hold `size_bytes`, the size actually read, instead of the maximum."""
        self._shares.held_bytes += size_bytes - self._held_bytes
        self._held_bytes = size_bytes

    def retain(self) -> None:
        """Add a user."""
        assert self._users > 0, "it was released already"
        self._users += 1

    def release(self) -> None:
        """Remove a user; the last one releases the bytes."""
        assert self._users > 0, "it was released already"
        self._users -= 1
        if not self._users:
            self.hold(0)


class Shares:
    def __init__(self, held_bytes_max: int) -> None:
        self._held_bytes_max = held_bytes_max
        self.held_bytes = 0

    def take(self, wanted_bytes: int) -> Share:
        """Return a share of at most `wanted_bytes` and half of what is left (or the minimum)."""
        half_bytes = (self._held_bytes_max - self.held_bytes) // 2
        return Share(self, max(0, min(wanted_bytes, max(half_bytes, SHARE_BYTES_MIN))))


class RequestShares:
    """The shares of one request; released at the latest when the context ends."""

    __slots__ = ("_owned", "_shares")

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._owned: list[Share] = []

    def take(self, wanted_bytes: int) -> Share:
        share = self._shares.take(wanted_bytes)
        self._owned.append(share)
        return share

    def own(self, share: Share) -> None:
        """Become responsible for releasing `share` once, on behalf of one of its users."""
        self._owned.append(share)

    def release(self, share: Share) -> None:
        self._owned.remove(share)
        share.release()

    def release_all(self) -> None:
        while self._owned:
            self._owned.pop().release()

    def move_to(self, other: "RequestShares") -> None:
        """Let `other` own all of them."""
        other._owned += self._owned
        self._owned = []

    def hold(self, size_bytes: int) -> None:
        """Hold `size_bytes`, the size of the response, instead of all that was read for it."""
        self.release_all()
        self.take(0).hold(size_bytes)

    def __enter__(self) -> "RequestShares":
        return self

    def __exit__(self, *_: object) -> None:
        self.release_all()
