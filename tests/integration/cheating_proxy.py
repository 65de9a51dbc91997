"""A network between clients and gateways that doubles, delays, reorders and loses at random.

    async with CheatingProxy(urls[0], urls=urls, seed=1) as proxy:
        ...  # Talk to `proxy.url`.
        await proxy.rest()  # Until everything that is late has arrived.

Each request, and each copy of it, goes to any of the gateways. The worst it does is what a
client can least defend itself against: it cuts the connection, and delivers the request later,
when the client has long sent it again, and others after it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tests.storage.helpers.lossy_proxy import LossyProxy, Request


class Cheat(StrEnum):
    NONE = "none"
    DELAYED = "delayed"
    """What was sent later may overtake it."""
    DOUBLED = "doubled"
    LOST = "lost"
    LATE = "late"
    """Lost for the client, and delivered later all the same."""
    UNANSWERED = "unanswered"
    """Done, and the reply lost."""
    SLOW = "slow"
    """Done, and the reply delayed."""


DECK = (
    *[Cheat.NONE] * 8,
    *[Cheat.DELAYED] * 3,
    *[Cheat.DOUBLED] * 3,
    *[Cheat.LOST] * 1,
    *[Cheat.LATE] * 2,
    *[Cheat.UNANSWERED] * 2,
    *[Cheat.SLOW] * 1,
)
"""Dealt in a new order each time it is used up, so that nothing is long in coming."""


@dataclass
class CheatingProxy(LossyProxy):
    urls: Sequence[str] = ()
    seed: int = 0
    delay_s_max: float = 0.4
    cheats: Counter[Cheat] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._cards: list[Cheat] = []
        self._late: set[asyncio.Task[None]] = set()

    async def rest(self) -> None:
        """Return when nothing is under way any more."""
        while self._late:
            await asyncio.gather(*self._late)

    async def _handle(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        if not self._cards:
            self._cards = self._chance.sample(DECK, len(DECK))
        cheat = self._cards.pop()
        self.cheats[cheat] += 1
        if cheat is Cheat.LOST:
            return False
        if cheat in (Cheat.LATE, Cheat.DOUBLED):
            self._deliver_later(request)
        if cheat is Cheat.LATE:
            return False
        if cheat is Cheat.DELAYED:
            await self._delay()
        reply = await self._forward(request)
        if cheat is Cheat.SLOW:
            await self._delay()
        if cheat is Cheat.UNANSWERED or not reply:
            return False
        writer.write(reply)
        await writer.drain()
        return True

    def _deliver_later(self, request: Request) -> None:
        task = asyncio.create_task(self._deliver(request))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _deliver(self, request: Request) -> None:
        await self._delay()
        await self._forward(request)

    async def _delay(self) -> None:
        # Mostly little, and sometimes so much that much has happened since.
        await asyncio.sleep(self.delay_s_max * self._chance.random() ** 3)

    async def _forward(self, request: Request) -> bytes:
        """Return what a gateway answers; nothing if it does not."""
        gateway = LossyProxy(self._chance.choice(self.urls))
        try:
            return await gateway._forward(request)
        except OSError:
            return b""
