"""The one place that reads clocks and dice; everything else takes them as arguments."""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

BACK_OFF_S: Final = 0.005
BACK_OFF_STEPS_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Time, chance and identifiers, as the simulation replaces them."""

    now_ms: Callable[[], int]
    monotonic_s: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]
    random_bytes: Callable[[int], bytes]

    async def back_off(self, lost: int) -> None:
        """Wait a little, at random, longer with each of the `lost` races, at most 0.05 s."""
        await self.sleep(self.random() * BACK_OFF_S * min(lost, BACK_OFF_STEPS_MAX))

    def new_version(self) -> str:
        return self.random_bytes(12).hex()

    def new_id(self) -> bytes:
        """Return 16 bytes that nobody else makes: 6 of time, 10 of chance."""
        return self.now_ms().to_bytes(6) + self.random_bytes(10)


def real_world() -> World:
    return World(
        now_ms=lambda: time.time_ns() // 1_000_000,
        monotonic_s=time.monotonic,
        sleep=asyncio.sleep,
        random=random.random,
        random_bytes=os.urandom,
    )
