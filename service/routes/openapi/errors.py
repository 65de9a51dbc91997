"""The errors that each operation may return, as the OpenAPI document promises.

Every error listed here is reachable, and no other is returned: `tests/fuzz` provokes each one and
looks for others. An operation that uses the stores may also return an unexpected error
(`UNKNOWN_SERVER_ERROR`); operations that use no store have no errors.
"""

from collections import defaultdict
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from service.http.problems import UNKNOWN, status_of
from service.routes.openapi.document import problem_response
from storage.errors import (
    Contended,
    Corrupt,
    DuplicateSequence,
    GroupNotEmpty,
    HeadMissing,
    IdempotencyKeyReused,
    IllegalGeneration,
    InconsistentGroup,
    InvalidAcks,
    InvalidConfig,
    InvalidPartitions,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    MetadataDamaged,
    NotAcceptable,
    NotEnoughReplicas,
    NotSupported,
    ObjectMissing,
    OffsetOutOfRange,
    OutcomeUnknown,
    OutOfOrderSequence,
    Overloaded,
    PolicyViolation,
    RecordTooLarge,
    RequestTooLarge,
    RiachoError,
    ShuttingDown,
    StoreLocked,
    StoreUnavailable,
    TopicExists,
    TransactionTooLarge,
    UnknownGroup,
    UnknownMember,
    UnknownProducer,
    UnknownTopicOrPartition,
    UnknownTransaction,
    UnsupportedMediaType,
)

Kinds: TypeAlias = tuple[type[RiachoError], ...]

_BODY: Final = (InvalidRequest, UnsupportedMediaType, RequestTooLarge)
_HOT_BODY: Final = (*_BODY, Overloaded)
_READS: Final = (StoreUnavailable, Corrupt, MetadataDamaged)
_WRITES: Final = (*_READS, Contended, OutcomeUnknown, StoreLocked)

PROMISES: Final[Mapping[tuple[str, str], Kinds]] = {
    ("GET", "/v1/topics"): (*_READS, InvalidRequest),
    ("POST", "/v1/topics"): (
        *_BODY,
        Contended,
        InvalidConfig,
        InvalidPartitions,
        InvalidReplicationFactor,
        InvalidTopic,
        MetadataDamaged,
        OutcomeUnknown,
        StoreLocked,
        StoreUnavailable,
        TopicExists,
    ),
    ("GET", "/v1/topics/{topic}"): (*_READS, InvalidRequest, InvalidTopic, UnknownTopicOrPartition),
    ("PATCH", "/v1/topics/{topic}"): (
        *_BODY,
        *_WRITES,
        HeadMissing,
        InvalidConfig,
        InvalidPartitions,
        InvalidReplicationFactor,
        InvalidTopic,
        UnknownTopicOrPartition,
    ),
    ("DELETE", "/v1/topics/{topic}"): (
        *_WRITES,
        InvalidRequest,
        InvalidTopic,
        UnknownTopicOrPartition,
    ),
    ("GET", "/v1/topics/{topic}/partitions"): (
        *_READS,
        HeadMissing,
        InvalidRequest,
        InvalidTopic,
        UnknownTopicOrPartition,
    ),
    ("POST", "/v1/topics/{topic}/records"): (
        *_HOT_BODY,
        *_WRITES,
        HeadMissing,
        DuplicateSequence,
        InvalidAcks,
        InvalidProducerEpoch,
        InvalidRecord,
        InvalidTopic,
        InvalidTransactionState,
        NotEnoughReplicas,
        OutOfOrderSequence,
        RecordTooLarge,
        ShuttingDown,
        TransactionTooLarge,
        UnknownProducer,
        UnknownTopicOrPartition,
        UnknownTransaction,
    ),
    ("GET", "/v1/topics/{topic}/partitions/{partition}/records"): (
        *_READS,
        HeadMissing,
        InvalidRequest,
        InvalidTopic,
        NotAcceptable,
        ObjectMissing,
        OffsetOutOfRange,
        RecordTooLarge,
        UnknownTopicOrPartition,
    ),
    ("POST", "/v1/topics/{topic}/partitions/{partition}/records"): (
        *_HOT_BODY,
        *_WRITES,
        HeadMissing,
        DuplicateSequence,
        InvalidAcks,
        InvalidProducerEpoch,
        InvalidRecord,
        InvalidTopic,
        InvalidTransactionState,
        NotEnoughReplicas,
        OutOfOrderSequence,
        RecordTooLarge,
        ShuttingDown,
        UnknownProducer,
        UnknownTopicOrPartition,
        UnknownTransaction,
    ),
    ("DELETE", "/v1/topics/{topic}/partitions/{partition}/records"): (
        *_WRITES,
        HeadMissing,
        InvalidRequest,
        InvalidTopic,
        OffsetOutOfRange,
        PolicyViolation,
        UnknownTopicOrPartition,
    ),
    ("GET", "/v1/topics/{topic}/partitions/{partition}/offsets"): (
        *_READS,
        HeadMissing,
        InvalidRequest,
        InvalidTopic,
        ObjectMissing,
        UnknownTopicOrPartition,
    ),
    ("GET", "/v1/topics/{topic}/partitions/{partition}/segments"): (
        *_READS,
        HeadMissing,
        InvalidRequest,
        InvalidTopic,
        NotSupported,
        OffsetOutOfRange,
        UnknownTopicOrPartition,
    ),
    ("POST", "/v1/topics/{topic}/delete-records"): (
        *_BODY,
        *_WRITES,
        HeadMissing,
        InvalidTopic,
        OffsetOutOfRange,
        PolicyViolation,
        UnknownTopicOrPartition,
    ),
    ("POST", "/v1/fetch"): (*_HOT_BODY, OutcomeUnknown),
    ("GET", "/v1/groups"): (*_READS, InvalidRequest),
    ("GET", "/v1/groups/{group}"): (*_READS, InvalidRequest, UnknownGroup),
    ("DELETE", "/v1/groups/{group}"): (*_WRITES, GroupNotEmpty, InvalidRequest, UnknownGroup),
    ("POST", "/v1/groups/{group}/members"): (*_HOT_BODY, *_WRITES, InconsistentGroup),
    ("DELETE", "/v1/groups/{group}/members/{member}"): (*_WRITES, InvalidRequest, UnknownMember),
    ("POST", "/v1/groups/{group}/members/{member}/heartbeat"): (
        *_HOT_BODY,
        *_WRITES,
        IllegalGeneration,
        UnknownMember,
    ),
    ("POST", "/v1/groups/{group}/members/{member}/poll"): (
        *_HOT_BODY,
        *_WRITES,
        IllegalGeneration,
        UnknownMember,
    ),
    ("GET", "/v1/groups/{group}/offsets"): (*_READS, InvalidRequest),
    ("POST", "/v1/groups/{group}/offsets"): (
        *_HOT_BODY,
        *_WRITES,
        IllegalGeneration,
        InvalidTopic,
        UnknownMember,
        UnknownTopicOrPartition,
    ),
    ("GET", "/v1/groups/{group}/lag"): (
        *_READS,
        HeadMissing,
        InvalidRequest,
        ObjectMissing,
        UnknownGroup,
    ),
    ("POST", "/v1/groups/{group}/reset"): (
        *_HOT_BODY,
        *_WRITES,
        HeadMissing,
        GroupNotEmpty,
        InvalidTopic,
        UnknownTopicOrPartition,
    ),
    ("POST", "/v1/producers"): (*_HOT_BODY, *_WRITES),
    ("GET", "/v1/transactions"): (*_READS, InvalidRequest),
    ("POST", "/v1/transactions"): (
        *_HOT_BODY,
        *_WRITES,
        InvalidProducerEpoch,
        InvalidTransactionState,
        InvalidTransactionTimeout,
    ),
    ("GET", "/v1/transactions/{transaction}"): (
        *_WRITES,
        InvalidProducerEpoch,
        InvalidRequest,
        UnknownTransaction,
    ),
    ("POST", "/v1/transactions/{transaction}/commit"): (
        *_HOT_BODY,
        *_WRITES,
        HeadMissing,
        IllegalGeneration,
        InvalidProducerEpoch,
        InvalidTopic,
        InvalidTransactionState,
        NotEnoughReplicas,
        TransactionTooLarge,
        UnknownMember,
        UnknownTopicOrPartition,
        UnknownTransaction,
    ),
    ("POST", "/v1/transactions/{transaction}/abort"): (
        *_HOT_BODY,
        *_WRITES,
        InvalidProducerEpoch,
        InvalidTransactionState,
        UnknownTransaction,
    ),
    ("POST", "/v1/atomic"): (
        *_HOT_BODY,
        *_WRITES,
        HeadMissing,
        DuplicateSequence,
        IdempotencyKeyReused,
        IllegalGeneration,
        InvalidProducerEpoch,
        InvalidRecord,
        InvalidTopic,
        InvalidTransactionState,
        NotEnoughReplicas,
        OutOfOrderSequence,
        RecordTooLarge,
        TransactionTooLarge,
        UnknownMember,
        UnknownProducer,
        UnknownTopicOrPartition,
    ),
    ("GET", "/v1/cluster"): (*_READS, InvalidRequest),
    ("GET", "/healthy"): (),
    ("GET", "/ready"): (ShuttingDown, StoreUnavailable),
    ("GET", "/metrics"): (),
}


_ABOUT: Final[Mapping[int, str]] = {
    400: "The request is wrong; the detail says where and why",
    404: "There is no such topic, partition, group, member, producer or transaction",
    406: "None of the accepted media types can be given",
    409: "Someone else was first, or it does not follow what was before",
    413: "The request, or a record, is too large",
    415: "This content type or encoding is not read here",
    416: "The offset is outside the log",
    422: "The Idempotency-Key was used for another request",
    500: "A fault of the gateway, or damaged data",
    501: "Not available here",
    503: "Nothing was written; send the same request after Retry-After",
    504: "The outcome is unknown; it may have been applied",
}


def responses(method: str, path: str) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of the errors of an operation, by status."""
    kinds = PROMISES[method, path]
    codes: dict[int, list[str]] = defaultdict(list)
    for kind in kinds:
        codes[status_of(kind)].append(kind.code)
    if kinds:
        codes[HTTPStatus.INTERNAL_SERVER_ERROR].append(UNKNOWN)
    return {
        int(status): problem_response(_ABOUT[status], int(status), sorted(codes[status]))
        for status in sorted(codes)
    }


def with_promises(document: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document with the errors of each operation, and no others."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            # Replace FastAPI's own description of the response to an invalid request.
            kept = {s: told for s, told in operation["responses"].items() if int(s) < 400}
            errors = {str(s): told for s, told in responses(method.upper(), path).items()}
            operation["responses"] = kept | errors
    return document
