"""The calls about brokers, topics and records, by their keys."""

from service.kafka.call import Handler
from service.kafka.handlers.data.described import TopicLookup
from service.kafka.handlers.data.describing import Describing
from service.kafka.handlers.data.fetch import KafkaFetch
from service.kafka.handlers.data.list_offsets import OffsetLookup
from service.kafka.handlers.data.metadata import TopicMetadata
from service.kafka.handlers.data.produce import Produce
from service.kafka.handlers.data.producers import InitProducer
from service.kafka.handlers.transactions.batches import TransactionBatches
from service.kafka.handlers.transactions.calls import TransactionCalls
from service.kafka.parts import Parts
from service.kafka.protocol.apis import Api
from service.kafka.topic_ids import TopicIds


def handlers(parts: Parts) -> dict[int, Handler]:
    gateway, brokers = parts.gateway, parts.brokers
    ids = TopicIds(gateway.topics, gateway.world.monotonic_s)
    lookup = TopicLookup(gateway, ids)
    describing = Describing(brokers, lookup)
    offsets = OffsetLookup(gateway)
    return {
        Api.PRODUCE: Produce(
            gateway, brokers, ids, parts.fences, parts.metrics, TransactionBatches(parts).write
        ).answer,
        Api.FETCH: KafkaFetch(gateway, brokers, ids, parts.metrics).answer,
        Api.LIST_OFFSETS: offsets.list_offsets,
        Api.METADATA: TopicMetadata(brokers, lookup).answer,
        Api.INIT_PRODUCER_ID: InitProducer(parts.producer_ids, TransactionCalls(parts).init).answer,
        Api.OFFSET_FOR_LEADER_EPOCH: offsets.epoch_ends,
        Api.DESCRIBE_CLUSTER: describing.cluster,
        Api.DESCRIBE_TOPIC_PARTITIONS: describing.topic_partitions,
    }
