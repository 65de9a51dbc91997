"""An exchange of tokens between a client and a gateway, which ends with a login."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from service.security.caller import Authenticated
from service.security.view import Rules


@dataclass(frozen=True, slots=True)
class Login:
    """Who has logged in."""

    identity: Authenticated
    again: Callable[[Rules], Awaitable[Authenticated]]
    """Returns who it is by newer rules, or raises `Unauthenticated`."""


@dataclass(frozen=True, slots=True)
class Step:
    """What the gateway replies to a token."""

    reply: bytes = b""
    login: Login | None = None
    """None: the exchange goes on."""


class Exchange(Protocol):
    async def step(self, token: bytes) -> Step:
        """Take the client's next token.

        Raises `Unauthenticated` if the client is not who it says, and `QuotaExceeded` after too
        many failures; then the exchange is over.
        """
