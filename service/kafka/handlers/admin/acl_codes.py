"""ACLs in Kafka's numbers. Pure.

Subjects and connectors have ACLs here and none in Kafka, so what is about them is neither shown nor
deleted by this protocol.
"""

from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

import msgspec

from service.kafka.handlers.admin.answers import KafkaRefusal
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.acls import AclCreation
from service.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

ANY: Final = 1
MATCH: Final = 2

RESOURCE_TYPES: Final[Mapping[int, ResourceType]] = {
    2: ResourceType.TOPIC,
    3: ResourceType.GROUP,
    4: ResourceType.CLUSTER,
    5: ResourceType.TRANSACTIONAL_ID,
}
PATTERN_TYPES: Final[Mapping[int, PatternType]] = {
    3: PatternType.LITERAL,
    4: PatternType.PREFIXED,
}
OPERATIONS: Final[Mapping[int, Operation]] = {
    2: Operation.ALL,
    3: Operation.READ,
    4: Operation.WRITE,
    5: Operation.CREATE,
    6: Operation.DELETE,
    7: Operation.ALTER,
    8: Operation.DESCRIBE,
    9: Operation.CLUSTER_ACTION,
    10: Operation.DESCRIBE_CONFIGS,
    11: Operation.ALTER_CONFIGS,
    12: Operation.IDEMPOTENT_WRITE,
    13: Operation.CREATE_TOKENS,
    14: Operation.DESCRIBE_TOKENS,
}
PERMISSIONS: Final[Mapping[int, Permission]] = {2: Permission.DENY, 3: Permission.ALLOW}

T = TypeVar("T")


class FilterFields(Protocol):
    """The fields that requests have for a filter."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def number_of(codes: Mapping[int, T], value: T) -> int:
    return next(number for number, each in codes.items() if each == value)


def is_known_to_kafka(acl: Acl) -> bool:
    return acl.resource_type in RESOURCE_TYPES.values()


def filter_of(fields: FilterFields) -> AclFilter:
    """Return the filter of a request, or raise `KafkaRefusal`."""
    pattern = fields.pattern_type_filter
    return AclFilter(
        resource_type=_wanted("resource type", RESOURCE_TYPES, fields.resource_type_filter),
        resource_name=fields.resource_name_filter,
        pattern_type=None if pattern == MATCH else _wanted("pattern type", PATTERN_TYPES, pattern),
        matches_names=pattern == MATCH,
        principal=fields.principal_filter,
        host=fields.host_filter,
        operation=_wanted("operation", OPERATIONS, fields.operation),
        permission=_wanted("permission", PERMISSIONS, fields.permission_type),
    )


def acl_of(new: AclCreation) -> Acl:
    """Return the ACL that is to be created, or raise `KafkaRefusal`."""
    acl = Acl(
        resource_type=_given("resource type", RESOURCE_TYPES, new.resource_type),
        resource_name=new.resource_name,
        pattern_type=_given("pattern type", PATTERN_TYPES, new.resource_pattern_type),
        principal=new.principal,
        host=new.host,
        operation=_given("operation", OPERATIONS, new.operation),
        permission=_given("permission", PERMISSIONS, new.permission_type),
    )
    kind, _, name = new.principal.partition(":")
    if kind != "User" or not name:
        raise KafkaRefusal(
            ErrorCode.INVALID_PRINCIPAL_TYPE,
            f"principal: {new.principal[:100]!r} is not like User:ana; there are no other types",
        )
    try:
        return msgspec.convert(msgspec.to_builtins(acl), Acl)
    except msgspec.ValidationError as error:
        raise KafkaRefusal(ErrorCode.INVALID_REQUEST, str(error)) from None


def _wanted(what: str, codes: Mapping[int, T], number: int) -> T | None:
    return None if number == ANY else _given(what, codes, number)


def _given(what: str, codes: Mapping[int, T], number: int) -> T:
    if number not in codes:
        raise KafkaRefusal(ErrorCode.INVALID_REQUEST, f"there is no {what} {number} here")
    return codes[number]
