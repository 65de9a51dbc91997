"""A response of records, sent no faster than its reader reads."""

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.shares import Share

PIECE_BYTES: Final = 256 * 1024
"""The server waits for the reader between pieces. What is handed to it at once, it copies."""


class RecordsResponse(Response):
    """Holds its shares until it is sent."""

    def __init__(
        self,
        body: bytes,
        media_type: str,
        shares: Sequence[Share],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(body, media_type=media_type, headers=headers)
        self._shares = shares
        for number, share in enumerate(shares):
            share.hold(0 if number else len(body))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = memoryview(self.body)
        if len(body) <= PIECE_BYTES:
            await super().__call__(scope, receive, send)
            return
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        for position in range(0, len(body), PIECE_BYTES):
            end = position + PIECE_BYTES
            piece = {"body": bytes(body[position:end]), "more_body": end < len(body)}
            await send({"type": "http.response.body", **piece})
