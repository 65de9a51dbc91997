"""Requirements of a host that limits the time of an answer, and freezes between answers.

Behind Lambda an answer has a deadline, and after its last byte the process is frozen until the
next request. So a gateway there:

- answers a request that takes too long before the host does, and with a clear error;
- lets requests wait for records during a part of that time only (`service/http/deadlines.py`);
- delays the last byte until everything else that the request has begun is done: writes that no
  commit waits for, rolls, reports about zones. Work unfinished by then is safe to lose, as in a
  crash.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.deadlines import answer_until_s, set_deadline
from storage.errors import OutcomeUnknown, StoreUnavailable
from storage.tasks import TaskOwner

log = logging.getLogger("riacho.hosted")

SETTLE_S_MAX: Final = 5.0
"""Maximum wait for unfinished work if the answer has no deadline."""


class InTime:
    """Answers each request before its deadline, with an error if it must."""

    def __init__(
        self, app: ASGIApp, *, answer_s_max: float, monotonic_s: Callable[[], float]
    ) -> None:
        """Limit answers to `answer_s_max`, or less if a scope says so; 0: no limit."""
        self._app = app
        self._answer_s_max = answer_s_max
        self._monotonic_s = monotonic_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        now_s = self._monotonic_s()
        if self._answer_s_max:
            set_deadline(scope, now_s, self._answer_s_max)
        until_s = answer_until_s(scope)
        left_s = None if until_s is None else max(0.0, until_s - now_s)
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


class Settled:
    """Holds back the last byte of an answer until the tasks begun meanwhile are done."""

    def __init__(self, app: ASGIApp, *, monotonic_s: Callable[[], float]) -> None:
        self._app = app
        self._monotonic_s = monotonic_s
        self._tasks = TaskOwner()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        before = set(self._tasks.running)
        last: list[Message] = []

        async def send_all_but_the_last(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                last.append(message)
            else:
                await send(message)

        try:
            with self._tasks.owning():
                await self._app(scope, receive, send_all_but_the_last)
        finally:
            await self._settle(before, answer_until_s(scope))
        for message in last:
            await send(message)

    async def _settle(self, before: "set[asyncio.Task[Any]]", until_s: float | None) -> None:
        """Wait for everything that the request has begun, until the deadline."""
        if until_s is None:
            until_s = self._monotonic_s() + SETTLE_S_MAX
        while begun := self._tasks.running - before:
            left_s = until_s - self._monotonic_s()
            if left_s <= 0:
                names = ", ".join(sorted(task.get_name() for task in begun))
                log.warning("the answer is due, and still at work are: %s", names)
                return
            await asyncio.wait(begun, timeout=left_s)
