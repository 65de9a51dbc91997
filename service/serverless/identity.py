"""Who the front door says the caller is, from the part of an event that only AWS writes.

    requestContext.authorizer.iam.userArn              HTTP APIs and Function URLs, signed requests
    requestContext.identity.userArn                    REST APIs, signed requests
    requestContext.authorizer.jwt.claims               HTTP APIs that check tokens
    requestContext.authentication.clientCert.subjectDN certificates, at a domain name of one's own
    requestContext.identity.clientCert.subjectDN       the same of REST APIs

A request header never says who calls: clients write headers. The one exception is the header in
which the Lambda Web Adapter passes `requestContext` on, in a process that serves nobody but the
adapter and was told to believe it (`FromAdapter`).

An assumed role calls under a new name in every session. ACLs name the role instead:

    arn:aws:sts::1234:assumed-role/writer/i-0a1b   is   User:arn:aws:iam::1234:role/writer

The name of the session is kept for the audit. The path of a role is not part of the first form, so
it is not part of the second.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from service.security.authenticating import IDENTITY, IDENTITY_DETAIL

ADAPTER_HEADER: Final = b"x-amzn-request-context"
CONTEXT_BYTES_MAX: Final = 64 * 1024
NAME_CHARS_MAX: Final = 1024

_ASSUMED_ROLE: Final = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)/(?P<session>.+)"
)
_PRINTABLE: Final = re.compile(r"[^\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True)
class FrontDoorIdentity:
    """The verdict of a front door."""

    principal: str = ""
    detail: str = ""
    certificate: str = ""
    """Subject of the client's certificate. It becomes a principal by the rules for certificates."""

    def put_into(self, scope: Scope) -> None:
        """Tell the application, in the places that nothing but a host writes."""
        if self.principal:
            scope[IDENTITY] = self.principal
            scope[IDENTITY_DETAIL] = self.detail
        elif self.certificate:
            tls = {"client_cert_name": self.certificate}
            scope["extensions"] = {**scope.get("extensions", {}), "tls": tls}


NameOfClaims = Callable[[Mapping[str, Any]], str]
"""From the claims of a token to its principal; empty if they name none."""


def identity_of(context: object, name_of: NameOfClaims) -> FrontDoorIdentity:
    """Return who calls, by the `requestContext` of an event; an empty identity if nobody says."""
    arn = _text(context, "authorizer", "iam", "userArn") or _text(context, "identity", "userArn")
    if arn:
        return of_arn(arn)
    claims = _at(context, "authorizer", "jwt", "claims")
    if isinstance(claims, Mapping):
        return FrontDoorIdentity(name_of(claims))
    for place in ("authentication", "identity"):
        subject = _text(context, place, "clientCert", "subjectDN")
        if subject:
            return FrontDoorIdentity(certificate=subject)
    return FrontDoorIdentity()


def of_arn(arn: str) -> FrontDoorIdentity:
    """Return the identity of a caller whose request AWS has verified."""
    found = _ASSUMED_ROLE.fullmatch(arn)
    if found is None:
        return FrontDoorIdentity(f"User:{arn}")
    role = f"arn:{found['partition']}:iam::{found['account']}:role/{found['role']}"
    return FrontDoorIdentity(f"User:{role}", found["session"])


def _at(found: object, *path: str) -> object:
    for name in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


def _text(found: object, *path: str) -> str:
    """Return the text at `path`; empty if it is missing, or nothing that names anybody."""
    found = _at(found, *path)
    if not isinstance(found, str) or len(found) > NAME_CHARS_MAX:
        return ""
    return found if _PRINTABLE.fullmatch(found) else ""


class FromAdapter:
    """Wraps the application behind the Lambda Web Adapter: one header says who calls.

    The adapter replaces a header of that name that the client sent. Old versions of it add theirs
    to the client's: then there are two, and nobody is believed. The header goes no further.
    """

    def __init__(self, app: ASGIApp, *, is_believed: bool, name_of: NameOfClaims) -> None:
        self._app = app
        self._is_believed = is_believed
        self._name_of = name_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found = [value for name, value in scope["headers"] if name == ADAPTER_HEADER]
            if found:
                scope = {**scope, "headers": _without(scope["headers"])}
            if self._is_believed and len(found) == 1:
                identity_of(_decoded(found[0]), self._name_of).put_into(scope)
        await self._app(scope, receive, send)


def _without(headers: Any) -> list[Any]:
    return [pair for pair in headers if pair[0] != ADAPTER_HEADER]


def _decoded(value: bytes) -> object:
    """Return what the header says; None if it is not JSON."""
    if len(value) > CONTEXT_BYTES_MAX:
        return None
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
