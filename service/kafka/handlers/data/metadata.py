"""Metadata: brokers, and the leaders of topics. Creates topics that a client asks for."""

from service.kafka.brokers.brokers import LEADER_EPOCH, Brokers, Leaders
from service.kafka.call import KafkaCall
from service.kafka.handlers.data.described import Described, TopicLookup
from service.kafka.handlers.data.rights import NOT_ASKED, authorized_operations
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from service.kafka.protocol.notation import NO_UUID
from service.security.acls import Operation, ResourceType
from storage.topics.topics import Topic


class TopicMetadata:
    def __init__(self, brokers: Brokers, lookup: TopicLookup) -> None:
        self._brokers = brokers
        self._lookup = lookup

    async def answer(self, call: KafkaCall, request: MetadataRequest) -> MetadataResponse:
        live = await self._brokers.live()
        leaders = await self._brokers.leaders(call.client_id)
        found = await self._found(call, request)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=broker.node_id,
                    host=broker.host,
                    port=broker.port,
                    rack=broker.zone or None,
                )
                for broker in live
            ],
            cluster_id=self._brokers.cluster_id or None,
            controller_id=live[0].node_id,
            topics=[
                _topic(call, each, leaders, request.include_topic_authorized_operations)
                for each in found
            ],
            cluster_authorized_operations=_cluster_operations(call, request),
        )

    async def _found(self, call: KafkaCall, request: MetadataRequest) -> list[Described]:
        wanted = request.topics
        if wanted is None or (call.version == 0 and not wanted):
            return await self._lookup.all(call)
        names = [each.name for each in wanted if each.name is not None and _is_by_name(each)]
        may_create = request.allow_auto_topic_creation
        described = await self._lookup.named(
            call, list(dict.fromkeys(names)), may_create=may_create
        )
        by_id: dict[bytes, Described] = {}
        for each in wanted:
            if _is_by_name(each) or each.topic_id in by_id:
                continue
            if call.version < 12:
                code = ErrorCode.INVALID_REQUEST
                by_id[each.topic_id] = Described(each.name or "", None, code, each.topic_id)
            else:
                by_id[each.topic_id] = await self._lookup.by_id(call, each.topic_id)
        return [*described, *by_id.values()]


def _is_by_name(topic: MetadataRequestTopic) -> bool:
    return topic.name is not None and topic.topic_id == NO_UUID


def _topic(
    call: KafkaCall, described: Described, leaders: Leaders, shows_rights: bool
) -> MetadataResponseTopic:
    topic = described.topic
    answer = MetadataResponseTopic(
        error_code=described.code, name=described.name, topic_id=described.topic_id
    )
    if topic is not None:
        answer.partitions = _partitions(topic, leaders)
        if shows_rights:
            answer.topic_authorized_operations = authorized_operations(
                call.caller, ResourceType.TOPIC, topic.name
            )
    return answer


def _partitions(topic: Topic, leaders: Leaders) -> list[MetadataResponsePartition]:
    found = []
    for lane in topic.lanes:
        leader_id = leaders.of_lane(topic, lane).node_id
        nodes = [leader_id]
        found += [
            MetadataResponsePartition(
                partition_index=partition,
                leader_id=leader_id,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=nodes,
                isr_nodes=nodes,
            )
            for partition in topic.partitions_of(lane)
        ]
    return found


def _cluster_operations(call: KafkaCall, request: MetadataRequest) -> int:
    if not request.include_cluster_authorized_operations:
        return NOT_ASKED
    if not call.caller.allows(Operation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return authorized_operations(call.caller, ResourceType.CLUSTER)
