"""Errors as Kafka's codes: one table, for every handler.

What may be sent again depends on whom a client thinks it asked. The leader of a partition that
answers NOT_LEADER_OR_FOLLOWER is asked again after a look at the metadata; a coordinator that did
would end the client. So errors that pass have a code for each kind of call:

    PARTITION      Produce, Fetch, ListOffsets, Metadata
    COORDINATOR    groups, committed offsets, transactions
    ADMIN          topics, configurations, ACLs

REQUEST_TIMED_OUT for an unknown outcome lets an idempotent producer send the same batch again, and
the head recognises it. Codes that clients know as fatal are never used for what passes.
"""

import logging
from enum import IntEnum
from typing import Final

from service.kafka.protocol.error_codes import ErrorCode
from storage import errors
from storage.errors import Corrupt, QuotaExceeded, RiachoError

log = logging.getLogger("riacho.error")


class Asked(IntEnum):
    """Whom a client thinks it asked."""

    PARTITION = 0
    COORDINATOR = 1
    ADMIN = 2


_CODES: Final[dict[type[RiachoError], ErrorCode]] = {
    errors.Rejected: ErrorCode.INVALID_REQUEST,
    errors.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.InvalidTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
    errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    errors.InvalidAcks: ErrorCode.INVALID_REQUIRED_ACKS,
    errors.UnknownTopicOrPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    # Clients split a batch that is too large, and send its parts.
    errors.RequestTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.NotSupported: ErrorCode.INVALID_REQUEST,
    errors.UnknownGroup: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.MemberEpochFenced: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    errors.InstanceFenced: ErrorCode.FENCED_INSTANCE_ID,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.InstanceInUse: ErrorCode.UNRELEASED_INSTANCE_ID,
    errors.InstanceFenced: ErrorCode.FENCED_INSTANCE_ID,
    errors.UnknownProducer: ErrorCode.UNKNOWN_PRODUCER_ID,
    errors.UnknownTransaction: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.NotItsProducer: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.TransactionTooLarge: ErrorCode.TRANSACTION_ABORTABLE,
    errors.PolicyViolation: ErrorCode.POLICY_VIOLATION,
    errors.UnknownCredential: ErrorCode.RESOURCE_NOT_FOUND,
    # The key was destroyed: sending it again does not help, and clients report this one.
    errors.EncryptionKeyUnavailable: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    errors.Unauthenticated: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.Unauthorized: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    errors.TopicUnauthorized: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    errors.GroupUnauthorized: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    errors.TransactionalIdUnauthorized: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.Conflict: ErrorCode.UNKNOWN_SERVER_ERROR,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.InconsistentGroup: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    errors.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    errors.ProducerOvertaken: ErrorCode.TRANSACTION_ABORTABLE,
    errors.IdempotencyKeyReused: ErrorCode.INVALID_REQUEST,
    errors.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
}

_PASSING: Final[dict[type[RiachoError], tuple[ErrorCode, ErrorCode, ErrorCode]]] = {
    errors.Unavailable: (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
    errors.Overloaded: (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ),
    errors.StoreUnavailable: (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
    errors.MetadataConflict: (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
    errors.ShuttingDown: (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
    ),
    errors.OutcomeUnknown: (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
    errors.Corrupt: (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
}


def code_of(error: Exception, asked: Asked = Asked.PARTITION) -> ErrorCode:
    """Return the code of any error; damage and unexpected errors are logged here."""
    for kind in type(error).__mro__:
        if kind in _PASSING:
            if isinstance(error, Corrupt):
                log.error("stored data is damaged", exc_info=error)
            return _PASSING[kind][asked]
        if kind in _CODES:
            return _CODES[kind]
    log.error("unexpected error", exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def throttle_ms_of(error: Exception) -> int:
    """Return how long a client should wait that met this error; 0: as long as it likes."""
    return error.throttle_ms if isinstance(error, QuotaExceeded) else 0
