"""Produce: records for partitions."""

from service.kafka.protocol.notation import (
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    Str,
    Struct,
    Uuid,
    field,
)


class PartitionProduceData(Struct):
    index: Int32 = field("3+")
    records: Records | None = field("3+", nullable="3+", default=None)


class TopicProduceData(Struct):
    name: Str = field("3-12")
    topic_id: Uuid = field("13+")
    partition_data: list[PartitionProduceData] = field("3+")


class ProduceRequest(Message, key=0, versions="3-13", flexible="9+"):
    transactional_id: Str | None = field("3+", nullable="3+", default=None)
    acks: Int16 = field("3+")
    timeout_ms: Int32 = field("3+")
    topic_data: list[TopicProduceData] = field("3+")


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = field("8+")
    batch_index_error_message: Str | None = field("8+", nullable="8+", default=None)


class ProduceLeaderIdAndEpoch(Struct):
    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: Int32 = field("3+")
    error_code: Int16 = field("3+")
    base_offset: Int64 = field("3+")
    log_append_time_ms: Int64 = field("3+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+")
    error_message: Str | None = field("8+", nullable="8+", default=None)
    current_leader: ProduceLeaderIdAndEpoch | None = field("10+", default=None, tag=0)


class TopicProduceResponse(Struct):
    name: Str = field("3-12")
    topic_id: Uuid = field("13+")
    partition_responses: list[PartitionProduceResponse] = field("3+")


class ProduceNodeEndpoint(Struct):
    node_id: Int32 = field("10+")
    host: Str = field("10+")
    port: Int32 = field("10+")
    rack: Str | None = field("10+", nullable="10+", default=None)


class ProduceResponse(Message, key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field("3+")
    throttle_time_ms: Int32 = field("3+")
    node_endpoints: list[ProduceNodeEndpoint] = field("10+", tag=0)
