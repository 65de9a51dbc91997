"""SCRAM (RFC 5802, RFC 7677), the side of the gateway.

    client   n,,n=user,r=NONCE
    gateway  r=NONCEMORE,s=SALT,i=ITERATIONS
    client   c=biws,r=NONCEMORE,p=PROOF
    gateway  v=SIGNATURE

The password never travels, and the client learns that the gateway knows it, too.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from service.kafka.listener.sasl.exchange import Login, Step
from service.kafka.listener.sasl.passwords import PasswordClaim, Passwords
from service.security.api_keys.scram import ScramMechanism
from service.security.view import Rules
from storage.errors import Unauthenticated

NONCE_BYTES: Final = 18

_FIRST: Final = re.compile(
    r"(?P<gs2>[ny],(?:a=(?P<authzid>[^,]*))?,)"
    r"(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,.*)?))",
    re.DOTALL,
)
_FINAL: Final = re.compile(
    r"(?P<unproven>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+)(?:,(?!p=)[^,]*)*),p=(?P<proof>[^,]+)"
)


class Scram:
    """One exchange."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        passwords: Passwords,
        rules: Rules,
        peer: str,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._mechanism = mechanism
        self._passwords = passwords
        self._rules = rules
        self._peer = peer
        self._random_bytes = random_bytes
        self._gs2 = ""
        self._name = ""
        self._nonce = ""
        self._said = ""
        """Both first messages."""
        self._claimant: PasswordClaim | None = None

    async def step(self, token: bytes) -> Step:
        text = _text(token)
        if self._claimant is None:
            return Step(await self._first(text))
        return await self._final(text, self._claimant)

    async def _first(self, text: str) -> bytes:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise Unauthenticated("SCRAM: the first message cannot be read")
        name = found["name"].replace("=2C", ",").replace("=3D", "=")
        if (found["authzid"] or name) not in (name, found["name"]):
            raise Unauthenticated("SCRAM: nobody can log in as somebody else")
        if "tokenauth=true" in found["extensions"]:
            raise Unauthenticated("SCRAM: there are no delegation tokens")
        self._gs2, self._name = found["gs2"], name
        more = base64.urlsafe_b64encode(self._random_bytes(NONCE_BYTES)).decode()
        self._nonce = found["nonce"] + more
        claimant = await self._passwords.claimant(name, self._mechanism, self._rules)
        self._claimant = claimant
        salt = base64.b64encode(claimant.verifier.salt).decode()
        reply = f"r={self._nonce},s={salt},i={claimant.verifier.iterations}"
        self._said = f"{found['bare']},{reply}"
        return reply.encode()

    async def _final(self, text: str, claimant: PasswordClaim) -> Step:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise Unauthenticated("SCRAM: the final message cannot be read")
        binding = base64.b64encode(self._gs2.encode()).decode()
        nonces = found["nonce"].encode(), self._nonce.encode()
        if found["binding"] != binding or not hmac.compare_digest(*nonces):
            raise Unauthenticated("SCRAM: the final message does not belong to the first")
        try:
            proof = base64.b64decode(found["proof"], validate=True)
        except (binascii.Error, ValueError):
            raise Unauthenticated("SCRAM: the proof is not base64") from None
        message = f"{self._said},{found['unproven']}".encode()
        identity = await self._passwords.prove(self._name, self._peer, claimant, proof, message)
        signature = base64.b64encode(claimant.verifier.signature(message))
        again = partial(self._passwords.again, self._name, claimant.verifier)
        return Step(b"v=" + signature, Login(identity, again))


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise Unauthenticated("SCRAM: a message is not UTF-8") from None
