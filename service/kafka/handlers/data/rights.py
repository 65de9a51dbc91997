"""What a caller may do, as the bits that clients ask for."""

from typing import Final

from service.security.acls import CLUSTER_NAME, Operation, ResourceType
from service.security.caller import Caller

NOT_ASKED: Final = -(2**31)
"""Stands for bits that the client did not ask for."""

_BITS: Final = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
}
"""Kafka's numbers of operations."""

_MEANT: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
}
"""Operations that mean something for a type of resource, as Kafka has it."""


def authorized_operations(caller: Caller, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
    """Return a bit for each operation that the caller may do on the resource."""
    return sum(
        1 << _BITS[operation] for operation in _MEANT[kind] if caller.allows(operation, kind, name)
    )
