"""Tasks that outlive the call that begins them, sharing them, taking turns, waiting for several.

A host that freezes a process between answers must know what is still running. So it owns the tasks
begun while it handles a request (`TaskOwner`). A task that has nothing to lose is `detached`.

Callers await a shared task through `asyncio.shield`, so that a cancelled caller stops neither the
work nor the other callers. If all callers are cancelled and the work then fails, the error is
dropped and not logged: the next caller starts the work again and meets the error itself.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
S = TypeVar("S")

ITEMS_A_TURN: Final = 32
GATHERED_MAX: Final = 128
"""How many tasks of one caller begin in the same turn of the loop."""

_OWNER: Final[ContextVar["TaskOwner | None"]] = ContextVar("riacho.task_owner", default=None)


class TaskOwner:
    """The running tasks that were begun inside `owning`, and by these tasks in turn."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()

    @contextmanager
    def owning(self) -> Iterator[None]:
        token = _OWNER.set(self)
        try:
            yield
        finally:
            _OWNER.reset(token)

    def add(self, task: "asyncio.Task[Any]") -> None:
        self.running.add(task)
        task.add_done_callback(self.running.discard)


def begin(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start `work` as a task of the owner, if there is one."""
    task = asyncio.create_task(work)
    owner = _OWNER.get()
    if owner is not None:
        owner.add(task)
    return task


def detached(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start `work` as a task without an owner: it may be frozen, or lost, at any moment."""
    context = copy_context()
    context.run(_OWNER.set, None)
    return asyncio.create_task(work, context=context)


def shared(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start `work` for callers that await it through `asyncio.shield`."""
    task = begin(work)
    task.add_done_callback(drop_error)
    return task


def drop_error(future: "asyncio.Future[Any]") -> None:
    """Mark an error as seen, so that asyncio does not report it if no caller awaits `future`."""
    if not future.cancelled():
        future.exception()


async def finish_all(works: Iterable[Awaitable[None]]) -> None:
    """Wait until all have ended, then raise the error of the first one that failed."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


class SingleFlight(Generic[K, T]):
    """Work of which there is one at a time for each key; concurrent callers share it."""

    def __init__(self) -> None:
        self._running: dict[K, tuple[asyncio.Task[T], float]] = {}

    async def do(
        self,
        key: K,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        now_s: float = 0.0,
        age_max_s: float = 0.0,
    ) -> T:
        """Return what `work` returns; join work that began at most `age_max_s` before `now_s`."""
        running = self._running.get(key)
        if running is None or now_s - running[1] > age_max_s:
            running = self._running[key] = shared(work()), now_s
            running[0].add_done_callback(lambda task: self._end(key, task))
        # Shielded, because the other callers still wait for it.
        return await asyncio.shield(running[0])

    def is_busy(self, key: K) -> bool:
        """Whether there is work for `key` that can be joined."""
        return key in self._running

    def _end(self, key: K, task: "asyncio.Task[T]") -> None:
        if key in self._running and self._running[key][0] is task:
            del self._running[key]


class Arrivals(Generic[K]):
    """Callers of the same key take turns, in the order of arrival."""

    def __init__(self) -> None:
        self._last: dict[K, asyncio.Future[None]] = {}
        """By key: done when the latest caller and all before it have left."""

    def join(self, key: K) -> "Arrival[K]":
        """Take the next place in the order. Always leave it."""
        return Arrival(self._last, key)

    def is_busy(self, key: K) -> bool:
        """Whether a caller has a place and has not left."""
        return key in self._last

    @asynccontextmanager
    async def in_turn(self, key: K) -> AsyncIterator[None]:
        """Run the body after the bodies of all who arrived before."""
        arrival = self.join(key)
        try:
            await arrival.turn()
            yield
        finally:
            arrival.leave()


class Arrival(Generic[K]):
    """A place in the order of arrival."""

    def __init__(self, last: "dict[K, asyncio.Future[None]]", key: K) -> None:
        self._last = last
        self._key = key
        self._before = last.get(key)
        self._left = last[key] = asyncio.get_running_loop().create_future()

    async def turn(self) -> None:
        """Wait until all who arrived before have left."""
        if self._before is not None:
            await asyncio.shield(self._before)

    def leave(self) -> None:
        """Let the next one proceed, once all before this one have left."""
        if self._before is None or self._before.done():
            self._end()
        else:
            self._before.add_done_callback(lambda _: self._end())

    def _end(self) -> None:
        if not self._left.done():
            self._left.set_result(None)
        if self._last.get(self._key) is self._left:
            del self._last[self._key]


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield `items`, and let other tasks run now and then: there may be very many."""
    for count, item in enumerate(items):
        if count % ITEMS_A_TURN == ITEMS_A_TURN - 1:
            await asyncio.sleep(0)
        yield item


async def gathered(items: Sequence[S], work: Callable[[S], Awaitable[T]]) -> list[T]:
    """Return what `work` returns for each item; some of them are worked on at once."""
    found: list[T] = []
    for start in range(0, len(items), GATHERED_MAX):
        found += await asyncio.gather(*map(work, items[start : start + GATHERED_MAX]))
        await asyncio.sleep(0)
    return found
