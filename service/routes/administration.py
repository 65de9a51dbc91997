"""The administrative half of a gateway, and its OpenAPI document: everything that FastAPI serves.

Frequent calls do not need it, and importing it takes a third of a second, so it is created by the
first call that needs it.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from service.controller.live_gateways import LiveGateways
from service.http.access_log import request_id_of
from service.http.methods import allowed
from service.http.metrics import Metrics
from service.http.problems import response_to
from service.http.routing import Endpoint
from service.log.gateway import Gateway
from service.process.version import VERSION
from service.routes import cluster as cluster_routes
from service.routes import delete as delete_routes
from service.routes import topics as topic_routes
from service.routes.openapi.document import HOT_OPERATIONS
from service.routes.openapi.errors import with_promises
from service.routes.openapi.groups import GROUP_OPERATIONS
from service.routes.openapi.transactions import TRANSACTION_OPERATIONS
from storage.errors import InvalidRequest, RiachoError


def administration(
    gateway: Gateway,
    registry: LiveGateways,
    metrics: Metrics,
    endpoints: Mapping[tuple[str, str], Endpoint],
    lifespan: Callable[[FastAPI], Any],
) -> FastAPI:
    """Return the application; it documents `endpoints`, and can serve them, too."""
    app = _Administration(
        title="Riacho",
        version=VERSION,
        description="Event streaming without brokers: a Kafka-class log over HTTP.",
        lifespan=lifespan,
    )
    for kind in (RiachoError, HTTPException):
        app.add_exception_handler(kind, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPStatus.METHOD_NOT_ALLOWED, _other_method)
    operations = {**HOT_OPERATIONS, **GROUP_OPERATIONS, **TRANSACTION_OPERATIONS}
    for (method, path), endpoint in endpoints.items():
        app.add_api_route(
            path,
            _described(endpoint),
            methods=[method],
            tags=[_tag(path)],
            **operations[method, path],
        )
    app.include_router(topic_routes.router(gateway))
    app.include_router(delete_routes.router(gateway))
    app.include_router(cluster_routes.router(gateway, registry, metrics))
    return app


class _Administration(FastAPI):
    """Passes unexpected errors on to its wrapper, which answers them as for other routes."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = with_promises(super().openapi())
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        stack = super().build_middleware_stack()
        assert isinstance(stack, ServerErrorMiddleware), stack
        return stack.app


async def _problem(request: Request, error: Exception) -> Response:
    return response_to(error, request_id_of(request))


async def _invalid(request: Request, error: Exception) -> Response:
    """Answer with the first error and its place."""
    assert isinstance(error, RequestValidationError), error
    first = error.errors()[0]
    place, *inside = first["loc"]
    where = ".".join(map(str, inside)) or place
    return response_to(InvalidRequest(f"{where}: {first['msg']}"), request_id_of(request))


async def _other_method(request: Request, _: Exception) -> Response:
    headers = {"allow": ", ".join(allowed(request.app, request.scope))}
    if request.method == "OPTIONS":
        return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
    error = HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers=headers)
    return response_to(error, request_id_of(request))


def _tag(path: str) -> str:
    if path.startswith("/v1/groups"):
        return "groups"
    is_of_transactions = path.startswith(("/v1/producers", "/v1/transactions", "/v1/atomic"))
    return "transactions" if is_of_transactions else "records"


def _described(endpoint: Endpoint) -> Any:
    async def serve(request: Request) -> Response:
        return await endpoint(request)

    serve.__name__ = endpoint.__name__
    return serve
