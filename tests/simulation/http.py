"""HTTP requests to a gateway without a socket, over an unreliable network.

`Net` sends a request to any gateway, after a delay, once or twice. The answer may be lost although
the request was carried out; or the caller hangs up, and the gateway cancels the work or continues.
The sender of each copy records the gateway's answer, whether or not it arrived.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from tests.simulation.hosts import Host

T = TypeVar("T")

_PASSING = {503, 504}


class Refused(Exception):
    def __init__(self, status: int, code: str, detail: str, *, may_have_applied: bool) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.detail = detail
        self.may_have_applied = may_have_applied

    @property
    def passes(self) -> bool:
        return passes(self.status, self.code)


def passes(status: int, code: str) -> bool:
    """Whether a retry makes sense; it does also if bytes were damaged in transit."""
    return status in _PASSING or code == "CORRUPT_MESSAGE"


async def call(
    host: Host, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> Any:
    """Return the answer of the gateway, or raise its refusal."""
    status, answer = await exchange(host, method, path, body, headers)
    if status >= 400:
        maybe = bool(answer.get("may_have_applied"))
        raise Refused(status, answer["code"], answer["detail"], may_have_applied=maybe)
    return answer


async def exchange(
    host: Host, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """Return the status and the answer of the gateway; the path is quoted already."""
    path, _, query = path.partition("?")
    given = {"content-type": "application/json", **(headers or {})}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("client", 1),
        "server": ("gateway", 80),
    }
    content = b"" if body is None else msgspec.json.encode(body)
    requests = [{"type": "http.request", "body": content, "more_body": False}]
    status, chunks = 0, []

    async def receive() -> Any:
        if requests:
            return requests.pop()
        return await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        chunks.append(message.get("body", b""))

    await host.serve(host.app(scope, receive, send))
    data = b"".join(chunks)
    return status, msgspec.json.decode(data) if data else None


@dataclass
class NetPlan:
    delay_s: float = 0.0
    """Approximate delay of a request; later requests can overtake it."""
    twice: float = 0.0
    lost: float = 0.0
    """Probability that an answer is lost."""
    timeout_s: float = 10.0

    @classmethod
    def of(cls, chance: random.Random) -> "NetPlan":
        return cls(
            delay_s=chance.choice([0.0, 0.01, 0.3]),
            twice=chance.choice([0.0, 0.1, 0.3]),
            lost=chance.choice([0.0, 0.05, 0.2]),
            timeout_s=chance.choice([1.0, 5.0]),
        )


@dataclass
class Net:
    plan: NetPlan
    chance: random.Random
    hosts: Callable[[], list[Host]]
    _copies: dict["asyncio.Task[Any]", None] = field(default_factory=dict)
    """Ordered: the order of cancellation must not depend on the order of a set."""

    async def send(self, request: Callable[[Host], Awaitable[T]], *, once: bool = False) -> T:
        """Return the result of one copy of the request, or raise `TimeoutError`.

        `request` records its outcome, also when it is cancelled.
        """
        if self.chance.random() < self.plan.twice and not once:
            self._start(request)
        copy = self._start(request)
        is_lost = self.chance.random() < self.plan.lost
        try:
            async with asyncio.timeout(self.plan.timeout_s):
                answer = await asyncio.shield(copy)
                if is_lost:
                    await asyncio.get_running_loop().create_future()
                return answer
        except (TimeoutError, asyncio.CancelledError):
            if self.chance.random() < 0.5:
                copy.cancel()
            raise

    def _start(self, request: Callable[[Host], Awaitable[T]]) -> "asyncio.Task[T]":
        async def arrive() -> T:
            if self.plan.delay_s:
                await asyncio.sleep(self.chance.expovariate(1 / self.plan.delay_s))
            return await request(self.chance.choice(self.hosts()))

        copy = asyncio.create_task(arrive())
        self._copies[copy] = None
        copy.add_done_callback(self._ended)
        return copy

    def _ended(self, copy: "asyncio.Task[Any]") -> None:
        self._copies.pop(copy, None)
        if not copy.cancelled():
            copy.exception()  # Marks it as retrieved: it was handled, or does not matter.

    def calm_down(self) -> None:
        self.plan = NetPlan()

    async def settle(self) -> None:
        """Wait for copies in flight; give up those that hang at a dead gateway."""
        while self._copies:
            waited_for = list(self._copies)
            await asyncio.wait(waited_for, timeout=60)
            for copy in waited_for:
                copy.cancel()
