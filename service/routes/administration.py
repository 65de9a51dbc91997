"""The administrative half of a gateway, and its OpenAPI document: everything that FastAPI serves.

Frequent calls do not need it, and importing it takes a third of a second, so it is created by the
first call that needs it.
"""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Scope

from service.http.access_log import request_id_of
from service.http.problems import response_to
from service.http.routing import ROUTE
from service.process.version import VERSION
from service.routes.openapi import described
from service.routes.route import Handlers
from service.routes.table import BY_TAG
from service.security.caller import caller_of
from storage.errors import InvalidRequest, RiachoError


class Administration(FastAPI):
    """Describes every route, and serves those that `service/http/routing.py` leaves to it.

    Unexpected errors pass on to its wrapper, which answers them as for other routes.
    """

    def __init__(self, handlers: Handlers, lifespan: Callable[[FastAPI], Any]) -> None:
        super().__init__(
            title="Riacho",
            version=VERSION,
            description="Event streaming without brokers: a Kafka-class log over HTTP.",
            lifespan=lifespan,
        )
        for kind in (RiachoError, HTTPException):
            self.add_exception_handler(kind, _problem)
        self.add_exception_handler(RequestValidationError, _invalid)
        self.router.route_class = _MatchedRoute
        for tag, routes in BY_TAG.items():
            for route in routes:
                self.add_api_route(
                    route.path,
                    route.handler(handlers),
                    methods=[route.method],
                    tags=[tag],
                    summary=route.summary,
                    status_code=min(route.answers),
                )

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = described(super().openapi())
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        stack = super().build_middleware_stack()
        assert isinstance(stack, ServerErrorMiddleware), stack
        return stack.app


class _MatchedRoute(APIRoute):
    """A route whose path was matched already, with names that may contain slashes."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope.get(ROUTE) != self.path or scope["method"] not in (self.methods or ()):
            return Match.NONE, {}
        return Match.FULL, {"endpoint": self.endpoint, "route": self}


async def _problem(request: Request, error: Exception) -> Response:
    return response_to(error, request_id_of(request), caller_of(request.scope))


async def _invalid(request: Request, error: Exception) -> Response:
    """Answer with the first error and its place."""
    assert isinstance(error, RequestValidationError), error
    first = error.errors()[0]
    place, *inside = first["loc"]
    where = ".".join(map(str, inside)) or place
    return response_to(InvalidRequest(f"{where}: {first['msg']}"), request_id_of(request))
