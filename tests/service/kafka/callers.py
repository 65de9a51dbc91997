"""Callers with rights of their choice, for handlers that are called directly."""

from typing import Any

from service.security.acls import (
    CLUSTER_NAME,
    Acl,
    CompiledAcls,
    Operation,
    PatternType,
    ResourceType,
)
from service.security.caller import Authenticated, Caller
from service.security.quotas.buckets import Unlimited


def ALLOW(operation: str, kind: str, name: str, *, prefixed: bool = False) -> Acl:  # noqa: N802
    return Acl(
        resource_type=ResourceType(kind),
        resource_name=name or CLUSTER_NAME,
        principal="User:ana",
        operation=Operation(operation),
        pattern_type=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
    )


def _ignored(*_: Any) -> None:
    pass


def caller_with(
    *acls: Acl, name_prefix: str = "", is_super: bool = False, quotas: Unlimited | None = None
) -> Caller:
    """Return a caller that may do what the ACLs allow."""
    identity = Authenticated(
        principal="User:ana",
        credential_id="k",
        door="key",
        is_super=is_super,
        name_prefix=name_prefix,
    )
    return Caller(
        identity,
        CompiledAcls(acls),
        "127.0.0.1",
        refused=_ignored,
        changed=_ignored,
        quotas=quotas or Unlimited(),
    )
