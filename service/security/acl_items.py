"""ACLs as items of the metadata table: one item for each pattern of resources."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from service.security.acls import (
    ANY_NAME,
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from service.security.versions import change_security
from service.world.clock import World
from storage import keys
from storage.errors import InvalidRequest
from storage.formats import frames
from storage.stores.metadata import (
    TRANSACT_OPS_MAX,
    VALUE_BYTES_MAX,
    Delete,
    MetadataStore,
    Op,
    Put,
    pages,
)

PATTERNS_AT_ONCE: Final = TRANSACT_OPS_MAX - 1
"""Maximum number of patterns whose ACLs change in one transaction."""

_MAGIC: Final = b"RAC1"

MEANINGFUL: Final = {
    ResourceType.TOPIC: {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"}
    | {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
    ResourceType.GROUP: {"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
    ResourceType.CLUSTER: {"CREATE", "CLUSTER_ACTION", "DESCRIBE", "ALTER", "IDEMPOTENT_WRITE"}
    | {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
    ResourceType.TRANSACTIONAL_ID: {"WRITE", "DESCRIBE"},
    ResourceType.SUBJECT: {"READ", "WRITE", "DELETE", "DESCRIBE", "ALTER_CONFIGS"}
    | {"DESCRIBE_CONFIGS"},
    ResourceType.CONNECTOR: {"READ", "CREATE", "ALTER", "DELETE", "DESCRIBE"}
    | {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
}
"""The operations that a type of resource has, besides ALL."""


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    principal: str
    host: str
    operation: Operation
    permission: Permission


class _Entries(msgspec.Struct, array_like=True, frozen=True):
    entries: list[_Entry]


_DECODER: Final = msgspec.msgpack.Decoder(_Entries)

Pattern = tuple[ResourceType, PatternType, str]


def check_acl(acl: Acl) -> None:
    """Raise `InvalidRequest` if the ACL could never decide anything."""
    kind = acl.resource_type
    if acl.operation != Operation.ALL and acl.operation not in MEANINGFUL[kind]:
        known = ", ".join(["ALL", *sorted(MEANINGFUL[kind])])
        raise InvalidRequest(f"operation: {kind} has no {acl.operation}; it has {known}")
    if kind is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"resource_name: the only CLUSTER is called {CLUSTER_NAME!r}")
    if acl.pattern_type is PatternType.PREFIXED and acl.resource_name == ANY_NAME:
        raise InvalidRequest("resource_name: * is for LITERAL; a prefix is the beginning of a name")


def _pattern(acl: Acl) -> Pattern:
    return acl.resource_type, acl.pattern_type, acl.resource_name


def _encode(acls: Iterable[Acl]) -> bytes:
    entries = [_Entry(acl.principal, acl.host, acl.operation, acl.permission) for acl in acls]
    return frames.seal(_MAGIC, msgspec.msgpack.encode(_Entries(entries)))


def _decode(key: str, value: bytes) -> list[Acl]:
    found = frames.unpack(_MAGIC, value, _DECODER, "an item of ACLs")
    _, kind, pattern_type, name = key.split("/", 3)
    return [
        Acl(
            resource_type=ResourceType(kind),
            resource_name=name,
            pattern_type=PatternType(pattern_type),
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission=entry.permission,
        )
        for entry in found.entries
    ]


async def all_acls(metadata: MetadataStore) -> list[Acl]:
    """Return every ACL."""
    return [
        acl
        for kind in ResourceType
        async for page in pages(metadata, keys.acls_of(kind))
        for key, item in page
        for acl in _decode(key, item.value)
    ]


class AclItems:
    def __init__(self, metadata: MetadataStore, world: World) -> None:
        self._metadata = metadata
        self._world = world

    async def all(self) -> list[Acl]:
        """Return every ACL, as they are now."""
        return await all_acls(self._metadata)

    async def add(self, acls: Sequence[Acl]) -> None:
        """Add the ACLs that are not there yet, all or nothing."""
        for acl in acls:
            check_acl(acl)
        if len({_pattern(acl) for acl in acls}) > PATTERNS_AT_ONCE:
            raise InvalidRequest(
                f"acls: at most {PATTERNS_AT_ONCE} different resources in one call; make several"
            )
        await self._change({_pattern(acl) for acl in acls}, lambda old: {*old, *acls})

    async def remove(self, acls: Sequence[Acl]) -> None:
        """Remove these ACLs; some at a time if there are very many."""
        patterns = sorted({_pattern(acl) for acl in acls})
        removed = frozenset(acls)
        for start in range(0, len(patterns), PATTERNS_AT_ONCE):
            some = patterns[start : start + PATTERNS_AT_ONCE]
            await self._change(some, lambda old: {*old} - removed)

    async def _change(
        self, patterns: Iterable[Pattern], change: Callable[[Iterable[Acl]], set[Acl]]
    ) -> None:
        """Replace the ACLs of each pattern by those of them, and others, that `change` returns.

        Repeating it is harmless: it requests the same state again.
        """
        by_key = {keys.acl(*pattern): pattern for pattern in patterns}

        async def attempt(_: bool) -> tuple[Sequence[Op], None]:
            items = await self._metadata.get_many(list(by_key))
            ops: list[Op] = []
            for key, pattern in by_key.items():
                item = items.get(key)
                old = [] if item is None else _decode(key, item.value)
                new = {acl for acl in change(old) if _pattern(acl) == pattern}
                if new == set(old):
                    continue
                if not new:
                    assert item is not None, key
                    ops.append(Delete(key, item.version))
                    continue
                value = _encode(sorted(new, key=_order))
                if len(value) > VALUE_BYTES_MAX:
                    raise InvalidRequest(
                        f"acls: too many for one resource ({len(new)}); use a prefix or User:*"
                    )
                ops.append(Put(key, value, None if item is None else item.version))
            return ops, None

        await change_security(self._metadata, self._world, "the ACLs", attempt)


def _order(acl: Acl) -> tuple[str, str, str, str]:
    return acl.principal, acl.host, acl.operation, acl.permission
