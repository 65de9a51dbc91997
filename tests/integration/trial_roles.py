"""Those who write and read a log through real gateways, and what they saw.

The actors of the simulation, over real sockets: they write the same history.
"""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final, TypeVar

import httpx

from tests.checker.history import History
from tests.checker.log_rules import Fetched, Produced
from tests.integration.processes import events, records_path
from tests.simulation.http import Refused, call
from tests.simulation.idempotent import IdempotentPlan, Idempotents
from tests.simulation.members import TOPIC

T = TypeVar("T")

PARTITIONS: Final = 3
PATIENCE_S: Final = 20.0
CALM_S: Final = 300.0
"""Within this, everything moves again after the last fault: in seconds, where nothing else runs."""

NET_S: Final = 8.0
"""What a client waits for an answer before it asks again. Less would be a flood, and no fault."""

PASSING: Final = frozenset({503, 504})
"""What a gateway answers that cannot reach its stores, and nothing else."""

CLIENTS_MAX: Final = 10_000_000
"""Clients of one process are numbered below this."""


class Remote:
    """A gateway in another process, as the actors of the simulation see their hosts."""

    def __init__(self, url: str) -> None:
        self.http = httpx.AsyncClient(base_url=url, timeout=PATIENCE_S)

    async def serve(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Send a request on. Raises `TimeoutError` if nobody knows what became of it."""
        message = await receive()
        query = scope["query_string"].decode()
        try:
            reply = await self.http.request(
                scope["method"],
                scope["path"] + (f"?{query}" if query else ""),
                content=message["body"],
                headers=[(name.decode(), value.decode()) for name, value in scope["headers"]],
            )
            status, body = reply.status_code, reply.content
        except (httpx.ConnectError, httpx.ConnectTimeout):
            # It never left.
            status, body = 503, b'{"code": "AWAY", "detail": "", "may_have_applied": false}'
        except httpx.TransportError as error:
            raise TimeoutError(repr(error)) from error
        await send({"type": "http.response.start", "status": status})
        await send({"type": "http.response.body", "body": body})


class Role:
    """Some actors: they act until it is calm, and then some until all is over."""

    def __init__(self, number: int, seed: int, seconds: float, urls: Sequence[str]) -> None:
        self.number = number
        self.seed = seed
        self.seconds = seconds
        self.chance = random.Random(f"{seed}.{number}")
        self.hosts: Any = [Remote(url) for url in urls]
        self.history = History()
        self.is_calm = False
        self.first_client = number * CLIENTS_MAX

    def until_calm(self) -> list[Awaitable[None]]:
        """Return what ends soon after it is calm."""
        return []

    def until_the_end(self) -> list[Awaitable[None]]:
        return []

    def calm_down(self) -> None:
        self.is_calm = True

    async def drain(self) -> None:
        pass

    def finish(self) -> History:
        return self.history

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Ask any gateway. Raises `Refused`, or `TimeoutError` if nothing is known."""
        return await call(self.chance.choice(self.hosts), method, path, body)

    async def persist(self, method: str, path: str) -> Any:
        """Ask until somebody answers."""
        while True:
            try:
                return await self.call(method, path)
            except (Refused, TimeoutError):
                await asyncio.sleep(0.1)


class Writers(Role):
    """Produce, each request once, whatever comes of it."""

    def until_calm(self) -> list[Awaitable[None]]:
        return [self._write(self.first_client + n) for n in range(3)]

    async def _write(self, client: int) -> None:
        for turn in count():
            if self.is_calm:
                break
            partition = self.chance.randrange(PARTITIONS)
            values = tuple(f"{client}-{turn}-{n}" for n in range(self.chance.randint(1, 5)))
            await self._send(client, partition, values)
            await asyncio.sleep(self.chance.expovariate(8))
        await asyncio.gather(*(self._get_through(client, p) for p in range(PARTITIONS)))

    async def _get_through(self, client: int, partition: int) -> None:
        give_up_s = time.monotonic() + CALM_S
        for turn in count():
            if await self._send(client, partition, (f"{client}-calm-{partition}-{turn}",)):
                return
            if time.monotonic() > give_up_s:
                self.history.stuck.append(f"nothing can be written to partition {partition}")
                return
            await asyncio.sleep(0.1)

    async def _send(self, client: int, partition: int, values: tuple[str, ...]) -> bool:
        """Return whether it is known to be written."""
        body = {"records": [{"value": value} for value in values]}
        began_s = time.monotonic()
        base, maybe = None, True
        try:
            answer = await self.call("POST", records_path(TOPIC, partition), body)
            base, maybe = answer["results"][0]["base_offset"], False
        except Refused as error:
            maybe = error.may_have_applied
            if error.status not in PASSING:
                self.history.idempotent.errors.append(f"{client}: {error}: {error.detail}")
        except TimeoutError:
            pass
        self.history.produced.append(
            Produced(client, partition, values, began_s, time.monotonic(), base, maybe)
        )
        if base is None:
            await asyncio.sleep(0.05)
        return base is not None


class Numbered(Role):
    """Idempotent producers, over a net of their own that doubles, delays and loses."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        plan = replace(IdempotentPlan.of(self.chance), batches=20)
        plan.net.timeout_s = NET_S
        self._idempotents = Idempotents(
            plan, self.chance, lambda: self.hosts, time.monotonic, trace=[]
        )
        self.history.idempotent = self._idempotents.history

    def until_calm(self) -> list[Awaitable[None]]:
        return [self._live(), self._live()]

    async def _live(self) -> None:
        while not self.is_calm:
            await self._idempotents.live(TOPIC, PARTITIONS)
        await self._idempotents.net.settle()

    def calm_down(self) -> None:
        super().calm_down()
        self._idempotents.calm_down()

    def finish(self) -> History:
        self.history.produced += [
            replace(each, client=self.first_client + each.client)
            for each in self._idempotents.produced()
        ]
        return self.history


class Readers(Role):
    """Fetch, wait and tail."""

    def until_the_end(self) -> list[Awaitable[None]]:
        fetchers = [self._fetch_on(self.first_client + n) for n in range(3)]
        return [*fetchers, *(self._tail(self.first_client + 3 + n) for n in range(2))]

    async def _fetch_on(self, client: int) -> None:
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        while True:
            partition = self.chance.randrange(PARTITIONS)
            try:
                offsets[partition] = await self._fetch(client, partition, offsets[partition])
            except TimeoutError:
                pass
            except Refused as error:
                self._complain(client, error)
            await asyncio.sleep(self.chance.expovariate(10))

    async def _fetch(self, client: int, partition: int, offset: int) -> int:
        if self.chance.random() < 0.1:
            offset = self.chance.randint(0, offset)  # Far back, where caches end.
        wait_ms = self.chance.choice([0, 0, 500])
        params = f"?offset={offset}&max_records={self.chance.choice([1, 50, 10_000])}"
        began_s = time.monotonic()
        path = f"{records_path(TOPIC, partition)}{params}&max_wait_ms={wait_ms}"
        answer = await self.call("GET", path)
        following: int = answer["next_offset"]
        self.history.fetched.append(
            Fetched(
                client,
                partition,
                offset,
                began_s,
                tuple((record["offset"], record["value"]) for record in answer["records"]),
                following,
                answer["high_watermark"],
                wait_ms > 0,
                time.monotonic(),
            )
        )
        return following

    async def _tail(self, client: int) -> None:
        partition, offset = self.chance.randrange(PARTITIONS), 0
        while True:
            http = self.chance.choice(self.hosts).http
            try:
                offset = await self._follow(http, client, partition, offset)
            except httpx.TransportError:
                await asyncio.sleep(0.1)

    async def _follow(
        self, http: httpx.AsyncClient, client: int, partition: int, offset: int
    ) -> int:
        """Listen to one tail, at most for a while; return where the next one goes on."""
        headers = {"accept": "text/event-stream"}
        path = f"{records_path(TOPIC, partition)}?offset={offset}"
        began_s = time.monotonic()
        lines: list[str] = []
        try:
            async with asyncio.timeout(4), http.stream("GET", path, headers=headers) as reply:
                async for line in reply.aiter_lines():
                    lines.append(line)  # noqa: PERF401 (What came before the end counts.)
        except (TimeoutError, httpx.TransportError):
            await asyncio.sleep(0.1)
        records = [json.loads(event["data"]) for event in events(iter(lines)) if "id" in event]
        if records:
            values = tuple((record["offset"], record["value"]) for record in records)
            end: int = values[-1][0] + 1
            ended_s = time.monotonic()
            self.history.fetched.append(
                Fetched(client, partition, offset, began_s, values, end, end, True, ended_s)
            )
            return end
        return offset

    def _complain(self, client: int, error: Refused) -> None:
        if error.status not in PASSING:
            self.history.group.errors.append(f"{client}: {error}: {error.detail}")
