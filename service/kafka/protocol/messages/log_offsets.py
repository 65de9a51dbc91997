"""ListOffsets and OffsetForLeaderEpoch: where partitions begin and end."""

from service.kafka.protocol.notation import Int8, Int16, Int32, Int64, Message, Str, Struct, field


class ListOffsetsPartition(Struct):
    partition_index: Int32 = field("1+")
    current_leader_epoch: Int32 = field("4+", default=-1)
    timestamp: Int64 = field("1+")


class ListOffsetsTopic(Struct):
    name: Str = field("1+")
    partitions: list[ListOffsetsPartition] = field("1+")


class ListOffsetsRequest(Message, key=2, versions="1-11", flexible="6+"):
    replica_id: Int32 = field("1+")
    isolation_level: Int8 = field("2+")
    topics: list[ListOffsetsTopic] = field("1+")
    timeout_ms: Int32 = field("10+")


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = field("1+")
    error_code: Int16 = field("1+")
    timestamp: Int64 = field("1+", default=-1)
    offset: Int64 = field("1+", default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: Str = field("1+")
    partitions: list[ListOffsetsPartitionResponse] = field("1+")


class ListOffsetsResponse(Message, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: Int32 = field("2+")
    topics: list[ListOffsetsTopicResponse] = field("1+")


class OffsetForLeaderPartition(Struct):
    partition: Int32 = field("2+")
    current_leader_epoch: Int32 = field("2+", default=-1)
    leader_epoch: Int32 = field("2+")


class OffsetForLeaderTopic(Struct):
    topic: Str = field("2+")
    partitions: list[OffsetForLeaderPartition] = field("2+")


class OffsetForLeaderEpochRequest(Message, key=23, versions="2-4", flexible="4+"):
    replica_id: Int32 = field("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = field("2+")


class OffsetForLeaderEpochEpochEndOffset(Struct):
    error_code: Int16 = field("2+")
    partition: Int32 = field("2+")
    leader_epoch: Int32 = field("2+", default=-1)
    end_offset: Int64 = field("2+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: Str = field("2+")
    partitions: list[OffsetForLeaderEpochEpochEndOffset] = field("2+")


class OffsetForLeaderEpochResponse(Message, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: Int32 = field("2+")
    topics: list[OffsetForLeaderTopicResult] = field("2+")
