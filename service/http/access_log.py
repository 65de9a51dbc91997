"""One ASGI wrapper for the access log, request identifiers, and errors not handled elsewhere.

Each request is one line: the client, the request, its status and how long it took.
"""

import re
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.metrics import Metrics
from service.http.problems import response_to
from service.http.routing import ROUTE
from service.process.logs import AccessLine, AccessLines
from service.security.authenticating import peer_of
from service.security.caller import CALLER, caller_of
from service.world.clock import World

_SANE_ID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


def request_id_of(request: Request) -> str:
    return str(request.scope.get("riacho.request_id", ""))


class AccessLog:
    """Wraps the whole application; only errors after the response has started pass through."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, world: World, lines: AccessLines | None
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._world = world
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = self._world.monotonic_s()
        headers = {name: value for name, value in scope["headers"] if name in _LOGGED_HEADERS}
        request_id = self._request_id(headers.get(b"x-request-id", b""))
        scope["riacho.request_id"] = request_id
        seen = _Seen()

        async def send_and_see(message: Message) -> None:
            seen.see(message, request_id)
            await send(message)

        try:
            await self._app(scope, receive, send_and_see)
        except Exception as error:
            if seen.status:
                raise  # Too late for another answer: the server drops the connection.
            await response_to(error, request_id, caller_of(scope))(scope, receive, send_and_see)
        finally:
            took_s = self._world.monotonic_s() - began_s
            # Its pattern, since there are too many paths to count by.
            route = str(scope.get(ROUTE, "(unknown)"))
            self._metrics.answered(scope["method"], route, seen.status, took_s)
            if self._lines is not None:
                line = AccessLine(
                    method=scope["method"],
                    route=route,
                    path=scope["path"],
                    status=seen.status,
                    bytes=seen.size_bytes,
                    took_ms=round(took_s * 1000, 3),
                    referrer=headers.get(b"referer", b"").decode("latin-1"),
                    user_agent=headers.get(b"user-agent", b"").decode("latin-1"),
                    client=peer_of(scope),
                    principal=caller_of(scope).principal if CALLER in scope else "",
                    request_id=request_id,
                )
                self._lines.add(line, self._world.now_ms())

    def _request_id(self, given: bytes) -> str:
        text = given.decode("latin-1")
        return text if _SANE_ID.fullmatch(text) else self._world.random_bytes(8).hex()


_LOGGED_HEADERS: Final = frozenset({b"x-request-id", b"referer", b"user-agent"})


class _Seen:
    """Status and size of the response sent."""

    __slots__ = ("size_bytes", "status")

    def __init__(self) -> None:
        self.status = 0
        self.size_bytes = 0

    def see(self, message: Message, request_id: str) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", request_id.encode()),
            ]
        elif message["type"] == "http.response.body":
            self.size_bytes += len(message.get("body", b""))
