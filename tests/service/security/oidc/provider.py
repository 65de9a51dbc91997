"""An identity provider on this machine: real keys, real HTTP(S), and it can misbehave."""

import contextlib
import datetime
import ipaddress
import json
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

NOW_S = 1_800_000_000
WELL_KNOWN = "/.well-known/openid-configuration"

RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})


def public(*keys: Key) -> list[dict[str, Any]]:
    return [dict(key.as_dict(private=False)) for key in keys]


@dataclass
class Provider:
    """What it answers can be changed at any time."""

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=lambda: public(RSA, EC, ED))
    about: dict[str, Any] = field(default_factory=dict)
    """Added to its description."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    padding: int = 0
    """Bytes of blanks after the keys."""
    stalled: threading.Event = field(default_factory=threading.Event)
    """While it is clear, answers with keys wait."""
    asked: list[str] = field(default_factory=list)

    def claims(self, **changed: Any) -> dict[str, Any]:
        claims = {
            "iss": self.url,
            "aud": "riacho",
            "sub": "ana",
            "exp": NOW_S + 3600,
            "iat": NOW_S,
            **changed,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, key: Key = RSA, alg: str = "RS256", **changed: Any) -> str:
        return signed(self.claims(**changed), key, {"alg": alg, "kid": key.kid})


def signed(claims: dict[str, Any], key: Key, header: dict[str, Any]) -> str:
    registry = jws.JWSRegistry(algorithms=[header["alg"]], strict_check_header=False)
    registry.max_header_length = 200_000
    return jws.serialize_compact(header, json.dumps(claims), key, registry=registry)


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.asked.append(self.path)
            if self.path == WELL_KNOWN:
                about = {"issuer": provider.url, "jwks_uri": f"{provider.url}/keys"}
                body = json.dumps({**about, **provider.about}).encode()
                self._answer(200, {}, body)
                return
            provider.stalled.wait(60)
            body = json.dumps({"keys": provider.keys}).encode() + b" " * provider.padding
            with contextlib.suppress(OSError):  # It may have stopped listening.
                self._answer(provider.status, provider.headers, body)

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def provider(context: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[Provider]:
    made = Provider()
    made.stalled.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    made.url = f"{'https' if context else 'http'}://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.stalled.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Clock:
    """The clocks of a world, which go when a test says so."""

    passed_s: float = 0.0

    def now_ms(self) -> int:
        return int((NOW_S + self.passed_s) * 1000)

    def monotonic_s(self) -> float:
        return 1000.0 + self.passed_s


def authority(folder: Path, host: str) -> tuple[Path, ssl.SSLContext]:
    """Return a file with an authority, and a server's context with its certificate for `host`."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "An authority")]),
    )
    now = datetime.datetime.fromtimestamp(time.time(), datetime.UTC)
    span = (now - datetime.timedelta(days=1), now + datetime.timedelta(days=1))
    root = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), *span)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    own = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        alternative = x509.DNSName(host)
    leaf = (
        x509.CertificateBuilder(name, subject, own.public_key(), x509.random_serial_number(), *span)
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(root.public_bytes(pem))
    (folder / "leaf.pem").write_bytes(
        leaf.public_bytes(pem)
        + own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem")
    return folder / "ca.pem", context
