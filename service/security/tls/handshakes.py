"""Handshakes with clients that do not know of TLS: the log names the mistake.

OpenSSL ends such a handshake, and the server closes the connection without a word. Here the first
bytes are looked at before OpenSSL has them. Who speaks HTTP gets an answer of HTTP.
"""

import ssl
from typing import Any, Final

from service.process.wrong_protocol import HEAD_BYTES, MISTAKES, Spoken, http_answer, spoken

_MISTAKEN: Final = {
    Spoken.HTTP: "speaks HTTP without TLS to a port with TLS: its URL should begin with https://",
    Spoken.KAFKA: (
        "speaks Kafka's protocol without TLS to a port with TLS: its security.protocol should be"
        " SSL, or SASL_SSL if security is on"
    ),
}


class _WatchedHandshake(ssl.SSLObject):
    """One connection."""

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    _is_looked_at = False
    _is_refused = False

    def do_handshake(self) -> None:
        if self._is_refused:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the client speaks HTTP")
        if not self._is_looked_at and self.incoming.pending >= HEAD_BYTES:
            self._is_looked_at = True
            self._look()
        super().do_handshake()

    def _look(self) -> None:
        came = self.incoming.read()
        self.incoming.write(came)
        kind = spoken(came)
        if kind is None or kind not in _MISTAKEN:
            return
        # An SSLObject does not know whose connection it is.
        MISTAKES.note("", _MISTAKEN[kind])
        if kind is Spoken.HTTP:
            self._is_refused = True
            self.outgoing.write(http_answer("this port speaks TLS: use https://"))
            # The server then sends what is to be sent, and waits for the client.
            raise ssl.SSLWantReadError


class WatchingContext(ssl.SSLContext):
    """A context whose handshakes are looked at."""

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        assert isinstance(made, _WatchedHandshake)
        made.incoming, made.outgoing = incoming, outgoing
        return made


WatchingContext.sslobject_class = _WatchedHandshake
