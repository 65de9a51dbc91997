"""TLS of a client: whom it trusts, what it shows, and sentences about what fails."""

import os
import ssl
from collections.abc import Iterator, Mapping
from typing import Final

from riacho.http.credentials import (
    CA_FILE,
    CLIENT_CERT,
    CLIENT_KEY,
    CLIENT_KEY_PASSWORD,
)
from riacho.http.identity import NOTHING_GIVEN, ClientCert, Credentials
from storage.errors import InvalidConfig

_REFUSALS: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")


def client_context(
    given: Credentials = NOTHING_GIVEN, environment: Mapping[str, str] = os.environ
) -> ssl.SSLContext:
    """Return the context for https, or raise `InvalidConfig`.

    Without a file of authorities: those of `SSL_CERT_FILE` or `SSL_CERT_DIR`, else those that come
    with httpx.
    """
    import httpx

    authorities = given.ca_file or environment.get(CA_FILE, "")
    if authorities:
        try:
            context = ssl.create_default_context(cafile=authorities)
        except ssl.SSLError:
            raise InvalidConfig(f"{CA_FILE} {authorities} holds no certificates in PEM") from None
        except OSError as error:
            raise InvalidConfig(f"{CA_FILE} {authorities}: {error.strerror or error}") from None
    else:
        context = httpx.create_ssl_context()
    shown = given.client_cert or _client_cert(environment)
    if shown:
        _show(context, shown)
    return context


def _client_cert(environment: Mapping[str, str]) -> ClientCert | None:
    names = (CLIENT_CERT, CLIENT_KEY, CLIENT_KEY_PASSWORD)
    cert, key, password = (environment.get(name, "") for name in names)
    if not cert:
        if key:
            raise InvalidConfig(f"{CLIENT_KEY} says nothing without {CLIENT_CERT}")
        return None
    return cert, key or cert, password


def _show(context: ssl.SSLContext, shown: ClientCert) -> None:
    cert, key, password = _files(shown)
    try:
        # With a password always, or OpenSSL would ask for one at the terminal.
        context.load_cert_chain(cert, key, lambda: password)
    except ssl.SSLError as error:
        reason = _reason(error)
        raise InvalidConfig(
            f"{CLIENT_CERT} {cert} cannot be used with the key in {key}: {reason};"
            f" {CLIENT_KEY_PASSWORD} opens a key that is encrypted"
        ) from None
    except OSError as error:
        where = f"{CLIENT_CERT} {cert}" if cert == key else f"{CLIENT_CERT} {cert}, key {key}"
        raise InvalidConfig(f"{where}: {error.strerror or error}") from None


def _files(shown: ClientCert) -> tuple[str, str, str]:
    if isinstance(shown, str):
        return shown, shown, ""
    cert, key, *password = shown
    return cert, key, password[0] if password else ""


def trouble_with(url: str, error: BaseException) -> str:
    """Return what is wrong with TLS, and what to do; empty if the error is about something else."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"the certificate of {url} is not trusted: {cause.verify_message};"
                f" {CA_FILE} names a file with the authorities to trust"
            )
        if isinstance(cause, ssl.SSLError):
            reason = cause.reason or ""
            if "ALERT" in reason and any(each in reason for each in _REFUSALS):
                return (
                    f"{url} refuses the certificate of this client, or that there is none:"
                    f" {_reason(cause)}; {CLIENT_CERT} names one"
                )
            if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
                return f"{url} does not answer with TLS; does its URL begin with http://?"
    return ""


def hint_about(url: str, error: BaseException) -> str:
    """Return what may be behind a connection that was closed, or reset, without a word."""
    import httpx

    # The reason of a gateway that refuses a certificate is lost if its reset overtakes it.
    if "without sending" not in str(error) and not isinstance(error, httpx.ReadError):
        return ""
    if url.startswith("https://"):
        return f"; if the gateway requires certificates of its clients, {CLIENT_CERT} names one"
    return "; if the gateway serves TLS, its URL begins with https://"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
