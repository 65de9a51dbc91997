"""A certificate for trying TLS out, made by this gateway: `riacho serve --tls-self-signed`.

    <data>/tls/ca.pem        for clients: the authority that has signed the certificate
    <data>/tls/server.pem    for the gateway: key, certificate, authority; for its user only

The authority signs one certificate, and its key is forgotten at once: whoever trusts `ca.pem`
trusts this gateway and nobody else.
"""

import os
import socket
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from cryptography import x509

VALID_DAYS: Final = 365
LEFT_DAYS_MIN: Final = 30
"""A certificate that is valid for less than this is replaced when a gateway starts."""

_OWN: Final = "server.pem"
_FOR_CLIENTS: Final = "ca.pem"


def names_of(host: str) -> list[str]:
    """Return the names and addresses by which clients of a gateway on `host` may call it."""
    everywhere = {"", "0.0.0.0", "::"}  # noqa: S104 - Nothing is bound here.
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname(), host]
    return [name for name in dict.fromkeys(names) if name not in everywhere]


def self_signed(directory: Path, host: str, now_ms: int) -> tuple[Path, Path]:
    """Return the file to serve with, and that for clients; made unless they are there and valid.

    Raises `InvalidConfig` if they cannot be made.
    """
    try:
        import cryptography.x509  # noqa: F401
    except ImportError:
        raise InvalidConfig(
            "--tls-self-signed needs the package cryptography: pip install 'riacho[security]'"
        ) from None
    own, for_clients = directory / _OWN, directory / _FOR_CLIENTS
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    names = names_of(host)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        chain = _chain(own)
        if not _serves(chain, names, now):
            _write(own, _made(names, now), 0o600)
            chain = _chain(own)
        # Also if it is there: a crash may have come between the two files.
        _write(for_clients, _pem(chain[-1]), 0o644)
    except OSError as error:
        raise InvalidConfig(f"--tls-self-signed: no certificate in {directory}: {error}") from None
    return own, for_clients


def _chain(path: Path) -> "list[x509.Certificate]":
    """Return the certificates in a file; none if it is not there or damaged."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return []


def _serves(chain: "list[x509.Certificate]", names: Iterable[str], now: datetime) -> bool:
    """Whether a certificate is there, for all of `names`, and will be valid for some time."""
    from cryptography import x509

    if len(chain) != 2 or chain[0].not_valid_after_utc < now + timedelta(days=LEFT_DAYS_MIN):
        return False
    found = chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(_general(names)) <= set(found)


def _general(names: Iterable[str]) -> "list[x509.GeneralName]":
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _made(names: Iterable[str], now: datetime) -> bytes:
    """Return a new key, its certificate, and the authority that has signed it, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def begun(
        subject: x509.Name, key: ec.EllipticCurvePrivateKey, length: int | None, *, is_ca: bool
    ) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder(
            issuer_name=authority_name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(hours=1),
            not_valid_after=now + timedelta(days=VALID_DAYS),
        )
        basic = x509.BasicConstraints(ca=is_ca, path_length=length)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        usage = x509.KeyUsage(
            digital_signature=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca,
            content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = builder.add_extension(basic, critical=True).add_extension(usage, critical=True)
        return builder.add_extension(own, critical=False).add_extension(issuer, critical=False)

    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = named(f"Riacho, made on {socket.gethostname()}"[:64])
    authority = begun(authority_name, authority_key, 0, is_ca=True).sign(
        authority_key, hashes.SHA256()
    )
    certificate = (
        begun(named("Riacho"), key, None, is_ca=False)
        .add_extension(x509.SubjectAlternativeName(_general(names)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return secret + _pem(certificate) + _pem(authority)


def _pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file at once; nobody reads half of it, or a key that others may read."""
    if path.exists() and path.read_bytes() == content:
        return
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
