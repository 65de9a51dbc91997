"""The callers of the matrix: what their keys are, what ACLs say of them, and what they hold."""

from dataclasses import dataclass, field
from typing import Any, Final

TYPES: Final = {
    "TOPIC": (
        "READ",
        "WRITE",
        "CREATE",
        "DELETE",
        "ALTER",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
    ),
    "GROUP": ("READ", "DELETE", "DESCRIBE"),
    "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE"),
    "SUBJECT": (
        "READ",
        "WRITE",
        "DELETE",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
    ),
    "CONNECTOR": ("CREATE", "ALTER", "DELETE", "DESCRIBE"),
    "CLUSTER": (
        "CREATE",
        "ALTER",
        "DESCRIBE",
        "IDEMPOTENT_WRITE",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
    ),
}
EVERYTHING: Final = tuple(f"{kind} {operation}" for kind in TYPES for operation in TYPES[kind])
OF_OTHERS: Final = tuple(right for right in EVERYTHING if not right.startswith("CLUSTER"))


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A caller with a good key."""

    acls: tuple[str, ...] = ()
    """What ACLs allow it, on every name unless `pattern` says otherwise."""
    pattern: dict[str, str] = field(default_factory=dict)
    key: dict[str, Any] = field(default_factory=dict)
    """Fields of its key."""
    holds: tuple[str, ...] = ()
    """The rights that follow, on the names of the requests; with what is implied."""


GOOD: Final = {
    "nothing": Holder(),
    "reader": Holder(
        acls=("TOPIC READ", "GROUP READ"),
        holds=("TOPIC READ", "TOPIC DESCRIBE", "GROUP READ", "GROUP DESCRIBE"),
    ),
    "writer": Holder(
        acls=("TOPIC WRITE", "TRANSACTIONAL_ID WRITE"),
        holds=(
            "TOPIC WRITE",
            "TOPIC DESCRIBE",
            "TRANSACTIONAL_ID WRITE",
            "TRANSACTIONAL_ID DESCRIBE",
        ),
    ),
    "group": Holder(
        acls=("GROUP READ", "GROUP DELETE"),
        holds=("GROUP READ", "GROUP DELETE", "GROUP DESCRIBE"),
    ),
    "describer": Holder(
        acls=("TOPIC DESCRIBE", "GROUP DESCRIBE", "TRANSACTIONAL_ID DESCRIBE"),
        holds=("TOPIC DESCRIBE", "GROUP DESCRIBE", "TRANSACTIONAL_ID DESCRIBE"),
    ),
    "reader of schemas": Holder(acls=("SUBJECT READ",), holds=("SUBJECT READ", "SUBJECT DESCRIBE")),
    "writer of schemas": Holder(
        acls=("SUBJECT WRITE", "SUBJECT DELETE", "SUBJECT ALTER_CONFIGS"),
        holds=(
            "SUBJECT WRITE",
            "SUBJECT DELETE",
            "SUBJECT ALTER_CONFIGS",
            "SUBJECT DESCRIBE",
            "SUBJECT DESCRIBE_CONFIGS",
        ),
    ),
    "watcher of connectors": Holder(acls=("CONNECTOR DESCRIBE",), holds=("CONNECTOR DESCRIBE",)),
    "keeper of connectors": Holder(
        acls=("CONNECTOR CREATE", "CONNECTOR ALTER"),
        holds=("CONNECTOR CREATE", "CONNECTOR ALTER", "CONNECTOR DESCRIBE"),
    ),
    "operator": Holder(
        acls=("TOPIC ALTER", "TOPIC DELETE"),
        holds=("TOPIC ALTER", "TOPIC DELETE", "TOPIC DESCRIBE"),
    ),
    "watcher": Holder(acls=("CLUSTER DESCRIBE",), holds=("CLUSTER DESCRIBE",)),
    "admin": Holder(
        acls=("CLUSTER ALTER", "CLUSTER ALTER_CONFIGS", "CLUSTER CREATE"),
        holds=(
            "CLUSTER ALTER",
            "CLUSTER DESCRIBE",
            "CLUSTER ALTER_CONFIGS",
            "CLUSTER DESCRIBE_CONFIGS",
            "CLUSTER CREATE",
        ),
    ),
    "all ACLs of other names": Holder(
        acls=OF_OTHERS,
        pattern={"name": "others.", "pattern": "PREFIXED"},
        # Whoever may write somewhere gets the id of a producer.
        holds=("CLUSTER IDEMPOTENT_WRITE",),
    ),
    "a scope of other names": Holder(
        acls=EVERYTHING,
        key={
            "scope": {
                "topics": [{"prefix": "others."}],
                "groups": [{"exact": "others"}],
                "transactional_ids": [{"prefix": "others."}],
            }
        },
        holds=("CLUSTER IDEMPOTENT_WRITE",),
    ),
    "a scope of reading": Holder(
        acls=EVERYTHING,
        key={"scope": {"topics": [{"exact": "t"}, {"exact": "sealed"}], "operations": ["READ"]}},
        holds=("TOPIC READ", "TOPIC DESCRIBE"),
    ),
    "a super key with a scope": Holder(
        key={"is_super": True, "scope": {"groups": [{"prefix": ""}], "operations": ["READ"]}},
        holds=("GROUP READ", "GROUP DESCRIBE"),
    ),
    "a super key of a tenant": Holder(
        key={"is_super": True, "name_prefix": "tenant."},
        # Of names of its own; nothing of the cluster that is shared.
        holds=(*OF_OTHERS, "CLUSTER IDEMPOTENT_WRITE"),
    ),
    "tenant": Holder(
        acls=EVERYTHING,
        key={"name_prefix": "tenant."},
        holds=(*OF_OTHERS, "CLUSTER IDEMPOTENT_WRITE"),
    ),
    "super user": Holder(key={"is_super": True}, holds=EVERYTHING),
}

BAD: Final = (
    "none",
    "wrong",
    "mistyped",
    "expired",
    "revoked",
    "rotated away",
    "child of a revoked key",
    "empty",
    "another scheme",
)
"""Callers whom no door knows."""
