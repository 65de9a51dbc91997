"""Bytes on their way to readers: however a request ends, it gives back what it held."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from service.app import App, create_app
from service.process.limits.outgoing import SHARE_BYTES_MIN, RequestShares, Shares
from service.settings import Settings
from storage.errors import StoreUnavailable

pytestmark = pytest.mark.anyio

MEMORY = {"zones": "a=memory://", "metadata": "memory://", "log_level": "warning"}
RECORDS = "/v1/topics/t/partitions/0/records"
SSE = "text/event-stream"
LARGE = 700_000
"""More than is sent at once."""


@pytest.fixture(autouse=True)
def _without_garbage_collection() -> Iterator[None]:
    """Bytes are given back on purpose, not because an object happens to be collected."""
    gc.disable()
    yield
    gc.enable()


def test_what_is_left_is_halved_down_to_a_minimum() -> None:
    shares = Shares(10 * SHARE_BYTES_MIN)
    first, second = shares.take(1 << 30), shares.take(1 << 30)

    assert (first.size_bytes, second.size_bytes) == (5 * SHARE_BYTES_MIN, 5 * SHARE_BYTES_MIN // 2)
    assert shares.take(1).size_bytes == 1
    assert [shares.take(1 << 30).size_bytes for _ in range(9)][-1] == SHARE_BYTES_MIN


def test_a_share_is_released_by_the_last_of_its_users() -> None:
    shares = Shares(1 << 30)
    share = shares.take(100)
    share.retain()
    share.release()
    assert shares.held_bytes == 100

    share.release()

    assert shares.held_bytes == 0
    with pytest.raises(AssertionError):
        share.release()


def test_a_request_releases_its_shares_though_it_fails() -> None:
    shares = Shares(1 << 30)

    with suppress(StoreUnavailable), RequestShares(shares) as owned:
        owned.release(owned.take(100))
        owned.take(20).hold(15)
        common = shares.take(3)
        owned.own(common)
        assert shares.held_bytes == 18
        raise StoreUnavailable("no")

    assert shares.held_bytes == 0


def test_shares_can_have_another_owner() -> None:
    shares = Shares(1 << 30)
    with RequestShares(shares) as request:
        with RequestShares(shares) as fetch:
            fetch.take(100)
            fetch.move_to(request)
        assert shares.held_bytes == 100
        request.hold(7)
        assert shares.held_bytes == 7

    assert shares.held_bytes == 0


class Call:
    """One request over bare ASGI, by a client that may stop reading or hang up."""

    def __init__(self, app: App, path: str, **headers: str) -> None:
        self.app = app
        self.gone = asyncio.Event()
        self.read = asyncio.Semaphore(0)
        self.waiting = asyncio.Event()
        self.bodies: list[bytes] = []
        self.status = 0
        path, _, query = path.partition("?")
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        self._asked = False
        self.task = asyncio.create_task(self.app(self._scope, self._receive, self._send))

    async def _receive(self) -> Any:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.waiting.set()
        await self.read.acquire()
        self.waiting.clear()
        if self.gone.is_set():
            raise OSError("the client has gone")
        self.bodies.append(bytes(message["body"]))

    @property
    def held_bytes(self) -> int:
        return self.app.gateway.outgoing.held_bytes


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(*values: str) -> AsyncIterator[App]:
    app = create_app(Settings.model_validate(MEMORY))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://riacho") as client:
        await client.post("/v1/topics", json={"name": "t", "partitions": 1})
        await produce(app, *values)
    yield app
    await app.gateway.aclose()


async def produce(app: App, *values: str) -> None:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://riacho") as client:
        body = {"records": [{"value": value} for value in values]}
        assert (await client.post(RECORDS, json=body)).is_success


async def ended(call: Call) -> None:
    with suppress(OSError, asyncio.CancelledError):
        await asyncio.wait_for(call.task, 120)


async def test_a_response_holds_its_size_until_it_is_sent() -> None:
    async with serving("x" * LARGE) as app:
        call = Call(app, RECORDS)
        await call.waiting.wait()
        assert LARGE < call.held_bytes < LARGE + 1000

        for _ in range(10):
            call.read.release()
        await ended(call)

        assert sum(map(len, call.bodies)) > LARGE
        assert call.held_bytes == 0


async def test_a_client_that_hangs_up_midway_gives_it_back() -> None:
    async with serving("x" * LARGE) as app:
        call = Call(app, RECORDS)
        call.read.release()
        await until(lambda: call.bodies and call.waiting.is_set())
        assert call.held_bytes > LARGE

        call.gone.set()
        call.read.release()
        await ended(call)

        assert call.held_bytes == 0


async def test_a_response_that_is_cancelled_gives_it_back() -> None:
    async with serving("x" * LARGE) as app:
        call = Call(app, RECORDS)
        await call.waiting.wait()

        call.task.cancel()
        await ended(call)

        assert call.held_bytes == 0


@pytest.mark.parametrize("count", [1, 12])
async def test_a_poll_holds_nothing_while_it_waits_nor_after_it_was_cancelled(count: int) -> None:
    async with serving("x") as app:
        polls = [Call(app, f"{RECORDS}?offset=1&max_wait_ms=60000") for _ in range(count)]
        await until(lambda: app.gateway._questions._asked)
        assert app.gateway.outgoing.held_bytes == 0

        for poll in polls:
            poll.task.cancel()
        for poll in polls:
            await ended(poll)

        assert app.gateway.outgoing.held_bytes == 0


async def test_polls_that_are_cancelled_while_they_are_answered_give_it_back() -> None:
    async with serving("x") as app:
        polls = [Call(app, f"{RECORDS}?offset=1&max_wait_ms=60000") for _ in range(12)]
        [asked] = await _found(lambda: list(app.gateway._questions._asked.values()))
        await until(lambda: len(asked.waiters) == len(polls))
        await produce(app, "y" * 1000)
        await until(lambda: any(poll.waiting.is_set() for poll in polls))
        assert app.gateway.outgoing.held_bytes > 0

        for poll in polls[::2]:
            poll.task.cancel()
        for poll in polls:
            poll.read.release()
            await ended(poll)

        # The common answer is kept for a moment, for readers that come late.
        await until(lambda: app.gateway.outgoing.held_bytes == 0)


async def _found(find: Callable[[], list[Any]]) -> list[Any]:
    await until(find)
    return find()


async def test_an_error_while_records_are_encoded_gives_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving("x" * LARGE) as app:

        async def fails(_: int, __: Callable[[], Awaitable[Any]]) -> Any:
            assert app.gateway.outgoing.held_bytes > 0
            raise StoreUnavailable("the encoder is ill")

        monkeypatch.setattr(app.gateway.heavy_work, "convert", fails)
        call = Call(app, RECORDS)
        call.read.release()
        await ended(call)

        assert call.status == 503
        assert call.held_bytes == 0


async def test_a_tail_holds_nothing_while_it_waits_nor_when_it_has_ended() -> None:
    async with serving("x" * LARGE) as app:
        call = Call(app, RECORDS, accept=SSE)
        call.read.release()
        await until(lambda: call.bodies and call.waiting.is_set())
        assert call.held_bytes > 0
        call.read.release()
        await until(lambda: len(call.bodies) == 2)
        await until(lambda: call.held_bytes == 0)
        assert not call.task.done()

        await produce(app, "y" * 1000)
        await call.waiting.wait()
        assert call.held_bytes > 0
        call.gone.set()
        await ended(call)

        assert call.held_bytes == 0


async def test_a_tail_that_ends_by_itself_gives_it_back() -> None:
    async with serving("x" * LARGE) as app:
        call = Call(app, f"{RECORDS}?max_records=1", accept=SSE)
        for _ in range(10):
            call.read.release()
        await ended(call)

        assert len(call.bodies) == 3
        assert call.held_bytes == 0
