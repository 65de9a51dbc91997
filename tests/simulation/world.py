"""Stores that are reached over links which fail, and clocks that are wrong, all from one seed.

Each process has a `FaultyLink` of its own: it delays calls, fails them before or after they took
effect, lets them take effect after they were given up, and bends what is read. A call that is on
its way when its process dies may still happen. `Weather` is what befalls everybody who uses a
store: it is away, hangs, or refuses most of what it is asked.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from service.clock import World
from storage.errors import OutcomeUnknown, RiachoError, StoreUnavailable
from storage.stores.metadata import MetadataStore, Op, Versioned
from storage.stores.objects import Body, ObjectInfo, ObjectStore
from tests.simulation.virtual_loop import Process, VirtualLoop

T = TypeVar("T")

FIRST_MS = 1_700_000_000_000
"""What clocks that are right show when it begins."""

LATE_S = 0.5
"""So late is a call that arrives after it was given up, about."""

HANG_S = 20.0
"""So long a store that hangs keeps everybody waiting."""

STOPPED_S = 15.0
"""A process stands still for so long at most: longer than any session or lease, and shorter than
what an object may lie about before it is committed or swept."""

STOPS_MAX = 6
"""So often a gateway stands still at a call to a store."""

THROTTLED = 0.8
"""So many calls are refused by a store that has too much to do."""


def world_of(loop: VirtualLoop, chance: random.Random, skew_ms: int = 0) -> World:
    return World(
        now_ms=lambda: FIRST_MS + skew_ms + int(loop.now_s * 1000),
        monotonic_s=loop.time,
        sleep=asyncio.sleep,
        random=chance.random,
        random_bytes=chance.randbytes,
    )


@dataclass
class Faults:
    """How often a call goes wrong, and how long calls take."""

    before: float = 0.0
    after: float = 0.0
    late: float = 0.0
    """A call that was given up arrives after that."""
    bent: float = 0.0
    """What is read of an object ends too early, or has a wrong bit."""
    slow_s: float = 0.02
    stops: float = 0.0
    """A gateway stands still right after a store did what it was asked to, or has answered."""


@dataclass
class Weather:
    """How a store is, for all who use it."""

    is_away: bool = False
    hangs: bool = False
    is_throttled: bool = False


class FaultyLink:
    """The way from one process to the stores."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, faults: Faults) -> None:
        self._loop = loop
        self.chance = chance
        self.faults = faults
        self.process: Process | None = None
        """Which stands still when `faults.stops` says so."""
        self.stops = 0

    async def call(
        self, work: Callable[[], Awaitable[T]], lost: Callable[[], Exception], weather: Weather
    ) -> T:
        # It travels by itself: whoever dies meanwhile cannot call it back.
        journey = _Journey(self._loop, self, work, lost, weather)
        try:
            return await journey.answer
        except asyncio.CancelledError:
            if self.chance.random() < 0.5:
                journey.cancel()
            raise

    async def take_time(self) -> None:
        await asyncio.sleep(self.time_s())

    def time_s(self) -> float:
        """Return how long a call takes, one way."""
        return self.chance.expovariate(1 / max(1e-6, self.faults.slow_s))

    def stops_now(self) -> bool:
        """Let the process stand still, sometimes; return whether it does."""
        faults = self.faults
        if not faults.stops or self.process is None or self.stops == STOPS_MAX:
            return False
        if self.chance.random() >= faults.stops:
            return False
        self.stops += 1
        self.process.stop_for(self.chance.choice([0.05, 1.5, STOPPED_S]) * self.chance.random())
        return True

    def bend(self, body: bytes) -> bytes:
        """Return what arrives of `body`, nearly always all of it."""
        if not body or self.chance.random() >= self.faults.bent:
            return body
        place = self.chance.randrange(len(body))
        if self.chance.random() < 0.5:
            return body[:place]
        return (
            body[:place] + bytes([body[place] ^ 1 << self.chance.randrange(8)]) + body[place + 1 :]
        )


class _Journey(Generic[T]):
    """One call on its way to a store and back, as steps of the loop that belong to no process.

    Stores are asked so often that a task for each call would take most of the time.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        link: FaultyLink,
        work: Callable[[], Awaitable[T]],
        lost: Callable[[], Exception],
        weather: Weather,
    ) -> None:
        self._loop = loop
        self._link = link
        self._work = work
        self._lost = lost
        self._weather = weather
        self.answer: asyncio.Future[T] = loop.create_future()
        self._next = loop.outside_after(link.time_s(), self._arrive)

    def cancel(self) -> None:
        """Call it back, wherever it is."""
        self._next.cancel()

    def _go_on(self, after_s: float, step: Callable[..., None], *args: Any) -> None:
        self._next = self._loop.outside_after(after_s, step, *args)

    def _arrive(self) -> None:
        if self._weather.hangs:
            self._go_on(HANG_S, self._happen)
        else:
            self._happen()

    def _happen(self) -> None:
        try:
            result = self._outcome()
        except Exception as error:  # noqa: BLE001 - The caller is told.
            self._fail(error)
            return
        self._link.stops_now()
        is_lost = result is _LATE or self._link.chance.random() < self._link.faults.after
        if is_lost:
            self._go_on(self._link.time_s(), self._fail, None)
        else:
            self._go_on(self._link.time_s(), self._return, result)

    def _outcome(self) -> Any:
        """Have the store do it, unless it does not arrive or arrives later."""
        chance, faults, weather = self._link.chance, self._link.faults, self._weather
        if weather.hangs or weather.is_away:
            raise StoreUnavailable("simulated: the store is away")
        if weather.is_throttled and chance.random() < THROTTLED:
            raise StoreUnavailable("simulated: the store has too much to do")
        if chance.random() < faults.before:
            raise StoreUnavailable("simulated: the call did not arrive")
        if chance.random() < faults.late:
            self._loop.outside_after(chance.expovariate(1 / LATE_S), self._arrive_late)
            return _LATE
        return done(self._work())

    def _arrive_late(self) -> None:
        with contextlib.suppress(RiachoError):  # Nobody is there to hear it.
            done(self._work())

    def _return(self, result: T) -> None:
        if not self.answer.done():
            self.answer.set_result(result)
            self._link.stops_now()  # It has its answer, and does not make the next step.

    def _fail(self, error: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(error or self._lost())
            self.answer.exception()  # A caller that is dead does not ask what it was.


_LATE = object()
"""What comes of a call that has not happened yet."""


def done(work: Awaitable[T]) -> T:
    """Return what comes of something that never waits: stores in memory do not."""
    try:
        next(work.__await__())
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a store in memory waited")


class FaultyObjects:
    def __init__(self, inner: ObjectStore, link: FaultyLink, weather: Weather) -> None:
        self._inner = inner
        self._link = link
        self._weather = weather

    async def put(self, key: str, body: Body) -> None:
        pieces = [bytes(piece) for piece in body]
        await self._call(lambda: self._inner.put(key, pieces))

    async def put_file(self, key: str, path: Path) -> None:
        # Read at once: a call that arrives late may find the file gone.
        await self.put(key, [path.read_bytes()])

    async def get(self, key: str) -> bytes:
        return self._link.bend(await self._call(lambda: self._inner.get(key)))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        pieces = await self._call(lambda: self._inner.get_ranges(key, ranges))
        return [self._link.bend(piece) for piece in pieces]

    async def size(self, key: str) -> int:
        return await self._call(lambda: self._inner.size(key))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._call(lambda: self._inner.delete(keys))

    async def list(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        async for page in self._inner.list(prefix):
            # What is told was so a while ago.
            await self._link.take_time()
            yield page

    async def presign(self, key: str, expires_s: int) -> str:
        return await self._inner.presign(key, expires_s)

    async def close(self) -> None:
        pass

    async def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        return await self._link.call(work, _unavailable, self._weather)


class FaultyMetadata:
    def __init__(self, inner: MetadataStore, link: FaultyLink, weather: Weather) -> None:
        self._inner = inner
        self._link = link
        self._weather = weather

    async def get(self, key: str) -> Versioned | None:
        return await self._read(lambda: self._inner.get(key))

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        return await self._read(lambda: self._inner.get_many(keys))

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        return await self._read(lambda: self._inner.list(prefix, after=after, limit=limit))

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        return await self._link.call(lambda: self._inner.transact(ops), _unknown, self._weather)

    async def close(self) -> None:
        pass

    async def _read(self, work: Callable[[], Awaitable[T]]) -> T:
        return await self._link.call(work, _unavailable, self._weather)


def _unavailable() -> Exception:
    return StoreUnavailable("simulated: the answer was lost")


def _unknown() -> Exception:
    return OutcomeUnknown("simulated: the answer was lost")
