"""DescribeCluster and DescribeTopicPartitions: what Metadata says, apart and page by page."""

from typing import Final

from service.kafka.brokers.brokers import LEADER_EPOCH, Brokers, Leaders
from service.kafka.call import KafkaCall
from service.kafka.handlers.data.described import Described, TopicLookup
from service.kafka.handlers.data.rights import NOT_ASKED, authorized_operations
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.metadata import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from service.security.acls import Operation, ResourceType
from storage.formats.partitions import PartitionNumber

PARTITIONS_MAX: Final = 2000
"""Maximum number of partitions in an answer, as in Kafka."""

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""Kinds of endpoints. Ours are brokers."""


class Describing:
    def __init__(self, brokers: Brokers, lookup: TopicLookup) -> None:
        self._brokers = brokers
        self._lookup = lookup

    async def cluster(
        self, call: KafkaCall, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        if request.endpoint_type != BROKERS:
            is_known = request.endpoint_type == CONTROLLERS
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
                if is_known
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message="this is a broker",
                endpoint_type=request.endpoint_type,
            )
        live = await self._brokers.live()
        operations = NOT_ASKED
        if request.include_cluster_authorized_operations:
            may_know = call.caller.allows(Operation.DESCRIBE, ResourceType.CLUSTER)
            operations = authorized_operations(call.caller, ResourceType.CLUSTER) if may_know else 0
        return DescribeClusterResponse(
            cluster_id=self._brokers.cluster_id,
            controller_id=live[0].node_id,
            brokers=[
                DescribeClusterBroker(
                    broker_id=broker.node_id,
                    host=broker.host,
                    port=broker.port,
                    rack=broker.zone or None,
                )
                for broker in live
            ],
            cluster_authorized_operations=operations,
        )

    async def topic_partitions(
        self, call: KafkaCall, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        cursor = request.cursor
        start = cursor.topic_name if cursor is not None else ""
        if request.topics:
            names = sorted({each.name for each in request.topics if each.name >= start})
            found = await self._lookup.named(call, names)
        else:
            found = [each for each in await self._lookup.all(call) if (each.name or "") >= start]
        leaders = await self._brokers.leaders(call.client_id)
        left = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
        answer = DescribeTopicPartitionsResponse()
        for described in found:
            first = 0
            if cursor is not None and described.name == cursor.topic_name:
                first = max(0, cursor.partition_index)
            count = 0 if described.topic is None else described.topic.partition_count
            if described.topic is not None and left <= 0:
                answer.next_cursor = _cursor(described, first)
                break
            end = min(count, first + left)
            answer.topics.append(_topic(call, described, leaders, range(first, end)))
            left -= max(0, end - first)
            if end < count:
                answer.next_cursor = _cursor(described, end)
                break
        return answer


def _cursor(described: Described, partition: int) -> DescribeTopicPartitionsCursor:
    return DescribeTopicPartitionsCursor(topic_name=described.name or "", partition_index=partition)


def _topic(
    call: KafkaCall, described: Described, leaders: Leaders, partitions: range
) -> DescribeTopicPartitionsResponseTopic:
    topic = described.topic
    answer = DescribeTopicPartitionsResponseTopic(
        error_code=described.code, name=described.name, topic_id=described.topic_id
    )
    if topic is None:
        return answer
    answer.topic_authorized_operations = authorized_operations(
        call.caller, ResourceType.TOPIC, topic.name
    )
    for partition in partitions:
        leader_id = leaders.of(topic, PartitionNumber(partition)).node_id
        answer.partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=partition,
                leader_id=leader_id,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=[leader_id],
                isr_nodes=[leader_id],
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
        )
    return answer
