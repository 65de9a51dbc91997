"""CreateTopics, DeleteTopics, DeleteRecords and CreatePartitions."""

from service.kafka.protocol.notation import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    Struct,
    Uuid,
    field,
)


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = field("2+")
    broker_ids: list[Int32] = field("2+")


class CreatableTopicConfig(Struct):
    name: Str = field("2+")
    value: Str | None = field("2+", nullable="2+")


class CreatableTopic(Struct):
    name: Str = field("2+")
    num_partitions: Int32 = field("2+")
    replication_factor: Int16 = field("2+")
    assignments: list[CreatableReplicaAssignment] = field("2+")
    configs: list[CreatableTopicConfig] = field("2+")


class CreateTopicsRequest(Message, key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = field("2+")
    timeout_ms: Int32 = field("2+", default=60000)
    validate_only: Bool = field("2+")


class CreatableTopicConfigs(Struct):
    name: Str = field("5+")
    value: Str | None = field("5+", nullable="5+")
    read_only: Bool = field("5+")
    config_source: Int8 = field("5+", default=-1)
    is_sensitive: Bool = field("5+")


class CreatableTopicResult(Struct):
    name: Str = field("2+")
    topic_id: Uuid = field("7+")
    error_code: Int16 = field("2+")
    error_message: Str | None = field("2+", nullable="2+")
    topic_config_error_code: Int16 = field("5+", tag=0)
    num_partitions: Int32 = field("5+", default=-1)
    replication_factor: Int16 = field("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field("5+", nullable="5+")


class CreateTopicsResponse(Message, key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: Int32 = field("2+")
    topics: list[CreatableTopicResult] = field("2+")


class DeleteTopicState(Struct):
    name: Str | None = field("6+", nullable="6+", default=None)
    topic_id: Uuid = field("6+")


class DeleteTopicsRequest(Message, key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = field("6+")
    topic_names: list[Str] = field("1-5")
    timeout_ms: Int32 = field("1+")


class DeletableTopicResult(Struct):
    name: Str | None = field("1+", nullable="6+")
    topic_id: Uuid = field("6+")
    error_code: Int16 = field("1+")
    error_message: Str | None = field("5+", nullable="5+", default=None)


class DeleteTopicsResponse(Message, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: Int32 = field("1+")
    responses: list[DeletableTopicResult] = field("1+")


class DeleteRecordsPartition(Struct):
    partition_index: Int32 = field("0+")
    offset: Int64 = field("0+")


class DeleteRecordsTopic(Struct):
    name: Str = field("0+")
    partitions: list[DeleteRecordsPartition] = field("0+")


class DeleteRecordsRequest(Message, key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = field("0+")
    timeout_ms: Int32 = field("0+")


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = field("0+")
    low_watermark: Int64 = field("0+")
    error_code: Int16 = field("0+")


class DeleteRecordsTopicResult(Struct):
    name: Str = field("0+")
    partitions: list[DeleteRecordsPartitionResult] = field("0+")


class DeleteRecordsResponse(Message, key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    topics: list[DeleteRecordsTopicResult] = field("0+")


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = field("0+")


class CreatePartitionsTopic(Struct):
    name: Str = field("0+")
    count: Int32 = field("0+")
    assignments: list[CreatePartitionsAssignment] | None = field("0+", nullable="0+")


class CreatePartitionsRequest(Message, key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = field("0+")
    timeout_ms: Int32 = field("0+")
    validate_only: Bool = field("0+")


class CreatePartitionsTopicResult(Struct):
    name: Str = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+", default=None)


class CreatePartitionsResponse(Message, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[CreatePartitionsTopicResult] = field("0+")
