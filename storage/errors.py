"""Every error a caller can meet, on one screen.

    RiachoError
      Rejected               the request is wrong: change it
        InvalidRequest, InvalidTopic, InvalidConfig, InvalidPartitions,
        InvalidReplicationFactor, InvalidRecord, SchemaMismatch, UnfitRecords, UnknownSchema,
        InvalidSchemaText, InvalidAcks, UnknownTopicOrPartition,
        OffsetOutOfRange, RecordTooLarge, RequestTooLarge, UnsupportedMediaType,
        NotAcceptable, NotSupported, UnknownGroup, UnknownMember, InstanceFenced,
        InvalidSessionTimeout, UnknownProducer,
        UnknownTransaction, NotItsProducer, InvalidTransactionTimeout, TransactionTooLarge,
        PolicyViolation, UnknownCredential, EncryptionKeyUnavailable
        Unauthenticated        say who you are, or get another credential
        Unauthorized           ask for a grant
          TopicUnauthorized, GroupUnauthorized, ClusterUnauthorized,
          TransactionalIdUnauthorized, SubjectUnauthorized, ConnectorUnauthorized
      Conflict               someone else was first: read again, then decide
        MetadataConflict, TopicExists, ObjectExists, IllegalGeneration, RebalanceInProgress,
        InconsistentGroup, GroupFull, GroupNotEmpty, InvalidProducerEpoch, OutOfOrderSequence,
        ProducerForgotten, DuplicateSequence, InvalidTransactionState, ProducerOvertaken,
        IdempotencyKeyReused, IncompatibleSchema
      Unavailable            nothing was written: send the same request later
        Overloaded, QuotaExceeded, Contended, NotEnoughReplicas, StoreUnavailable, DiskFailing,
        StoreLocked, ShuttingDown
      OutcomeUnknown         it may have been written: retry only what is idempotent
      Corrupt                stored bytes contradict the index: wake a person
        ObjectMissing, HeadMissing, MetadataDamaged

The five families say what to do next, not what broke inside; callers branch on them and
nothing else. A new leaf is cheap. A new family changes the API and needs a decision record.
Codes are Kafka's names where Kafka has one, and are written out, because renaming a class
must not change the API.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from storage.stores.metadata import Versioned


class RiachoError(Exception):
    """Base of every error raised on purpose.

    `code` and the two flags are public and stable. The message is for people: it names what
    is wrong and what to do, and may change at any time.
    """

    code: ClassVar[str]
    retryable: ClassVar[bool] = False
    may_have_applied: ClassVar[bool] = False


class Rejected(RiachoError):
    code = "REJECTED"


class Conflict(RiachoError):
    code = "CONFLICT"


class Unavailable(RiachoError):
    code = "UNAVAILABLE"
    retryable = True


class OutcomeUnknown(RiachoError):
    """The store did not say whether the write happened, and reading back could not tell."""

    code = "REQUEST_TIMED_OUT"
    retryable = True
    may_have_applied = True


class Corrupt(RiachoError):
    code = "CORRUPT_MESSAGE"


class InvalidRequest(Rejected):
    code = "INVALID_REQUEST"


class InvalidGroupId(InvalidRequest):
    """No group can have this name. It shares the code of its parent."""


class InvalidSessionTimeout(InvalidRequest):
    """Too short or too long. It shares the code of its parent."""


class InvalidTopic(Rejected):
    code = "INVALID_TOPIC_EXCEPTION"


class InvalidConfig(Rejected):
    code = "INVALID_CONFIG"


class InvalidPartitions(Rejected):
    code = "INVALID_PARTITIONS"


class InvalidReplicationFactor(Rejected):
    code = "INVALID_REPLICATION_FACTOR"


class InvalidRecord(Rejected):
    code = "INVALID_RECORD"


class BadBatch(InvalidRecord):
    """A batch in Kafka's format is refused; `fault` is Kafka's name for the reason."""

    def __init__(self, message: str, fault: str, records: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.fault = fault
        self.records = records
        """Where in the batch the records are that it is refused for; empty: all of it is wrong."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that does not fit its schema."""

    index: int
    """Among the records of the request, or of the batch."""
    part: str
    """key or value."""
    path: str
    """Where in it, as a JSON pointer; empty: all of it, or where is not known."""
    reason: str

    def __str__(self) -> str:
        return f"{self.part}{self.path and ' at '}{self.path}: {self.reason}"


class SchemaMismatch(InvalidRecord):
    """Records lack the schema that their topic asks for. It shares the code of its parent."""

    def __init__(self, topic: str, refused: Sequence[RefusedRecord]) -> None:
        first, others = refused[0], len(refused) - 1
        more = f" (and {others} more)" if others else ""
        super().__init__(
            f"records[{first.index}].{first}{more}; topic {topic!r} checks schemas, so nothing of"
            " the request was written"
        )
        self.topic = topic
        self.refused = refused


class UnfitRecords(InvalidRecord):
    """Records do not fit the schema that their request names. It shares the code of its parent."""

    def __init__(self, refused: Sequence[RefusedRecord], count: int) -> None:
        first = refused[0]
        more = f" (and {count - 1} more)" if count > 1 else ""
        super().__init__(
            f"records[{first.index}].{first}{more}; nothing of the request was written"
        )
        self.refused = refused


class UnknownSchema(Rejected):
    """There is none that the caller may read."""

    code = "UNKNOWN_SCHEMA"


class InvalidSchemaText(Rejected):
    code = "INVALID_SCHEMA"


class IncompatibleSchema(Conflict):
    code = "INCOMPATIBLE_SCHEMA"


class InvalidAcks(Rejected):
    code = "INVALID_REQUIRED_ACKS"


class UnknownTopicOrPartition(Rejected):
    code = "UNKNOWN_TOPIC_OR_PARTITION"


class HeadGone(UnknownTopicOrPartition):
    """A lane has no head: its topic was deleted, unless the topic is still there.

    Heads are written before their topic and removed after it. If the topic is read after this
    and still has the same identifier, the head is damaged: `HeadMissing`.
    """

    def __init__(self, key: str) -> None:
        super().__init__("the topic was deleted")
        self.key = key


class OffsetOutOfRange(Rejected):
    code = "OFFSET_OUT_OF_RANGE"

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(
            f"offset {offset} is outside the log, which holds {start} <= offset < {end};"
            f" use at=earliest, at=latest or an offset from {start} to {end}"
        )


class RecordTooLarge(Rejected):
    code = "MESSAGE_TOO_LARGE"


class RequestTooLarge(Rejected):
    code = "REQUEST_TOO_LARGE"


class UnsupportedMediaType(Rejected):
    code = "UNSUPPORTED_MEDIA_TYPE"


class NotAcceptable(Rejected):
    code = "NOT_ACCEPTABLE"


class NotSupported(Rejected):
    code = "UNSUPPORTED_OPERATION"


class UnknownGroup(Rejected):
    code = "GROUP_ID_NOT_FOUND"


class UnknownMember(Rejected):
    code = "UNKNOWN_MEMBER_ID"


class InstanceFenced(UnknownMember):
    """Another member has joined with the same instance id. It shares the code of its parent."""


class MemberEpochFenced(UnknownMember):
    """The member named an epoch that it cannot know. It shares the code of its parent."""


class UnknownProducer(Rejected):
    code = "UNKNOWN_PRODUCER_ID"


class UnknownTransaction(Rejected):
    code = "TRANSACTIONAL_ID_NOT_FOUND"


class NotItsProducer(UnknownTransaction):
    """A producer id that its transactional id does not have. It shares the code of its parent."""


class InvalidTransactionTimeout(Rejected):
    code = "INVALID_TRANSACTION_TIMEOUT"


class TransactionTooLarge(Rejected):
    """More than one metadata transaction, or one item of the table, can hold."""

    code = "TRANSACTION_TOO_LARGE"


class PolicyViolation(Rejected):
    """What the topic's configuration does not allow."""

    code = "POLICY_VIOLATION"


class UnknownCredential(Rejected):
    """There is no API key or user of this name."""

    code = "RESOURCE_NOT_FOUND"


class EncryptionKeyUnavailable(Rejected):
    """The records are encrypted, and their key was destroyed or cannot be unwrapped."""

    code = "ENCRYPTION_KEY_UNAVAILABLE"


class Unauthenticated(Rejected):
    """The caller did not say who it is, or what it said does not hold."""

    code = "SASL_AUTHENTICATION_FAILED"


class Unauthorized(Rejected):
    """The caller may not do this; the same whether the resource exists or not."""

    code = "AUTHORIZATION_FAILED"


class TopicUnauthorized(Unauthorized):
    code = "TOPIC_AUTHORIZATION_FAILED"


class GroupUnauthorized(Unauthorized):
    code = "GROUP_AUTHORIZATION_FAILED"


class ClusterUnauthorized(Unauthorized):
    code = "CLUSTER_AUTHORIZATION_FAILED"


class TransactionalIdUnauthorized(Unauthorized):
    code = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SubjectUnauthorized(Unauthorized):
    code = "SUBJECT_AUTHORIZATION_FAILED"


class ConnectorUnauthorized(Unauthorized):
    code = "CONNECTOR_AUTHORIZATION_FAILED"


class MetadataConflict(Conflict):
    """A condition did not hold, and the transaction certainly changed nothing.

    `current` holds what the store has now for each key whose condition failed (and possibly
    for others), so that a retry needs no further read.
    """

    code = "METADATA_CONFLICT"

    def __init__(self, current: "Mapping[str, Versioned | None]") -> None:
        super().__init__(f"changed by someone else: {', '.join(sorted(current))}")
        self.current = current


class IllegalGeneration(Conflict):
    code = "ILLEGAL_GENERATION"


class RebalanceInProgress(IllegalGeneration):
    """The generation is the current one, but not for long, or not yet; the code is its parent's."""


class StaleMemberEpoch(IllegalGeneration):
    """The partition was given in an epoch that the member does not know yet.

    It shares the code of its parent.
    """


class InconsistentGroup(Conflict):
    code = "INCONSISTENT_GROUP_PROTOCOL"


class GroupFull(InconsistentGroup):
    """No member more fits into the group. It shares the code of its parent."""


class InstanceInUse(InconsistentGroup):
    """A member with this instance id is there. It shares the code of its parent."""


class GroupNotEmpty(Conflict):
    code = "NON_EMPTY_GROUP"


class InvalidProducerEpoch(Conflict):
    """A newer instance of the producer exists, or this epoch's transaction has ended."""

    code = "INVALID_PRODUCER_EPOCH"


class OutOfOrderSequence(Conflict):
    """Records before these are missing: they were lost, or are still on their way."""

    code = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class ProducerForgotten(OutOfOrderSequence):
    """Nothing is known of the producer in this partition: it wrote nothing for long, or yet."""


class DuplicateSequence(Conflict):
    """These were written so long ago that their offset is not remembered any more."""

    code = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidTransactionState(Conflict):
    code = "INVALID_TXN_STATE"


class ProducerOvertaken(InvalidTransactionState):
    """The transaction was ended by someone else. It shares the code of its parent."""


class IdempotencyKeyReused(Conflict):
    code = "IDEMPOTENCY_KEY_REUSED"


class TopicExists(Conflict):
    code = "TOPIC_ALREADY_EXISTS"


class ObjectExists(Conflict):
    code = "OBJECT_ALREADY_EXISTS"


class Overloaded(Unavailable):
    code = "THROTTLING_QUOTA_EXCEEDED"


class QuotaExceeded(Overloaded):
    """The caller has used up its quota; nothing was written. It shares the code of `Overloaded`."""

    def __init__(self, detail: str, throttle_ms: int) -> None:
        super().__init__(detail)
        self.throttle_ms = throttle_ms


class Contended(Unavailable):
    code = "CONCURRENT_COMMITS"


class NotEnoughReplicas(Unavailable):
    code = "NOT_ENOUGH_REPLICAS"


class StoreUnavailable(Unavailable):
    code = "STORAGE_UNAVAILABLE"


class DiskFailing(StoreUnavailable):
    """The machine refuses, not the store: a full, failing or read-only disk, no descriptors."""


class StoreLocked(StoreUnavailable):
    """Another process holds the lock of the metadata file. Nothing was written."""

    code = "METADATA_LOCKED"


class ShuttingDown(Unavailable):
    code = "SHUTTING_DOWN"


class ObjectMissing(Corrupt):
    code = "OBJECT_MISSING"


class HeadMissing(Corrupt):
    """A topic is there and the head of one of its lanes is not. No sweep runs while this is so."""

    code = "HEAD_MISSING"

    def __init__(self, topic: str, key: str) -> None:
        super().__init__(
            f"topic {topic!r} exists, but the metadata table has lost the head of its lane"
            f" {key.rpartition('/')[2].lstrip('0') or '0'} ({key}); nothing is swept while this is"
            " so. Run `riacho fsck`, and restore the metadata table from a backup"
        )


class MetadataDamaged(Corrupt):
    """The metadata file is malformed, or an item is not what was written under its key."""

    code = "METADATA_DAMAGED"
