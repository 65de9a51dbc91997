"""A real gateway in this process, on memory stores, behind a network that fails on purpose."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from service.app import App
from service.controller.live_gateways import LiveGateways
from service.http.metrics import Metrics
from service.log.gateway import Gateway
from service.settings import Settings
from service.world.clock import real_world
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.zones.zones import Zones

URL = "http://gateway"

Fault = Callable[[httpx.Request], httpx.Response | None]
"""Instead of the gateway: a reply, an exception, or None to let the request pass."""


class Network(httpx.AsyncBaseTransport):
    """Passes requests on. Those to produce, to fetch, of groups and of producers meet faults."""

    def __init__(self, app: App, gateway: Gateway) -> None:
        self._inner = httpx.ASGITransport(app=app)
        self.gateway = gateway
        self.before: deque[Fault | None] = deque()
        self.before_fetch: deque[Fault | None] = deque()
        self.before_group: deque[Fault | None] = deque()
        self.before_call: deque[Fault | None] = deque()
        self.lost_replies = 0
        self.lost_fetches = 0
        self.lost_group_replies = 0
        self.is_group_cut_off = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.produced: list[httpx.Request] = []
        self.fetched: list[httpx.Request] = []
        self.grouped: list[httpx.Request] = []
        self.called: list[httpx.Request] = []
        """About producers and transactions."""
        self.posted: list[httpx.Request] = []
        """Records, and calls about producers and transactions, in order."""
        self.lost_posts: set[int] = set()
        """Which of them get no reply, counted from 0."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        number = len(self.posted)
        path = request.url.path
        if _is_call(path) or (request.method == "POST" and path.endswith("/records")):
            self.posted.append(request)
        reply = await self._pass(request)
        if len(self.posted) > number and number in self.lost_posts:
            raise httpx.ReadError("the connection broke")
        return reply

    async def _pass(self, request: httpx.Request) -> httpx.Response:
        if _is_call(request.url.path):
            self.called.append(request)
            reply = _meet(self.before_call, request)
            return reply or await self._inner.handle_async_request(request)
        if request.method == "GET" and request.url.path.endswith("/records"):
            return await self._fetch(request)
        if request.url.path == "/v1/fetch":
            return await self._fetch(request)
        if request.method == "POST" and request.url.path.endswith("/records"):
            return await self._produce(request)
        if request.url.path.startswith("/v1/groups"):
            return await self._group(request)
        return await self._inner.handle_async_request(request)

    async def _group(self, request: httpx.Request) -> httpx.Response:
        self.grouped.append(request)
        if self.is_group_cut_off:
            raise httpx.ConnectError("connection refused")
        if (reply := _meet(self.before_group, request)) is not None:
            return reply
        reply = await self._inner.handle_async_request(request)
        if self.lost_group_replies:
            self.lost_group_replies -= 1
            raise httpx.ReadError("the connection broke")
        return reply

    async def _produce(self, request: httpx.Request) -> httpx.Response:
        self.produced.append(request)
        await self.gate.wait()
        if (reply := _meet(self.before, request)) is not None:
            return reply
        reply = await self._inner.handle_async_request(request)
        if self.lost_replies:
            self.lost_replies -= 1
            raise httpx.ReadError("the connection broke")
        return reply

    async def _fetch(self, request: httpx.Request) -> httpx.Response:
        self.fetched.append(request)
        if (reply := _meet(self.before_fetch, request)) is not None:
            return reply
        reply = await self._inner.handle_async_request(request)
        if self.lost_fetches:
            self.lost_fetches -= 1
            raise httpx.ReadError("the connection broke")
        return reply


def _is_call(path: str) -> bool:
    return path.startswith(("/v1/producers", "/v1/transactions", "/v1/atomic"))


def _meet(faults: deque[Fault | None], request: httpx.Request) -> httpx.Response | None:
    fault = faults.popleft() if faults else None
    return None if fault is None else fault(request)


@asynccontextmanager
async def network() -> AsyncIterator[Network]:
    world = real_world()
    settings = Settings(gateway_heartbeat_s=0)
    metadata = MemoryMetadata(world.new_version)
    gateway = Gateway(settings, Zones({"a": MemoryObjects()}), metadata, world)
    app = App(gateway, LiveGateways(settings, metadata, world), Metrics())
    yield Network(app, gateway)
    await gateway.aclose()


def refused(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused")


def problem(status: int, code: str, *, retryable: bool, may_have_applied: bool = False) -> Fault:
    def fault(_: httpx.Request) -> httpx.Response:
        return httpx.Response(
            status,
            json={
                "code": code,
                "detail": "on purpose",
                "status": status,
                "retryable": retryable,
                "may_have_applied": may_have_applied,
                "request_id": "abc",
            },
            headers={"content-type": "application/problem+json"},
        )

    return fault


def client_tasks() -> list[str]:
    """Return the tasks that run code of the client, and not of the gateway beside it."""
    names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]
    ours = {
        *("Sender", "Fetching", "PartitionCounts", "Session", "Commits"),
        *("ProducerIds", "Transactions"),
    }
    return [name for name in names if name.split(".")[0] in ours]
