"""A network that does all that networks do: it loses, delays, reorders and repeats requests."""

import asyncio
import random
from collections.abc import Collection

import httpx


class Storm(httpx.AsyncBaseTransport):
    """Mistreats requests that write, by the luck of a seed; others pass, and those it spares."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        seed: int,
        late_s: float = 0.02,
        spared: Collection[str] = (),
    ) -> None:
        self._inner = inner
        self._spared = spared
        self._random = random.Random(seed)
        self._late_s = late_s
        self._copies: set[asyncio.Task[httpx.Response]] = set()
        self.is_over = False
        self.lost = self.repeated = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method != "POST" or self.is_over or request.url.path in self._spared:
            return await self._inner.handle_async_request(request)
        await request.aread()
        luck = self._random.random()
        if luck < 0.1:
            self.lost += 1
            raise httpx.ReadError("lost on its way there")
        if luck < 0.3:
            # The copy comes at any time: before, with or long after its original.
            self.repeated += 1
            self._send_copy(request)
        await asyncio.sleep(self._random.random() * self._late_s)
        reply = await self._inner.handle_async_request(request)
        if luck > 0.85:
            self.lost += 1
            raise httpx.ReadError("lost on its way back")
        return reply

    async def calm(self) -> None:
        """Let all pass from now on; return when nothing is on its way any more."""
        self.is_over = True
        await asyncio.gather(*self._copies)

    def _send_copy(self, request: httpx.Request) -> None:
        wait_s = self._random.random() * self._late_s * 5

        async def send() -> httpx.Response:
            await asyncio.sleep(wait_s)
            return await self._inner.handle_async_request(request)

        task = asyncio.create_task(send())
        self._copies.add(task)
        task.add_done_callback(self._copies.discard)
