"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the group protocol of KIP-848."""

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


class ConsumerGroupHeartbeatTopicPartitions(Struct):
    topic_id: Uuid = field("0+")
    partitions: list[Int32] = field("0+")


class ConsumerGroupHeartbeatRequest(Message, key=68, versions="0-1", flexible="0+"):
    group_id: Str = field("0+")
    member_id: Str = field("0+")
    member_epoch: Int32 = field("0+")
    instance_id: Str | None = field("0+", nullable="0+", default=None)
    rack_id: Str | None = field("0+", nullable="0+", default=None)
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    subscribed_topic_names: list[Str] | None = field("0+", nullable="0+", default=None)
    subscribed_topic_regex: Str | None = field("1+", nullable="1+", default=None)
    server_assignor: Str | None = field("0+", nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = field(
        "0+", nullable="0+", default=None
    )


class ConsumerGroupHeartbeatAssignment(Struct):
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = field("0+")


class ConsumerGroupHeartbeatResponse(Message, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+", default=None)
    member_id: Str | None = field("0+", nullable="0+", default=None)
    member_epoch: Int32 = field("0+")
    heartbeat_interval_ms: Int32 = field("0+")
    assignment: ConsumerGroupHeartbeatAssignment | None = field("0+", nullable="0+", default=None)


class ConsumerGroupDescribeRequest(Message, key=69, versions="0-1", flexible="0+"):
    group_ids: list[Str] = field("0+")
    include_authorized_operations: Bool = field("0+")


class ConsumerGroupDescribeTopicPartitions(Struct):
    topic_id: Uuid = field("0+")
    topic_name: Str = field("0+")
    partitions: list[Int32] = field("0+")


class ConsumerGroupDescribeAssignment(Struct):
    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = field("0+")


class ConsumerGroupDescribeMember(Struct):
    member_id: Str = field("0+")
    instance_id: Str | None = field("0+", nullable="0+", default=None)
    rack_id: Str | None = field("0+", nullable="0+", default=None)
    member_epoch: Int32 = field("0+")
    client_id: Str = field("0+")
    client_host: Str = field("0+")
    subscribed_topic_names: list[Str] = field("0+")
    subscribed_topic_regex: Str | None = field("0+", nullable="0+", default=None)
    assignment: ConsumerGroupDescribeAssignment = field("0+")
    target_assignment: ConsumerGroupDescribeAssignment = field("0+")
    member_type: Int8 = field("1+", default=-1)


class ConsumerGroupDescribeDescribedGroup(Struct):
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+", default=None)
    group_id: Str = field("0+")
    group_state: Str = field("0+")
    group_epoch: Int32 = field("0+")
    assignment_epoch: Int32 = field("0+")
    assignor_name: Str = field("0+")
    members: list[ConsumerGroupDescribeMember] = field("0+")
    authorized_operations: Int32 = field("0+", default=-(2**31))


class ConsumerGroupDescribeResponse(Message, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    groups: list[ConsumerGroupDescribeDescribedGroup] = field("0+")
