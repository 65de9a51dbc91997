"""Who is at the other end of a connection.

Without security everybody may do everything. With it a client says first who it is, by SASL or by
a certificate; until then only ApiVersions, SaslHandshake and SaslAuthenticate are answered. What it
may do is looked up again as often as for HTTP: keys, users and ACLs that were changed count within
seconds, also on connections that are open. A credential that expires ends the session unless the
client logs in again before (KIP-368).
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from service.kafka.call import Peer
from service.kafka.listener.sasl.exchange import Exchange, Login
from service.kafka.listener.sasl.oauthbearer import OAuthBearer
from service.kafka.listener.sasl.passwords import Passwords
from service.kafka.listener.sasl.plain import Plain
from service.kafka.listener.sasl.scram import Scram
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.handshake import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from service.security.acls import CompiledAcls
from service.security.api_keys.scram import ScramMechanism
from service.security.api_keys.users import Users
from service.security.assembly import Security
from service.security.caller import ANYONE, Authenticated, Caller
from service.security.tls.protocol import tls_extension
from service.security.view import Rules
from service.world.clock import World
from storage.errors import QuotaExceeded, Unauthenticated, Unavailable
from storage.stores.metadata import MetadataStore

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
IN_THE_CLEAR: Final = frozenset({PLAIN, OAUTHBEARER})
"""Mechanisms that send the secret itself."""

REQUEST_ID: Final = "kafka"

Answer = tuple[SaslHandshakeResponse | SaslAuthenticateResponse, bool]
"""A response, and whether the connection is closed after it."""


class Refused(Exception):
    """The client may not go on: the connection is closed, as there is no response for it."""


class PeerSession(Protocol):
    @property
    def is_authenticated(self) -> bool:
        """Whether the client has said who it is, or need not."""

    @property
    def is_trusted(self) -> bool:
        """Whether it has, or has shown a certificate of which that may be learnt."""

    def caller(self, client_id: str) -> Caller | None:
        """Return who makes a request; None: that must be looked up."""

    async def renewed(self, client_id: str) -> Caller:
        """Return who makes a request, or raise `Refused`."""

    async def by_certificate(self) -> None:
        """Log in with the client's certificate, or raise `Refused`."""

    async def answer(self, version: int, message: Any) -> Answer:
        """Answer SaslHandshake or SaslAuthenticate."""


class OpenSession:
    """Without security."""

    is_authenticated = is_trusted = True

    def caller(self, client_id: str) -> Caller | None:
        return ANYONE

    async def renewed(self, client_id: str) -> Caller:
        return ANYONE

    async def by_certificate(self) -> None:
        pass

    async def answer(self, version: int, message: Any) -> Answer:
        code = ErrorCode.ILLEGAL_SASL_STATE
        if isinstance(message, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=code), False
        why = "this gateway does not ask who calls: connect without SASL"
        return SaslAuthenticateResponse(error_code=code, error_message=why), False


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """What sessions of a gateway with security have in common."""

    security: Security
    passwords: Passwords
    world: World
    mechanisms: Sequence[str]
    """What is offered."""

    @classmethod
    def of(
        cls,
        security: Security,
        metadata: MetadataStore,
        world: World,
        *,
        has_tokens: bool,
        is_private: bool,
    ) -> "Doorkeeper":
        """`has_tokens`: an identity provider is configured. `is_private`: nobody can listen in."""
        passwords = Passwords(
            security.view,
            Users(metadata, world),
            security.authenticator,
            security.logins,
            world.now_ms,
            world.random_bytes(32),
        )
        known = [PLAIN, *ScramMechanism] + [OAUTHBEARER] * has_tokens
        offered = [str(each) for each in known if is_private or each not in IN_THE_CLEAR]
        return cls(security, passwords, world, offered)

    def session(self, peer: Peer, connection: ssl.SSLObject | None) -> "SecureSession":
        return SecureSession(self, peer, connection)

    def exchange(self, mechanism: str, peer: Peer, rules: Rules) -> Exchange:
        scope = {"headers": [], "client": (peer.host, peer.port)}
        authenticator = self.security.authenticator
        if mechanism == PLAIN:
            return Plain(authenticator, self.passwords, rules, scope, peer.host)
        if mechanism == OAUTHBEARER:
            return OAuthBearer(authenticator, rules, scope)
        return Scram(
            ScramMechanism(mechanism), self.passwords, rules, peer.host, self.world.random_bytes
        )


class SecureSession:
    """With security; of one connection."""

    __slots__ = (
        "_caller",
        "_exchange",
        "_has_certificate",
        "_keeper",
        "_login",
        "_mechanism",
        "_peer",
        "_rules",
        "_tls",
    )

    def __init__(self, keeper: Doorkeeper, peer: Peer, connection: ssl.SSLObject | None) -> None:
        self._keeper = keeper
        self._peer = peer
        self._tls = connection
        self._has_certificate = connection is not None and bool(connection.getpeercert(True))
        self._login: Login | None = None
        self._rules: Rules | None = None
        """By which the login was looked at."""
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._caller: Caller | None = None
        """Of the latest request, for the next one with the same client id."""

    @property
    def is_authenticated(self) -> bool:
        return self._login is not None

    @property
    def is_trusted(self) -> bool:
        # TLS has verified the certificate, but only the first request that needs it asks whose it
        # is: and that may be a long one.
        return self._login is not None or self._has_certificate

    # Requests

    def caller(self, client_id: str) -> Caller | None:
        rules = self._keeper.security.view.fresh_rules()
        if rules is None or rules is not self._rules or self._login is None:
            return None
        if self._has_expired(self._login.identity):
            return None
        if self._caller is None or self._caller.client_id != client_id:
            self._caller = self._made(self._login.identity, rules.acls, client_id)
        return self._caller

    async def renewed(self, client_id: str) -> Caller:
        try:
            identity, acls = await self._renew()
        except Unauthenticated as error:
            raise self._refusal(error) from None
        self._caller = self._made(identity, acls, client_id)
        return self._caller

    async def _renew(self) -> tuple[Authenticated, CompiledAcls]:
        """Return who calls and the ACLs as they are now; raises `Unauthenticated`."""
        rules = await self._keeper.security.view.rules()
        login = self._login
        if login is None:
            raise Unauthenticated("nobody has logged in on this connection")
        if rules is not self._rules:
            try:
                identity = await login.again(rules)
            except Unavailable:
                # Only a token needs somebody else, and it was good.
                identity = login.identity
            if identity.principal != login.identity.principal:
                raise Unauthenticated("the credential is now somebody else's")
            login = Login(identity, login.again)
            self._login, self._rules, self._caller = login, rules, None
        if self._has_expired(login.identity):
            raise Unauthenticated("the credential has expired; log in again, with a new one")
        return login.identity, rules.acls

    def _has_expired(self, identity: Authenticated) -> bool:
        expires_ms = identity.expires_ms
        return expires_ms is not None and self._keeper.world.now_ms() >= expires_ms

    def _made(self, identity: Authenticated, acls: CompiledAcls, client_id: str) -> Caller:
        security = self._keeper.security
        made = Caller(
            identity,
            acls,
            self._peer.host,
            refused=security.records.refused,
            changed=security.records.changed,
            request_id=REQUEST_ID,
            client_id=client_id,
            quotas=security.quotas,
        )
        made.renewed_by(self._renew)
        return made

    # Logins

    async def by_certificate(self) -> None:
        shown = None if self._tls is None else tls_extension(self._tls)
        if shown is None or not shown["client_cert_name"]:
            raise self._refusal(
                Unauthenticated("a request before SaslHandshake: this gateway asks who calls")
            )
        scope = {
            "headers": [],
            "client": (self._peer.host, self._peer.port),
            "extensions": {"tls": shown},
        }
        rules = await self._keeper.security.view.rules()

        async def again(newer: Rules) -> Authenticated:
            return await self._keeper.security.authenticator.identify(scope, newer)

        try:
            identity = await again(rules)
        except Unauthenticated as error:
            raise self._refusal(error) from None
        self._login, self._rules = Login(identity, again), rules

    async def answer(self, version: int, message: Any) -> Answer:
        if isinstance(message, SaslHandshakeRequest):
            return await self._handshake(version, message)
        return await self._authenticate(message)

    async def _handshake(self, version: int, message: SaslHandshakeRequest) -> Answer:
        offered = list(self._keeper.mechanisms)
        response = SaslHandshakeResponse(mechanisms=offered)
        if message.mechanism not in offered:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        elif version == 0 or self._mechanism not in ("", message.mechanism):
            # After version 0 tokens would come without the frame of a request. And who logs in
            # again does so in the same way.
            response.error_code = ErrorCode.ILLEGAL_SASL_STATE
        if response.error_code:
            return response, True
        rules = await self._keeper.security.view.rules()
        self._exchange = self._keeper.exchange(message.mechanism, self._peer, rules)
        self._mechanism = message.mechanism
        return response, False

    async def _authenticate(self, message: SaslAuthenticateRequest) -> Answer:
        exchange = self._exchange
        if exchange is None:
            code = ErrorCode.ILLEGAL_SASL_STATE
            why = "SaslHandshake comes first"
            return SaslAuthenticateResponse(error_code=code, error_message=why), True
        try:
            step = await exchange.step(bytes(message.auth_bytes))
            if step.login is None:
                return SaslAuthenticateResponse(auth_bytes=step.reply), False
            lifetime_ms = await self._begin(step.login)
        except (Unauthenticated, QuotaExceeded) as error:
            self._refusal(error)
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return SaslAuthenticateResponse(error_code=code, error_message=str(error)), True
        response = SaslAuthenticateResponse(auth_bytes=step.reply, session_lifetime_ms=lifetime_ms)
        return response, False

    async def _begin(self, login: Login) -> int:
        """Return for how long the session holds; 0: there is no limit."""
        before = self._login
        if before is not None and before.identity.principal != login.identity.principal:
            raise Unauthenticated("who logs in again must be the same as before")
        self._exchange = None
        self._login, self._rules, self._caller = login, None, None
        identity, _ = await self._renew()
        if identity.expires_ms is None:
            return 0
        return max(1, identity.expires_ms - self._keeper.world.now_ms())

    def _refusal(self, error: Unauthenticated | QuotaExceeded) -> Refused:
        """Record that the client was refused, and return the error."""
        self._keeper.security.records.unauthenticated(
            error,
            peer=self._peer.host,
            request_id=REQUEST_ID,
            path=f"kafka/{self._mechanism}" if self._mechanism else "kafka",
        )
        return Refused(f"{error.code}: {error}")
