"""Fetch: records from partitions."""

from service.kafka.protocol.notation import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    RecordPieces,
    Str,
    Struct,
    Uuid,
    field,
)


class ReplicaState(Struct):
    replica_id: Int32 = field("15+", default=-1)
    replica_epoch: Int64 = field("15+", default=-1)


class FetchPartition(Struct):
    partition: Int32 = field("4+")
    current_leader_epoch: Int32 = field("9+", default=-1)
    fetch_offset: Int64 = field("4+")
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    partition_max_bytes: Int32 = field("4+")
    replica_directory_id: Uuid = field("17+", tag=0)
    high_watermark: Int64 = field("18+", default=2**63 - 1, tag=1)


class FetchTopic(Struct):
    topic: Str = field("4-12")
    topic_id: Uuid = field("13+")
    partitions: list[FetchPartition] = field("4+")


class ForgottenTopic(Struct):
    topic: Str = field("7-12")
    topic_id: Uuid = field("13+")
    partitions: list[Int32] = field("7+")


class FetchRequest(Message, key=1, versions="4-18", flexible="12+"):
    cluster_id: Str | None = field("12+", nullable="12+", default=None, tag=0)
    replica_id: Int32 = field("4-14", default=-1)
    replica_state: ReplicaState | None = field("15+", default=None, tag=1)
    max_wait_ms: Int32 = field("4+")
    min_bytes: Int32 = field("4+")
    max_bytes: Int32 = field("4+", default=2**31 - 1)
    isolation_level: Int8 = field("4+")
    session_id: Int32 = field("7+")
    session_epoch: Int32 = field("7+", default=-1)
    topics: list[FetchTopic] = field("4+")
    forgotten_topics_data: list[ForgottenTopic] = field("7+")
    rack_id: Str = field("11+")


class FetchEpochEndOffset(Struct):
    epoch: Int32 = field("12+", default=-1)
    end_offset: Int64 = field("12+", default=-1)


class FetchLeaderIdAndEpoch(Struct):
    leader_id: Int32 = field("12+", default=-1)
    leader_epoch: Int32 = field("12+", default=-1)


class SnapshotId(Struct):
    end_offset: Int64 = field("12+", default=-1)
    epoch: Int32 = field("12+", default=-1)


class AbortedTransaction(Struct):
    producer_id: Int64 = field("4+")
    first_offset: Int64 = field("4+")


class PartitionData(Struct):
    partition_index: Int32 = field("4+")
    error_code: Int16 = field("4+")
    high_watermark: Int64 = field("4+")
    last_stable_offset: Int64 = field("4+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    diverging_epoch: FetchEpochEndOffset | None = field("12+", default=None, tag=0)
    current_leader: FetchLeaderIdAndEpoch | None = field("12+", default=None, tag=1)
    snapshot_id: SnapshotId | None = field("12+", default=None, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field("4+", nullable="4+")
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: RecordPieces | None = field("4+", nullable="4+", default=None)


class FetchableTopicResponse(Struct):
    topic: Str = field("4-12")
    topic_id: Uuid = field("13+")
    partitions: list[PartitionData] = field("4+")


class FetchNodeEndpoint(Struct):
    node_id: Int32 = field("16+")
    host: Str = field("16+")
    port: Int32 = field("16+")
    rack: Str | None = field("16+", nullable="16+", default=None)


class FetchResponse(Message, key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: Int32 = field("4+")
    error_code: Int16 = field("7+")
    session_id: Int32 = field("7+")
    responses: list[FetchableTopicResponse] = field("4+")
    node_endpoints: list[FetchNodeEndpoint] = field("16+", tag=0)
