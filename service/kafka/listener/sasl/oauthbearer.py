"""OAUTHBEARER (RFC 7628): a token of an identity provider, or an API key.

    n,a=authorization id,^A auth=Bearer TOKEN ^A extension=value ^A ^A        (^A is byte 1)

A token that is refused is answered with a JSON object first; the exchange fails when the client has
acknowledged it.
"""

import re
from functools import partial
from typing import Any, Final

from service.kafka.listener.sasl.exchange import Login, Step
from service.security.authenticating import Authenticator
from service.security.view import Rules
from storage.errors import QuotaExceeded, Unauthenticated

REFUSED: Final = b'{"status":"invalid_token"}'

_MESSAGE: Final = re.compile(
    rb"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)+)\x01"
)
_BEARER: Final = re.compile(rb"[Bb]earer +(?P<token>[-_~+/.=A-Za-z0-9]+)")


class OAuthBearer:
    def __init__(self, authenticator: Authenticator, rules: Rules, scope: dict[str, Any]) -> None:
        """`scope` is what the authenticator knows of the connection."""
        self._authenticator = authenticator
        self._rules = rules
        self._scope = scope
        self._failure: Unauthenticated | QuotaExceeded | None = None

    async def step(self, token: bytes) -> Step:
        if self._failure is not None:
            raise self._failure
        bearer, authzid = _parsed(token)
        scope = {**self._scope, "headers": [(b"authorization", b"Bearer " + bearer)]}
        try:
            identity = await self._authenticator.identify(scope, self._rules)
            if authzid not in ("", identity.principal.removeprefix("User:")):
                raise Unauthenticated("OAUTHBEARER: nobody can log in as somebody else")
        except (Unauthenticated, QuotaExceeded) as error:
            self._failure = error
            return Step(REFUSED)
        return Step(b"", Login(identity, partial(self._authenticator.identify, scope)))


def _parsed(message: bytes) -> tuple[bytes, str]:
    """Return token and authorization id, or raise `Unauthenticated`."""
    found = _MESSAGE.fullmatch(message)
    if found is None:
        raise Unauthenticated("OAUTHBEARER: the message cannot be read")
    pairs = [pair.partition(b"=") for pair in found["pairs"].split(b"\x01") if pair]
    given = [value for name, _, value in pairs if name == b"auth"]
    bearer = _BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
    if bearer is None:
        raise Unauthenticated("OAUTHBEARER: the message has no bearer token")
    return bearer["token"], (found["authzid"] or b"").decode(errors="replace")
