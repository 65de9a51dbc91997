"""Names and passwords: those of users, and of keys that were made for it.

A client that tries names must not learn which of them exist: for one that does not, everything is
as for one that does, with a password that nobody has.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from service.security.api_keys.credentials import ApiKey
from service.security.api_keys.scram import ScramMechanism, ScramVerifier, decoy
from service.security.api_keys.tokens import is_key_id
from service.security.api_keys.users import Users
from service.security.authenticating import Authenticator
from service.security.caller import Authenticated
from service.security.quotas.logins import LoginLimits
from service.security.view import Rules, SecurityView
from storage.errors import InvalidRequest, Unauthenticated


@dataclass(frozen=True, slots=True)
class PasswordClaim:
    """Whoever proves that they know a password."""

    verifier: ScramVerifier
    identify: Callable[[], Awaitable[Authenticated]] | None
    """Returns who it is, or raises `Unauthenticated`; None: nobody has this name."""


class Passwords:
    def __init__(
        self,
        view: SecurityView,
        users: Users,
        authenticator: Authenticator,
        logins: LoginLimits,
        now_ms: Callable[[], int],
        seed: bytes,
    ) -> None:
        """`seed` makes up what names that do not exist would have."""
        self._view = view
        self._users = users
        self._authenticator = authenticator
        self._logins = logins
        self._now_ms = now_ms
        self._seed = seed

    async def claimant(self, name: str, mechanism: ScramMechanism, rules: Rules) -> PasswordClaim:
        """Return who `name` would be, and how that is checked."""
        found = await self._claimants(name, mechanism, rules)
        return found[0] if found else PasswordClaim(decoy(mechanism, name, self._seed), None)

    async def prove(
        self, name: str, peer: str, claimant: PasswordClaim, proof: bytes, auth_message: bytes
    ) -> Authenticated:
        """Return who it is. Raises `Unauthenticated`, or `QuotaExceeded` after many failures."""
        proven = claimant.verifier.proven_key(proof, auth_message)
        with self._logins.login(peer, name, proven):
            if claimant.identify is None or proven != claimant.verifier.stored_key:
                raise unknown()
            return await claimant.identify()

    async def check(
        self, name: str, password: str, peer: str, rules: Rules
    ) -> tuple[Authenticated, ScramVerifier]:
        """Return who has this password. Raises what `prove` does."""
        digest = hashlib.sha256(f"{name}\0{password}".encode(errors="surrogatepass")).digest()
        with self._logins.login(peer, name, digest):
            claimant = await self.claimant(name, ScramMechanism.SHA_256, rules)
            # In a thread: it takes milliseconds on purpose.
            is_right = await asyncio.to_thread(_has_password, claimant.verifier, password)
            if claimant.identify is None or not is_right:
                raise unknown()
            return await claimant.identify(), claimant.verifier

    async def again(self, name: str, verifier: ScramVerifier, rules: Rules) -> Authenticated:
        """Return who has proved to know the password of `verifier`, if that still holds.

        Raises `Unauthenticated`.
        """
        for claimant in await self._claimants(name, verifier.mechanism, rules):
            if claimant.verifier == verifier and claimant.identify is not None:
                return await claimant.identify()
        raise Unauthenticated("the password was changed, or the user was deleted")

    async def _claimants(
        self, name: str, mechanism: ScramMechanism, rules: Rules
    ) -> list[PasswordClaim]:
        key = await self._view.api_key(rules, name) if is_key_id(name) else None
        if key is not None:
            return self._of_key(key, mechanism, rules)
        user = await self._users.find(name)
        verifier = None if user is None else user.verifier(mechanism)

        async def identify_user() -> Authenticated:
            return self._authenticator.as_user(name)

        return [] if verifier is None else [PasswordClaim(verifier, identify_user)]

    def _of_key(self, key: ApiKey, mechanism: ScramMechanism, rules: Rules) -> list[PasswordClaim]:
        """Return those of the current secret and of earlier ones, the newest first."""
        now_ms = self._now_ms()
        known: list[tuple[ScramVerifier, int | None]] = [(each, None) for each in key.scram]
        known += [(v, o.until_ms) for o in key.old_secrets if now_ms < o.until_ms for v in o.scram]
        return [
            PasswordClaim(verifier, partial(self._authenticator.as_key, key, rules, until_ms))
            for verifier, until_ms in known
            if verifier.mechanism is mechanism
        ]


def _has_password(verifier: ScramVerifier, password: str) -> bool:
    try:
        return verifier.has_password(password)
    except InvalidRequest:
        return False


def unknown() -> Unauthenticated:
    return Unauthenticated("the name or the password is wrong")
