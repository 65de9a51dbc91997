"""Admission: the maximum bytes of requests in this process at once.

Overload must cause an error response, not a crash. Every produce request holds its bytes here
from the moment its body is read until its records are durable. A request that would exceed
`held_bytes_max` in total is refused before it is read any further.
"""

from storage.errors import Overloaded


class Hold:
    """The bytes of one request. Use as a context manager: leaving it releases them."""

    def __init__(self, admission: "Admission") -> None:
        self._admission = admission
        self._size_bytes = 0

    def grow_to(self, size_bytes: int) -> None:
        """Hold at least `size_bytes`, or raise `Overloaded` and keep what is held."""
        more = size_bytes - self._size_bytes
        if more > 0:
            self._admission.check(more, mine=self._size_bytes)
            self._admission.held_bytes += more
            self._size_bytes = size_bytes

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def force_to(self, size_bytes: int) -> None:
        """Hold at least `size_bytes`, whatever else is held: the caller has made sure."""
        more = max(0, size_bytes - self._size_bytes)
        self._admission.held_bytes += more
        self._size_bytes += more

    def shrink_to(self, size_bytes: int) -> None:
        """Hold at most `size_bytes`, because the rest is no longer in memory."""
        less = self._size_bytes - size_bytes
        if less > 0:
            self._admission.held_bytes -= less
            self._size_bytes = size_bytes

    def check(self, size_bytes: int) -> None:
        """Raise `Overloaded` if `size_bytes` could not be held now, and hold nothing.

        Announced bytes are not held: a client that announces much and sends nothing would
        block all other requests.
        """
        self._admission.check(size_bytes - self._size_bytes, mine=self._size_bytes)

    def __enter__(self) -> "Hold":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def hand_over(self) -> "Hold":
        """Return a hold of the same bytes; this one no longer releases them."""
        other = Hold(self._admission)
        other._size_bytes, self._size_bytes = self._size_bytes, 0
        return other

    def release(self) -> None:
        self._admission.held_bytes -= self._size_bytes
        self._size_bytes = 0


class Admission:
    def __init__(self, held_bytes_max: int) -> None:
        self._held_bytes_max = held_bytes_max
        self.held_bytes = 0
        self.refused_count = 0

    def hold(self) -> Hold:
        return Hold(self)

    def has_room(self, more: int) -> bool:
        """Whether `more` bytes can be held besides; for callers that can wait for it."""
        return not self.held_bytes or self.held_bytes + more <= self._held_bytes_max

    def check(self, more: int, *, mine: int) -> None:
        """Raise `Overloaded` if a request that already holds `mine` cannot hold `more`."""
        # A single request is always admitted; its own limits bound it.
        others = self.held_bytes - mine
        if others and self.held_bytes + more > self._held_bytes_max:
            self.refused_count += 1
            raise Overloaded(
                f"this gateway holds {self.held_bytes} bytes that are not yet durable, and at"
                f" most {self._held_bytes_max}; send the same request again a little later"
            )
