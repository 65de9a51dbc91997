"""SCRAM users and quotas."""

import hashlib
from typing import Any

import pytest

from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.users import (
    AlterClientQuotasEntityData,
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterUserScramCredentialsRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
    OpData,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from service.security.acls import Operation, ResourceType
from service.security.api_keys.scram import ScramMechanism
from service.security.api_keys.users import Users
from service.security.caller import ANYONE, Caller
from service.security.quotas.items import QuotaItems
from tests.service.kafka.handlers.admin.place import BrokerUnderTest, Place, Someone, may

pytestmark = pytest.mark.anyio

SHA_256, SHA_512 = 1, 2
SALT = b"salt of nothing"


def password(
    name: str, text: str = "secret", mechanism: int = SHA_256, iterations: int = 4096
) -> ScramCredentialUpsertion:
    digest = "sha512" if mechanism == SHA_512 else "sha256"
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=memoryview(SALT),
        salted_password=memoryview(
            hashlib.pbkdf2_hmac(digest, text.encode(), SALT, min(iterations, 5000))
        ),
    )


def gone(name: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def altered(
    broker: BrokerUnderTest,
    *changes: ScramCredentialUpsertion | ScramCredentialDeletion,
    caller: Caller = ANYONE,
) -> list[tuple[str, int]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    answer = await broker.answer(request, caller)
    return [(each.user, each.error_code) for each in answer.results]


async def test_users_get_passwords_that_they_can_log_in_with() -> None:
    broker = await Place().broker()
    some = Someone([may(Operation.ALTER, ResourceType.CLUSTER)])

    assert await altered(
        broker,
        password("ana"),
        password("ana", mechanism=SHA_512),
        password("bob", "b"),
        caller=some.caller,
    ) == [("ana", 0), ("bob", 0)]

    user = await Users(broker.gateway.metadata, broker.gateway.world).find("ana")
    assert user is not None
    for mechanism in ScramMechanism:
        verifier = user.verifier(mechanism)
        assert verifier is not None
        assert verifier.has_password("secret")
        assert not verifier.has_password("b")
    assert len(some.changes) == 2
    assert "secret" not in str(some.changes)


async def test_users_are_described() -> None:
    broker = await Place().broker()
    await altered(broker, password("ana", iterations=5000), password("bob", mechanism=SHA_512))

    everyone = await broker.answer(DescribeUserScramCredentialsRequest(users=None))
    some = await broker.answer(
        DescribeUserScramCredentialsRequest(
            users=[UserName(name=name) for name in ("bob", "eve", "ana", "ana")]
        )
    )

    assert [
        (each.user, [(info.mechanism, info.iterations) for info in each.credential_infos])
        for each in everyone.results
    ] == [("ana", [(SHA_256, 5000)]), ("bob", [(SHA_512, 4096)])]
    assert [(each.user, each.error_code) for each in some.results] == [
        ("bob", 0),
        ("eve", ErrorCode.RESOURCE_NOT_FOUND),
        ("ana", ErrorCode.DUPLICATE_RESOURCE),
    ]


async def test_credentials_are_deleted() -> None:
    broker = await Place().broker()
    await altered(broker, password("ana"), password("ana", mechanism=SHA_512), password("bob"))

    assert await altered(broker, gone("ana", SHA_512), gone("bob"), gone("eve")) == [
        ("ana", 0),
        ("bob", 0),
        ("eve", ErrorCode.RESOURCE_NOT_FOUND),
    ]
    assert await altered(broker, gone("ana", SHA_512)) == [("ana", ErrorCode.RESOURCE_NOT_FOUND)]

    everyone = await broker.answer(DescribeUserScramCredentialsRequest(users=[]))
    assert [each.user for each in everyone.results] == ["ana"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([password("ana"), password("ana")], ErrorCode.DUPLICATE_RESOURCE),
        ([gone("ana"), password("ana")], ErrorCode.DUPLICATE_RESOURCE),
        ([password("ana", iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([password("ana", iterations=16_385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([password("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([password("a b")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([password("ana", mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([gone("ana", 0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
async def test_unacceptable_credentials_are_refused_and_others_set(
    changes: list[Any], code: ErrorCode
) -> None:
    broker = await Place().broker()

    answers = dict(await altered(broker, *changes, password("other")))

    assert answers.pop("other") == 0
    assert list(answers.values()) == [code]
    assert len(await Users(broker.gateway.metadata, broker.gateway.world).all()) == 1


async def test_a_salted_password_has_the_length_of_its_hash() -> None:
    short = password("ana")
    short.salted_password = b"short"

    [(_, code)] = await altered(await Place().broker(), short)

    assert code == ErrorCode.UNACCEPTABLE_CREDENTIAL


async def test_only_super_users_give_super_users_a_password() -> None:
    broker = await Place(super_users="User:root").broker()
    admin = Someone([may(Operation.ALL, ResourceType.CLUSTER)]).caller
    root = Someone(is_super=True).caller
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    assert await altered(broker, password("root"), caller=admin) == [("root", refused)]
    assert await altered(broker, password("root"), caller=root) == [("root", 0)]
    assert await altered(broker, password("ana"), caller=Someone().caller) == [("ana", refused)]
    answer = await broker.answer(DescribeUserScramCredentialsRequest(), Someone().caller)
    assert (answer.error_code, answer.results) == (refused, [])


# Quotas


def entity(**names: str | None) -> list[AlterClientQuotasEntityData]:
    return [
        AlterClientQuotasEntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in names.items()
    ]


async def limited(
    broker: BrokerUnderTest,
    of: list[AlterClientQuotasEntityData],
    *,
    dry_run: bool = False,
    caller: Caller = ANYONE,
    **rates: float | None,
) -> int:
    ops = [OpData(key=key, value=rate or 0.0, remove=rate is None) for key, rate in rates.items()]
    entry = AlterClientQuotasRequestEntryData(entity=of, ops=ops)
    request = AlterClientQuotasRequest(entries=[entry], validate_only=dry_run)
    [result] = (await broker.answer(request, caller)).entries
    assert [each.entity_type for each in result.entity] == [each.entity_type for each in of]
    code: int = result.error_code
    return code


Shown = list[tuple[dict[str, str | None], dict[str, float]]]


async def shown(broker: BrokerUnderTest, *filters: ComponentData, strict: bool = False) -> Shown:
    request = DescribeClientQuotasRequest(components=list(filters), strict=strict)
    answer = await broker.answer(request)
    assert answer.error_code == 0
    found = [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]
    return sorted(found, key=str)


def exactly(kind: str, name: str) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=0, match=name)


def default_of(kind: str) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=1, match=None)


def any_of(kind: str) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=2, match=None)


async def test_quotas_are_set_shown_and_removed() -> None:
    broker = await Place().broker(has_security=True)

    assert await limited(broker, entity(user="ana"), producer_byte_rate=1024.0) == 0
    assert await limited(broker, entity(user="ana", client_id="etl"), request_percentage=50) == 0
    assert await limited(broker, entity(user=None), consumer_byte_rate=7) == 0
    assert await limited(broker, entity(user="bob"), consumer_byte_rate=7, dry_run=True) == 0
    both = {"consumer_byte_rate": 9.0, "producer_byte_rate": None}
    assert await limited(broker, entity(user="ana"), **both) == 0

    ana, etl, default = (
        ({"user": "ana"}, {"consumer_byte_rate": 9.0}),
        ({"user": "ana", "client-id": "etl"}, {"request_percentage": 50.0}),
        ({"user": None}, {"consumer_byte_rate": 7.0}),
    )
    assert await shown(broker) == sorted([ana, etl, default], key=str)
    assert await shown(broker, exactly("user", "ana")) == sorted([ana, etl], key=str)
    assert await shown(broker, exactly("user", "ana"), strict=True) == [ana]
    assert await shown(broker, default_of("user")) == [default]
    assert await shown(broker, any_of("client-id")) == [etl]
    assert len(await shown(broker, any_of("user"))) == 3
    assert await shown(broker, any_of("ip")) == []
    items = QuotaItems(broker.gateway.metadata, broker.gateway.world)
    assert len(await items.all()) == 3


@pytest.mark.parametrize(
    ("of", "rates"),
    [
        (entity(ip="10.0.0.1"), {"connection_creation_rate": 5}),
        (entity(group="g"), {"producer_byte_rate": 5}),
        ([], {"producer_byte_rate": 5}),
        (entity(user="ana") * 2, {"producer_byte_rate": 5}),
        (entity(user=""), {"producer_byte_rate": 5}),
        (entity(user="<default>"), {"producer_byte_rate": 5}),
        (entity(user="ana"), {"bytes": 5}),
        (entity(user="ana"), {"producer_byte_rate": 0.0}),
        (entity(user="ana"), {"producer_byte_rate": -1.0}),
        (entity(user="ana"), {"producer_byte_rate": float("nan")}),
        (entity(user="ana"), {"producer_byte_rate": float("inf")}),
    ],
)
async def test_quotas_that_mean_nothing_are_refused(of: Any, rates: dict[str, float]) -> None:
    broker = await Place().broker()

    assert await limited(broker, of, **rates) == ErrorCode.INVALID_REQUEST
    assert await shown(broker) == []


@pytest.mark.parametrize(
    "components",
    [
        [any_of("user"), any_of("user")],
        [any_of("ip"), any_of("user")],
        [any_of("group")],
        [ComponentData(entity_type="user", match_type=0, match=None)],
        [ComponentData(entity_type="user", match_type=1, match="ana")],
        [ComponentData(entity_type="user", match_type=3, match=None)],
    ],
)
async def test_filters_that_mean_nothing_are_refused(components: list[ComponentData]) -> None:
    request = DescribeClientQuotasRequest(components=components)

    answer = await (await Place().broker()).answer(request)

    assert (answer.error_code, answer.entries) == (ErrorCode.INVALID_REQUEST, None)


async def test_quotas_need_rights_on_the_cluster() -> None:
    broker = await Place().broker()
    caller = Someone().caller

    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await limited(broker, entity(user="a"), request_percentage=1, caller=caller) == refused
    answer = await broker.answer(DescribeClientQuotasRequest(), caller)
    assert answer.error_code == refused
