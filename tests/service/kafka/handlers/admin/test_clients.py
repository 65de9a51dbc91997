"""The admin clients of librdkafka and of kafka-python, over SASL, at a gateway in this process."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, KafkaException, TopicPartition, admin

from service.log.gateway import Gateway
from service.security.api_keys.users import Users
from tests.service.kafka.listener.served import door

pytestmark = pytest.mark.anyio

WAIT_S = 60.0
LOGIN = {"root": "secret of root"}


@pytest.fixture
async def gateway_and_address() -> AsyncIterator[tuple[Gateway, str]]:
    async with door(super_users="User:root") as (opened, gateway, _):
        for name, password in LOGIN.items():
            await Users(gateway.metadata, gateway.world).set_password(name, password)
        yield gateway, f"{opened.address.host}:{opened.address.port}"


def done(futures: Mapping[Any, Any]) -> list[Any]:
    return [future.result(WAIT_S) for future in futures.values()]


def administer(address: str) -> dict[str, Any]:
    """Do what administrators do; runs in a thread, as these clients block."""
    client = admin.AdminClient(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "root",
            "sasl.password": LOGIN["root"],
        }
    )
    of_topic = admin.ResourceType.TOPIC
    seen: dict[str, Any] = {}
    config = {"flush.ms": "5", "min.insync.replicas": "2"}
    done(client.create_topics([admin.NewTopic("t", 2, 3, config=config)]))
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        done(client.create_topics([admin.NewTopic("t", 2, 1)]))
    done(client.create_partitions([admin.NewPartitions("t", 3)]))
    entry = admin.ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=admin.AlterConfigOpType.APPEND
    )
    resource = admin.ConfigResource("topic", "t", incremental_configs=[entry])
    done(client.incremental_alter_configs([resource]))
    [shown] = done(client.describe_configs([admin.ConfigResource("topic", "t")]))
    seen["policy"] = shown["cleanup.policy"].value
    seen["in sync"] = shown["min.insync.replicas"].value
    seen["topics"] = {
        name: len(topic.partitions)
        for name, topic in client.list_topics(timeout=WAIT_S).topics.items()
    }
    [deleted] = done(client.delete_records([TopicPartition("t", 0, OFFSET_END)]))
    seen["low"] = deleted.low_watermark
    acl = admin.AclBinding(
        of_topic,
        "t",
        admin.ResourcePatternType.PREFIXED,
        "User:bob",
        "*",
        admin.AclOperation.READ,
        admin.AclPermissionType.ALLOW,
    )
    any_acl = admin.AclBindingFilter(
        admin.ResourceType.ANY,
        None,
        admin.ResourcePatternType.ANY,
        None,
        None,
        admin.AclOperation.ANY,
        admin.AclPermissionType.ANY,
    )
    done(client.create_acls([acl]))
    seen["acls"] = [each.principal for each in client.describe_acls(any_acl).result(WAIT_S)]
    seen["deleted"] = [len(each) for each in done(client.delete_acls([any_acl]))]
    info = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_512, 8192)
    done(
        client.alter_user_scram_credentials(
            [admin.UserScramCredentialUpsertion("bob", info, b"password of bob")]
        )
    )
    seen["users"] = sorted(client.describe_user_scram_credentials().result(WAIT_S))
    done(client.delete_topics(["t"]))
    return seen


async def test_the_admin_client_of_librdkafka(gateway_and_address: tuple[Gateway, str]) -> None:
    gateway, address = gateway_and_address

    seen = await asyncio.to_thread(administer, address)

    assert seen == {
        "policy": "compact,delete",
        "in sync": "2",
        "topics": {"t": 3},
        "low": 0,
        "acls": ["User:bob"],
        "deleted": [1],
        "users": ["bob", "root"],
    }
    assert await gateway.topics.all() == []
    bob = await Users(gateway.metadata, gateway.world).find("bob")
    assert bob is not None
    assert bob.verifiers[0].has_password("password of bob")


def look(address: str) -> dict[str, Any]:
    # Imported here, where the warnings that its import makes are ignored.
    from kafka.admin import KafkaAdminClient

    client = KafkaAdminClient(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="root",
        sasl_plain_password=LOGIN["root"],
    )
    try:
        client.create_topics({"t": {"num_partitions": -1, "configs": {"retention.ms": "5"}}})
        [directory] = client.describe_log_dirs()[0]["log_dirs"]
        return {
            "sizes": [(each["name"], len(each["partitions"])) for each in directory["topics"]],
            "resources": client.list_config_resources()["topic"],
            "transactions": list(client.list_transactions().values()),
            "reassignments": client.list_partition_reassignments(),
        }
    finally:
        client.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_the_admin_client_of_kafka_python(gateway_and_address: tuple[Gateway, str]) -> None:
    gateway, address = gateway_and_address

    assert await asyncio.to_thread(look, address) == {
        "sizes": [("t", 1)],
        "resources": ["t"],
        "transactions": [[]],
        "reassignments": {},
    }
    assert (await gateway.topics.read("t")).config["retention.ms"] == "5"
