"""The last state of each group that this process has seen, and calls that wait for another.

A read that began before a newer one, or before a write of this process, changes nothing: what a
call is told never goes back in time.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

KEPT_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Sighting(Generic[T]):
    value: T
    number: int
    """Of the question that it answers: a later question, a later state."""
    at_s: float


class News(Generic[T]):
    def __init__(self) -> None:
        self._seen: dict[str, Sighting[T]] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._questions = 0

    def ask(self) -> int:
        """Return the number of a question that is about to be asked."""
        self._questions += 1
        return self._questions

    def tell(self, key: str, value: T, number: int, at_s: float) -> None:
        """Record the answer to a question, and wake those who wait."""
        before = self._seen.pop(key, None)
        if before is not None and before.number > number:
            self._seen[key] = before
            return
        self._seen[key] = Sighting(value, number, at_s)
        if len(self._seen) > KEPT_MAX:
            del self._seen[next(iter(self._seen))]
        if before is None or before.value is not value:
            self.wake(key)

    def last(self, key: str) -> Sighting[T] | None:
        return self._seen.get(key)

    def wake(self, key: str) -> None:
        """Let those who wait look again."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def next(self, key: str) -> "asyncio.Future[None]":
        """Return a future that is done when something is told. Shield it from cancellation."""
        waiting = self._waiting.get(key)
        if waiting is None or waiting.done():
            waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
        return waiting
