"""A response of records, sent at the speed of its reader, without copying the records."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.process.limits.outgoing import RequestShares, Shares
from storage.reading.fetched import Data

PIECE_BYTES: Final = 256 * 1024
"""Maximum size of a piece; between pieces the server waits for the reader."""

SMALL_BYTES_MAX: Final = 16 * 1024
"""Pieces up to this size are joined, because a call to the server costs more than the copy."""


_SHARES: Final = "riacho.shares"
"""In a scope: the shares of the request."""


class OwnedShares:
    """Lets each request own shares until its response is sent, or will never be."""

    def __init__(self, app: ASGIApp, shares: Shares) -> None:
        self._app = app
        self._shares = shares

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with RequestShares(self._shares) as scope[_SHARES]:
            await self._app(scope, receive, send)


def shares_of(request: Request) -> RequestShares:
    shares: RequestShares = request.scope[_SHARES]
    return shares


class RecordsResponse(Response):
    """Of all shares of its request, keeps its own size only."""

    def __init__(
        self,
        pieces: Sequence[Data],
        media_type: str,
        shares: RequestShares,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        size_bytes = sum(map(len, pieces))
        # A small response is sent in one write, so it must be contiguous.
        body = b"".join(pieces) if size_bytes <= PIECE_BYTES else b""
        headers = {**(headers or {}), "content-length": str(size_bytes)}
        super().__init__(body, media_type=media_type, headers=headers)
        self._pieces = () if body else pieces
        shares.hold(size_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._pieces:
            await super().__call__(scope, receive, send)
            return
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        for piece in _cut(self._pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _cut(pieces: Sequence[Data]) -> Iterator[Data]:
    """Yield all bytes, at most `PIECE_BYTES` at a time, and small pieces together."""
    small: list[Data] = []
    small_bytes = 0
    for piece in pieces:
        if len(piece) <= SMALL_BYTES_MAX:
            small.append(piece)
            small_bytes += len(piece)
            if small_bytes <= PIECE_BYTES - SMALL_BYTES_MAX:
                continue
        if small:
            yield b"".join(small)
            small, small_bytes = [], 0
        if len(piece) > SMALL_BYTES_MAX:
            view = memoryview(piece)
            for start in range(0, len(view), PIECE_BYTES):
                yield view[start : start + PIECE_BYTES]
    if small:
        yield b"".join(small)
