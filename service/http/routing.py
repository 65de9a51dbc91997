"""From the path of a request to the application that serves it.

A path is split at its slashes first, and then each part is decoded, once: `a%2Fb` is one part, the
name `a/b`. Parts are looked up one after the other, so the number of routes does not matter.

Frequent calls are served directly: FastAPI's machinery costs more than the rest of a small produce
or fetch together (measured: 236 µs against 60 to 80 for bare ASGI).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.methods import as_get, other_method
from service.http.requests import QUERY
from service.security.caller import Caller, caller_of
from service.security.door import Door
from service.security.needs import ANY_CALLER, Needs
from storage.errors import InvalidRequest, RiachoError

Endpoint = Callable[[Request], Awaitable[Response]]

Rewrite = Callable[[Sequence[str], bytes], tuple[Sequence[str], bytes]]
"""Returns the parts of a path and the query by which a call is served."""

Failed = Callable[[Exception, Caller, Mapping[str, str]], Response | None]

ROUTE: Final = "riacho.route"
"""In a scope: the path of the route, with the names of its parameters."""


@dataclass(frozen=True, slots=True)
class Served:
    """A route as far as routing knows it."""

    method: str
    path: str
    app: ASGIApp
    query: Sequence[str] = ()
    needs: Needs = ANY_CALLER
    failed: Failed | None = None
    """Answers errors of the door in the form of this route; None: the usual one."""


class _Node:
    """What follows after some parts of a path."""

    __slots__ = ("literals", "names", "parameter", "path", "served")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.path = ""
        self.names: list[str] = []
        self.served: dict[str, Served] = {}

    def next(self, part: str) -> "_Node":
        """Return the node behind `part` of a route, and create it if there is none."""
        if not part.startswith("{"):
            node = self.literals.setdefault(part, _Node())
        else:
            node = self.parameter = self.parameter or _Node()
        assert not (self.literals and self.parameter), f"{part}: is it a name or a parameter?"
        return node

    def route(self, method: str) -> tuple[Served | None, bool]:
        """Return the route for a method, and whether it is a GET that answers a HEAD."""
        found = self.served.get(method)
        if found is None and method == "HEAD":
            return self.served.get("GET"), True
        return found, False


class Router:
    """Serves every request by its method and path; anything else is left to `others`.

    A `door` decides first whether the caller may go on; without one, every caller may. What
    `rewrite` returns is what it decides about.
    """

    def __init__(
        self,
        routes: Iterable[Served],
        others: ASGIApp,
        door: Door | None = None,
        rewrite: Rewrite | None = None,
    ) -> None:
        self._others = others
        self._door = door
        self._rewrite = rewrite
        self._root = _Node()
        for route in routes:
            self._add(route)

    def _add(self, route: Served) -> None:
        node = self._root
        parts = route.path.split("/")[1:]
        for part in parts:
            node = node.next(part)
        assert node.path in {"", route.path}, (node.path, route.path)
        assert route.method not in node.served, route
        node.path = route.path
        node.names = [part[1:-1] for part in parts if part.startswith("{")]
        node.served[route.method] = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._others(scope, receive, send)
            return
        parts: Sequence[str] = parts_of(scope)
        if self._rewrite is not None:
            parts, scope["query_string"] = self._rewrite(parts, scope["query_string"])
        node, values = self._find(parts)
        route, is_head = node.route(scope["method"])
        # As many of both: a node is reached by its parameters.
        parameters: Mapping[str, str] = dict(zip(node.names, values, strict=False))
        if node.served:
            scope[ROUTE] = node.path
        if self._door is not None:
            needs = None if route is None else route.needs
            try:
                parameters = await self._door.enter(scope, needs, parameters)
            except RiachoError as error:
                answer = _refusal(error, route, scope, parameters)
                await answer(scope, receive, send)
                return
        if not node.served:
            await self._elsewhere(scope, parts)(scope, receive, send)
            return
        if route is None:
            await _other_method(node, scope, parameters)(scope, receive, send)
            return
        if is_head:
            scope, send = as_get(scope, send)
        scope["path_params"] = parameters
        scope[QUERY] = route.query
        if self._door is not None and self._door.counts_time_of(scope):
            await self._door.serve(route.app, scope, receive, send)
        else:
            await route.app(scope, receive, send)

    def _find(self, parts: Sequence[str]) -> tuple[_Node, list[str]]:
        """Return the node of a path and the values of its parameters."""
        node = self._root
        values: list[str] = []
        for part in parts:
            found = node.literals.get(part)
            if found is None:
                found = node.parameter
                if found is None or not part:
                    return _NOTHING, values
                values.append(part)
            node = found
        return node, values

    def _elsewhere(self, scope: Scope, parts: Sequence[str]) -> Response:
        """Return a redirect to the same path without a slash at its end, or raise a 404."""
        while parts and not parts[-1]:
            parts = parts[:-1]
        if not self._find(parts)[0].served:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        path = "/" + "/".join(quote(part, safe="") for part in parts)
        query = scope["query_string"].decode("latin-1")
        # Without a host: the client knows whom it called, and the header `Host` is anyone's.
        return RedirectResponse(f"{path}?{query}" if query else path)


_NOTHING: Final = _Node()


def _refusal(
    error: RiachoError, route: Served | None, scope: Scope, parameters: Mapping[str, str]
) -> Response:
    """Return what a route answers to a caller whom the door refuses, or raise the error."""
    answer = None
    if route is not None and route.failed is not None:
        answer = route.failed(error, caller_of(scope), parameters)
    if answer is None:
        raise error
    return answer


def _other_method(node: _Node, scope: Scope, parameters: Mapping[str, str]) -> Response:
    """Return the answer to a method that this path does not take, in the form of those it does."""
    try:
        return other_method(scope["method"], node.served)
    except HTTPException as error:
        forms = [each.failed for each in node.served.values() if each.failed is not None]
        answer = forms[0](error, caller_of(scope), parameters) if forms else None
        if answer is None:
            raise
        answer.headers.update(error.headers or {})
        return answer


def parts_of(scope: Scope) -> list[str]:
    """Return the parts of a path, decoded, or raise `InvalidRequest` if they are not UTF-8.

    A host that does not know how the client has encoded the path gives it only decoded.
    """
    raw: bytes | None = scope.get("raw_path")
    if raw is None:
        path: str = scope["path"]
        return path.split("/")[1:]
    try:
        text = raw.decode()
        parts = text.split("/")[1:]
        return [unquote_to_bytes(part).decode() for part in parts] if "%" in text else parts
    except UnicodeDecodeError:
        raise InvalidRequest(f"path: {raw!r:.300} is not UTF-8 where it is decoded") from None


def direct(endpoint: Endpoint) -> ASGIApp:
    """Return an application that serves a route without FastAPI."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await endpoint(Request(scope, receive))
        except ClientDisconnect:
            return  # The client has disconnected.
        await response(scope, receive, send)

    return serve
