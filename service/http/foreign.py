"""APIs of others that are served here: where they are, and in which form their errors are.

Clients of another system expect its calls at the root, so they are there; ports are shared, so
each is also served below a path of its own. What serves them is imported when it is first called.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.routing import Endpoint, Failed
from service.security.caller import caller_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignApi:
    """An API of others."""

    under: str
    """Every call is also served below this path."""
    failed: Failed
    """Answers an error in its form, from the door on; None: the error is unexpected."""

    def paths_of(self, path: str) -> tuple[str, ...]:
        """Return where a call is served."""
        if path == self.under:
            return (path,)
        return path, self.under if path == "/" else f"{self.under}{path}"

    def served(self, endpoint: Endpoint) -> ASGIApp:
        """Return an application that serves a call."""

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                response = await endpoint(Request(scope, receive))
            except ClientDisconnect:
                return
            except Exception as error:
                parameters: Mapping[str, str] = scope["path_params"]
                answer = self.failed(error, caller_of(scope), parameters)
                if answer is None:
                    raise
                response = answer
            await response(scope, receive, send)

        return serve
