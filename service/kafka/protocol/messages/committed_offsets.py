"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have read."""

from service.kafka.protocol.notation import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    Struct,
    Uuid,
    field,
)


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = field("2+")
    committed_offset: Int64 = field("2+")
    committed_leader_epoch: Int32 = field("6+", default=-1)
    committed_metadata: Str | None = field("2+", nullable="2+")


class OffsetCommitRequestTopic(Struct):
    name: Str = field("2-9")
    topic_id: Uuid = field("10+")
    partitions: list[OffsetCommitRequestPartition] = field("2+")


class OffsetCommitRequest(Message, key=8, versions="2-10", flexible="8+"):
    group_id: Str = field("2+")
    generation_id_or_member_epoch: Int32 = field("2+", default=-1)
    member_id: Str = field("2+")
    group_instance_id: Str | None = field("7+", nullable="7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = field("2+")


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = field("2+")
    error_code: Int16 = field("2+")


class OffsetCommitResponseTopic(Struct):
    name: Str = field("2-9")
    topic_id: Uuid = field("10+")
    partitions: list[OffsetCommitResponsePartition] = field("2+")


class OffsetCommitResponse(Message, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: Int32 = field("3+")
    topics: list[OffsetCommitResponseTopic] = field("2+")


class OffsetFetchRequestTopic(Struct):
    name: Str = field("1-7")
    partition_indexes: list[Int32] = field("1-7")


class OffsetFetchRequestTopics(Struct):
    name: Str = field("8-9")
    topic_id: Uuid = field("10+")
    partition_indexes: list[Int32] = field("8+")


class OffsetFetchRequestGroup(Struct):
    group_id: Str = field("8+")
    member_id: Str | None = field("9+", nullable="9+", default=None)
    member_epoch: Int32 = field("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field("8+", nullable="8+")


class OffsetFetchRequest(Message, key=9, versions="1-10", flexible="6+"):
    group_id: Str = field("1-7")
    topics: list[OffsetFetchRequestTopic] | None = field("1-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+")
    require_stable: Bool = field("7+")


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = field("1-7")
    committed_offset: Int64 = field("1-7")
    committed_leader_epoch: Int32 = field("5-7", default=-1)
    metadata: Str | None = field("1-7", nullable="1-7")
    error_code: Int16 = field("1-7")


class OffsetFetchResponseTopic(Struct):
    name: Str = field("1-7")
    partitions: list[OffsetFetchResponsePartition] = field("1-7")


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = field("8+")
    committed_offset: Int64 = field("8+")
    committed_leader_epoch: Int32 = field("8+", default=-1)
    metadata: Str | None = field("8+", nullable="8+")
    error_code: Int16 = field("8+")


class OffsetFetchResponseTopics(Struct):
    name: Str = field("8-9")
    topic_id: Uuid = field("10+")
    partitions: list[OffsetFetchResponsePartitions] = field("8+")


class OffsetFetchResponseGroup(Struct):
    group_id: Str = field("8+")
    topics: list[OffsetFetchResponseTopics] = field("8+")
    error_code: Int16 = field("8+")


class OffsetFetchResponse(Message, key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: Int32 = field("3+")
    topics: list[OffsetFetchResponseTopic] = field("1-7")
    error_code: Int16 = field("2-7")
    groups: list[OffsetFetchResponseGroup] = field("8+")


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32 = field("0+")


class OffsetDeleteRequestTopic(Struct):
    name: Str = field("0+")
    partitions: list[OffsetDeleteRequestPartition] = field("0+")


class OffsetDeleteRequest(Message, key=47, versions="0"):
    group_id: Str = field("0+")
    topics: list[OffsetDeleteRequestTopic] = field("0+")


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")


class OffsetDeleteResponseTopic(Struct):
    name: Str = field("0+")
    partitions: list[OffsetDeleteResponsePartition] = field("0+")


class OffsetDeleteResponse(Message, key=47, versions="0"):
    error_code: Int16 = field("0+")
    throttle_time_ms: Int32 = field("0+")
    topics: list[OffsetDeleteResponseTopic] = field("0+")
