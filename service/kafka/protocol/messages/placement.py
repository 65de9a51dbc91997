"""Log directories, preferred leaders and reassignments: where replicas are."""

from service.kafka.protocol.notation import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    Struct,
    field,
)


class DescribableLogDirTopic(Struct):
    topic: Str = field("1+")
    partitions: list[Int32] = field("1+")


class DescribeLogDirsRequest(Message, key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = field("1+", nullable="1+")


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = field("1+")
    partition_size: Int64 = field("1+")
    offset_lag: Int64 = field("1+")
    is_future_key: Bool = field("1+")


class DescribeLogDirsTopic(Struct):
    name: Str = field("1+")
    partitions: list[DescribeLogDirsPartition] = field("1+")


class DescribeLogDirsResult(Struct):
    error_code: Int16 = field("1+")
    log_dir: Str = field("1+")
    topics: list[DescribeLogDirsTopic] = field("1+")
    total_bytes: Int64 = field("4+", default=-1)
    usable_bytes: Int64 = field("4+", default=-1)
    is_cordoned: Bool = field("5+")


class DescribeLogDirsResponse(Message, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field("3+")
    results: list[DescribeLogDirsResult] = field("1+")


class ElectLeadersTopicPartitions(Struct):
    topic: Str = field("0+")
    partitions: list[Int32] = field("0+")


class ElectLeadersRequest(Message, key=43, versions="0-2", flexible="2+"):
    election_type: Int8 = field("1+")
    topic_partitions: list[ElectLeadersTopicPartitions] | None = field("0+", nullable="0+")
    timeout_ms: Int32 = field("0+", default=60000)


class ElectLeadersPartitionResult(Struct):
    partition_id: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")


class ReplicaElectionResult(Struct):
    topic: Str = field("0+")
    partition_result: list[ElectLeadersPartitionResult] = field("0+")


class ElectLeadersResponse(Message, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("1+")
    replica_election_results: list[ReplicaElectionResult] = field("0+")


class ReassignablePartition(Struct):
    partition_index: Int32 = field("0+")
    replicas: list[Int32] | None = field("0+", nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: Str = field("0+")
    partitions: list[ReassignablePartition] = field("0+")


class AlterPartitionReassignmentsRequest(Message, key=45, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = field("0+", default=60000)
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: list[ReassignableTopic] = field("0+")


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")


class ReassignableTopicResponse(Struct):
    name: Str = field("0+")
    partitions: list[ReassignablePartitionResponse] = field("0+")


class AlterPartitionReassignmentsResponse(Message, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    allow_replication_factor_change: Bool = field("1+", default=True)
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = field("0+")


class ListPartitionReassignmentsTopics(Struct):
    name: Str = field("0+")
    partition_indexes: list[Int32] = field("0+")


class ListPartitionReassignmentsRequest(Message, key=46, versions="0", flexible="0+"):
    timeout_ms: Int32 = field("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field("0+", nullable="0+", default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = field("0+")
    replicas: list[Int32] = field("0+")
    adding_replicas: list[Int32] = field("0+")
    removing_replicas: list[Int32] = field("0+")


class OngoingTopicReassignment(Struct):
    name: Str = field("0+")
    partitions: list[OngoingPartitionReassignment] = field("0+")


class ListPartitionReassignmentsResponse(Message, key=46, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = field("0+")
