"""The caller of a request, and what it may do.

`authorize` is the one decision, for every door: a pure function of who calls, what the ACLs say,
and what is to be done. It is made before anything is looked up, so a refused caller cannot learn
whether the thing exists.
"""

import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from service.security import tenancy
from service.security.acls import CLUSTER_NAME, CompiledAcls, Decision, Operation, ResourceType
from service.security.api_keys.scopes import KeyScope
from service.security.quotas.buckets import Unlimited
from storage.errors import (
    ClusterUnauthorized,
    ConnectorUnauthorized,
    GroupUnauthorized,
    SubjectUnauthorized,
    TopicUnauthorized,
    TransactionalIdUnauthorized,
    Unauthorized,
)

T = TypeVar("T")

UNLIMITED: Final = Unlimited()

CALLER: Final = "riacho.caller"
"""In a scope: its `Caller`. Without security there is none."""

UNAUTHORIZED: Final[dict[ResourceType, type[Unauthorized]]] = {
    ResourceType.TOPIC: TopicUnauthorized,
    ResourceType.GROUP: GroupUnauthorized,
    ResourceType.CLUSTER: ClusterUnauthorized,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdUnauthorized,
    ResourceType.SUBJECT: SubjectUnauthorized,
    ResourceType.CONNECTOR: ConnectorUnauthorized,
}

_TENANT_MAY: Final = frozenset({Operation.IDEMPOTENT_WRITE})
"""What a caller with a name prefix may do on the cluster, which it shares with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """Who calls, as a credential has shown."""

    principal: str
    credential_id: str
    """Of the key; else what kind of credential it was."""
    door: str
    """How the credential came: key, password, jwt, iam, certificate."""
    is_super: bool = False
    scope: KeyScope | None = None
    name_prefix: str = ""
    expires_ms: int | None = None


def authorize(
    identity: Authenticated,
    acls: CompiledAcls,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
) -> Decision:
    """Return whether the caller may do `operation` on the resource with this full name."""
    if identity.scope is not None and not identity.scope.allows(operation, kind, name):
        return Decision(False, "the scope of the key does not contain it")
    if identity.name_prefix:
        if kind is ResourceType.CLUSTER:
            if operation not in _TENANT_MAY:
                return Decision(False, "a key with a name prefix has no access to the cluster")
        elif not name.startswith(identity.name_prefix):
            return Decision(False, "the name lacks the prefix of the key")
    if identity.is_super:
        return Decision(True, "a super user may do everything")
    return acls.decide(identity.principal, host, operation, kind, name)


Refused: TypeAlias = Callable[["Caller", Operation, ResourceType, str, Decision], None]
"""Records what a caller was refused."""

Renewed: TypeAlias = Callable[[], Awaitable[tuple[Authenticated, CompiledAcls]]]
"""Returns who calls and the ACLs as they are now."""

Changed: TypeAlias = Callable[["Caller", Operation, ResourceType, str], None]
"""Records what a caller has changed."""


class Caller:
    """Who makes this request; asks the ACLs as they were when the request came."""

    __slots__ = (
        "_acls",
        "_changed",
        "_refused",
        "_renewed",
        "client_id",
        "host",
        "identity",
        "quotas",
        "request_id",
    )

    def __init__(
        self,
        identity: Authenticated,
        acls: CompiledAcls,
        host: str,
        *,
        refused: Refused,
        changed: Changed,
        request_id: str = "",
        client_id: str = "",
        quotas: Unlimited = UNLIMITED,
    ) -> None:
        self.identity = identity
        self.host = host
        self.request_id = request_id
        self.client_id = client_id
        self.quotas = quotas
        self._acls = acls
        self._refused = refused
        self._changed = changed
        self._renewed: Renewed | None = None

    def renewed_by(self, renewed: Renewed) -> None:
        """Let `renew` ask `renewed`."""
        self._renewed = renewed

    async def renew(self) -> None:
        """Ask again who calls, and what it may do; for requests that wait or go on for long.

        Raises the error of a new request if the credential, or the right, was taken away meanwhile.
        """
        if self._renewed is not None:
            self.identity, self._acls = await self._renewed()

    @property
    def principal(self) -> str:
        return self.identity.principal

    @property
    def name_prefix(self) -> str:
        return self.identity.name_prefix

    @property
    def rights(self) -> Hashable:
        """What equals only the rights of callers who may do the same."""
        who = self.identity
        named = who.principal, who.credential_id, who.name_prefix, who.is_super, who.expires_ms
        return named, self.host, self._acls

    @property
    def is_super(self) -> bool:
        return self.identity.is_super

    @property
    def is_anyone(self) -> bool:
        """Whether there is no security, so that every caller may do everything."""
        return False

    def decide(self, operation: Operation, kind: ResourceType, name: str) -> Decision:
        return authorize(self.identity, self._acls, self.host, operation, kind, name)

    def allows(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the caller may do this. `name` is the full name, with any prefix."""
        return self.decide(operation, kind, name).allowed

    def require(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raise the error of an unauthorized call, and record it, unless the caller may do this."""
        decision = self.decide(operation, kind, name)
        if not decision.allowed:
            raise self.refusal(operation, kind, name, decision)

    def refusal(
        self,
        operation: Operation,
        kind: ResourceType,
        name: str,
        decision: Decision,
        called: str | None = None,
    ) -> Unauthorized:
        """Record that the caller was refused, and return the error.

        It says `called` instead of `name` if the caller has not named it, and must not learn it.
        """
        self._refused(self, operation, kind, name, decision)
        what = kind.replace("_", " ").lower()
        which = "" if kind is ResourceType.CLUSTER else f" {called or repr(self.outer_name(name))}"
        return UNAUTHORIZED[kind](
            f"{self.principal} may not {operation} {what}{which}; ask an administrator for an ACL"
            " (riacho acls create), or use a credential that has it"
        )

    def has_in_scope(self, operation: Operation, topic: str) -> bool:
        """Whether the scope of the caller's key contains this, whatever ACLs say."""
        scope = self.identity.scope
        return scope is None or scope.allows(operation, ResourceType.TOPIC, topic)

    def require_topic(self, operation: Operation, name: str) -> None:
        self.require(operation, ResourceType.TOPIC, name)

    def require_group(self, operation: Operation, name: str) -> None:
        self.require(operation, ResourceType.GROUP, name)

    def require_some_write(self) -> None:
        """Raise unless the caller may write somewhere: an idempotent producer needs an id."""
        if self.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER):
            return
        if not self._allows_some(Operation.WRITE, ResourceType.TOPIC):
            self.require(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)

    def _allows_some(self, operation: Operation, kind: ResourceType) -> bool:
        identity = self.identity
        if identity.scope is not None and not identity.scope.allows_some(operation, kind):
            return False
        return identity.is_super or self._acls.allows_some(
            identity.principal, self.host, operation, kind
        )

    def changed(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Record an administrative change that was made."""
        self._changed(self, operation, kind, name)

    def inward(self, body: T) -> T:
        """Return what the caller sent, with names as they are stored."""
        return tenancy.inward(body, self.name_prefix) if self.name_prefix else body

    def outward(self, body: T) -> T:
        """Return an answer with names as the caller knows them."""
        return tenancy.outward(body, self.name_prefix) if self.name_prefix else body

    def inner_name(self, name: str) -> str:
        """Return the full name of what the caller calls `name`."""
        return self.name_prefix + name

    def outer_name(self, name: str) -> str:
        """Return what the caller calls the thing with this full name."""
        return name.removeprefix(self.name_prefix)

    def outer_text(self, text: str) -> str:
        """Return a sentence with names as the caller knows them."""
        if not self.name_prefix:
            return text
        return re.sub(rf"(?<![\w.-]){re.escape(self.name_prefix)}(?=[\w.-])", "", text)


class _Anyone(Caller):
    """Every caller of a gateway without security."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(ANONYMOUS, CompiledAcls(), "", refused=_unrecorded, changed=_unrecorded)

    @property
    def is_anyone(self) -> bool:
        return True

    def decide(self, operation: Operation, kind: ResourceType, name: str) -> Decision:
        return _ALLOWED

    def require(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        return

    def changed(self, operation: Operation, kind: ResourceType, name: str) -> None:
        return


def _unrecorded(*_: Any) -> None:
    pass


_ALLOWED: Final = Decision(True, "security is off")

ANONYMOUS: Final = Authenticated(
    principal="User:ANONYMOUS", credential_id="", door="none", is_super=True
)

ANYONE: Final[Caller] = _Anyone()


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """Return the caller of an ASGI scope or of a request."""
    caller: Caller = scope.get(CALLER, ANYONE)
    return caller
