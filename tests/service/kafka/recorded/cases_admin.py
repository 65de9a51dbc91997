"""Wrong requests of administrators."""

from service.kafka.protocol.messages.acls import DescribeAclsRequest
from service.kafka.protocol.messages.configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsAlterConfigsResource,
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsAlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from service.kafka.protocol.messages.placement import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from service.kafka.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from service.kafka.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
)
from service.kafka.protocol.messages.users import (
    AlterClientQuotasEntityData,
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    OpData,
    ScramCredentialDeletion,
    UserName,
)
from tests.service.kafka.recorded.asked import Ask

TOPIC, BROKER = 2, 4


def create(*names: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> Ask:
    settings = [
        CreatableTopicConfig(name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    ]
    topics = [
        CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=factor, configs=settings
        )
        for name in names
    ]
    return Ask(7, CreateTopicsRequest(topics=topics, timeout_ms=5000, validate_only=True))


def assigned(partition: int, brokers: list[int], partitions: int = -1, factor: int = -1) -> Ask:
    topic = CreatableTopic(
        name="new",
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=partition, broker_ids=brokers)],
    )
    return Ask(7, CreateTopicsRequest(topics=[topic], timeout_ms=5000, validate_only=True))


def partitions(count: int, topic: str = "t") -> Ask:
    topics = [CreatePartitionsTopic(name=topic, count=count, assignments=None)]
    return Ask(3, CreatePartitionsRequest(topics=topics, timeout_ms=5000, validate_only=True))


def delete(name: str | None = None, topic_id: bytes = bytes(16)) -> Ask:
    topics = [DeleteTopicState(name=name, topic_id=topic_id)]
    return Ask(6, DeleteTopicsRequest(topics=topics, timeout_ms=5000))


def delete_records(offset: int, topic: str = "t", partition: int = 0) -> Ask:
    places = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
    topics = [DeleteRecordsTopic(name=topic, partitions=places)]
    return Ask(2, DeleteRecordsRequest(topics=topics, timeout_ms=5000))


def describe(kind: int, name: str) -> Ask:
    wanted = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    return Ask(4, DescribeConfigsRequest(resources=[wanted]))


def alter(
    name: str, value: str | None, *, topic: str = "t", operation: int = 0, times: int = 1
) -> Ask:
    config = IncrementalAlterConfigsAlterableConfig(
        name=name, config_operation=operation, value=value
    )
    changed = IncrementalAlterConfigsAlterConfigsResource(
        resource_type=TOPIC, resource_name=topic, configs=[config] * times
    )
    return Ask(1, IncrementalAlterConfigsRequest(resources=[changed], validate_only=True))


def replace(name: str, value: str | None, topic: str = "t") -> Ask:
    changed = AlterConfigsAlterConfigsResource(
        resource_type=TOPIC,
        resource_name=topic,
        configs=[AlterConfigsAlterableConfig(name=name, value=value)],
    )
    return Ask(2, AlterConfigsRequest(resources=[changed], validate_only=True))


def quota(kind: str, key: str, value: float = 1.0) -> Ask:
    entry = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasEntityData(entity_type=kind, entity_name="somebody")],
        ops=[OpData(key=key, value=value)],
    )
    return Ask(1, AlterClientQuotasRequest(entries=[entry], validate_only=True))


ADMIN: dict[str, Ask] = {
    "create, a name that no topic can have": create("a b"),
    "create, an empty name": create(""),
    "create, a name of dots": create(".."),
    "create, a long name": create("x" * 250),
    "create, a topic that exists": create("t"),
    "create, twice in one request": create("new", "new"),
    "create, no partitions": create("new", partitions=0),
    "create, a negative number of partitions": create("new", partitions=-2),
    "create, no replicas": create("new", factor=0),
    "create, a negative number of replicas": create("new", factor=-2),
    "create, an unknown setting": create("new", no_such="1"),
    "create, a wrong value": create("new", retention_ms="soon"),
    "create, a value that is null": create("new", retention_ms=None),
    "create, partitions and replicas by hand": assigned(0, [1], partitions=2, factor=1),
    "create, a replica on no broker": assigned(0, [99]),
    "create, a replica twice": assigned(0, [1, 1]),
    "create, partition 0 is missing": assigned(1, [1]),
    "partitions, fewer": partitions(1),
    "partitions, as many": partitions(2),
    "partitions, no such topic": partitions(5, "none"),
    "partitions, none": partitions(0),
    "delete, no such topic": delete("none"),
    "delete, no such topic id": delete(topic_id=b"\x01" * 16),
    "delete records, no such topic": delete_records(0, "none"),
    "delete records, no such partition": delete_records(0, partition=9),
    "delete records, behind the end": delete_records(10**9),
    "delete records, a negative offset": delete_records(-5),
    "describe settings, no such topic": describe(TOPIC, "none"),
    "describe settings, a name that no topic can have": describe(TOPIC, "a b"),
    "describe settings, no such broker": describe(BROKER, "99"),
    "describe settings, a broker that is no number": describe(BROKER, "one"),
    "describe settings, an unknown type": describe(77, "t"),
    "alter settings, no such topic": alter("retention.ms", "1", topic="none"),
    "alter settings, an unknown one": alter("no.such", "1"),
    "alter settings, a wrong value": alter("retention.ms", "soon"),
    "alter settings, a wrong choice": alter("cleanup.policy", "burn"),
    "alter settings, twice": alter("retention.ms", "1", times=2),
    "alter settings, an unknown operation": alter("retention.ms", "1", operation=9),
    "alter settings, append to no list": alter("retention.ms", "1", operation=2),
    "alter settings, null": alter("retention.ms", None),
    "replace settings, no such topic": replace("retention.ms", "1", "none"),
    "replace settings, an unknown one": replace("no.such", "1"),
    "replace settings, a wrong value": replace("retention.ms", "soon"),
    "acls without authorisation": Ask(
        3,
        DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
    ),
    "producers, no such topic": Ask(
        0,
        DescribeProducersRequest(
            topics=[DescribeProducersTopicRequest(name="none", partition_indexes=[0])]
        ),
    ),
    "transactions, no such one": Ask(0, DescribeTransactionsRequest(transactional_ids=["none"])),
    "elect, no such topic": Ask(
        2,
        ElectLeadersRequest(
            topic_partitions=[ElectLeadersTopicPartitions(topic="none", partitions=[0])],
            timeout_ms=5000,
        ),
    ),
    "elect, where it is not needed": Ask(
        2,
        ElectLeadersRequest(
            topic_partitions=[ElectLeadersTopicPartitions(topic="t", partitions=[0])],
            timeout_ms=5000,
        ),
    ),
    "quotas, an unknown entity": quota("somebody", "producer_byte_rate"),
    "quotas, an unknown key": quota("user", "no_such"),
    "quotas, a negative value": quota("user", "producer_byte_rate", -1.0),
    "scram, no such user": Ask(
        0, DescribeUserScramCredentialsRequest(users=[UserName(name="none")])
    ),
    "scram, delete what is not there": Ask(
        0,
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="none", mechanism=1)]
        ),
    ),
}
