"""The scope of an API key: which resources it may touch, and with which operations. Pure.

A scope only takes away: what a key may do is what its principal may do *and* its scope contains.
A kind of resource that a scope does not name is not in it. Without `operations`, all are.

    {"topics": [{"prefix": "acme."}, {"exact": "orders"}], "groups": [{"prefix": ""}],
     "operations": ["READ"]}
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.security.acls import INCLUDED_IN, Operation, ResourceType
from storage.errors import InvalidRequest

PATTERNS_MAX: Final = 100


class NamePattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Exactly one of both."""

    exact: Annotated[str, Meta(min_length=1, max_length=300)] | UnsetType = UNSET
    prefix: (
        Annotated[str, Meta(max_length=300, description="an empty one matches every name")]
        | UnsetType
    ) = UNSET

    def __post_init__(self) -> None:
        if (self.exact is UNSET) == (self.prefix is UNSET):
            raise ValueError('give {"exact": name} or {"prefix": beginning}')

    def matches(self, name: str) -> bool:
        return name == self.exact if self.prefix is UNSET else name.startswith(self.prefix)

    def contains(self, other: "NamePattern") -> bool:
        """Whether every name that `other` matches is matched by this one."""
        if self.prefix is UNSET:
            return other.exact == self.exact
        name = other.exact if other.prefix is UNSET else other.prefix
        assert isinstance(name, str), other
        return name.startswith(self.prefix)


Patterns = Annotated[list[NamePattern], Meta(max_length=PATTERNS_MAX)]


class KeyScope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    topics: Patterns = []
    groups: Patterns = []
    transactional_ids: Patterns = []
    subjects: Patterns = []
    connectors: Patterns = []
    cluster: Annotated[
        bool, Meta(description="whether calls about the cluster, keys and ACLs are in the scope")
    ] = False
    operations: (
        Annotated[list[Operation], Meta(min_length=1, description="null or left out: all")] | None
    ) = None

    def patterns(self, kind: ResourceType) -> Sequence[NamePattern]:
        return getattr(self, _FIELDS[kind])  # type: ignore[no-any-return]

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the scope contains `operation` on this resource."""
        if not self.has_operation(operation):
            return False
        if kind is ResourceType.CLUSTER:
            return self.cluster
        return any(pattern.matches(name) for pattern in self.patterns(kind))

    def allows_some(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the scope contains `operation` on some resource of this type."""
        if kind is ResourceType.CLUSTER:
            return self.allows(operation, kind, "")
        return self.has_operation(operation) and bool(self.patterns(kind))

    def has_operation(self, operation: Operation) -> bool:
        if self.operations is None or operation in self.operations:
            return True
        if Operation.ALL in self.operations:
            return True
        included = INCLUDED_IN.get(operation, frozenset())
        return not included.isdisjoint(self.operations)

    def contains(self, other: "KeyScope | None") -> bool:
        """Whether `other` allows nothing that this scope does not allow."""
        if other is None:
            return False
        if other.cluster and not self.cluster:
            return False
        return self._has_operations_of(other) and all(
            any(mine.contains(theirs) for mine in self.patterns(kind))
            for kind in _FIELDS
            for theirs in other.patterns(kind)
        )

    def renamed(self, rename: Callable[[str], str]) -> "KeyScope":
        """Return the scope with every name and prefix changed by `rename`."""

        def changed(pattern: NamePattern) -> NamePattern:
            if pattern.prefix is UNSET:
                return NamePattern(exact=rename(str(pattern.exact)))
            return NamePattern(prefix=rename(str(pattern.prefix)))

        fields = {name: list(map(changed, getattr(self, name))) for name in _FIELDS.values()}
        return msgspec.structs.replace(self, **fields)

    def _has_operations_of(self, other: "KeyScope") -> bool:
        if self.operations is None or Operation.ALL in self.operations:
            return True
        if other.operations is None or Operation.ALL in other.operations:
            return False
        return all(map(self.has_operation, other.operations))


_FIELDS: Final = {
    ResourceType.TOPIC: "topics",
    ResourceType.GROUP: "groups",
    ResourceType.TRANSACTIONAL_ID: "transactional_ids",
    ResourceType.SUBJECT: "subjects",
    ResourceType.CONNECTOR: "connectors",
}


def inner_prefix(outer: str, inner: str) -> str:
    """Return the name prefix of a key that a key with the prefix `outer` mints.

    The new one lies inside of it: names of its tenant are names of ours with `inner` in front.
    """
    if len(outer) + len(inner) > 100:
        raise InvalidRequest("name_prefix: at most 100 characters, with that of the key that mints")
    return outer + inner
