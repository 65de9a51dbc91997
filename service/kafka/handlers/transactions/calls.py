"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn.

What older clients announce with the second and third is only checked, and begins a transaction:
what it holds is known from what is written.
"""

from collections.abc import Sequence

from service.kafka.call import KafkaCall
from service.kafka.failures import code_of
from service.kafka.handlers.transactions.failures import (
    end_code,
    is_new_client,
    transaction_code,
)
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from service.security.acls import CLUSTER_NAME, Operation, ResourceType
from service.transactions.clients import ClientTransactions, NamedTransaction
from storage.errors import RiachoError, ShuttingDown
from storage.formats.partitions import PartitionNumber
from storage.tasks import in_turns

BATCHED_FROM = 4
"""The version of AddPartitionsToTxn from which brokers ask for several transactions."""


def client_transactions(parts: Parts) -> ClientTransactions:
    return ClientTransactions(
        parts.transactions,
        parts.transaction_items,
        parts.producer_ids,
        parts.offsets,
        parts.gateway.world,
    )


def may_write(call: KafkaCall, transactional_id: str) -> bool:
    return call.caller.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


class TransactionCalls:
    def __init__(self, parts: Parts) -> None:
        self._gateway = parts.gateway
        self._clients = client_transactions(parts)

    async def init(self, call: KafkaCall, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """Give a new epoch to a transactional id that the caller may write with."""
        assert request.transactional_id is not None
        is_known = request.producer_id >= 0 and request.producer_epoch >= 0
        try:
            self._check_serving()
            producer_id, epoch = await self._clients.init(
                call.caller.inner_name(request.transactional_id),
                request.transaction_timeout_ms,
                (request.producer_id, request.producer_epoch) if is_known else None,
            )
        except RiachoError as error:
            code = transaction_code(call, error)
            return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)

    async def add_partitions(
        self, call: KafkaCall, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        if call.version < BATCHED_FROM:
            named = NamedTransaction(
                call.caller.inner_name(request.v3_and_below_transactional_id),
                (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
                is_new_client=False,
            )
            topics = await self._added(call, named, request.v3_and_below_topics)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
        if not call.caller.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        response = AddPartitionsToTxnResponse()
        async for each in in_turns(request.transactions):
            named = NamedTransaction(
                call.caller.inner_name(each.transactional_id),
                (each.producer_id, each.producer_epoch),
                is_new_client=False,
            )
            results = await self._added(call, named, each.topics, only_checks=each.verify_only)
            response.results_by_transaction.append(
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id, topic_results=results
                )
            )
        return response

    async def _added(
        self,
        call: KafkaCall,
        named: NamedTransaction,
        topics: Sequence[AddPartitionsToTxnTopic],
        *,
        only_checks: bool = False,
    ) -> list[AddPartitionsToTxnTopicResult]:
        """Return a code for each partition: all are added, or those at fault are named."""
        codes: dict[tuple[str, int], ErrorCode] = {}
        async for topic in in_turns(topics):
            codes |= {
                (topic.name, partition): await self._partition_code(call, topic.name, partition)
                for partition in topic.partitions
            }
        code: ErrorCode | None = None
        if not may_write(call, named.transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not any(codes.values()):
            code = await self._begun(call, named, only_checks=only_checks)
        for place, found in codes.items():
            codes[place] = code if code is not None else found or ErrorCode.OPERATION_NOT_ATTEMPTED
        return [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition,
                        partition_error_code=codes[topic.name, partition],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ]

    async def _partition_code(self, call: KafkaCall, topic: str, partition: int) -> ErrorCode:
        try:
            name = call.caller.inner_name(topic)
            call.caller.require_topic(Operation.WRITE, name)
            found = await self._gateway.topics.get(name)
            if partition >= found.partition_count:
                found = await self._gateway.topics.read(name)  # It may have grown.
            found.check_partition(PartitionNumber(partition))
        except RiachoError as error:
            return code_of(error)
        return ErrorCode.NONE

    async def _begun(
        self, call: KafkaCall, named: NamedTransaction, *, only_checks: bool
    ) -> ErrorCode:
        try:
            self._check_serving()
            if only_checks:
                await self._clients.check_open(named)
            else:
                await self._clients.begin(named)
        except RiachoError as error:
            return transaction_code(call, error)
        return ErrorCode.NONE

    async def add_offsets(
        self, call: KafkaCall, request: AddOffsetsToTxnRequest
    ) -> AddOffsetsToTxnResponse:
        named = NamedTransaction(
            call.caller.inner_name(request.transactional_id),
            (request.producer_id, request.producer_epoch),
            is_new_client=False,
        )
        code = ErrorCode.NONE
        group_id = call.caller.inner_name(request.group_id)
        if not may_write(call, named.transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not call.caller.allows(Operation.READ, ResourceType.GROUP, group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        else:
            code = await self._begun(call, named, only_checks=False)
        return AddOffsetsToTxnResponse(error_code=code)

    async def end(self, call: KafkaCall, request: EndTxnRequest) -> EndTxnResponse:
        named = NamedTransaction(
            call.caller.inner_name(request.transactional_id),
            (request.producer_id, request.producer_epoch),
            is_new_client=is_new_client(call),
        )
        if not may_write(call, named.transactional_id):
            return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        try:
            self._check_serving()
            producer_id, epoch = await self._clients.end(named, is_commit=request.committed)
        except RiachoError as error:
            return EndTxnResponse(error_code=end_code(call, error))
        return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)

    def _check_serving(self) -> None:
        if self._gateway.draining.is_set():
            raise ShuttingDown("this gateway is shutting down")
