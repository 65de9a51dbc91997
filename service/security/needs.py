"""What a caller needs for a route: the column `needs` of the table of routes.

on(WRITE, TOPIC)       this operation on the topic that the path names
cluster(DESCRIBE)      this operation on the cluster
within(READ, TOPIC)    on each topic that the body names, or that is listed: the handler checks,
                       because only it knows the names
OPEN                   no credential: answered before the caller is known
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from service.security.acls import CLUSTER_NAME, Operation, ResourceType
from service.security.caller import Caller

_PARAMETERS: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.TRANSACTIONAL_ID: "transaction",
    ResourceType.SUBJECT: "subject",
    ResourceType.CONNECTOR: "connector",
}
"""The parameters of paths that name resources."""

DEFAULT_CONTEXT: Final = ":.:"
"""What a subject may begin with, and means the same without."""


@dataclass(frozen=True, slots=True)
class Need:
    """An operation on a resource of a type."""

    operation: Operation
    kind: ResourceType
    parameter: str = ""
    """The parameter of the path that names it; empty: the cluster."""


@dataclass(frozen=True, slots=True)
class Needs:
    """All of `checked` before the handler runs; `within` while it does."""

    checked: tuple[Need, ...] = ()
    within: tuple[Need, ...] = ()
    is_open: bool = False

    def __add__(self, other: "Needs") -> "Needs":
        return Needs(self.checked + other.checked, self.within + other.within)

    def check(self, caller: Caller, parameters: Mapping[str, str]) -> None:
        """Raise the error of an unauthorized call unless `caller` may do all of `checked`."""
        for need in self.checked:
            name = parameters[need.parameter] if need.parameter else CLUSTER_NAME
            caller.require(need.operation, need.kind, _resource(need, name))

    def described(self) -> list[str]:
        """Return the needs in words, for documents."""
        return [
            *(f"{each.operation} {each.kind}" for each in self.checked),
            *(f"{each.operation} {each.kind} (each)" for each in self.within),
        ]


def _resource(need: Need, text: str) -> str:
    """Return the name of the resource; a transaction begins with its transactional id.

    A subject of the default context has two names, and one of them counts.
    """
    if need.kind is ResourceType.TRANSACTIONAL_ID:
        return text.rsplit(".", 2)[0]
    if need.kind is ResourceType.SUBJECT:
        return text.removeprefix(DEFAULT_CONTEXT)
    return text


def on(operation: Operation, kind: ResourceType) -> Needs:
    return Needs((Need(operation, kind, _PARAMETERS[kind]),))


def cluster(operation: Operation) -> Needs:
    return Needs((Need(operation, ResourceType.CLUSTER),))


def within(operation: Operation, kind: ResourceType) -> Needs:
    return Needs(within=(Need(operation, kind),))


OPEN: Final = Needs(is_open=True)

ANY_CALLER: Final = Needs()
"""A credential, whatever it may do."""
