"""The gateway in Lambda: one event loop and one application for the life of an environment.

Nothing runs in the background here: no heartbeats, no upkeep, no controller; a schedule calls the
controller instead (`service/serverless/controller.py`). What a request has begun ends before the
response (`service/http/hosted.py`), since Lambda then freezes the process, perhaps for ever.
"""

import asyncio
from typing import Any, Final

from mangum import Mangum
from starlette.types import Receive, Scope, Send

from service.app import create_app
from service.http.deadlines import set_deadline
from service.security.oidc.claims import named_by
from service.serverless.context import left_s
from service.serverless.events import TEXT, HttpEvent, RestEvent
from service.serverless.identity import identity_of
from service.serverless.settings import gateway_settings
from service.settings import Settings
from service.world.clock import World

MARGIN_S: Final = 0.5
"""The response is sent at least this long before Lambda ends the function."""


class ServerlessGateway:
    """Handles events, one after the other."""

    def __init__(self, settings: Settings | None = None, world: World | None = None) -> None:
        # Mangum uses the current event loop.
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        settings = settings or gateway_settings()
        self.app = create_app(settings, world)
        self._name_of = named_by(settings)
        self._mangum = Mangum(
            self._serve,
            lifespan="off",
            custom_handlers=[HttpEvent, RestEvent],
            text_mime_types=list(TEXT),
        )

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        """Answer one event of an HTTP API, a Function URL or a REST API."""
        answer: dict[str, Any] = self._mangum(event, context)
        return answer

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        remaining_s = left_s(scope["aws.context"])
        if remaining_s is not None:
            set_deadline(scope, self.app.gateway.world.monotonic_s(), remaining_s - MARGIN_S)
        # Of the event, never of its headers: those are the client's.
        context = scope["aws.event"].get("requestContext")
        identity_of(context, self._name_of).put_into(scope)
        await self.app(scope, receive, send)

    def close(self) -> None:
        """Close the stores. Lambda never calls this; tests do."""
        self._loop.run_until_complete(self.app.gateway.aclose())
        self._loop.close()
        asyncio.set_event_loop(None)
