"""Who a client says it is, and whom it trusts: arguments, then the URL, then the environment.

RIACHO_TOKEN=…               Authorization: Bearer …
RIACHO_USER=…                Authorization: Basic …, with RIACHO_PASSWORD; or user:password@ in the
                             URL, which is never shown
RIACHO_AUTH=aws              signed by AWS Signature Version 4, with the credentials and the region
                             that AWS's own variables, files and roles give
RIACHO_AUTH=aws:lambda       the same for an address that does not show that it is a Function
                             URL; aws:execute-api for one of an API
RIACHO_CLIENT_CERT=…         a certificate; RIACHO_CLIENT_KEY, unless its key is in the same file
RIACHO_CA_FILE=…             the authorities that the gateway's certificate may come from
RIACHO_CLIENT_ID=…           what this program calls itself: quotas may be set for it
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import httpx

from riacho.http.identity import NOTHING_GIVEN, Credentials
from storage.errors import InvalidConfig

AUTH: Final = "RIACHO_AUTH"
TOKEN: Final = "RIACHO_TOKEN"
USER: Final = "RIACHO_USER"
PASSWORD: Final = "RIACHO_PASSWORD"
CA_FILE: Final = "RIACHO_CA_FILE"
CLIENT_CERT: Final = "RIACHO_CLIENT_CERT"
CLIENT_KEY: Final = "RIACHO_CLIENT_KEY"
CLIENT_KEY_PASSWORD: Final = "RIACHO_CLIENT_KEY_PASSWORD"
CLIENT_ID: Final = "RIACHO_CLIENT_ID"

VARIABLES: Final = (
    *(AUTH, TOKEN, USER, PASSWORD),
    *(CA_FILE, CLIENT_CERT, CLIENT_KEY, CLIENT_KEY_PASSWORD),
    CLIENT_ID,
)

_SERVICES: Final = ("lambda", "execute-api")
_SIGNED: Final = ("content-type", "host", "riacho-producer-id", "riacho-sequence")
"""Only these are signed: a proxy may add or change headers, but not those Riacho relies on."""


def auth_of(
    url: str,
    environment: Mapping[str, str] = os.environ,
    given: Credentials = NOTHING_GIVEN,
) -> httpx.Auth | None:
    """Return the authentication for requests to `url`; None if none is configured.

    Raises `InvalidConfig` for unknown or contradictory settings.
    """
    if given.token is not None:
        return _Bearer(given.token)
    if given.basic is not None:
        return httpx.BasicAuth(*given.basic)
    token, kind, user = (environment.get(name, "") for name in (TOKEN, AUTH, USER))
    found = [name for name in (AUTH, TOKEN, USER) if environment.get(name)]
    if len(found) > 1:
        raise InvalidConfig(f"{' and '.join(found)} exclude each other; unset one of them")
    if bool(user) != bool(environment.get(PASSWORD)):
        raise InvalidConfig(f"{USER} and {PASSWORD} need each other; set both of them")
    if token:
        return _Bearer(token)
    if user:
        return httpx.BasicAuth(user, environment[PASSWORD])
    if not kind:
        return None
    scheme, _, service = kind.partition(":")
    if scheme != "aws" or (service and service not in _SERVICES):
        known = ", ".join(["aws", *(f"aws:{each}" for each in _SERVICES)])
        raise InvalidConfig(f"{AUTH}={kind} is not known; it is one of {known}")
    return _Aws(service or _service_of(httpx.URL(url).host))


def client_headers(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the header that says what this program calls itself, if it has a name."""
    name = environment.get(CLIENT_ID, "")
    if not name.isascii() or not name.isprintable():
        raise InvalidConfig(f"{CLIENT_ID}: use printable ASCII characters")
    return {"riacho-client-id": name} if name else {}


def _service_of(host: str) -> str:
    return "lambda" if ".lambda-url." in host else "execute-api"


class _Bearer(httpx.Auth):
    def __init__(self, token: str) -> None:
        self._value = f"Bearer {token}"

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        request.headers["authorization"] = self._value
        yield request


class _Aws(httpx.Auth):
    """Signs every request, bodies included."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._session: Any = None
        self._credentials: Any = None

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        body = await request.aread()
        # In a thread: credentials may come from a file, another program or the network.
        request.headers.update(await asyncio.to_thread(self._signature, request, body))
        yield request

    def _signature(self, request: httpx.Request, body: bytes) -> dict[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        credentials, region = self._found()
        headers = {name: request.headers[name] for name in _SIGNED if name in request.headers}
        # Pass parameters separately from the URL: they are signed as AWS encodes them, not as
        # httpx does.
        url, params = request.url.copy_with(query=None), dict(request.url.params)
        signed = AWSRequest(request.method, str(url), headers, body, params)
        SigV4Auth(credentials, self._service, region).add_auth(signed)
        return dict(signed.headers.items())

    def _found(self) -> tuple[Any, str]:
        if self._session is None:
            from botocore.session import Session

            self._session = Session()
            self._credentials = self._session.get_credentials()
        region = os.environ.get("AWS_REGION") or self._session.get_config_variable("region")
        if self._credentials is None or not region:
            missing = "credentials" if self._credentials is None else "region (AWS_REGION)"
            raise InvalidConfig(f"{AUTH}=aws, but AWS's configuration has no {missing}")
        return self._credentials.get_frozen_credentials(), region
