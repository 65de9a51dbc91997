"""Producer ids and transactions."""

from service.kafka.protocol.notation import Bool, Int16, Int32, Int64, Message, Str, Struct, field


class InitProducerIdRequest(Message, key=22, versions="0-5", flexible="2+"):
    transactional_id: Str | None = field("0+", nullable="0+")
    transaction_timeout_ms: Int32 = field("0+")
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)


class InitProducerIdResponse(Message, key=22, versions="0-5", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    producer_id: Int64 = field("0+", default=-1)
    producer_epoch: Int16 = field("0+")


class AddPartitionsToTxnTopic(Struct):
    name: Str = field("0+")
    partitions: list[Int32] = field("0+")


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: Str = field("4+")
    producer_id: Int64 = field("4+")
    producer_epoch: Int16 = field("4+")
    verify_only: Bool = field("4+")
    topics: list[AddPartitionsToTxnTopic] = field("4+")


class AddPartitionsToTxnRequest(Message, key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = field("4+")
    v3_and_below_transactional_id: Str = field("0-3")
    v3_and_below_producer_id: Int64 = field("0-3")
    v3_and_below_producer_epoch: Int16 = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3")


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = field("0+")
    partition_error_code: Int16 = field("0+")


class AddPartitionsToTxnTopicResult(Struct):
    name: Str = field("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field("0+")


class AddPartitionsToTxnResult(Struct):
    transactional_id: Str = field("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("4+")


class AddPartitionsToTxnResponse(Message, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3")


class AddOffsetsToTxnRequest(Message, key=25, versions="0-4", flexible="3+"):
    transactional_id: Str = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    group_id: Str = field("0+")


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")


class EndTxnRequest(Message, key=26, versions="0-5", flexible="3+"):
    transactional_id: Str = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    committed: Bool = field("0+")


class EndTxnResponse(Message, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    producer_id: Int64 = field("5+", default=-1)
    producer_epoch: Int16 = field("5+", default=-1)


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = field("0+")
    committed_offset: Int64 = field("0+")
    committed_leader_epoch: Int32 = field("2+", default=-1)
    committed_metadata: Str | None = field("0+", nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: Str = field("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = field("0+")


class TxnOffsetCommitRequest(Message, key=28, versions="0-5", flexible="3+"):
    transactional_id: Str = field("0+")
    group_id: Str = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    generation_id: Int32 = field("3+", default=-1)
    member_id: Str = field("3+")
    group_instance_id: Str | None = field("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field("0+")


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")


class TxnOffsetCommitResponseTopic(Struct):
    name: Str = field("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = field("0+")


class TxnOffsetCommitResponse(Message, key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    topics: list[TxnOffsetCommitResponseTopic] = field("0+")


class DescribeProducersTopicRequest(Struct):
    name: Str = field("0+")
    partition_indexes: list[Int32] = field("0+")


class DescribeProducersRequest(Message, key=61, versions="0", flexible="0+"):
    topics: list[DescribeProducersTopicRequest] = field("0+")


class ProducerState(Struct):
    producer_id: Int64 = field("0+")
    producer_epoch: Int32 = field("0+")
    last_sequence: Int32 = field("0+", default=-1)
    last_timestamp: Int64 = field("0+", default=-1)
    coordinator_epoch: Int32 = field("0+")
    current_txn_start_offset: Int64 = field("0+", default=-1)


class PartitionResponse(Struct):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: Str | None = field("0+", nullable="0+", default=None)
    active_producers: list[ProducerState] = field("0+")


class TopicResponse(Struct):
    name: Str = field("0+")
    partitions: list[PartitionResponse] = field("0+")


class DescribeProducersResponse(Message, key=61, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    topics: list[TopicResponse] = field("0+")


class DescribeTransactionsRequest(Message, key=65, versions="0", flexible="0+"):
    transactional_ids: list[Str] = field("0+")


class TopicData(Struct):
    topic: Str = field("0+")
    partitions: list[Int32] = field("0+")


class DescribeTransactionsTransactionState(Struct):
    error_code: Int16 = field("0+")
    transactional_id: Str = field("0+")
    transaction_state: Str = field("0+")
    transaction_timeout_ms: Int32 = field("0+")
    transaction_start_time_ms: Int64 = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    topics: list[TopicData] = field("0+")


class DescribeTransactionsResponse(Message, key=65, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    transaction_states: list[DescribeTransactionsTransactionState] = field("0+")


class ListTransactionsRequest(Message, key=66, versions="0-2", flexible="0+"):
    state_filters: list[Str] = field("0+")
    producer_id_filters: list[Int64] = field("0+")
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: Str | None = field("2+", nullable="2+", default=None)


class ListTransactionsTransactionState(Struct):
    transactional_id: Str = field("0+")
    producer_id: Int64 = field("0+")
    transaction_state: Str = field("0+")


class ListTransactionsResponse(Message, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    unknown_state_filters: list[Str] = field("0+")
    transaction_states: list[ListTransactionsTransactionState] = field("0+")
