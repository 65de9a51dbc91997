"""The batches of a transactional Produce."""

from service.kafka.call import KafkaCall
from service.kafka.handlers.transactions.failures import is_new_client
from service.kafka.parts import Parts
from service.kafka.protocol.messages.produce import ProduceRequest
from service.transactions.batch_staging import BatchStaging
from service.transactions.clients import NamedTransaction
from storage.errors import BadBatch
from storage.formats.kafka.batches import Batches
from storage.formats.partitions import PartitionNumber
from storage.topics.topics import Topic


class TransactionBatches:
    def __init__(self, parts: Parts) -> None:
        self._staging = BatchStaging(parts.gateway, parts.transaction_items)

    async def write(
        self,
        call: KafkaCall,
        request: ProduceRequest,
        topic: Topic,
        partition: PartitionNumber,
        batches: Batches,
    ) -> int:
        """Stage a batch; return the offset to report, which is never too high, or -1."""
        assert request.transactional_id is not None
        if batches.claim is None:
            raise BadBatch("a batch of a transaction without a producer id", "INVALID_RECORD")
        named = NamedTransaction(
            call.caller.inner_name(request.transactional_id),
            (batches.claim.producer_id, batches.claim.epoch),
            is_new_client=is_new_client(call),
        )
        return await self._staging.stage(named, topic, partition, batches)
