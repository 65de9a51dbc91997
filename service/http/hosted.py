"""Requirements of a host that limits the time of an answer, and freezes between answers.

Behind Lambda an answer has a deadline, and after its last byte the process is frozen until the
next request. So a gateway there:

- answers a request that takes too long before the host does, and with a clear error;
- lets requests wait for records during a part of that time only (`wait_s`);
- delays the last byte until everything else that the request has begun is done: writes that no
  commit waits for, rolls, reports about zones. Work unfinished by then is safe to lose, as in a
  crash.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from storage.errors import OutcomeUnknown, StoreUnavailable
from storage.lanes.watch import POLLER

log = logging.getLogger("riacho.hosted")

UNTIL: Final = "riacho.until_s"
"""In a scope: deadline of the answer, by the gateway's clock. A host may set it, too."""

WAIT_UNTIL: Final = "riacho.wait_until_s"
"""In a scope: deadline for waiting for records."""

WAIT_SHARE: Final = 0.85
"""Fraction of the time a request may wait; the rest is for reading and sending."""

SETTLE_S_MAX: Final = 5.0
"""Maximum wait for unfinished work if the answer has no deadline."""


def wait_s(request: Request, wanted_s: float, now_s: float) -> float:
    """Return how long the request may wait, at most `wanted_s`."""
    until_s = request.scope.get(WAIT_UNTIL)
    return wanted_s if until_s is None else max(0.0, min(wanted_s, until_s - now_s))


class Hosted:
    """Keeps an application within the limits of its host."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        answer_s_max: float,
        freezes: bool,
        monotonic_s: Callable[[], float],
    ) -> None:
        """Limit answers to `answer_s_max`, or less if a scope says so; 0: no limit."""
        self._app = app
        self._answer_s_max = answer_s_max
        self._freezes = freezes
        self._monotonic_s = monotonic_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        until_s = self._until_s(scope)
        tasks = asyncio.all_tasks()
        last: list[Message] = []

        async def send_all_but_the_last(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                last.append(message)
            else:
                await send(message)

        try:
            await self._in_time(scope, receive, send_all_but_the_last, until_s)
        finally:
            if self._freezes:
                await self._settle(tasks, until_s)
        for message in last:
            await send(message)

    def _until_s(self, scope: Scope) -> float | None:
        now_s = self._monotonic_s()
        limits_s = [now_s + self._answer_s_max] if self._answer_s_max else []
        if UNTIL in scope:
            limits_s.append(scope[UNTIL])
        if not limits_s:
            return None
        until_s = max(now_s, min(limits_s))
        scope[WAIT_UNTIL] = now_s + WAIT_SHARE * (until_s - now_s)
        return until_s

    async def _in_time(
        self, scope: Scope, receive: Receive, send: Send, until_s: float | None
    ) -> None:
        left_s = None if until_s is None else until_s - self._monotonic_s()
        try:
            async with asyncio.timeout(left_s) as limit:
                await self._app(scope, receive, send)
        except TimeoutError:
            if not limit.expired():
                raise
            took = f"it took more than {left_s:.1f} s, which is all that this host allows"
            if scope["method"] in {"GET", "HEAD", "OPTIONS"}:
                raise StoreUnavailable(f"{took}; ask again") from None
            raise OutcomeUnknown(f"{took}; it may still have been done") from None

    async def _settle(self, before: "set[asyncio.Task[object]]", until_s: float | None) -> None:
        """Wait for everything that the request has begun, until the deadline."""
        if until_s is None:
            until_s = self._monotonic_s() + SETTLE_S_MAX
        while begun := self._begun(before):
            left_s = until_s - self._monotonic_s()
            if left_s <= 0:
                names = ", ".join(sorted(task.get_name() for task in begun))
                log.warning("the answer is due, and still at work are: %s", names)
                return
            await asyncio.wait(begun, timeout=left_s)

    def _begun(self, before: "set[asyncio.Task[object]]") -> "set[asyncio.Task[object]]":
        this = asyncio.current_task()
        return {
            task
            for task in asyncio.all_tasks()
            # A poller of a client that has gone has nothing to lose.
            if task is not this and task not in before and task.get_name() != POLLER
        }
