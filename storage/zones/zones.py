"""Zones: the named object stores that hold copies of the data.

- A write is sent to several zones at once (`start`), each with its own result. The caller decides
  which zones it waits for, and for how long. The other writes continue in the background.
- A read is sent to the first zone that is likely to hold the object, and fails over to the next
  one if that zone has lost it, holds damaged bytes, is unavailable or takes too long. In the last
  case both are asked, and the first good answer is used.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from storage.errors import (
    Corrupt,
    InvalidConfig,
    ObjectExists,
    ObjectMissing,
    RiachoError,
    StoreUnavailable,
)
from storage.stores.objects import Body, ObjectStore
from storage.tasks import begin, drop_error
from storage.zones.health import ZoneHealth

T = TypeVar("T")
U = TypeVar("U")

STRAGGLER_S_MAX: Final = 5.0
"""Maximum time `put_widely` waits for slow zones."""

READ_S_MAX: Final = 60.0
"""Maximum time of a read that can be sent to several zones."""

LOOKS_MAX: Final = 3
"""Maximum number of reads of damaged bytes: damage in transit does not repeat, damage in the store
does."""

LEFT_BEHIND_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes of writes that no caller waits for. Beyond it the oldest are cancelled: the zone
then lacks these objects and must be resynced like any zone that lacks some."""


class Puts:
    """The writes of one object to several zones."""

    def __init__(self, tasks: "Mapping[str, asyncio.Task[None]]", size_bytes: int) -> None:
        self._tasks = tasks
        self.size_bytes = size_bytes

    @property
    def done(self) -> list[str]:
        """The zones that hold it."""
        return [n for n, t in self._tasks.items() if t.done() and _error(t) is None]

    @property
    def failed(self) -> dict[str, Exception]:
        """The zones where the write failed, and why. The complete object may still be there."""
        settled = {n: _error(t) for n, t in self._tasks.items() if t.done()}
        return {name: error for name, error in settled.items() if error is not None}

    @property
    def running(self) -> list[str]:
        return [name for name, task in self._tasks.items() if not task.done()]

    async def wait(
        self, names: Collection[str] | None = None, *, timeout_s: float | None = None
    ) -> bool:
        """Return when the named zones (None: all) have settled; False if that took too long."""
        tasks = [t for n, t in self._tasks.items() if names is None or n in names]
        waiting = [task for task in tasks if not task.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)
        return all(task.done() for task in tasks)

    def cancel(self) -> None:
        """Cancel the running writes. The complete object may still appear."""
        for task in self._tasks.values():
            task.cancel()


class Zones:
    """Every zone of this deployment, by name."""

    def __init__(
        self,
        stores: Mapping[str, ObjectStore],
        *,
        left_behind_bytes_max: int = LEFT_BEHIND_BYTES_MAX,
    ) -> None:
        if not stores:
            raise InvalidConfig("there must be at least one zone")
        self._stores = dict(stores)
        self._left_behind_bytes_max = left_behind_bytes_max
        self._left_behind: dict[Puts, None] = {}
        self.health = {name: ZoneHealth() for name in self._stores}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._stores)

    def store(self, name: str) -> ObjectStore:
        if name not in self._stores:
            raise StoreUnavailable(f"zone {name!r} is not configured here; see RIACHO_ZONES")
        return self._stores[name]

    def is_avoided(self, name: str) -> bool:
        """Whether the zone has recently failed too often to be used."""
        health = self.health.get(name)
        return health is None or health.is_avoided(_now_s())

    def start(self, key: str, body: Body, names: Sequence[str]) -> Puts:
        """Begin to store the object in every named zone."""
        tasks = {name: begin(self.put(key, body, name)) for name in names}
        puts = Puts(tasks, sum(map(len, body)) * len(names))
        for task in tasks.values():
            task.add_done_callback(drop_error)
        return puts

    def leave_behind(self, puts: Puts) -> None:
        """Stop waiting for `puts`: it continues while `LEFT_BEHIND_BYTES_MAX` allows."""
        self._left_behind = {each: None for each in self._left_behind if each.running}
        self._left_behind[puts] = None
        held_bytes = sum(each.size_bytes for each in self._left_behind)
        for each in list(self._left_behind):
            if held_bytes <= self._left_behind_bytes_max:
                return
            held_bytes -= each.size_bytes
            each.cancel()

    async def put(self, key: str, body: Body, name: str) -> None:
        """Store the object in one zone."""
        store = self.store(name)
        health, began_s = self.health[name], _now_s()
        try:
            await store.put(key, body)
        except ObjectExists:
            # Keys are random and written once, so this is the same object.
            pass
        except RiachoError as error:
            health.failed(str(error), _now_s())
            raise
        health.was_written(_now_s() - began_s)

    async def put_widely(
        self, key: str, body: Body, required: Sequence[str], hopeful: Sequence[str] = ()
    ) -> list[str]:
        """Store the object in all these zones; return those that hold it.

        Waits at most `STRAGGLER_S_MAX` for the required zones, and not for the hopeful ones.
        Raises the error of a required zone if none of the required zones holds it.
        """
        if len(required) == 1 and not hopeful:
            await self.put(key, body, required[0])
            return list(required)
        puts = self.start(key, body, [*required, *hopeful])
        await puts.wait(required, timeout_s=STRAGGLER_S_MAX)
        self.leave_behind(puts)
        held = puts.done
        if any(name in held for name in required):
            return held
        for name, error in puts.failed.items():
            if name in required:
                raise error
        raise StoreUnavailable(f"{key}: no zone took it within {STRAGGLER_S_MAX:g} s")

    async def get_as(self, key: str, names: Sequence[str], decode: Callable[[bytes], T]) -> T:
        """Return the decoded object; if `decode` raises `Corrupt`, read it from another zone."""
        return await self._first(key, names, lambda store: store.get(key), decode)

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[tuple[int, int]],
        names: Sequence[str],
        check: Callable[[list[bytes]], None] = lambda _: None,
    ) -> list[bytes]:
        """Return the ranges from the first of the named zones that returns them.

        `check` raises `Corrupt` if the bytes are not those that were written.
        """

        def checked(pieces: list[bytes]) -> list[bytes]:
            check(pieces)
            return pieces

        return await self._first(key, names, lambda store: store.get_ranges(key, ranges), checked)

    async def _first(
        self,
        key: str,
        names: Sequence[str],
        read: Callable[[ObjectStore], Awaitable[T]],
        decode: Callable[[T], U],
    ) -> U:
        if len(names) == 1:
            return await self._read(names[0], read, decode)
        # The sort is stable: zones that failed recently are asked last.
        waiting = deque(sorted(names, key=self.is_avoided))
        failures: list[RiachoError] = []
        reading: dict[asyncio.Task[U], str] = {}
        give_up_s = _now_s() + READ_S_MAX
        try:
            while waiting or reading:
                if waiting:
                    name = waiting.popleft()
                    reading[begin(self._read(name, read, decode))] = name
                found, errors = await self._next_answer(reading, bool(waiting), give_up_s)
                failures += errors
                if found is not None:
                    return found.result()
                if not errors and _now_s() >= give_up_s:
                    failures.append(StoreUnavailable(f"no zone gave {key} in {READ_S_MAX:g} s"))
                    break
        finally:
            for task in reading:
                task.cancel()
                task.add_done_callback(drop_error)
        raise _worst(failures) or StoreUnavailable(f"no zone holds {key}")

    async def _next_answer(
        self, reading: "dict[asyncio.Task[U], str]", may_hedge: bool, give_up_s: float
    ) -> "tuple[asyncio.Task[U] | None, list[RiachoError]]":
        """Return a good answer or the errors; neither if it is time to ask one more zone."""
        if may_hedge:
            # By the typical latency of the zone asked last; the others had their time.
            name = list(reading.values())[-1]
            timeout_s = self.health[name].hedge_s if name in self.health else 0.0
        else:
            timeout_s = max(0.0, give_up_s - _now_s())
        done, _ = await asyncio.wait(
            reading, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        errors: list[RiachoError] = []
        for task in done:
            error = task.exception()
            if error is None:
                self._was_overtaken(reading, task)
                return task, errors
            del reading[task]
            if not isinstance(error, Corrupt | StoreUnavailable):
                raise error
            errors.append(error)
        return None, errors

    def _was_overtaken(self, reading: "dict[asyncio.Task[U], str]", by: "asyncio.Task[U]") -> None:
        """Record as failed the zones that were asked before `by` and have not answered."""
        for task, name in reading.items():
            if task is by:
                return
            if not task.done() and name in self.health:
                self.health[name].failed("a read took too long", _now_s())

    async def _read(
        self,
        name: str,
        read: Callable[[ObjectStore], Awaitable[T]],
        decode: Callable[[T], U],
    ) -> U:
        store = self.store(name)
        health, began_s = self.health[name], _now_s()
        for look in range(1, LOOKS_MAX + 1):
            try:
                result = await read(store)
                health.was_read(_now_s() - began_s)
                return decode(result)
            except ObjectMissing:
                health.missing += 1
                raise
            except Corrupt:
                if look == LOOKS_MAX:
                    health.damaged += 1
                    raise
            except StoreUnavailable as error:
                health.failed(str(error), _now_s())
                raise
        raise AssertionError("the last look returns or raises")

    async def close(self) -> None:
        for puts in self._left_behind:
            puts.cancel()
        await asyncio.gather(*(store.close() for store in self._stores.values()))


def _now_s() -> float:
    # The loop's clock, which is simulated in the simulation.
    return asyncio.get_running_loop().time()


def _error(task: "asyncio.Task[None]") -> Exception | None:
    if task.cancelled():
        return StoreUnavailable("the write was given up")
    error = task.exception()
    assert error is None or isinstance(error, Exception), error
    return error


def _worst(failures: Sequence[RiachoError]) -> RiachoError | None:
    """Return the most relevant error: an object is lost only if all zones lack it."""
    for kind in (StoreUnavailable, Corrupt):
        for failure in failures:
            if isinstance(failure, kind) and not isinstance(failure, ObjectMissing):
                return failure
    return failures[-1] if failures else None
