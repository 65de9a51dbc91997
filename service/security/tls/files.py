"""The files of TLS, and a context of them: checked as a whole, or refused with a sentence.

A context is built anew when a file changes, never altered: the one that serves is always one whose
certificate, key and authorities were read and found to fit together.
"""

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from service.process.references.references import SecretReferences
from service.security.tls.der import CertificateFacts, certificate_facts
from storage.errors import InvalidConfig

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: forward secrecy and authenticated encryption. Those of 1.3 are all as good."""

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"


class ClientAuth(StrEnum):
    """Whether clients show a certificate; the words are those of Kafka's `ssl.client.auth`."""

    REQUIRED = "required"
    REQUESTED = "requested"
    NONE = "none"


_VERIFIES: Final = {
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.NONE: ssl.CERT_NONE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    cert: Path
    """The certificate of this gateway, and those between it and an authority that clients know."""
    key: Path | None = None
    """Its private key; None: in the same file."""
    key_password: str = field(default="", repr=False)
    """Or a reference to it, which is resolved whenever the key is read."""
    client_ca: Path | None = None
    """The authorities that certificates of clients come from."""
    client_auth: ClientAuth = ClientAuth.NONE

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.cert, self.key, self.client_ca) if path is not None)


def tls_files(
    *, cert: str, key: str, key_password: str, client_ca: str, client_auth: str
) -> TlsFiles | None:
    """Return the files that the options name; None: no TLS. Raises `InvalidConfig`."""
    if not cert:
        options = {"key": key, "client-ca": client_ca, "client-auth": client_auth}
        given = [f"--tls-{name}" for name, text in options.items() if text]
        if given:
            raise InvalidConfig(f"{given[0]} says nothing without a certificate: give --tls-cert")
        return None
    if client_auth and client_auth not in (known := [each.value for each in ClientAuth]):
        raise InvalidConfig(f"--tls-client-auth is {client_auth!r}; it can be {', '.join(known)}")
    if client_auth not in ("", ClientAuth.NONE) and not client_ca:
        raise InvalidConfig(
            f"--tls-client-auth {client_auth} needs --tls-client-ca: the authorities whose"
            " certificates are accepted"
        )
    default = ClientAuth.REQUESTED if client_ca else ClientAuth.NONE
    return TlsFiles(
        cert=Path(cert),
        key=Path(key) if key else None,
        key_password=key_password,
        client_ca=Path(client_ca) if client_ca else None,
        client_auth=ClientAuth(client_auth) if client_auth else default,
    )


def context_of(files: TlsFiles, kind: type[ssl.SSLContext] = ssl.SSLContext) -> ssl.SSLContext:
    """Return a context that serves with `files`, or raise `InvalidConfig`."""
    certificate_of(files)
    _check_key(files)
    context = kind(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    password = SecretReferences().resolve(files.key_password)
    try:
        # With a password always, or OpenSSL would ask for one at the terminal.
        context.load_cert_chain(files.cert, files.key, lambda: password)
    except ssl.SSLError as error:
        raise InvalidConfig(_why_not(files, error)) from None
    context.verify_mode = _VERIFIES[files.client_auth]
    if files.client_ca is not None:
        _load_authorities(context, files.client_ca)
    return context


def certificate_of(files: TlsFiles) -> CertificateFacts:
    """Return what the gateway's own certificate says, or raise `InvalidConfig`."""
    text = read(files.cert, "--tls-cert")
    if _BEGIN not in text or _END not in text:
        raise InvalidConfig(f"--tls-cert {files.cert} holds no certificate in PEM")
    first = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
    try:
        return certificate_facts(ssl.PEM_cert_to_DER_cert(first.decode("ascii")))
    except (ValueError, InvalidConfig) as error:
        raise InvalidConfig(f"--tls-cert {files.cert} cannot be read: {error}") from None


def _check_key(files: TlsFiles) -> None:
    path, option = (files.key, "--tls-key") if files.key else (files.cert, "--tls-cert")
    text = read(path, option)
    if b"PRIVATE KEY-----" not in text:
        besides = "" if files.key else "; --tls-key says where it is"
        raise InvalidConfig(f"{option} {path} holds no private key in PEM{besides}")
    if b"ENCRYPTED" in text and not files.key_password:
        raise InvalidConfig(
            f"{option} {path} is encrypted: RIACHO_TLS_KEY_PASSWORD says with what password"
        )


def _why_not(files: TlsFiles, error: ssl.SSLError) -> str:
    key = files.key or files.cert
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the private key in {key} does not belong to the certificate in {files.cert}"
    if b"ENCRYPTED" in read(key, "--tls-key"):
        return f"the private key in {key} cannot be opened; is RIACHO_TLS_KEY_PASSWORD right?"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"TLS cannot use the certificate in {files.cert} with the key in {key}: {reason}"


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    text = read(path, "--tls-client-ca")
    try:
        context.load_verify_locations(cadata=text.decode("ascii", errors="replace"))
    except (ssl.SSLError, ValueError):
        raise InvalidConfig(f"--tls-client-ca {path} holds no certificates in PEM") from None
    # A client that resumes a session shows no certificate, so an authority that was removed
    # would be believed for as long as sessions last.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


def read(path: Path, option: str) -> bytes:
    """Return what a file holds, or raise `InvalidConfig`."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InvalidConfig(f"{option} {path}: there is no such file") from None
    except PermissionError:
        raise InvalidConfig(f"{option} {path}: this user may not read it") from None
    except OSError as error:
        raise InvalidConfig(f"{option} {path}: {error.strerror or error}") from None


def complaint(facts: CertificateFacts, now_s: float) -> str:
    """Return why clients will refuse a certificate at this time; empty if they will not."""
    if now_s >= facts.not_after_s:
        days = int(now_s - facts.not_after_s) // 86_400
        return f"expired {days} days ago"
    if now_s < facts.not_before_s:
        return "is not valid yet"
    return ""
