"""What keys a caller may make: none that is wider, or lives longer, than its own credential."""

from service.security.acls import Operation, ResourceType
from service.security.api_keys.credentials import ApiKey, NewKey
from service.security.api_keys.scopes import inner_prefix
from service.security.caller import Caller
from storage.errors import ClusterUnauthorized, InvalidRequest


def minted(caller: Caller, asked: NewKey, super_users: frozenset[str]) -> NewKey:
    """Return the key that `caller` gets when it asks for this one, or raise an error.

    An administrator (ALTER on the cluster) makes keys for any principal. Others make keys for
    themselves, which end with the key they were made with.
    """
    own = caller.identity
    is_admin = caller.allows(Operation.ALTER, ResourceType.CLUSTER)
    if asked.principal != own.principal and not is_admin:
        caller.require(Operation.ALTER, ResourceType.CLUSTER)
    if (asked.is_super or asked.principal in super_users) and not own.is_super:
        raise ClusterUnauthorized(
            f"{own.principal} is no super user, so it cannot make a key for one"
        )
    _check_width(caller, asked)
    is_of_key = own.door == "key"
    return NewKey(
        principal=asked.principal,
        expires_ms=_expiry(caller, asked.expires_ms, is_admin=is_admin),
        scope=asked.scope,
        name_prefix=inner_prefix(own.name_prefix, asked.name_prefix),
        is_super=asked.is_super,
        parent_id=own.credential_id if is_of_key and not is_admin else None,
        created_by=own.principal,
        description=asked.description,
        scram=asked.scram,
    )


def _check_width(caller: Caller, asked: NewKey) -> None:
    scope = caller.identity.scope
    if scope is not None and not scope.contains(asked.scope):
        raise InvalidRequest(
            "scope: a key makes only keys that are no wider than itself; its own scope is at"
            " GET /v1/whoami"
        )


def _expiry(caller: Caller, wanted_ms: int | None, *, is_admin: bool) -> int | None:
    """Return when the new key expires: by default with the credential that makes it."""
    limit_ms = caller.identity.expires_ms
    if limit_ms is None or (is_admin and caller.identity.door != "key"):
        return wanted_ms
    if wanted_ms is not None and wanted_ms > limit_ms:
        raise InvalidRequest(
            f"expires_ms: {wanted_ms} is later than {limit_ms}, when the credential that makes the"
            " key expires"
        )
    return limit_ms if wanted_ms is None else wanted_ms


def may_manage(caller: Caller, key: ApiKey | None, super_users: frozenset[str]) -> bool:
    """Whether `caller` may look at, rotate and revoke the key.

    Its own, those it has made, and as an administrator those that are no wider than its own: with
    the new secret of a rotated key it could do whatever that key can.
    """
    own = caller.identity
    if key is None:
        return False
    if own.door == "key" and own.credential_id in (key.key_id, key.parent_id):
        return True
    is_of_super = key.is_super or key.principal in super_users
    is_wider = (
        (is_of_super and not own.is_super)
        or (own.scope is not None and not own.scope.contains(key.scope))
        or not key.name_prefix.startswith(own.name_prefix)
    )
    is_admin = caller.allows(Operation.ALTER, ResourceType.CLUSTER)
    return not is_wider and (is_admin or (own.door != "key" and key.principal == own.principal))
