"""Work on large bodies, kept off the event loop so that other requests are answered meanwhile.

Work in threads waits for a semaphore first. Inflating releases the interpreter's lock, so two
bodies may be inflated at once. Decoding and encoding hold that lock for most of their time: two at
once would finish no sooner, take twice the memory, and leave the loop less of the lock.

A small body is processed on the loop itself, because two thread switches would take longer. If
many are waiting, each gets its own turn of the loop, so that other requests run in between.

A cancelled caller keeps its place until its thread has stopped, so the number of working threads
is always bounded.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar, cast

from service.process.limits.admission import Hold
from service.process.limits.compression import Inflation, check_encoding

T = TypeVar("T")

KIB: Final = 1024

INFLATIONS_MAX: Final = 2
"""Maximum number of bodies inflated at once."""

STEP_BYTES: Final = 1024 * KIB
"""Maximum growth of a body before it is counted again and a cancelled caller can stop."""

IMMEDIATE_BYTES_MAX: Final = 32 * KIB
"""Bodies up to this size are decoded at once: at most a millisecond, whatever their shape."""

INLINE_BYTES_MAX: Final = 256 * KIB
"""Larger bodies are decoded and encoded in a thread."""


class HeavyWork:
    """The threads of one gateway that work on bodies."""

    def __init__(self) -> None:
        self._inflating = asyncio.Semaphore(INFLATIONS_MAX)
        self._copying = asyncio.Semaphore(1)
        self._converting = asyncio.Semaphore(1)
        self._inline = asyncio.Semaphore(1)

    async def inflate(self, body: bytes, encoding: str, bytes_max: int, hold: Hold) -> bytes:
        """Return `body` without its `Content-Encoding`; `hold` grows with its bytes.

        Raises what `check_encoding` and `Inflation.step` do, and `Overloaded` if the inflated
        bytes cannot be held.
        """
        codec = check_encoding(body, encoding, bytes_max)
        if codec is None or not body:
            return body
        inflation = Inflation(body, codec, bytes_max)
        if len(body) <= INLINE_BYTES_MAX:
            if len(body) > IMMEDIATE_BYTES_MAX:
                await self._turn()
            # Whatever the final size, this step takes a millisecond or two.
            inflation.step(INLINE_BYTES_MAX)
            hold.grow_to(len(body) + inflation.size_bytes)
        if inflation.is_done:
            found = inflation.body()
        else:
            async with self._inflating:
                found = await self._rest(inflation, len(body), hold)
        hold.shrink_to(max(len(body), len(found)))
        return found

    async def _rest(self, inflation: Inflation, body_bytes: int, hold: Hold) -> bytes:
        while not inflation.is_done:
            # Hold before allocating: the sum is never less than what is in memory.
            hold.grow_to(body_bytes + inflation.next_bytes_max(STEP_BYTES))
            await _in_thread(lambda: inflation.step(STEP_BYTES))
        # A copy doubles its memory, so only one body is copied at a time.
        async with self._copying:
            return await _in_thread(inflation.body)

    async def convert(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Return what `work` returns, which decodes or encodes about `size_bytes`."""
        if size_bytes <= IMMEDIATE_BYTES_MAX:
            return work()
        if size_bytes <= INLINE_BYTES_MAX:
            await self._turn()
            return work()
        async with self._converting:
            return await _in_thread(work)

    async def _turn(self) -> None:
        """Wait for a turn of the loop in which no other caller of this method continues."""
        await self._inline.acquire()
        asyncio.get_running_loop().call_soon(self._inline.release)


async def _in_thread(work: Callable[[], T]) -> T:
    """Return what `work` returns in a thread; a cancelled caller waits for it to end."""
    # Futures outlive the wait for them, and an error references all frames that it passed. So
    # the thread's result is put here, and taken out again.
    found: list[tuple[T | None, Exception | None]] = []
    running = asyncio.ensure_future(asyncio.to_thread(_attempt, work, found))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
    result, failure = found.pop()
    if failure is None:
        return cast(T, result)
    try:
        raise failure
    finally:
        # The error references this frame. If the frame referenced the error, a refused body would
        # stay in memory until the garbage collector runs.
        del failure


def _attempt(work: Callable[[], T], found: list[tuple[T | None, Exception | None]]) -> None:
    try:
        found.append((work(), None))
    except Exception as error:  # noqa: BLE001 - It is raised where the result is awaited.
        found.append((None, error))
