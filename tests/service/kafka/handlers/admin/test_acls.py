"""ACLs in Kafka's numbers, on the ACLs of all doors."""

from typing import Any

import pytest

from service.kafka.handlers.admin import acl_codes
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from service.security.acl_items import AclItems
from service.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from service.security.caller import ANYONE, Caller
from tests.service.kafka.handlers.admin.place import BrokerUnderTest, Place, Someone, may

pytestmark = pytest.mark.anyio

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TOKEN = 2, 3, 4, 6
READ, WRITE, DENY, ALLOW = 3, 4, 2, 3

Found = list[tuple[int, str, int, str, int, int]]


def rule(name: str, kind: int = TOPIC, pattern: int = LITERAL, **other: Any) -> AclCreation:
    given = {"principal": "User:ana", "host": "*", "operation": READ, "permission_type": ALLOW}
    return AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=pattern, **{**given, **other}
    )


async def created(
    broker: BrokerUnderTest, *new: AclCreation, caller: Caller = ANYONE
) -> list[tuple[int, str]]:
    answer = await broker.answer(CreateAclsRequest(creations=list(new)), caller)
    return [(each.error_code, each.error_message or "") for each in answer.results]


def wanted(kind: type[Any], name: str | None = None, pattern: int = ANY, **other: Any) -> Any:
    given = {
        "resource_type_filter": ANY,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return kind(**{**given, **other})


async def described(broker: BrokerUnderTest, *ask: Any, **fields: Any) -> Found:
    answer = await broker.answer(wanted(DescribeAclsRequest, *ask, **fields))
    assert answer.error_code == 0, answer.error_message
    return sorted(
        (
            r.resource_type,
            r.resource_name,
            r.pattern_type,
            a.principal,
            a.operation,
            a.permission_type,
        )
        for r in answer.resources
        for a in r.acls
    )


async def names(broker: BrokerUnderTest, *ask: Any, **fields: Any) -> list[str]:
    return [name for _, name, *_ in await described(broker, *ask, **fields)]


def test_every_word_has_kafkas_number() -> None:
    assert set(acl_codes.OPERATIONS.values()) == set(Operation)
    assert set(acl_codes.PATTERN_TYPES.values()) == set(PatternType)
    assert set(acl_codes.PERMISSIONS.values()) == set(Permission)
    assert set(ResourceType) - set(acl_codes.RESOURCE_TYPES.values()) == {"SUBJECT", "CONNECTOR"}


async def test_without_security_there_are_no_acls() -> None:
    broker = await Place().broker()

    described = await broker.answer(wanted(DescribeAclsRequest))
    [one] = await created(broker, rule("t"))
    deleted = await broker.answer(DeleteAclsRequest(filters=[wanted(DeleteAclsFilter)]))

    assert described.error_code == one[0] == ErrorCode.SECURITY_DISABLED
    assert [each.error_code for each in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]


async def test_acls_are_created_and_shown() -> None:
    broker = await Place().broker(has_security=True)
    some = Someone([may(Operation.ALTER, ResourceType.CLUSTER)])

    answers = await created(
        broker,
        rule("t"),
        rule("t", operation=WRITE, permission_type=DENY),
        rule("kafka-cluster", CLUSTER, operation=12),
        rule("g", GROUP, PREFIXED),
        caller=some.caller,
    )

    assert answers == [(0, "")] * 4
    assert await described(broker) == [
        (TOPIC, "t", LITERAL, "User:ana", READ, ALLOW),
        (TOPIC, "t", LITERAL, "User:ana", WRITE, DENY),
        (GROUP, "g", PREFIXED, "User:ana", READ, ALLOW),
        (CLUSTER, "kafka-cluster", LITERAL, "User:ana", 12, ALLOW),
    ]
    assert [operation for operation, _, _ in some.changes] == ["CREATE"] * 4


@pytest.mark.parametrize(
    ("acl", "code"),
    [
        (rule("t", TOKEN), ErrorCode.INVALID_REQUEST),
        (rule("t", ANY), ErrorCode.INVALID_REQUEST),
        (rule("t", TOPIC, MATCH), ErrorCode.INVALID_REQUEST),
        (rule("t", operation=ANY), ErrorCode.INVALID_REQUEST),
        (rule("t", operation=15), ErrorCode.INVALID_REQUEST),
        (rule("t", permission_type=0), ErrorCode.INVALID_REQUEST),
        (rule("t", operation=12), ErrorCode.INVALID_REQUEST),
        (rule("other", CLUSTER, operation=12), ErrorCode.INVALID_REQUEST),
        (rule(""), ErrorCode.INVALID_REQUEST),
        (rule("t", host=""), ErrorCode.INVALID_REQUEST),
        (rule("t", principal="ana"), ErrorCode.INVALID_PRINCIPAL_TYPE),
        (rule("t", principal="Group:staff"), ErrorCode.INVALID_PRINCIPAL_TYPE),
    ],
)
async def test_an_acl_that_means_nothing_is_refused_alone(acl: AclCreation, code: int) -> None:
    broker = await Place().broker(has_security=True)

    [wrong, right] = await created(broker, acl, rule("right"))

    assert (wrong[0], bool(wrong[1]), right[0]) == (code, True, 0)
    assert await names(broker) == ["right"]


async def test_filters_match_as_kafkas_do() -> None:
    broker = await Place().broker(has_security=True)
    await created(
        broker,
        rule("ab"),
        rule("a", TOPIC, PREFIXED),
        rule("*"),
        rule("b"),
        rule("ab", GROUP, principal="User:bob", host="10.0.0.1", permission_type=DENY),
    )

    assert await names(broker, "ab", LITERAL) == ["ab", "ab"]
    assert await names(broker, "ab", ANY, resource_type_filter=TOPIC) == ["ab"]
    assert await names(broker, "ab", MATCH, resource_type_filter=TOPIC) == ["*", "a", "ab"]
    assert await names(broker, "ab", PREFIXED) == []
    assert await names(broker, None, PREFIXED) == ["a"]
    assert await names(broker, principal_filter="User:bob") == ["ab"]
    assert await names(broker, host_filter="10.0.0.1", permission_type=DENY) == ["ab"]
    assert await names(broker, operation=WRITE) == []
    assert len(await names(broker)) == 5
    bad = await broker.answer(wanted(DescribeAclsRequest, operation=0))
    assert (bad.error_code, bad.resources) == (ErrorCode.INVALID_REQUEST, [])


async def test_each_filter_deletes_what_matches_it() -> None:
    broker = await Place().broker(has_security=True)
    items = AclItems(broker.gateway.metadata, broker.gateway.world)
    subject = Acl(ResourceType.SUBJECT, "s", "User:ana", Operation.READ)
    await items.add([subject])
    await created(broker, rule("a"), rule("b"), rule("b", operation=WRITE))
    filters = [
        wanted(DeleteAclsFilter, "b"),
        wanted(DeleteAclsFilter, "zzz"),
        wanted(DeleteAclsFilter, permission_type=9),
        wanted(DeleteAclsFilter),
    ]

    answer = await broker.answer(DeleteAclsRequest(filters=filters))

    assert [
        (each.error_code, sorted((acl.resource_name, acl.operation) for acl in each.matching_acls))
        for each in answer.filter_results
    ] == [
        (0, [("b", READ), ("b", WRITE)]),
        (0, []),
        (ErrorCode.INVALID_REQUEST, []),
        (0, [("a", READ)]),
    ]
    assert await items.all() == [subject]


async def test_callers_need_rights_on_the_cluster() -> None:
    broker = await Place().broker(has_security=True)
    caller = Someone([may(Operation.DESCRIBE, ResourceType.CLUSTER)]).caller

    assert (await broker.answer(wanted(DescribeAclsRequest), caller)).error_code == 0
    [code] = [code for code, _ in await created(broker, rule("t"), caller=caller)]
    assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    request = DeleteAclsRequest(filters=[wanted(DeleteAclsFilter)])
    [result] = (await broker.answer(request, caller)).filter_results
    assert result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    nobody = await broker.answer(wanted(DescribeAclsRequest), Someone().caller)
    assert nobody.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
