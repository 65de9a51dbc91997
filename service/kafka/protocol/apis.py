"""The APIs that we can speak, by number: their versions and their messages."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from service.kafka.protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from service.kafka.protocol.messages.classic_groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from service.kafka.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from service.kafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from service.kafka.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from service.kafka.protocol.messages.fetch import FetchRequest, FetchResponse
from service.kafka.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from service.kafka.protocol.messages.handshake import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from service.kafka.protocol.messages.log_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from service.kafka.protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from service.kafka.protocol.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from service.kafka.protocol.messages.produce import ProduceRequest, ProduceResponse
from service.kafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from service.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from service.kafka.protocol.messages.users import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from service.kafka.protocol.notation import Message, Versions


class Api(IntEnum):
    """The number of an API, by Kafka's name for it."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


@dataclass(frozen=True, slots=True)
class ApiDefinition:
    """One API: what a request of it looks like, and what its response does."""

    key: Api
    request: type[Message]
    response: type[Message]
    versions: Versions
    """What we advertise."""

    def speaks(self, version: int) -> bool:
        """Return whether `version` can be read and written."""
        return version in self.request.VERSIONS

    def request_header_version(self, version: int) -> int:
        """Return 2 (with tagged fields) or 1."""
        return 2 if version in self.request.FLEXIBLE else 1

    def response_header_version(self, version: int) -> int:
        """Return 1 (with tagged fields) or 0.

        It is always 0 for ApiVersions: its client may not know yet which versions we speak.
        """
        return 1 if version in self.response.FLEXIBLE and self.key is not Api.API_VERSIONS else 0


def _api(key: Api, request: type[Message], response: type[Message]) -> ApiDefinition:
    assert key == request.KEY == response.KEY, key
    versions = request.VERSIONS
    if key is Api.PRODUCE:
        # Clients on librdkafka turn compression off where version 0 is not offered, though they
        # never use it: so does Apache Kafka advertise it, and refuse it.
        versions = Versions(0, versions.last)
    return ApiDefinition(key, request, response, versions)


APIS: Final = {
    api.key: api
    for api in (
        _api(Api.PRODUCE, ProduceRequest, ProduceResponse),
        _api(Api.FETCH, FetchRequest, FetchResponse),
        _api(Api.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse),
        _api(Api.METADATA, MetadataRequest, MetadataResponse),
        _api(Api.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse),
        _api(Api.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse),
        _api(Api.FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse),
        _api(Api.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse),
        _api(Api.HEARTBEAT, HeartbeatRequest, HeartbeatResponse),
        _api(Api.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse),
        _api(Api.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse),
        _api(Api.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse),
        _api(Api.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse),
        _api(Api.SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse),
        _api(Api.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse),
        _api(Api.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse),
        _api(Api.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse),
        _api(Api.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse),
        _api(Api.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse),
        _api(
            Api.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
        ),
        _api(Api.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
        _api(Api.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
        _api(Api.END_TXN, EndTxnRequest, EndTxnResponse),
        _api(Api.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
        _api(Api.DESCRIBE_ACLS, DescribeAclsRequest, DescribeAclsResponse),
        _api(Api.CREATE_ACLS, CreateAclsRequest, CreateAclsResponse),
        _api(Api.DELETE_ACLS, DeleteAclsRequest, DeleteAclsResponse),
        _api(Api.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse),
        _api(Api.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse),
        _api(Api.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse),
        _api(Api.SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse),
        _api(Api.CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse),
        _api(Api.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse),
        _api(Api.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse),
        _api(
            Api.INCREMENTAL_ALTER_CONFIGS,
            IncrementalAlterConfigsRequest,
            IncrementalAlterConfigsResponse,
        ),
        _api(
            Api.ALTER_PARTITION_REASSIGNMENTS,
            AlterPartitionReassignmentsRequest,
            AlterPartitionReassignmentsResponse,
        ),
        _api(
            Api.LIST_PARTITION_REASSIGNMENTS,
            ListPartitionReassignmentsRequest,
            ListPartitionReassignmentsResponse,
        ),
        _api(Api.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse),
        _api(Api.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest, DescribeClientQuotasResponse),
        _api(Api.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest, AlterClientQuotasResponse),
        _api(
            Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
            DescribeUserScramCredentialsRequest,
            DescribeUserScramCredentialsResponse,
        ),
        _api(
            Api.ALTER_USER_SCRAM_CREDENTIALS,
            AlterUserScramCredentialsRequest,
            AlterUserScramCredentialsResponse,
        ),
        _api(Api.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse),
        _api(Api.DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse),
        _api(Api.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest, DescribeTransactionsResponse),
        _api(Api.LIST_TRANSACTIONS, ListTransactionsRequest, ListTransactionsResponse),
        _api(
            Api.CONSUMER_GROUP_HEARTBEAT,
            ConsumerGroupHeartbeatRequest,
            ConsumerGroupHeartbeatResponse,
        ),
        _api(
            Api.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
        ),
        _api(Api.LIST_CONFIG_RESOURCES, ListConfigResourcesRequest, ListConfigResourcesResponse),
        _api(
            Api.DESCRIBE_TOPIC_PARTITIONS,
            DescribeTopicPartitionsRequest,
            DescribeTopicPartitionsResponse,
        ),
    )
}
