"""Options that commands about keys and ACLs share: resources, operations, principals."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from riacho.cli.output import bad_usage

CLUSTER_NAME = "kafka-cluster"


class AclOperation(StrEnum):
    """Kafka's operations, as options name them."""

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


Operations = Annotated[
    list[AclOperation],
    typer.Option("--operation", help="May be repeated.", case_sensitive=False),
]
OneOperation = Annotated[
    AclOperation, typer.Option("--operation", help="What is done.", case_sensitive=False)
]
Topics = Annotated[
    list[str], typer.Option("--topic", help="A name, 'acme.*' for all that begin so, or '*'.")
]
Groups = Annotated[list[str], typer.Option("--group", help="The same for consumer groups.")]
TransactionalIds = Annotated[
    list[str], typer.Option("--transactional-id", help="The same for transactional ids.")
]
Subjects = Annotated[list[str], typer.Option("--subject", help="The same for subjects.")]
Connectors = Annotated[list[str], typer.Option("--connector", help="The same for connectors.")]
Cluster = Annotated[
    bool, typer.Option("--cluster", help="What concerns the whole: cluster, keys, ACLs.")
]
Prefix = Annotated[
    bool, typer.Option("--prefix", help="Names are beginnings of names, as if * were behind them.")
]


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that an ACL or a scope is about."""

    kind: str
    """Kafka's resource type."""
    name: str
    is_prefix: bool = False

    @property
    def pattern_type(self) -> str:
        return "PREFIXED" if self.is_prefix else "LITERAL"


_SCOPES = {
    "TOPIC": "topics",
    "GROUP": "groups",
    "TRANSACTIONAL_ID": "transactional_ids",
    "SUBJECT": "subjects",
    "CONNECTOR": "connectors",
}


def resources(
    topics: list[str],
    groups: list[str],
    transactional_ids: list[str],
    subjects: list[str],
    connectors: list[str],
    *,
    cluster: bool,
    is_prefix: bool = False,
) -> list[Resource]:
    """Return the resources that options name."""
    by_kind = zip(_SCOPES, (topics, groups, transactional_ids, subjects, connectors), strict=True)
    found = [_resource(kind, name, is_prefix) for kind, names in by_kind for name in names]
    return [*found, *([Resource("CLUSTER", CLUSTER_NAME)] if cluster else [])]


def _resource(kind: str, text: str, is_prefix: bool) -> Resource:
    name = text.removesuffix("*")
    if not name and text != "*":
        raise bad_usage("a name is empty; '*' is all of them", f"--{kind.lower()}")
    if text == "*":
        return Resource(kind, "*")
    return Resource(kind, name, is_prefix or name != text)


def scope_of(found: Sequence[Resource], operations: Sequence[str]) -> dict[str, Any] | None:
    """Return the scope of a key for these resources; None: it is not limited."""
    if not found:
        if operations:
            raise bad_usage("say on what, too: --topic '*' is every topic", "--operation")
        return None
    scope: dict[str, Any] = {}
    for each in found:
        if each.kind == "CLUSTER":
            scope["cluster"] = True
            continue
        name = "" if each.name == "*" else each.name
        is_prefix = each.is_prefix or each.name == "*"
        pattern = {"prefix" if is_prefix else "exact": name}
        scope.setdefault(_SCOPES[each.kind], []).append(pattern)
    return {**scope, "operations": list(map(str, operations))} if operations else scope


def principal_of(text: str) -> str:
    """Return a principal; `ana` is `User:ana`."""
    return text if text.startswith("User:") else f"User:{text}"
