"""Metadata, DescribeCluster and DescribeTopicPartitions: brokers, topics and their partitions."""

from service.kafka.protocol.notation import (
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    Str,
    Struct,
    Uuid,
    field,
)


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field("10+")
    name: Str | None = field("0+", nullable="10+")


class MetadataRequest(Message, key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field("0+", nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10")
    include_topic_authorized_operations: Bool = field("8+")


class MetadataResponseBroker(Struct):
    node_id: Int32 = field("0+")
    host: Str = field("0+")
    port: Int32 = field("0+")
    rack: Str | None = field("1+", nullable="1+", default=None)


class MetadataResponsePartition(Struct):
    error_code: Int16 = field("0+")
    partition_index: Int32 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("7+", default=-1)
    replica_nodes: list[Int32] = field("0+")
    isr_nodes: list[Int32] = field("0+")
    offline_replicas: list[Int32] = field("5+")


class MetadataResponseTopic(Struct):
    error_code: Int16 = field("0+")
    name: Str | None = field("0+", nullable="12+")
    topic_id: Uuid = field("10+")
    is_internal: Bool = field("1+")
    partitions: list[MetadataResponsePartition] = field("0+")
    topic_authorized_operations: Int32 = field("8+", default=-(2**31))


class MetadataResponse(Message, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = field("3+")
    brokers: list[MetadataResponseBroker] = field("0+")
    cluster_id: Str | None = field("2+", nullable="2+", default=None)
    controller_id: Int32 = field("1+", default=-1)
    topics: list[MetadataResponseTopic] = field("0+")
    cluster_authorized_operations: Int32 = field("8-10", default=-(2**31))
    error_code: Int16 = field("13+")


class DescribeClusterRequest(Message, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: Bool = field("0+")
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+")


class DescribeClusterBroker(Struct):
    broker_id: Int32 = field("0+")
    host: Str = field("0+")
    port: Int32 = field("0+")
    rack: Str | None = field("0+", nullable="0+", default=None)
    is_fenced: Bool = field("2+")


class DescribeClusterResponse(Message, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+", default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: Str = field("0+")
    controller_id: Int32 = field("0+", default=-1)
    brokers: list[DescribeClusterBroker] = field("0+")
    cluster_authorized_operations: Int32 = field("0+", default=-(2**31))


class DescribeTopicPartitionsTopicRequest(Struct):
    name: Str = field("0+")


class DescribeTopicPartitionsCursor(Struct):
    topic_name: Str = field("0+")
    partition_index: Int32 = field("0+")


class DescribeTopicPartitionsRequest(Message, key=75, versions="0", flexible="0+"):
    topics: list[DescribeTopicPartitionsTopicRequest] = field("0+")
    response_partition_limit: Int32 = field("0+", default=2000)
    cursor: DescribeTopicPartitionsCursor | None = field("0+", nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = field("0+")
    partition_index: Int32 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+", default=-1)
    replica_nodes: list[Int32] = field("0+")
    isr_nodes: list[Int32] = field("0+")
    eligible_leader_replicas: list[Int32] | None = field("0+", nullable="0+", default=None)
    last_known_elr: list[Int32] | None = field("0+", nullable="0+", default=None)
    offline_replicas: list[Int32] = field("0+")


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = field("0+")
    name: Str | None = field("0+", nullable="0+")
    topic_id: Uuid = field("0+")
    is_internal: Bool = field("0+")
    partitions: list[DescribeTopicPartitionsResponsePartition] = field("0+")
    topic_authorized_operations: Int32 = field("0+", default=-(2**31))


class DescribeTopicPartitionsResponse(Message, key=75, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    topics: list[DescribeTopicPartitionsResponseTopic] = field("0+")
    next_cursor: DescribeTopicPartitionsCursor | None = field("0+", nullable="0+", default=None)
