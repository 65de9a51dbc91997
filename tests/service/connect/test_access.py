"""What tasks may do with the log: topics that are created, ACLs, prefixes of tenants."""

from typing import Any

import pytest

from service.connect.access.log_access import ConnectorLog
from service.connect.access.topics import settings_of, topic_of
from service.connect.connectors.api import TopicPartition
from service.connect.data.errors import TaskFault
from service.connect.tasks.items import FAILED, RUNNING, ConnectorItem
from service.security.acls import Operation, ResourceType
from service.security.caller import ANYONE
from storage.errors import InvalidConfig, UnknownTopicOrPartition
from tests.service.connect.tasks.toys import Deployment, Process, running, until

pytestmark = pytest.mark.anyio

ITEM = ConnectorItem("c", {}, "User:etl", 1)
TENANT = ConnectorItem("acme-c", {}, "User:etl", 1, name_prefix="acme-")


async def created(config: dict[str, str], name: str = "orders", **settings: Any) -> Process:
    process = Deployment().process(**settings)
    await topic_of(process.parts.gateway, ANYONE, name, name, config)
    return process


async def test_a_topic_is_created_as_for_a_client_of_kafka_unless_told_otherwise() -> None:
    process = await created({}, kafka_num_partitions=3)
    assert (await process.parts.gateway.topics.get("orders")).partition_count == 3
    with pytest.raises(TaskFault, match="does not exist, and RIACHO_KAFKA_AUTO_CREATE is off"):
        await created({}, kafka_auto_create=False)


async def test_a_topic_is_created_as_the_configuration_says() -> None:
    config = {
        "topic.creation.default.partitions": "5",
        "topic.creation.default.replication.factor": "3",
        "topic.creation.default.cleanup.policy": "compact",
    }
    process = await created(config, kafka_auto_create=False)
    topic = await process.parts.gateway.topics.get("orders")
    assert (topic.partition_count, topic.replication_factor) == (5, 1)
    assert topic.config.is_compacted
    with pytest.raises(InvalidConfig):
        await created({"topic.creation.default.colour": "red"})


def test_groups_of_topics_have_settings_of_their_own() -> None:
    config = {
        "topic.creation.groups": "raw, wide",
        "topic.creation.default.partitions": "1",
        "topic.creation.wide.include": "big.*, huge",
        "topic.creation.wide.exclude": "bigot",
        "topic.creation.wide.partitions": "9",
    }
    for name, partitions in {"big1": "9", "huge": "9", "bigot": "1", "other": "1"}.items():
        assert (settings_of(config, name) or {})["partitions"] == partitions
    assert settings_of({"name": "c"}, "big1") is None


async def test_a_task_may_look_at_the_log_and_make_topics() -> None:
    process = Deployment().process()
    log = ConnectorLog(process.parts, ITEM)
    assert await log.partition_count("t") is None
    wanted = {"cleanup.policy": "compact", "colour": "red", "retention.ms": "never"}
    await log.create_topic("t", 2, wanted)
    await log.create_topic("t", 2, wanted)
    assert await log.partition_count("t") == 2
    await log.create_topic("t", 4, {})
    assert (await process.parts.gateway.topics.read("t")).partition_count == 4
    at = TopicPartition("t", 1)
    assert await log.end_offset(at) == 0
    assert await log.group_offsets("g") == {}
    assert await log.commit_group_offsets("g", {at: 7})
    assert await log.group_offsets("g") == {at: 7}
    with pytest.raises(TaskFault, match="does not exist"):
        await log.end_offset(TopicPartition("nowhere", 0))


async def test_names_of_a_tenant_have_its_prefix_and_its_tasks_do_not_see_it() -> None:
    process = Deployment().process()
    log = ConnectorLog(process.parts, TENANT)
    await log.create_topic("t", 1, {})
    topics = process.parts.gateway.topics
    assert (await topics.get("acme-t")).partition_count == 1
    with pytest.raises(UnknownTopicOrPartition):
        await topics.get("t")
    await log.commit_group_offsets("g", {TopicPartition("t", 0): 7})
    assert await log.group_offsets("g") == {TopicPartition("t", 0): 7}
    assert await process.parts.offsets.read("acme-g")


async def test_a_connector_may_do_what_acls_allow_its_principal() -> None:
    deployment = Deployment()
    deployment.table.rows = ["a", "b"]
    await deployment.create(principal="User:etl")
    process = deployment.process(security="on")
    async with running(process):

        async def state_is(state: str) -> bool:
            return any(task.health.state == state for task in await deployment.tasks())

        await until(lambda: state_is(FAILED))
        [task] = await deployment.tasks()
        assert "User:etl may not WRITE topic 't'" in task.health.trace
        await deployment.allow("User:etl", Operation.WRITE, ResourceType.TOPIC, "t")
        await deployment.allow("User:etl", Operation.CREATE, ResourceType.TOPIC, "t")

        async def is_done() -> bool:
            return await process.values() == ["a", "b"]

        await until(is_done)
        await until(lambda: state_is(RUNNING))
