"""Stores behind failing links, and clocks that are wrong, all from one seed.

Each process has its own `FaultyLink`: it delays calls, fails them before or after they took effect,
lets them take effect after they were given up, and damages reads. A call in flight when its
process dies may still happen. `Weather` is the condition of a store for all its users: it is
unreachable, hangs, or refuses most calls.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from service.world.clock import World
from storage.errors import OutcomeUnknown, RiachoError, StoreUnavailable
from storage.stores.metadata import MetadataStore, Op, Versioned
from storage.stores.objects import Body, ObjectInfo, ObjectStore
from tests.simulation.virtual_loop import Process, VirtualLoop

T = TypeVar("T")

FIRST_MS = 1_700_000_000_000
"""The time on correct clocks at the start."""

LATE_S = 0.5
"""Approximate delay of a call that arrives after it was given up."""

HANG_S = 20.0
"""How long a store that hangs delays its callers."""

STOPPED_S = 15.0
"""Maximum pause of a process: longer than any session or lease, and shorter than the time after
which an uncommitted object is too old to be committed, or is swept."""

STOPS_MAX = 6
"""Probability that a gateway is paused at a call to a store."""

THROTTLED = 0.8
"""Fraction of calls that an overloaded store refuses."""


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
    """Probabilities of failures of a call, and how long calls take."""

    before: float = 0.0
    after: float = 0.0
    late: float = 0.0
    """The call arrives after its caller gave up."""
    bent: float = 0.0
    """A read of an object is truncated or has a flipped bit."""
    slow_s: float = 0.02
    stops: float = 0.0
    """A gateway is paused right after a store applied its call, or has answered it."""


@dataclass
class Weather:
    """The condition of a store, for all its users."""

    is_away: bool = False
    hangs: bool = False
    is_throttled: bool = False


class FaultyLink:
    """The connection of one process to the stores."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, faults: Faults) -> None:
        self._loop = loop
        self.chance = chance
        self.faults = faults
        self.process: Process | None = None
        """The process that is paused with the probability `faults.stops`."""
        self.stops = 0

    async def call(
        self, work: Callable[[], Awaitable[T]], lost: Callable[[], Exception], weather: Weather
    ) -> T:
        # The call is independent of its process: one that dies cannot cancel it.
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
        """Return the one-way delay of a call."""
        return self.chance.expovariate(1 / max(1e-6, self.faults.slow_s))

    def stops_now(self) -> bool:
        """Sometimes pause the process; return whether it is paused."""
        faults = self.faults
        if not faults.stops or self.process is None or self.stops == STOPS_MAX:
            return False
        if self.chance.random() >= faults.stops:
            return False
        self.stops += 1
        self.process.stop_for(self.chance.choice([0.05, 1.5, STOPPED_S]) * self.chance.random())
        return True

    def bend(self, body: bytes) -> bytes:
        """Return `body` as it arrives: nearly always undamaged."""
        if not body or self.chance.random() >= self.faults.bent:
            return body
        place = self.chance.randrange(len(body))
        if self.chance.random() < 0.5:
            return body[:place]
        return (
            body[:place] + bytes([body[place] ^ 1 << self.chance.randrange(8)]) + body[place + 1 :]
        )


class _Journey(Generic[T]):
    """One call to a store and back, as steps of the loop that belong to no process.

    There are so many calls that a task for each would take most of the time.
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
        """Cancel the call, wherever it is."""
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
        except Exception as error:  # noqa: BLE001 - The caller gets it.
            self._fail(error)
            return
        self._link.stops_now()
        is_lost = result is _LATE or self._link.chance.random() < self._link.faults.after
        if is_lost:
            self._go_on(self._link.time_s(), self._fail, None)
        else:
            self._go_on(self._link.time_s(), self._return, result)

    def _outcome(self) -> Any:
        """Have the store do the call, unless it is lost or arrives later."""
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
        with contextlib.suppress(RiachoError):  # The caller has given up.
            done(self._work())

    def _return(self, result: T) -> None:
        if not self.answer.done():
            self.answer.set_result(result)
            self._link.stops_now()  # Answered, but paused before its next step.

    def _fail(self, error: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(error or self._lost())
            self.answer.exception()  # Marks it as retrieved: a dead caller does not retrieve it.


_LATE = object()
"""The outcome of a call that has not happened yet."""


def done(work: Awaitable[T]) -> T:
    """Return the result of an awaitable that never waits, as those of stores in memory."""
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
        # Read now: when a late call arrives the file may not exist.
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
            # The answer is outdated by a while.
            await self._link.take_time()
            yield page

    async def presign(
        self, key: str, spans: Sequence[tuple[int, int] | None], expires_s: int
    ) -> Sequence[str]:
        return await self._inner.presign(key, spans, expires_s)

    def address(self, key: str) -> str:
        return self._inner.address(key)

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
