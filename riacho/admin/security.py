"""Administration of API keys, ACLs and quotas; who the caller is."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from riacho.http.background import Synchronous
from riacho.http.gateway import Gateway
from riacho.http.replies import parsed

Scope: TypeAlias = dict[str, Any]
"""`{"topics": [{"exact": "orders"}, {"prefix": "acme."}], "operations": ["READ"], ...}`"""

Limit: TypeAlias = Literal[
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDescription:
    id: str
    principal: str
    created_ms: int
    expires_ms: int | None
    """None: never."""
    scope: Scope | None
    """None: all that the principal may do."""
    name_prefix: str
    super: bool
    parent: str | None = None
    """The key that made this one, and ends it."""
    created_by: str = ""
    old_secret_until_ms: int | None = None
    """Until when the secret before the last rotation is accepted."""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedKey(KeyDescription):
    key: str
    """Shown only now; what a client sends, or has in RIACHO_TOKEN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntry:
    """What a principal may do, or may not; in Kafka's words."""

    resource_type: str
    """TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, SUBJECT or CONNECTOR."""
    resource_name: str
    principal: str
    operation: str
    permission: str = "ALLOW"
    pattern_type: str = "LITERAL"
    """LITERAL, or PREFIXED."""
    host: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCheck:
    allowed: bool
    why: str
    acl: AclEntry | None = None
    """The one that decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerDescription:
    principal: str
    credential: str
    """The id of the key, or the kind of credential."""
    door: str
    """key, jwt, iam or certificate; none: the gateway has no security."""
    super: bool
    scope: Scope | None = None
    name_prefix: str = ""
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDescription:
    """The limits of a user, a client, or a client of a user; None: no limit."""

    user: str | None
    client_id: str | None
    producer_byte_rate: float | None = None
    consumer_byte_rate: float | None = None
    request_percentage: float | None = None
    controller_mutation_rate: float | None = None


class AsyncSecurityAdmin:
    _gateway: Gateway

    async def create_key(
        self,
        principal: str | None = None,
        *,
        expires_ms: int | None = None,
        scope: Mapping[str, Any] | None = None,
        name_prefix: str = "",
        is_super: bool = False,
        description: str = "",
    ) -> CreatedKey:
        """Make an API key; by default for the caller itself. Nothing shows it a second time.

        If the reply is lost there may be a key that nobody knows; `list_keys` shows it.
        """
        body: dict[str, Any] = {
            "expires_ms": expires_ms,
            "scope": None if scope is None else dict(scope),
            "name_prefix": name_prefix,
            "super": is_super,
            "description": description,
        }
        if principal is not None:
            body["principal"] = principal
        return parsed(await self._gateway.request("POST", "/v1/keys", json=body), CreatedKey)

    async def list_keys(self) -> list[KeyDescription]:
        """Return the keys that the caller may know of, the oldest first."""
        reply = await self._gateway.request("GET", "/v1/keys")
        return parsed(reply, list[KeyDescription], "keys")

    async def describe_key(self, key_id: str) -> KeyDescription:
        """Return a key without its secret, or raise `UnknownCredential`."""
        return parsed(await self._gateway.request("GET", _key_path(key_id)), KeyDescription)

    async def rotate_key(self, key_id: str, overlap_ms: int | None = None) -> CreatedKey:
        """Give a key a new secret; the old one works for `overlap_ms` more, by default an hour."""
        body: dict[str, int] = {} if overlap_ms is None else {"overlap_ms": overlap_ms}
        reply = await self._gateway.request("POST", f"{_key_path(key_id)}/rotate", json=body)
        return parsed(reply, CreatedKey)

    async def revoke_key(self, key_id: str) -> None:
        """Revoke a key: within 5 seconds no gateway accepts it."""
        await self._gateway.request("DELETE", _key_path(key_id))

    async def create_acls(self, acls: Sequence[AclEntry]) -> list[AclEntry]:
        """Add ACLs, all or none; those that are there already stay as they are."""
        body = {"acls": [asdict(acl) for acl in acls]}
        reply = await self._gateway.request("POST", "/v1/acls", json=body)
        return parsed(reply, list[AclEntry], "acls")

    async def list_acls(self, **wanted: str) -> list[AclEntry]:
        """Return the ACLs that match: `list_acls(principal="User:ana", resource_type="TOPIC")`.

        Filters are the fields of an ACL. With pattern_type="MATCH", patterns match resource_name.
        """
        reply = await self._gateway.request("GET", "/v1/acls", params=wanted)
        return parsed(reply, list[AclEntry], "acls")

    async def delete_acls(self, **wanted: str) -> list[AclEntry]:
        """Delete the ACLs that match, as in `list_acls`, and return them; at least one filter."""
        reply = await self._gateway.request("DELETE", "/v1/acls", params=wanted)
        return parsed(reply, list[AclEntry], "acls")

    async def check_acl(
        self,
        principal: str,
        operation: str,
        resource_type: str,
        resource_name: str | None = None,
        host: str | None = None,
    ) -> AclCheck:
        """Return whether a principal may do something, and which ACL decides it."""
        asked = {"principal": principal, "operation": operation, "resource_type": resource_type}
        if resource_name is not None:
            asked["resource_name"] = resource_name
        if host is not None:
            asked["host"] = host
        return parsed(await self._gateway.request("GET", "/v1/acls/check", params=asked), AclCheck)

    async def whoami(self) -> CallerDescription:
        """Return who we are to the gateway."""
        return parsed(await self._gateway.request("GET", "/v1/whoami"), CallerDescription)

    async def list_quotas(
        self, user: str | None = None, client_id: str | None = None
    ) -> list[QuotaDescription]:
        """Return quotas: all, or those of a user, of a client."""
        given = {"user": user, "client_id": client_id}
        wanted = {name: value for name, value in given.items() if value is not None}
        reply = await self._gateway.request("GET", "/v1/quotas", params=wanted)
        return parsed(reply, list[QuotaDescription], "quotas")

    async def set_quota(
        self,
        limits: Mapping[Limit, float | None],
        user: str | None = None,
        client_id: str | None = None,
    ) -> QuotaDescription:
        """Set limits of a user, a client or both; None removes one. "<default>": all others."""
        rates = {str(name): rate for name, rate in limits.items()}
        body: dict[str, Any] = {"user": user, "client_id": client_id, **rates}
        reply = await self._gateway.request("PUT", "/v1/quotas", json=body)
        return parsed(reply, QuotaDescription)


class SecurityAdmin(Synchronous):
    """As `AsyncSecurityAdmin`, without an event loop."""

    _admin: AsyncSecurityAdmin

    def create_key(
        self,
        principal: str | None = None,
        *,
        expires_ms: int | None = None,
        scope: Mapping[str, Any] | None = None,
        name_prefix: str = "",
        is_super: bool = False,
        description: str = "",
    ) -> CreatedKey:
        """Make an API key; see `AsyncAdmin.create_key`."""
        asked = self._admin.create_key(
            principal,
            expires_ms=expires_ms,
            scope=scope,
            name_prefix=name_prefix,
            is_super=is_super,
            description=description,
        )
        return self._run(asked)

    def list_keys(self) -> list[KeyDescription]:
        """Return the keys that the caller may know of, the oldest first."""
        return self._run(self._admin.list_keys())

    def describe_key(self, key_id: str) -> KeyDescription:
        """Return a key without its secret, or raise `UnknownCredential`."""
        return self._run(self._admin.describe_key(key_id))

    def rotate_key(self, key_id: str, overlap_ms: int | None = None) -> CreatedKey:
        """Give a key a new secret; the old one works for `overlap_ms` more, by default an hour."""
        return self._run(self._admin.rotate_key(key_id, overlap_ms))

    def revoke_key(self, key_id: str) -> None:
        """Revoke a key: within 5 seconds no gateway accepts it."""
        self._run(self._admin.revoke_key(key_id))

    def create_acls(self, acls: Sequence[AclEntry]) -> list[AclEntry]:
        """Add ACLs, all or none; those that are there already stay as they are."""
        return self._run(self._admin.create_acls(acls))

    def list_acls(self, **wanted: str) -> list[AclEntry]:
        """Return the ACLs that match; see `AsyncAdmin.list_acls`."""
        return self._run(self._admin.list_acls(**wanted))

    def delete_acls(self, **wanted: str) -> list[AclEntry]:
        """Delete the ACLs that match, and return them; at least one filter."""
        return self._run(self._admin.delete_acls(**wanted))

    def check_acl(
        self,
        principal: str,
        operation: str,
        resource_type: str,
        resource_name: str | None = None,
        host: str | None = None,
    ) -> AclCheck:
        """Return whether a principal may do something, and which ACL decides it."""
        asked = self._admin.check_acl(principal, operation, resource_type, resource_name, host)
        return self._run(asked)

    def whoami(self) -> CallerDescription:
        """Return who we are to the gateway."""
        return self._run(self._admin.whoami())

    def list_quotas(
        self, user: str | None = None, client_id: str | None = None
    ) -> list[QuotaDescription]:
        """Return quotas: all, or those of a user, of a client."""
        return self._run(self._admin.list_quotas(user, client_id))

    def set_quota(
        self,
        limits: Mapping[Limit, float | None],
        user: str | None = None,
        client_id: str | None = None,
    ) -> QuotaDescription:
        """Set limits of a user, a client or both; see `AsyncAdmin.set_quota`."""
        return self._run(self._admin.set_quota(limits, user, client_id))


def _key_path(key_id: str) -> str:
    return f"/v1/keys/{quote(key_id, safe='')}"
