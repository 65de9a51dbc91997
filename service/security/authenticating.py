"""From credentials to identities.

    the verdict of the front door       Lambda's host, never a header
    Authorization: Bearer rk_…          an API key
    Authorization: Bearer …             a token of an identity provider
    Authorization: Basic id:secret      an API key, as clients of registries send it
    a client certificate                its subject, through `ssl.principal.mapping.rules`

The first of them that is there decides: a bad one is refused, even if another would do.
"""

import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from service.security.api_keys.credentials import PARENTS_MAX, ApiKey
from service.security.api_keys.tokens import BEGINNING, is_key_id, parse_api_key
from service.security.caller import Authenticated
from service.security.quotas.logins import LoginLimits
from service.security.view import Rules, SecurityView
from storage.errors import Unauthenticated

CREDENTIAL_BYTES_MAX: Final = 16 * 1024
"""Longer headers are refused before they are hashed."""

IDENTITY: Final = "riacho.identity"
"""In a scope: the principal that the front door of a function has authenticated. Only the host of
functions sets it."""

IDENTITY_DETAIL: Final = "riacho.identity_detail"
"""In a scope: what else the front door knows, for the audit: the session of a role."""


class Verified(Protocol):
    """What a token of an identity provider says."""

    @property
    def principal(self) -> str: ...

    @property
    def expires_ms(self) -> int: ...


class Authenticator:
    def __init__(
        self,
        view: SecurityView,
        now_ms: Callable[[], int],
        logins: LoginLimits,
        *,
        super_users: frozenset[str] = frozenset(),
        verify_token: Callable[[str], Awaitable[Verified]] | None = None,
        principal_of_subject: Callable[[str], str] = lambda subject: f"User:{subject}",
    ) -> None:
        """`verify_token` knows an identity provider; `principal_of_subject` maps certificates."""
        self._view = view
        self._now_ms = now_ms
        self._logins = logins
        self._super_users = super_users
        self._verify_token = verify_token
        self._principal_of_subject = principal_of_subject

    def remembered(self, header: bytes, rules: Rules) -> Authenticated | None:
        """Return who sent this Authorization header, if that is known and still holds."""
        found = rules.identities.get(hashlib.sha256(header).digest())
        if found is None or (found.expires_ms is not None and self._now_ms() >= found.expires_ms):
            return None
        return found

    async def identify(self, scope: Mapping[str, Any], rules: Rules) -> Authenticated:
        """Return who calls, or raise `Unauthenticated`."""
        verdict: str | None = scope.get(IDENTITY)
        if verdict is not None:
            session = scope.get(IDENTITY_DETAIL)
            return self._other(verdict, f"iam/{session}" if session else "iam", "iam")
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) > 1:
            raise Unauthenticated(f"{len(given)} Authorization headers; send one")
        if given:
            return await self._of_header(given[0], rules, peer_of(scope))
        subject = scope.get("extensions", {}).get("tls", {}).get("client_cert_name")
        if subject:
            return self._other(self._principal_of_subject(subject), subject, "certificate")
        raise Unauthenticated(
            "this gateway wants to know who calls: send Authorization: Bearer with an API key"
            " (riacho keys create makes one; clients take it from RIACHO_TOKEN)"
        )

    async def _of_header(self, header: bytes, rules: Rules, peer: str) -> Authenticated:
        if len(header) > CREDENTIAL_BYTES_MAX:
            raise Unauthenticated(
                f"the Authorization header has {len(header)} bytes, at most {CREDENTIAL_BYTES_MAX}"
            )
        digest = hashlib.sha256(header).digest()
        identity = rules.identities.get(digest)
        if identity is None:
            with self._logins.login(peer, _named_by(header) or digest.hex(), digest):
                identity = await self._identified(header, rules)
            if identity.door == "key":
                # Verified tokens are remembered where they are verified, for less long.
                rules.remember(digest, identity)
        if identity.expires_ms is not None and self._now_ms() >= identity.expires_ms:
            raise Unauthenticated("the credential has expired; get a new one")
        return identity

    async def _identified(self, header: bytes, rules: Rules) -> Authenticated:
        try:
            scheme, _, value = header.decode("ascii").partition(" ")
        except UnicodeDecodeError:
            raise Unauthenticated("the Authorization header is not ASCII") from None
        value = value.strip()
        match scheme.lower():
            case "bearer" if value.startswith(BEGINNING):
                parsed = parse_api_key(value)
                if parsed is None:
                    raise Unauthenticated(
                        "this is no API key, or mistyped: its checksum does not fit"
                    )
                return await self._of_key(*parsed, rules)
            case "bearer":
                return await self._of_token(value)
            case "basic":
                return await self._of_pair(value, rules)
        raise Unauthenticated(
            f"Authorization scheme {scheme[:20]!r} is not known; use Bearer or Basic"
        )

    async def _of_token(self, token: str) -> Authenticated:
        if self._verify_token is None:
            raise Unauthenticated(
                "this is no API key, and no identity provider is configured (RIACHO_JWT_ISSUER)"
            )
        verified = await self._verify_token(token)
        return Authenticated(
            principal=verified.principal,
            credential_id="jwt",
            door="jwt",
            is_super=verified.principal in self._super_users,
            expires_ms=verified.expires_ms,
        )

    async def _of_pair(self, value: str, rules: Rules) -> Authenticated:
        try:
            user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise Unauthenticated("Basic wants base64 of id:secret") from None
        if not colon:
            raise Unauthenticated("Basic wants base64 of id:secret, and there is no colon")
        parsed = parse_api_key(password)
        if parsed is not None:
            # The whole key as the password: the user's name must not contradict it.
            if user not in ("", parsed.key_id):
                raise _unknown()
            return await self._of_key(*parsed, rules)
        return await self._of_key(user, password, rules)

    async def _of_key(self, key_id: str, secret: str, rules: Rules) -> Authenticated:
        now_ms = self._now_ms()
        key = await self._view.api_key(rules, key_id) if is_key_id(key_id) else None
        if key is None:
            raise _unknown()
        accepted_ms = key.accepts_until(secret)
        if accepted_ms is not None and now_ms >= accepted_ms:
            raise _unknown()
        return await self.as_key(key, rules, accepted_ms)

    async def as_key(self, key: ApiKey, rules: Rules, until_ms: int | None = None) -> Authenticated:
        """Return who calls with this key, or raise `Unauthenticated` if it holds no more.

        `until_ms` is given for a secret before the last rotation. The caller has checked it.
        """
        expires_ms = await self._valid_until(key, rules, self._now_ms())
        if until_ms is not None:
            expires_ms = until_ms if expires_ms is None else min(until_ms, expires_ms)
        return Authenticated(
            principal=key.principal,
            credential_id=key.key_id,
            door="key",
            is_super=key.is_super or key.principal in self._super_users,
            scope=key.scope,
            name_prefix=key.name_prefix,
            expires_ms=expires_ms,
        )

    async def _valid_until(self, key: ApiKey, rules: Rules, now_ms: int) -> int | None:
        """Return when the key expires; raise `Unauthenticated` if it, or a parent, is gone."""
        if key.is_expired(now_ms):
            raise Unauthenticated("the API key has expired; make a new one")
        parent_id = key.parent_id
        for _ in range(PARENTS_MAX):
            if parent_id is None:
                return key.expires_ms
            parent = await self._view.api_key(rules, parent_id)
            if parent is None or parent.is_expired(now_ms):
                break
            parent_id = parent.parent_id
        raise Unauthenticated("the API key that made this one was revoked, or has expired")

    def as_user(self, name: str) -> Authenticated:
        """Return who calls with the password of a user; the caller has checked it."""
        return self._other(f"User:{name}", f"password of {name}", "password")

    def _other(self, principal: str, credential_id: str, door: str) -> Authenticated:
        return Authenticated(
            principal=principal,
            credential_id=credential_id,
            door=door,
            is_super=principal in self._super_users,
        )


def peer_of(scope: Mapping[str, Any]) -> str:
    """Return the address that the request came from; empty if there is none."""
    peer = str((scope.get("client") or ("",))[0])
    # A socket of both families gives IPv4 addresses this form, and an ACL does not.
    return peer.removeprefix("::ffff:") if "." in peer else peer


def _named_by(header: bytes) -> str:
    """Return the id of the key that a header names, good or bad; empty if it names none."""
    text = header.decode("latin-1")
    scheme, _, value = text.partition(" ")
    if scheme.lower() == "bearer":
        parts = value.strip().split("_")
        return parts[1] if value.strip().startswith(BEGINNING) and len(parts) > 1 else ""
    try:
        pair = base64.b64decode(value, validate=True).decode("latin-1")
    except (binascii.Error, ValueError):
        return ""
    return pair.partition(":")[0]


def _unknown() -> Unauthenticated:
    return Unauthenticated("the API key is not known, or was revoked")
