"""HTTP over TLS as uvicorn serves it, and who is at the other end of a connection.

Adds the TLS extension of ASGI to every request: `scope["extensions"]["tls"]`.
"""

import ssl
from asyncio import BaseTransport
from typing import Any, Final

from service.process.limits.heads import BoundedProtocol
from service.security.tls.subjects import subject_of
from storage.errors import InvalidConfig

_VERSIONS: Final = {"TLSv1.2": 0x0303, "TLSv1.3": 0x0304}


class TlsProtocol(BoundedProtocol):
    """One connection."""

    _tls: dict[object, Any] | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        connection = transport.get_extra_info("ssl_object")
        if connection is not None:
            self._tls = tls_extension(connection)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._tls is not None:
            self.scope["extensions"] = {"tls": self._tls}


def tls_extension(connection: ssl.SSLObject) -> dict[object, Any]:
    """Return what the extension says of a connection whose handshake has ended."""
    # Only a certificate that was verified is there: any other has ended the handshake.
    certificate = connection.getpeercert(binary_form=True)
    name, error = None, None
    if certificate:
        try:
            name = subject_of(certificate)
        except InvalidConfig as unreadable:
            error = str(unreadable)
    return {
        "server_cert": None,
        "client_cert_chain": [ssl.DER_cert_to_PEM_cert(certificate)] if certificate else [],
        "client_cert_name": name,
        "client_cert_error": error,
        "tls_version": _VERSIONS.get(connection.version() or ""),
        "cipher_suite": None,
    }
