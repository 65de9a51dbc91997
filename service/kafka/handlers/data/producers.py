"""InitProducerId: ids for idempotent producers, and epochs for transactional ones."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from service.kafka.call import KafkaCall
from service.kafka.failures import Asked, code_of
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from service.security.acls import Operation, ResourceType
from service.transactions.ids import ProducerIds
from storage.errors import RiachoError

InitTransactional: TypeAlias = Callable[
    [KafkaCall, InitProducerIdRequest], Awaitable[InitProducerIdResponse]
]


class InitProducer:
    def __init__(self, ids: ProducerIds, transactional: InitTransactional) -> None:
        self._ids = ids
        self._transactional = transactional

    async def answer(
        self, call: KafkaCall, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        """Return an id; always a new one for a producer without transactions, as Kafka does."""
        if request.transactional_id is not None:
            return await self._of_transactions(call, request, request.transactional_id)
        try:
            call.caller.require_some_write()
            return InitProducerIdResponse(producer_id=await self._ids.plain(), producer_epoch=0)
        except RiachoError as error:
            # Whoever gives out ids is a coordinator to clients.
            return _refused(code_of(error, Asked.COORDINATOR))

    async def _of_transactions(
        self, call: KafkaCall, request: InitProducerIdRequest, transactional_id: str
    ) -> InitProducerIdResponse:
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        name = call.caller.inner_name(transactional_id)
        if not call.caller.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return await self._transactional(call, request)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
