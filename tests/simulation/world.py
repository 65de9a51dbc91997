"""A world in which time, chance and faults come from one seed.

`VirtualLoop` never waits: when nothing is ready it moves its clock to the next timer. Stores live
in memory behind a `FaultyLink`, one for each gateway, which delays calls, fails them before or
after they took effect or before they take effect after all, and goes dead when its gateway is
killed: then calls under way may still happen, but no answer arrives any more.
"""

import asyncio
import contextlib
import random
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from service.clock import World
from storage.errors import OutcomeUnknown, RiachoError, StoreUnavailable
from storage.metadata import MetadataStore, Op, Versioned
from storage.objects import Body, ObjectInfo, ObjectStore

T = TypeVar("T")

LATE_S = 0.5
"""So late is a call that arrives after it was given up, about."""


class _NoWaiting(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits and no timer runs: a deadlock")
        self.loop.now_s += max(0.0, timeout)
        return super().select(0)  # type: ignore[no-any-return]


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock moves only when it would have to wait."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._waiting_for_ever: list[asyncio.Future[None]] = []
        selector = _NoWaiting()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s

    def never(self) -> "asyncio.Future[None]":
        """Return what never happens; whoever waits for it stays, and is not taken for garbage."""
        future = self.create_future()
        self._waiting_for_ever.append(future)
        return future

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        # Threads would bring the real world back in.
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)
        return future


def world_of(loop: VirtualLoop, chance: random.Random, skew_ms: int = 0) -> World:
    return World(
        now_ms=lambda: 1_700_000_000_000 + skew_ms + int(loop.now_s * 1000),
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
    slow_s: float = 0.02


class FaultyLink:
    """The way from one gateway to the stores."""

    def __init__(self, chance: random.Random, faults: Faults) -> None:
        self._chance = chance
        self.faults = faults
        self.dead = False
        self._late: set[asyncio.Task[None]] = set()

    async def call(self, work: Callable[[], Awaitable[T]], lost: Callable[[], Exception]) -> T:
        await self._take_time()
        if self._chance.random() < self.faults.before:
            raise StoreUnavailable("simulated: the call did not arrive")
        if self._chance.random() < self.faults.late:
            self._arrive_late(work)
            await self._take_time()
            raise lost()
        result = await work()
        if self._chance.random() < self.faults.after:
            await self._take_time()
            raise lost()
        await self._take_time()
        return result

    def _arrive_late(self, work: Callable[[], Awaitable[object]]) -> None:
        delay_s = self._chance.expovariate(1 / LATE_S)

        async def arrive() -> None:
            await asyncio.sleep(delay_s)
            with contextlib.suppress(RiachoError):
                await work()

        task = asyncio.create_task(arrive())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _take_time(self) -> None:
        await asyncio.sleep(self._chance.expovariate(1 / max(1e-6, self.faults.slow_s)))
        if self.dead:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            await loop.never()


class FaultyObjects:
    def __init__(self, inner: ObjectStore, link: FaultyLink) -> None:
        self._inner = inner
        self._link = link

    async def put(self, key: str, body: Body) -> None:
        pieces = [bytes(piece) for piece in body]
        await self._link.call(lambda: self._inner.put(key, pieces), _unavailable)

    async def put_file(self, key: str, path: Path) -> None:
        # Read at once: a call that arrives late may find the file gone.
        await self.put(key, [path.read_bytes()])

    async def get(self, key: str) -> bytes:
        return await self._link.call(lambda: self._inner.get(key), _unavailable)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return await self._link.call(lambda: self._inner.get_ranges(key, ranges), _unavailable)

    async def size(self, key: str) -> int:
        return await self._link.call(lambda: self._inner.size(key), _unavailable)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._link.call(lambda: self._inner.delete(keys), _unavailable)

    def list(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        return self._inner.list(prefix)

    async def presign(self, key: str, expires_s: int) -> str:
        return await self._inner.presign(key, expires_s)

    async def close(self) -> None:
        pass


class FaultyMetadata:
    def __init__(self, inner: MetadataStore, link: FaultyLink) -> None:
        self._inner = inner
        self._link = link

    async def get(self, key: str) -> Versioned | None:
        return await self._link.call(lambda: self._inner.get(key), _unavailable)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        return await self._link.call(lambda: self._inner.get_many(keys), _unavailable)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        return await self._link.call(
            lambda: self._inner.list(prefix, after=after, limit=limit), _unavailable
        )

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        return await self._link.call(lambda: self._inner.transact(ops), _unknown)

    async def close(self) -> None:
        pass


def _unavailable() -> Exception:
    return StoreUnavailable("simulated: the answer was lost")


def _unknown() -> Exception:
    return OutcomeUnknown("simulated: the answer was lost")
