"""The only module that reads clocks and randomness; all others take them as arguments."""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from storage.cas import Patience

BACK_OFF_S: Final = 0.005
BACK_OFF_STEPS_MAX: Final = 10

CALL_ATTEMPTS_MAX: Final = 30
CALL_S_MAX: Final = 30.0
"""Start no attempt after this long: the client does not wait for the reply any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Time, randomness and identifiers; the simulation replaces them."""

    now_ms: Callable[[], int]
    monotonic_s: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]
    random_bytes: Callable[[int], bytes]

    async def back_off(self, lost: int) -> None:
        """Sleep for a random time that grows with the number of `lost` races, at most 0.05 s."""
        await self.sleep(self.random() * BACK_OFF_S * min(lost, BACK_OFF_STEPS_MAX))

    @property
    def patience(self) -> Patience:
        """How long a change is retried that a client waits for."""
        return Patience(CALL_ATTEMPTS_MAX, self.back_off, CALL_S_MAX, self.monotonic_s)

    def new_version(self) -> str:
        return self.random_bytes(12).hex()

    def new_id(self) -> bytes:
        """Return 16 unique bytes: 6 of time, 10 random."""
        return self.now_ms().to_bytes(6) + self.random_bytes(10)


def real_world() -> World:
    return World(
        now_ms=lambda: time.time_ns() // 1_000_000,
        monotonic_s=time.monotonic,
        sleep=asyncio.sleep,
        random=random.random,
        random_bytes=os.urandom,
    )
