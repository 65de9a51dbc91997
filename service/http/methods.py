"""Methods that no route has to know: HEAD is GET without a body, OPTIONS lists the others."""

from collections.abc import Container
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Scope, Send

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_IS_HEAD: Final = "riacho.head"


def as_get(scope: Scope, send: Send) -> tuple[Scope, Send]:
    """Return the scope of a GET for that of a HEAD, and a `send` that leaves the body out."""

    async def send_without_body(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    # A copy, because the server must still see the original method.
    return {**scope, "method": "GET", _IS_HEAD: True}, send_without_body


def is_head(request: Request) -> bool:
    """Whether the client sent HEAD, though the method says GET."""
    return _IS_HEAD in request.scope


def other_method(method: str, served: Container[str]) -> Response:
    """Return the answer to OPTIONS, or raise the error for a method that a path does not take."""
    allowed = [each for each in _METHODS if each in served]
    headers = {"allow": ", ".join([*allowed, "HEAD"] if "GET" in served else allowed)}
    if method == "OPTIONS":
        return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
    raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers=headers)
