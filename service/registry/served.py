"""How calls of the registry are served: their errors have Confluent's form, from the door on.

It imports the rest of the registry when it is first called, since most cold starts never do.
"""

from collections.abc import Mapping
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.routing import Endpoint
from service.security.caller import Caller, caller_of

UNDER: Final = "/registry"
"""Every call of the registry is also served below this: ports are shared with other APIs."""


def failed(error: Exception, caller: Caller, parameters: Mapping[str, str]) -> Response | None:
    """Return the registry's answer to an error; None: it is unexpected."""
    from service.registry import answers

    return answers.failed(error, caller, parameters)


def paths_of(path: str) -> tuple[str, str]:
    """Return where a call of the registry is served."""
    return path, UNDER if path == "/" else f"{UNDER}{path}"


def served(endpoint: Endpoint) -> ASGIApp:
    """Return an application that serves a call of the registry."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await endpoint(Request(scope, receive))
        except ClientDisconnect:
            return
        except Exception as error:
            answer = failed(error, caller_of(scope), scope["path_params"])
            if answer is None:
                raise
            response = answer
        await response(scope, receive, send)

    return serve
