"""What members of type `consumer` put into the classic protocol's opaque fields."""

from service.kafka.protocol.notation import Bytes, Int32, Message, Str, Struct, field


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: Str = field("1+")
    partitions: list[Int32] = field("1+")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[Str] = field("0+")
    user_data: Bytes | None = field("0+", nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = field("1+")
    generation_id: Int32 = field("2+", default=-1)
    rack_id: Str | None = field("3+", nullable="3+", default=None)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: Str = field("0+")
    partitions: list[Int32] = field("0+")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = field("0+")
    user_data: Bytes | None = field("0+", nullable="0+", default=None)
