"""Bounds what a connection may send besides bodies: uvicorn and its parser have no bounds.

Nobody has shown a credential while the head of a request (request line and headers) arrives, and
its bytes are in memory.

- A head larger than `HEAD_BYTES_MAX` is refused, and so is one that is not complete within
  `HEAD_S_MAX`.
- The header `Host` is given once: a proxy that looks at the other one would be misled.
- Fields behind a body (trailers) are dropped, and bounded as well: uvicorn takes them for headers,
  and those say who calls.
"""

from asyncio import BaseTransport, TimerHandle, Transport
from http import HTTPStatus
from typing import Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.process.wrong_protocol import HEAD_BYTES, MISTAKES, Spoken, spoken

HEAD_BYTES_MAX: Final = 128 * 1024
HEAD_S_MAX: Final = 60.0

LINGER_S: Final = 1.0
"""How long what still comes is read and dropped after a refusal: closing at once would reset the
connection, and the client would not see the answer."""

MISTAKEN: Final = {
    Spoken.KAFKA: (
        "speaks Kafka's protocol to the port of HTTP: its bootstrap.servers should name that of"
        " --kafka, by default 9092"
    ),
    Spoken.TLS: (
        "speaks TLS to a port without it: its URL should begin with http://, or --tls-cert turn"
        " TLS on"
    ),
}

_FIELD_BYTES: Final = 4
"""Of a header besides its name and value: colon, space, end of line."""


class _Refused(Exception):
    """A head is refused. The parser reports it as its own error."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    _is_new = True
    """Whether nothing has come yet."""
    _is_open = False
    """Whether a request has begun and not ended."""
    _is_in_head = False
    _has_advanced = False
    """Whether what came last completed a head, or held bytes of a body."""
    _fed_bytes = 0
    _waiting_bytes = 0
    """What has come since then."""
    _is_too_large = False
    _is_refused = False
    _timer: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast(Transport, transport))
        self._timer = self.loop.call_later(HEAD_S_MAX, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._is_new:
            self._is_new = False
            kind = spoken(data[:HEAD_BYTES])
            if kind is not None and kind in MISTAKEN:
                MISTAKES.note(self.client[0] if self.client else "", MISTAKEN[kind])
                self._is_refused = True
                self.transport.close()
                return
        self._fed_bytes = len(data)
        self._has_advanced = False
        super().data_received(data)
        if self._has_advanced or not self._is_open:
            self._waiting_bytes = 0
            return
        self._waiting_bytes += len(data)
        if self._waiting_bytes > HEAD_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._is_in_head and self._timer is None:
            # Not for each request: most heads come in one piece.
            self._timer = self.loop.call_later(HEAD_S_MAX, self._late)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_open = self._is_in_head = True

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._stop_timer()
        if self._waiting_bytes + self._fed_bytes > HEAD_BYTES_MAX:
            fields = sum(len(name) + len(value) + _FIELD_BYTES for name, value in self.headers)
            self._is_too_large = len(self.url) + fields > HEAD_BYTES_MAX
        if self._is_too_large or [name for name, _ in self.headers].count(b"host") > 1:
            raise _Refused
        self._has_advanced = True
        super().on_headers_complete()
        # What is added from now on is not seen by the application, which has the old list.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._has_advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_open = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._is_too_large:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            super().send_400_response(msg)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self._is_open:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer without a body, and close the connection."""
        if self._is_refused:
            return
        self._stop_timer()
        self._is_refused = True
        if not self.transport.is_closing():
            line = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            self.transport.write(f"{line}content-length: 0\r\nconnection: close\r\n\r\n".encode())
            self._timer = self.loop.call_later(LINGER_S, self.transport.close)
