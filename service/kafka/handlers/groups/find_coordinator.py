"""FindCoordinator: the gateway that should handle the calls of a group or a transactional id.

Any gateway can. That all members of a group call one of them lets it write their joins together
and wake them when something changes.
"""

from typing import Final

from service.groups.items import parse_group_id
from service.kafka.call import KafkaCall
from service.kafka.failures import Asked, code_of
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.classic_groups import (
    FindCoordinatorCoordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from service.security.acls import Operation, ResourceType
from storage.errors import InvalidRequest, RiachoError
from storage.tasks import in_turns

GROUP: Final = 0
TRANSACTION: Final = 1
"""Types of keys. A third one is that of share groups, which do not exist here."""

BATCHES_FROM: Final = 4
"""The first version that asks for several keys."""


class CoordinatorLookup:
    def __init__(self, parts: Parts) -> None:
        self._brokers = parts.brokers

    async def answer(
        self, call: KafkaCall, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        if call.version >= BATCHES_FROM:
            return FindCoordinatorResponse(
                coordinators=[
                    await self._find(call, request.key_type, key)
                    async for key in in_turns(request.coordinator_keys)
                ]
            )
        found = await self._find(call, request.key_type, request.key)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    async def _find(self, call: KafkaCall, key_type: int, key: str) -> FindCoordinatorCoordinator:
        try:
            broker = await self._brokers.coordinator(_full_name(call, key_type, key))
        except RiachoError as error:
            return FindCoordinatorCoordinator(
                key=key,
                node_id=-1,
                port=-1,
                error_code=code_of(error, Asked.COORDINATOR),
                error_message=call.caller.outer_text(str(error)),
            )
        return FindCoordinatorCoordinator(
            key=key,
            node_id=broker.node_id,
            host=broker.host,
            port=broker.port,
            error_code=ErrorCode.NONE,
        )


def _full_name(call: KafkaCall, key_type: int, key: str) -> str:
    """Return the full name of a group or transactional id that the caller may know of, or raise."""
    caller = call.caller
    if key_type == GROUP:
        caller.require(Operation.DESCRIBE, ResourceType.GROUP, caller.inner_name(key))
        return caller.inner_name(parse_group_id(key))
    if key_type == TRANSACTION:
        caller.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, caller.inner_name(key))
        if key:
            return caller.inner_name(key)
        raise InvalidRequest("a transactional id has at least one character")
    raise InvalidRequest(f"there are no coordinators of type {key_type}")
