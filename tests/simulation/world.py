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
from typing import TypeVar

from service.clock import World
from storage.errors import OutcomeUnknown, RiachoError, StoreUnavailable
from storage.metadata import MetadataStore, Op, Versioned
from storage.objects import Body, ObjectInfo, ObjectStore
from storage.tasks import drop_error
from tests.simulation.virtual_loop import VirtualLoop

T = TypeVar("T")

FIRST_MS = 1_700_000_000_000
"""What clocks that are right show when it begins."""

LATE_S = 0.5
"""So late is a call that arrives after it was given up, about."""

HANG_S = 20.0
"""So long a store that hangs keeps everybody waiting."""

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
        self._chance = chance
        self.faults = faults

    async def call(
        self, work: Callable[[], Awaitable[T]], lost: Callable[[], Exception], weather: Weather
    ) -> T:
        # It travels by itself: whoever dies meanwhile cannot call it back.
        journey = self._loop.outside(self._travel(work, lost, weather))
        journey.add_done_callback(drop_error)
        try:
            return await asyncio.shield(journey)
        except asyncio.CancelledError:
            if self._chance.random() < 0.5:
                journey.cancel()
            raise

    async def _travel(
        self, work: Callable[[], Awaitable[T]], lost: Callable[[], Exception], weather: Weather
    ) -> T:
        await self.take_time()
        if weather.hangs:
            await asyncio.sleep(HANG_S)
        if weather.hangs or weather.is_away:
            raise StoreUnavailable("simulated: the store is away")
        if weather.is_throttled and self._chance.random() < THROTTLED:
            raise StoreUnavailable("simulated: the store has too much to do")
        if self._chance.random() < self.faults.before:
            raise StoreUnavailable("simulated: the call did not arrive")
        if self._chance.random() < self.faults.late:
            self._loop.outside(self._arrive_late(work, self._chance.expovariate(1 / LATE_S)))
            await self.take_time()
            raise lost()
        result = await work()
        is_lost = self._chance.random() < self.faults.after
        await self.take_time()
        if is_lost:
            raise lost()
        return result

    async def _arrive_late(self, work: Callable[[], Awaitable[object]], delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        with contextlib.suppress(RiachoError):  # Nobody is there to hear it.
            await work()

    async def take_time(self) -> None:
        await asyncio.sleep(self._chance.expovariate(1 / max(1e-6, self.faults.slow_s)))

    def bend(self, body: bytes) -> bytes:
        """Return what arrives of `body`, nearly always all of it."""
        if not body or self._chance.random() >= self.faults.bent:
            return body
        place = self._chance.randrange(len(body))
        if self._chance.random() < 0.5:
            return body[:place]
        return (
            body[:place] + bytes([body[place] ^ 1 << self._chance.randrange(8)]) + body[place + 1 :]
        )


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
