"""Certificates for tests, from authorities that exist for a test only."""

import os
import ssl
from pathlib import Path

import trustme

NAMES = ("localhost", "127.0.0.1", "::1")


def own(authority: trustme.CA, path: Path, *names: str) -> Path:
    """Write a gateway's key and certificate into one file, at once, and return its path."""
    issued = authority.issue_cert(*(names or NAMES))
    return replaced(path, issued.private_key_and_cert_chain_pem.bytes())


def of_client(authority: trustme.CA, path: Path, name: str) -> Path:
    """Write a client's key and certificate into one file, and return its path."""
    issued = authority.issue_cert(
        f"{name}@example.org", common_name=name, organization_name="Example"
    )
    return replaced(path, issued.private_key_and_cert_chain_pem.bytes())


def replaced(path: Path, content: bytes) -> Path:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)
    return path


def trusting(*authorities: trustme.CA, client: Path | None = None) -> ssl.SSLContext:
    """Return what a client needs that trusts `authorities`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for authority in authorities:
        authority.configure_trust(context)
    if client is not None:
        context.load_cert_chain(client)
    return context


def served_now(port: int) -> str:
    """Return the certificate that a new handshake sees, as PEM."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=30)
