"""Methods: HEAD wherever there is GET, and the methods that a path accepts."""

from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_IS_HEAD: Final = "riacho.head"


class Methods:
    """Answers HEAD like GET, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        # A copy, because the server must still see the original method.
        as_get = {**scope, "method": "GET", _IS_HEAD: True}

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(as_get, receive, send_without_body)
        finally:
            scope.update(
                {name: as_get[name] for name in ("route", "riacho.route") if name in as_get}
            )


def is_head(request: Request) -> bool:
    """Whether the client sent HEAD, though the method says GET."""
    return _IS_HEAD in request.scope


def allowed(app: Starlette, scope: Scope) -> list[str]:
    """Return the methods that a path accepts."""
    # The router names only the methods of the first route with this path; there may be more.
    methods = [
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] == Match.FULL for route in app.routes)
    ]
    return [*methods, "HEAD"] if "GET" in methods else methods
