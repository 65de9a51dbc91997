"""PLAIN (RFC 4616): a name and a password, in the clear.

    authorization id  NUL  name  NUL  password

The name is the id of an API key and the password its secret, or the whole key; any pair that HTTP
accepts as Basic. Or they are those of a user.
"""

import base64
from functools import partial
from typing import Any, Final

from service.kafka.listener.sasl.exchange import Login, Step
from service.kafka.listener.sasl.passwords import Passwords
from service.security.api_keys.tokens import is_key_id, parse_api_key
from service.security.authenticating import Authenticator
from service.security.view import Rules
from storage.errors import Unauthenticated

BYTES_MAX: Final = 8 * 1024


class Plain:
    def __init__(
        self,
        authenticator: Authenticator,
        passwords: Passwords,
        rules: Rules,
        scope: dict[str, Any],
        peer: str,
    ) -> None:
        """`scope` is what the authenticator knows of the connection."""
        self._authenticator = authenticator
        self._passwords = passwords
        self._rules = rules
        self._scope = scope
        self._peer = peer

    async def step(self, token: bytes) -> Step:
        try:
            parts = token[:BYTES_MAX].decode().split("\0")
        except UnicodeDecodeError:
            raise Unauthenticated("PLAIN: the token is not UTF-8") from None
        if len(parts) != 3 or not parts[1] or not parts[2] or len(token) > BYTES_MAX:
            raise Unauthenticated("PLAIN: a name and a password are needed")
        authzid, name, password = parts
        if authzid not in ("", name):
            raise Unauthenticated("PLAIN: nobody can log in as somebody else")
        if is_key_id(name) or parse_api_key(password) is not None:
            return await self._by_key(name, password)
        identity, verifier = await self._passwords.check(name, password, self._peer, self._rules)
        return Step(b"", Login(identity, partial(self._passwords.again, name, verifier)))

    async def _by_key(self, name: str, password: str) -> Step:
        pair = base64.b64encode(f"{name}:{password}".encode())
        scope = {**self._scope, "headers": [(b"authorization", b"Basic " + pair)]}
        identity = await self._authenticator.identify(scope, self._rules)
        return Step(b"", Login(identity, partial(self._authenticator.identify, scope)))
