"""Errors of transactions as the codes that clients act on.

For an older client INVALID_PRODUCER_EPOCH and PRODUCER_FENCED say the same; which one it knows
depends on the version. What a commit is refused for, though the transaction can still be aborted,
is TRANSACTION_ABORTABLE where that is known, and else UNKNOWN_PRODUCER_ID, after which librdkafka
and Java abort, too. Everything that passes is asked of the coordinator again.
"""

from typing import Final

from service.kafka.call import KafkaCall
from service.kafka.failures import Asked, code_of
from service.kafka.protocol.apis import Api
from service.kafka.protocol.error_codes import ErrorCode
from storage.errors import (
    Corrupt,
    InvalidProducerEpoch,
    InvalidTransactionState,
    MetadataConflict,
    OutcomeUnknown,
    ProducerOvertaken,
    RiachoError,
    ShuttingDown,
    StaleMemberEpoch,
    Unavailable,
    UnknownTransaction,
)

FENCED_FROM: Final = {
    Api.INIT_PRODUCER_ID: 4,
    Api.ADD_PARTITIONS_TO_TXN: 2,
    Api.ADD_OFFSETS_TO_TXN: 2,
    Api.END_TXN: 2,
}
"""The version from which a fenced producer is told PRODUCER_FENCED."""

NEW_CLIENTS_FROM: Final = {Api.PRODUCE: 12, Api.TXN_OFFSET_COMMIT: 5, Api.END_TXN: 5}
"""The version in which clients send that hear the next epoch at each end (KIP-890)."""


def is_new_client(call: KafkaCall) -> bool:
    return call.version >= NEW_CLIENTS_FROM[Api(call.key)]


def transaction_code(call: KafkaCall, error: RiachoError) -> ErrorCode:
    """Return the code of an error of any call about transactions but Produce."""
    if isinstance(error, InvalidProducerEpoch):
        fenced_from = FENCED_FROM.get(Api(call.key))
        is_known = fenced_from is not None and call.version >= fenced_from
        return ErrorCode.PRODUCER_FENCED if is_known else ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(error, ShuttingDown):
        return ErrorCode.NOT_COORDINATOR
    if isinstance(error, Unavailable | OutcomeUnknown | MetadataConflict):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if isinstance(error, StaleMemberEpoch):
        return ErrorCode.ILLEGAL_GENERATION
    return code_of(error, Asked.COORDINATOR)


def end_code(call: KafkaCall, error: RiachoError) -> ErrorCode:
    """Return the code for an end that was refused."""
    is_state = isinstance(error, InvalidTransactionState) and not isinstance(
        error, ProducerOvertaken
    )
    is_passing = isinstance(error, Unavailable | OutcomeUnknown | MetadataConflict | Corrupt)
    if is_passing or is_state or isinstance(error, InvalidProducerEpoch | UnknownTransaction):
        return transaction_code(call, error)
    if is_new_client(call):
        return ErrorCode.TRANSACTION_ABORTABLE
    return ErrorCode.UNKNOWN_PRODUCER_ID
