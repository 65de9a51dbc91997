"""Settings of topics, brokers and groups."""

from typing import Any

import pytest

from service.kafka.handlers.admin.config_entries import BROKER_NAMES, TOPIC_TYPES
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsAlterConfigsResource,
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsAlterConfigsResource,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from service.security.acls import Operation, ResourceType
from service.security.caller import ANYONE, Caller
from storage.topics.config import SETTINGS
from tests.service.kafka.handlers.admin.place import BrokerUnderTest, Place, Someone, may

pytestmark = pytest.mark.anyio

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

TEXTS = {
    "compression.type",
    "encryption",
    "encryption.kek",
    "key.schema.subject",
    "key.schema.validation",
    "message.timestamp.type",
    "value.schema.subject",
    "value.schema.validation",
}


async def described(
    broker: BrokerUnderTest, kind: int, name: str, *names: str, caller: Caller = ANYONE, **ask: Any
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(names) or None
    )
    request = DescribeConfigsRequest(resources=[resource], **ask)
    [result] = (await broker.answer(request, caller)).results
    assert isinstance(result, DescribeConfigsResult)
    return result


async def changed(
    broker: BrokerUnderTest,
    name: str,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    dry_run: bool = False,
    caller: Caller = ANYONE,
) -> tuple[int, str]:
    resource = IncrementalAlterConfigsAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsAlterableConfig(name=key, config_operation=op, value=value)
            for key, op, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry_run)
    [result] = (await broker.answer(request, caller)).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message or ""


async def replaced(broker: BrokerUnderTest, name: str, **config: str) -> int:
    resource = AlterConfigsAlterConfigsResource(
        resource_type=TOPIC,
        resource_name=name,
        configs=[
            AlterConfigsAlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ],
    )
    [result] = (await broker.answer(AlterConfigsRequest(resources=[resource]))).responses
    code: int = result.error_code
    return code


def test_every_setting_of_a_topic_has_kafkas_type() -> None:
    untyped = {n for n in SETTINGS if n not in TOPIC_TYPES and not n.startswith("riacho.")}

    assert untyped == TEXTS
    assert TOPIC_TYPES.keys() | BROKER_NAMES.keys() <= SETTINGS.keys()


async def test_a_topic_shows_every_setting_with_its_source() -> None:
    broker = await Place().broker()
    await broker.gateway.topics.create("t", config={"retention.ms": 5})

    result = await described(broker, TOPIC, "t", include_synonyms=True, include_documentation=True)

    assert (result.error_code, [each.name for each in result.configs]) == (0, sorted(SETTINGS))
    shown = {each.name: each for each in result.configs}
    retention, policy = shown["retention.ms"], shown["cleanup.policy"]
    assert (retention.value, retention.config_source, retention.config_type) == ("5", 1, 5)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert (policy.value, policy.config_source, policy.config_type) == ("delete", 5, 7)
    assert shown["lane.partitions"].read_only
    assert not retention.read_only
    assert retention.documentation == "age of records; -1 is unlimited"
    assert (shown["flush.ms"].documentation or "").endswith("without effect here")
    some = await described(broker, TOPIC, "t", "retention.ms", "zzz")
    assert [(each.name, each.synonyms, each.documentation) for each in some.configs] == [
        ("retention.ms", [], None)
    ]


async def test_many_topics_are_read_together() -> None:
    broker = await Place().broker()
    names = [f"t{number}" for number in range(12)]
    for name in names:
        await broker.gateway.topics.create(name, config={"retention.ms": 5})
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=["retention.ms"]
        )
        for name in [*names, "zzz"]
    ]

    answer = await broker.answer(DescribeConfigsRequest(resources=resources))

    found = [(each.error_code, [c.value for c in each.configs]) for each in answer.results]
    assert found == [(0, ["5"])] * 12 + [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "zzz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (BROKER, "", 0),
        (LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (METRICS, "m", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_has_no_settings_is_said(kind: int, name: str, code: int) -> None:
    result = await described(await Place().broker(), kind, name)

    assert (result.error_code, result.configs) == (code, [])


async def test_brokers_and_groups_show_what_programs_ask_for() -> None:
    broker = await Place("ab", kafka_num_partitions=3, kafka_replication_factor=9).broker()

    of_broker = {each.name: each for each in (await described(broker, BROKER, "1")).configs}
    of_group = {each.name: each.value for each in (await described(broker, GROUP, "g")).configs}

    values = {name: each.value for name, each in of_broker.items()}
    assert values["node.id"] == "1"
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert values["num.partitions"] == "3"
    assert values["default.replication.factor"] == "2"
    assert values["log.retention.hours"] == "168"
    assert values["message.max.bytes"] == "1048588"
    assert values["auto.create.topics.enable"] == "true"
    assert all(each.read_only for each in of_broker.values())
    assert of_group == {
        "consumer.heartbeat.interval.ms": "5000",
        "consumer.session.timeout.ms": "45000",
    }


async def test_settings_are_set_removed_appended_to_and_subtracted_from() -> None:
    broker = await Place().broker()
    await broker.gateway.topics.create("t", config={"retention.ms": 5, "segment.ms": 7})

    assert await changed(
        broker,
        "t",
        ("retention.ms", SET, "9"),
        ("segment.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact,delete"),
        ("leader.replication.throttled.replicas", APPEND, "0:1"),
    ) == (0, "")
    assert (await broker.gateway.topics.read("t")).config.given == {
        "retention.ms": "9",
        "cleanup.policy": "compact,delete",
        "leader.replication.throttled.replicas": "0:1",
    }

    assert (await changed(broker, "t", ("cleanup.policy", SUBTRACT, "delete")))[0] == 0
    assert (await broker.gateway.topics.read("t")).config["cleanup.policy"] == "compact"
    code, _ = await changed(broker, "t", ("retention.ms", SET, "1"), dry_run=True)
    assert (code, (await broker.gateway.topics.read("t")).config["retention.ms"]) == (0, "9")


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ([("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG, "must be a whole number"),
        ([("retention.m", SET, "1")], ErrorCode.INVALID_CONFIG, "did you mean"),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "is not a list"),
        ([("lane.partitions", SET, "1")], ErrorCode.INVALID_CONFIG, "cannot be changed"),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "has no value"),
        ([("retention.ms", 4, "1")], ErrorCode.INVALID_REQUEST, "no operation 4"),
        ([("retention.ms", 0, "1")] * 2, ErrorCode.INVALID_REQUEST, "twice"),
        ([("cleanup.policy", SUBTRACT, "delete")], ErrorCode.INVALID_CONFIG, "must be delete"),
    ],
)
async def test_wrong_changes_are_refused(
    changes: list[tuple[str, int, str | None]], code: ErrorCode, text: str
) -> None:
    broker = await Place().broker()
    await broker.gateway.topics.create("t")

    found, message = await changed(broker, "t", *changes)

    assert found == code
    assert text in message


async def test_only_topics_can_be_changed() -> None:
    broker = await Place().broker()

    for kind, name in ((BROKER, "1"), (GROUP, "g"), (LOGGER, "1"), (METRICS, "m"), (99, "x")):
        code, text = await changed(broker, name, ("num.partitions", SET, "1"), kind=kind)
        assert (code, bool(text)) == (ErrorCode.INVALID_REQUEST, True)
    assert (await changed(broker, "zzz", ("retention.ms", SET, "1")))[0] == 3


async def test_all_settings_are_replaced_but_those_fixed_at_creation() -> None:
    broker = await Place().broker()
    config = {"retention.ms": 5, "segment.ms": 7, "lane.partitions": 2}
    await broker.gateway.topics.create("t", config=config)

    assert await replaced(broker, "t", segment_ms="8", flush_ms="9") == 0

    given = (await broker.gateway.topics.read("t")).config.given
    assert given == {"segment.ms": "8", "flush.ms": "9", "lane.partitions": "2"}
    assert await replaced(broker, "t", lane_partitions="3") == ErrorCode.INVALID_CONFIG


async def test_callers_need_the_right_of_the_resource() -> None:
    broker = await Place().broker()
    await broker.gateway.topics.create("t")
    some = Someone([may(Operation.ALTER_CONFIGS, ResourceType.TOPIC, "t")])
    change = ("retention.ms", SET, "1")

    assert (await described(broker, TOPIC, "t", caller=some.caller)).error_code == 0
    assert (await changed(broker, "t", change, caller=some.caller))[0] == 0
    assert some.changes == [("ALTER", "TOPIC", "t")]
    for kind, name, code in ((TOPIC, "u", 29), (GROUP, "g", 30), (BROKER, "1", 31)):
        assert (await described(broker, kind, name, caller=some.caller)).error_code == code
        assert (await changed(broker, name, change, kind=kind, caller=some.caller))[0] == code
    listed = await broker.answer(ListConfigResourcesRequest(), some.caller)
    assert (listed.error_code, listed.config_resources) == (31, [])


async def test_resources_with_settings_are_listed() -> None:
    broker = await Place().broker()
    await broker.gateway.topics.create("t")

    everything = await broker.answer(ListConfigResourcesRequest())
    topics = await broker.answer(ListConfigResourcesRequest(resource_types=[TOPIC]))
    oldest = await broker.answer(ListConfigResourcesRequest(), version=0)
    unknown = await broker.answer(ListConfigResourcesRequest(resource_types=[TOPIC, 77]))

    def found(answer: Any) -> list[tuple[int, str]]:
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    assert found(everything) == [(TOPIC, "t"), (BROKER, "1")]
    assert found(topics) == [(TOPIC, "t")]
    assert found(oldest) == []
    assert (unknown.error_code, found(unknown)) == (ErrorCode.UNSUPPORTED_VERSION, [])
