"""TxnOffsetCommit: what a group has read, recorded when the transaction commits."""

from service.groups.offsets import METADATA_CHARS_MAX
from service.kafka.call import KafkaCall
from service.kafka.failures import Asked, code_of
from service.kafka.handlers.groups.resources import may, may_topic
from service.kafka.handlers.transactions.calls import client_transactions, may_write
from service.kafka.handlers.transactions.failures import is_new_client, transaction_code
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from service.security.acls import Operation
from service.transactions.clients import NamedTransaction
from service.transactions.state import PendingOffset, PendingOffsets
from storage.errors import RiachoError, ShuttingDown, UnknownGroup
from storage.formats.partitions import PartitionNumber
from storage.tasks import in_turns


class TransactionOffsets:
    def __init__(self, parts: Parts) -> None:
        self._gateway = parts.gateway
        self._offsets = parts.offsets
        self._clients = client_transactions(parts)

    async def commit(
        self, call: KafkaCall, request: TxnOffsetCommitRequest
    ) -> TxnOffsetCommitResponse:
        """Take the offsets that can be recorded; the rest gets a code for each partition."""
        named = NamedTransaction(
            call.caller.inner_name(request.transactional_id),
            (request.producer_id, request.producer_epoch),
            is_new_client=is_new_client(call),
        )
        group_id = call.caller.inner_name(request.group_id)
        refused = ErrorCode.NONE
        if not may_write(call, named.transactional_id):
            refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not may(call.caller, Operation.READ, group_id):
            refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        codes: dict[tuple[str, int], ErrorCode] = {}
        wanted: dict[tuple[str, int], PendingOffset] = {}
        async for topic in in_turns(request.topics):
            name = call.caller.inner_name(topic.name)
            async for each in in_turns(topic.partitions):
                place = topic.name, each.partition_index
                codes[place] = refused or await self._code(call, name, each)
                if codes[place] is ErrorCode.NONE:
                    wanted[place] = _pending(name, each)
        if wanted:
            pending = PendingOffsets(
                group_id,
                request.member_id,
                request.generation_id,
                request.group_instance_id,
                tuple(wanted.values()),
            )
            codes |= dict.fromkeys(wanted, await self._added(call, named, pending))
        return _response(request, codes)

    async def _code(
        self, call: KafkaCall, name: str, each: TxnOffsetCommitRequestPartition
    ) -> ErrorCode:
        """Return what is wrong with one partition, if anything."""
        if not may_topic(call.caller, Operation.READ, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if len(each.committed_metadata or "") > METADATA_CHARS_MAX:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if each.committed_offset < 0:
            return ErrorCode.INVALID_REQUEST
        try:
            await self._offsets.check_place(name, PartitionNumber(each.partition_index))
        except RiachoError as error:
            return code_of(error, Asked.COORDINATOR)
        return ErrorCode.NONE

    async def _added(
        self, call: KafkaCall, named: NamedTransaction, pending: PendingOffsets
    ) -> ErrorCode:
        try:
            if self._gateway.draining.is_set():
                raise ShuttingDown("this gateway is shutting down")
            await self._clients.add_offsets(named, pending)
        except UnknownGroup:
            return ErrorCode.ILLEGAL_GENERATION
        except RiachoError as error:
            return transaction_code(call, error)
        return ErrorCode.NONE


def _pending(name: str, each: TxnOffsetCommitRequestPartition) -> PendingOffset:
    return PendingOffset(
        name,
        PartitionNumber(each.partition_index),
        each.committed_offset,
        each.committed_leader_epoch,
        each.committed_metadata or "",
    )


def _response(
    request: TxnOffsetCommitRequest, codes: dict[tuple[str, int], ErrorCode]
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes[topic.name, each.partition_index],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
