"""Kafka's access control lists: what they say, and what follows from them. Pure.

An ACL allows or denies a principal, from a host, an operation on the resources that its pattern
matches. The decision is Kafka's:

- super users may do everything (`service/security/caller.py`);
- any matching DENY wins, however general its pattern;
- else any matching ALLOW suffices;
- without a matching ACL the answer is no.

READ, WRITE, DELETE and ALTER include DESCRIBE; ALTER_CONFIGS includes DESCRIBE_CONFIGS; ALL
includes every operation. Only what is allowed includes more: a DENY of READ does not deny DESCRIBE.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

ANY_HOST: Final = "*"
ANY_PRINCIPAL: Final = "User:*"
ANY_NAME: Final = "*"

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER, as in Kafka."""

DECISIONS_KEPT_MAX: Final = 20_000


class ResourceType(StrEnum):
    __hash__ = str.__hash__  # That of an enumeration is a function of Python, and slow.

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"
    SUBJECT = "SUBJECT"
    CONNECTOR = "CONNECTOR"


class Operation(StrEnum):
    __hash__ = str.__hash__

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"
    CREATE_TOKENS = "CREATE_TOKENS"
    DESCRIBE_TOKENS = "DESCRIBE_TOKENS"


class PatternType(StrEnum):
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Permission(StrEnum):
    ALLOW = "ALLOW"
    DENY = "DENY"


INCLUDED_IN: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""By operation: those that include it if they are allowed."""


class Acl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One access control entry, in the words of Kafka's REST API."""

    resource_type: ResourceType
    resource_name: Annotated[
        str, Meta(min_length=1, max_length=249, description="* with LITERAL: every resource")
    ]
    principal: Annotated[
        str,
        Meta(
            pattern="^User:.{1,500}$",
            description="like User:ana; User:* is everyone who has a credential",
        ),
    ]
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: Annotated[str, Meta(min_length=1, max_length=100, description="an address; *: any")] = (
        ANY_HOST
    )

    def is_for(self, principal: str, host: str) -> bool:
        return self.principal in (principal, ANY_PRINCIPAL) and self.host in (host, ANY_HOST)

    def covers(self, operation: Operation) -> bool:
        """Whether the ACL is about `operation`."""
        if self.operation in (operation, Operation.ALL):
            return True
        included = INCLUDED_IN.get(operation)
        return (
            self.permission is Permission.ALLOW
            and included is not None
            and self.operation in included
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether something is allowed, and the ACL that decides it, if one does."""

    allowed: bool
    why: str
    acl: Acl | None = None


@dataclass(slots=True)
class _OfType:
    """ACLs of one type of resource."""

    literal: dict[str, list[Acl]] = field(default_factory=dict)
    prefixed: dict[str, list[Acl]] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)
    """Lengths of the prefixes, each once."""

    def matching(self, name: str) -> Iterable[Acl]:
        """Yield the ACLs whose patterns match `name`."""
        yield from self.literal.get(name, ())
        if name != ANY_NAME:
            yield from self.literal.get(ANY_NAME, ())
        for length in self.lengths:
            if length > len(name):
                break
            yield from self.prefixed.get(name[:length], ())


class CompiledAcls:
    """ACLs, arranged so that a decision looks only at those that match the resource."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.acls: Sequence[Acl] = tuple(acls)
        self._types = {kind: _OfType() for kind in ResourceType}
        self._decided: dict[tuple[str, str, Operation, ResourceType, str], Decision] = {}
        for acl in self.acls:
            found = self._types[acl.resource_type]
            is_literal = acl.pattern_type is PatternType.LITERAL
            by_name = found.literal if is_literal else found.prefixed
            by_name.setdefault(acl.resource_name, []).append(acl)
        for found in self._types.values():
            found.lengths = sorted({len(prefix) for prefix in found.prefixed})

    def decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> Decision:
        """Return whether `principal` may do `operation` on the resource, calling from `host`."""
        key = (principal, host, operation, kind, name)
        decision = self._decided.get(key)
        if decision is None:
            decision = self._decide(*key)
            if len(self._decided) >= DECISIONS_KEPT_MAX:
                self._decided.clear()
            self._decided[key] = decision
        return decision

    def _decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> Decision:
        allowed: Acl | None = None
        for acl in self._types[kind].matching(name):
            if not (acl.is_for(principal, host) and acl.covers(operation)):
                continue
            if acl.permission is Permission.DENY:
                return Decision(False, f"denied by an ACL on {described(acl)}", acl)
            allowed = allowed or acl
        if allowed is None:
            return Decision(False, f"no ACL allows {principal} {operation} on {kind} {name}")
        return Decision(True, f"allowed by an ACL on {described(allowed)}", allowed)

    def allows_some(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Return whether there may be a resource of this type that `principal` may do this on.

        As in Kafka: some ALLOW that no DENY of the same or a wider pattern takes back.
        """
        found = self._types[kind]
        everything = [*found.literal.values(), *found.prefixed.values()]
        mine = [
            acl
            for acls in everything
            for acl in acls
            if acl.is_for(principal, host) and acl.covers(operation)
        ]
        denials = [acl for acl in mine if acl.permission is Permission.DENY]
        return any(
            acl.permission is Permission.ALLOW
            and not any(_hides(denial, acl) for denial in denials)
            for acl in mine
        )


def _hides(denial: Acl, acl: Acl) -> bool:
    """Whether `denial` matches everything that `acl` matches."""
    if denial.pattern_type is PatternType.PREFIXED:
        return acl.resource_name.startswith(denial.resource_name) and acl.resource_name != ANY_NAME
    if denial.resource_name == ANY_NAME:
        return True
    return acl.pattern_type is PatternType.LITERAL and acl.resource_name == denial.resource_name


def described(acl: Acl) -> str:
    """Return the resources of an ACL in words."""
    pattern = "prefix " if acl.pattern_type is PatternType.PREFIXED else ""
    return f"{acl.resource_type} {pattern}{acl.resource_name} for {acl.principal}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """What ACLs to list or to delete, as in Kafka; None: any."""

    resource_type: ResourceType | None = None
    resource_name: str | None = None
    pattern_type: PatternType | None = None
    matches_names: bool = False
    """Find all ACLs whose patterns match `resource_name`: Kafka's pattern type MATCH."""
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def matches(self, acl: Acl) -> bool:
        pairs = (
            (self.resource_type, acl.resource_type),
            (self.operation, acl.operation),
            (self.permission, acl.permission),
            (self.principal, acl.principal),
            (self.host, acl.host),
            (self.pattern_type, acl.pattern_type),
        )
        return all(wanted in (None, found) for wanted, found in pairs) and self._matches_name(acl)

    def _matches_name(self, acl: Acl) -> bool:
        name = self.resource_name
        if name is None or acl.resource_name == name:
            return True
        if not self.matches_names:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == ANY_NAME
