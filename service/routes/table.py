"""Every route of a gateway, one row each: the only list of them.

Routing, FastAPI, the OpenAPI document and the tests of documented errors are all made from it. It
can be imported without FastAPI, which a cold start does not need.

Every error that a row lists is reachable, and no other is returned: `tests/fuzz` provokes each one
and looks for others. An operation that lists any may also return an unexpected error
(`UNKNOWN_SERVER_ERROR`).
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from service.connect.dead_letters import bodies as letters
from service.connect.rest import bodies as connectors
from service.connect.rest.served import CONNECT
from service.http.bodies.arrow_fetch import OffsetsForm
from service.http.bodies.fields import (
    Acks,
    Count,
    Epoch,
    GroupId,
    Offset,
    PartitionNumber,
    ProducerId,
    TopicName,
)
from service.http.bodies.json import ProduceBody
from service.http.bodies.json_fetch import ValueFormat
from service.http.requests import ARROW, JSON, NDJSON, SSE
from service.registry import bodies as schemas
from service.registry.served import REGISTRY
from service.routes.bodies import groups as group
from service.routes.bodies import quotas, security
from service.routes.bodies import transactions as transaction
from service.routes.multi_fetch import FetchBody, FetchedPartitions, FetchedRecords
from service.routes.produce import ProduceAnswer
from service.routes.route import Answer, Handlers, Parameter, RequestBody, Route
from service.routes.segments import OCTETS, RANGES, RANGES_MAX, StoredRanges
from service.routes.transactions import KEY_CHARS_MAX, REPLAYED
from service.security.acls import Acl, Operation, Permission, ResourceType
from service.security.needs import ANY_CALLER, OPEN, Needs, cluster, on, within
from storage import errors
from storage.head.producers import SEQUENCES

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, SUBJECT, CONNECTOR = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.SUBJECT,
    ResourceType.CONNECTOR,
)
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
)
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = (
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)

# Errors that come together.

_BODY: Final = (errors.InvalidRequest, errors.UnsupportedMediaType, errors.RequestTooLarge)
_HOT_BODY: Final = (*_BODY, errors.Overloaded)
_READS: Final = (errors.StoreUnavailable, errors.Corrupt, errors.MetadataDamaged)
_WRITES: Final = (*_READS, errors.Contended, errors.OutcomeUnknown, errors.StoreLocked)
_UNREAD_WRITES: Final = tuple(each for each in _WRITES if each is not errors.Corrupt)
_TOPIC: Final = (errors.InvalidTopic, errors.UnknownTopicOrPartition)
_LOG: Final = (*_TOPIC, errors.HeadMissing)
_RECORD: Final = (*_LOG, errors.EncryptionKeyUnavailable)
"""Of calls that read or write records, of an encrypted topic perhaps."""
_MEMBER: Final = (errors.IllegalGeneration, errors.UnknownMember)
_INSTANCE: Final = (errors.InvalidProducerEpoch, errors.InvalidTransactionState)
_RECORDS: Final = (errors.InvalidRecord, errors.RecordTooLarge, errors.NotEnoughReplicas)
_SEQUENCE: Final = (errors.DuplicateSequence, errors.OutOfOrderSequence, errors.UnknownProducer)
_DELETE: Final = (*_WRITES, *_LOG, errors.OffsetOutOfRange, errors.PolicyViolation)
_PRODUCE: Final = (*_HOT_BODY, *_WRITES, *_RECORD, *_INSTANCE, *_RECORDS, *_SEQUENCE)
_PRODUCE_NOW: Final = (
    *_PRODUCE,
    errors.InvalidAcks,
    errors.ShuttingDown,
    errors.UnknownTransaction,
    errors.UnknownSchema,
    errors.InvalidSchemaText,
    errors.IncompatibleSchema,
)
_SETTINGS: Final = (
    errors.InvalidConfig,
    errors.InvalidPartitions,
    errors.InvalidReplicationFactor,
)

# Parameters.

PATH_PARAMETERS: Final = (
    Parameter("topic", TopicName, place="path"),
    Parameter("partition", PartitionNumber, place="path"),
    Parameter("group", GroupId, place="path"),
    Parameter("member", str, place="path"),
    Parameter("range", str, "as the answer of the path without it has it", place="path"),
    Parameter("transaction", str, "as POST /v1/transactions named it", place="path"),
    Parameter("key", str, "id of an API key", place="path"),
    Parameter("subject", str, "such as orders-value, or :.context:orders-value", place="path"),
    Parameter("version", str, "of a subject: a number from 1, or latest", place="path"),
    Parameter("schema", str, "id of a schema", place="path"),
    Parameter("guid", str, "of a schema", place="path"),
    Parameter("context", str, "of schemas, such as .staging", place="path"),
    Parameter("connector", str, "its name", place="path"),
    Parameter("task", str, "its number, from 0", place="path"),
    Parameter("plugin", str, "the name of a class, with its package or without", place="path"),
    Parameter("logger", str, "root, or as GET /admin/loggers lists it", place="path"),
)
"""They mean the same in every path."""

_MOMENT: Final = Annotated[str, Meta(pattern="^(earliest|latest|[0-9]{1,18})$")]
_BEFORE: Final = Annotated[str, Meta(pattern="^(latest|-1|[0-9]{1,18})$")]
_RANGE_COUNT: Final = Annotated[
    int, Meta(ge=1, le=RANGES_MAX, extra_json_schema={"default": RANGES})
]
_ACKS: Final = Parameter(
    "acks",
    Annotated[Acks, Meta(extra_json_schema={"default": "all"})],
    "answered when the records are committed and 1: in the zone that leads, all: in every zone in"
    " sync; 0: before anything is written",
)
_PRODUCER_ID: Final = Parameter("Riacho-Producer-Id", ProducerId, "of POST /v1/producers", "header")
_PRODUCER_EPOCH: Final = Parameter(
    "Riacho-Producer-Epoch", Epoch, "with Riacho-Producer-Id", "header"
)
_SEQUENCE_HEADER: Final = Parameter(
    "Riacho-Sequence",
    Annotated[
        str, Meta(pattern="^([0-9]{1,10}|[0-9]{1,4}=[0-9]{1,10}(,[0-9]{1,4}=[0-9]{1,10}){0,999})$")
    ],
    "number of the first record, or one for each partition: 0=17,2=4",
    "header",
)
_TRANSACTION: Final = Parameter(
    "Riacho-Transaction",
    Annotated[str, Meta(pattern="^[!-~]{1,300}$")],
    "stage the records in this transaction; its commit makes them visible",
    "header",
)
_PRODUCE_PARAMETERS: Final = (_ACKS, _PRODUCER_ID, _PRODUCER_EPOCH, _SEQUENCE_HEADER, _TRANSACTION)
_PRODUCE_ANSWERS: Final = {
    200: Answer(
        ProduceAnswer, "Durable and committed; with Riacho-Transaction, durable and staged"
    ),
    202: Answer(ProduceAnswer, "acks=0: on its way"),
}
_FETCH_PARAMETERS: Final = (
    Parameter("offset", Offset, "first offset to return"),
    Parameter("at", _MOMENT, "instead: earliest (default), latest, or a timestamp in ms"),
    Parameter("max_records", Count),
    Parameter("max_bytes", Count, "one record is returned even if it is larger"),
    Parameter("min_bytes", Offset, "wait for so much"),
    Parameter("max_wait_ms", Annotated[int, Meta(ge=0, le=60_000)], "and so long"),
    Parameter("value_format", Annotated[ValueFormat, Meta(extra_json_schema={"default": "text"})]),
    Parameter(
        "offsets",
        Annotated[OffsetsForm, Meta(extra_json_schema={"default": "base"})],
        "how an Arrow stream says offsets where compaction left gaps: base cuts batches there,"
        " column adds a column offset to all, either adds it only if there are gaps",
    ),
)
_ATOMIC_PARAMETERS: Final = (
    Parameter(
        "Riacho-Producer-Id",
        ProducerId,
        "of a transactional id: one whole transaction; else with Riacho-Sequence",
        "header",
    ),
    _PRODUCER_EPOCH,
    Parameter(
        "Riacho-Sequence",
        Annotated[int, Meta(ge=0, le=SEQUENCES - 1)],
        "number of the first record, counted over all atomic calls of the producer",
        "header",
    ),
    Parameter(
        "Idempotency-Key",
        Annotated[str, Meta(pattern=f"^[!-~]{{1,{KEY_CHARS_MAX}}}$")],
        "instead: a repeated call with the same key and body gets the first answer, for a day",
        "header",
    ),
)
_ATOMIC_HEADERS: Final = {
    REPLAYED.title(): {
        "schema": {"const": "true"},
        "description": "there if the call was made before, and this is its answer",
    }
}


def _any_of(kind: type[StrEnum]) -> Any:
    """Return the type of a parameter that is one of `kind`, or ANY."""
    return Annotated[str, Meta(extra_json_schema={"enum": [*kind, "ANY"]})]


_ACL_FILTER: Final = (
    Parameter("resource_type", _any_of(ResourceType), "left out: any, as in the others"),
    Parameter("resource_name", str),
    Parameter(
        "pattern_type",
        Literal["LITERAL", "PREFIXED", "ANY", "MATCH"],
        "MATCH: all whose patterns match resource_name",
    ),
    Parameter("principal", str, "like User:ana"),
    Parameter("host", str),
    Parameter("operation", _any_of(Operation)),
    Parameter("permission", _any_of(Permission)),
)
_NO_CONTENT: Final = {204: Answer()}

_SCHEMA_BODY: Final = RequestBody(schemas.SchemaBody, (schemas.MEDIA_TYPE, JSON))
_LEVEL_BODY: Final = RequestBody(schemas.LevelBody, (schemas.MEDIA_TYPE, JSON))
_MODE_BODY: Final = RequestBody(schemas.ModeBody, (schemas.MEDIA_TYPE, JSON))


def _schemas(
    call: str,
    handler: Callable[[Handlers], Callable[..., Awaitable[Any]]],
    summary: str,
    needs: Needs,
    *,
    query: str = "",
    body: RequestBody | None = None,
    status: int = 200,
) -> Route:
    """Return a call of the registry: what it takes and gives is Confluent's, and so are errors."""
    answer = (
        Answer() if status == HTTPStatus.NO_CONTENT else Answer(Any, "Done", (schemas.MEDIA_TYPE,))
    )
    return Route(
        call,
        handler,
        summary,
        needs=needs,
        parameters=[Parameter(name, str) for name in query.split()],
        body=body,
        answers={status: answer},
        errors=(),
        api=REGISTRY,
    )


_CONFIG_BODY: Final = RequestBody(connectors.ConfigBody)


def _connect(
    call: str,
    handler: Callable[[Handlers], Callable[..., Awaitable[Any]]],
    summary: str,
    needs: Needs,
    *,
    query: str = "",
    body: RequestBody | None = None,
    status: int = 200,
    is_empty: bool = False,
) -> Route:
    """Return a call of Connect: what it takes and gives is Kafka's, and so are errors."""
    return Route(
        call,
        handler,
        summary,
        needs=needs,
        parameters=[Parameter(name, str) for name in query.split()],
        body=body,
        answers={status: Answer() if is_empty else Answer(Any)},
        errors=(),
        api=CONNECT,
    )


_CONNECTOR: Final = "/connectors/{connector}"

BY_TAG: Final[dict[str, tuple[Route, ...]]] = {
    "records": (
        Route(
            "POST /v1/topics/{topic}/records",
            lambda to: to.produce.to_topic,
            "Produce records to a topic",
            needs=on(WRITE, TOPIC) + within(WRITE, TRANSACTIONAL_ID) + within(WRITE, SUBJECT),
            parameters=_PRODUCE_PARAMETERS,
            body=RequestBody(ProduceBody, (JSON, NDJSON, ARROW)),
            answers=_PRODUCE_ANSWERS,
            errors=(*_PRODUCE_NOW, errors.TransactionTooLarge),
        ),
        Route(
            "POST /v1/topics/{topic}/partitions/{partition}/records",
            lambda to: to.produce.to_partition,
            "Produce records to one partition",
            needs=on(WRITE, TOPIC) + within(WRITE, TRANSACTIONAL_ID) + within(WRITE, SUBJECT),
            parameters=_PRODUCE_PARAMETERS,
            body=RequestBody(ProduceBody, (JSON, NDJSON, ARROW)),
            answers=_PRODUCE_ANSWERS,
            errors=_PRODUCE_NOW,
        ),
        Route(
            "GET /v1/topics/{topic}/partitions/{partition}/records",
            lambda to: to.fetch.one,
            "Fetch records, or tail them as server-sent events",
            needs=on(READ, TOPIC),
            parameters=_FETCH_PARAMETERS,
            answers={200: Answer(FetchedRecords, "Records", (JSON, NDJSON, ARROW, SSE))},
            errors=(
                *_READS,
                *_RECORD,
                errors.InvalidRequest,
                errors.NotAcceptable,
                errors.ObjectMissing,
                errors.OffsetOutOfRange,
                errors.RecordTooLarge,
            ),
        ),
        Route(
            "POST /v1/fetch",
            lambda to: to.fetch.many,
            "Fetch from several partitions with one wait and one budget",
            needs=within(READ, TOPIC),
            body=RequestBody(FetchBody),
            answers={200: Answer(FetchedPartitions, "Records by partition")},
            errors=(*_HOT_BODY, errors.OutcomeUnknown),
        ),
        Route(
            "DELETE /v1/topics/{topic}/partitions/{partition}/records",
            lambda to: to.delete.delete_records_of_partition,
            "Delete records of one partition",
            needs=on(DELETE, TOPIC),
            parameters=(
                Parameter("before_offset", _BEFORE, "the first offset to keep", is_required=True),
            ),
            errors=(*_DELETE, errors.InvalidRequest),
            by_fastapi=True,
        ),
        Route(
            "POST /v1/topics/{topic}/delete-records",
            lambda to: to.delete.delete_records_of_partitions,
            "Delete records of several partitions",
            needs=on(DELETE, TOPIC),
            errors=(*_DELETE, *_BODY),
            by_fastapi=True,
        ),
    ),
    "groups": (
        Route(
            "GET /v1/groups",
            lambda to: to.groups.list_groups,
            "List groups",
            needs=within(DESCRIBE, GROUP),
            answers={200: Answer(group.GroupList)},
            errors=(*_READS, errors.InvalidRequest),
        ),
        Route(
            "GET /v1/groups/{group}",
            lambda to: to.groups.describe,
            "Describe a group and its members",
            needs=on(DESCRIBE, GROUP),
            answers={200: Answer(group.GroupInfo)},
            errors=(*_READS, errors.InvalidRequest, errors.UnknownGroup),
        ),
        Route(
            "DELETE /v1/groups/{group}",
            lambda to: to.groups.delete,
            "Delete a group without members",
            needs=on(DELETE, GROUP),
            answers=_NO_CONTENT,
            errors=(*_WRITES, errors.GroupNotEmpty, errors.InvalidRequest, errors.UnknownGroup),
        ),
        Route(
            "POST /v1/groups/{group}/members",
            lambda to: to.groups.join,
            "Join a group",
            needs=on(READ, GROUP) + within(DESCRIBE, TOPIC),
            body=RequestBody(group.JoinBody),
            answers={200: Answer(group.JoinAnswer)},
            errors=(*_HOT_BODY, *_WRITES, errors.InconsistentGroup),
        ),
        Route(
            "DELETE /v1/groups/{group}/members/{member}",
            lambda to: to.groups.leave,
            "Leave a group",
            needs=on(READ, GROUP),
            answers=_NO_CONTENT,
            errors=(*_WRITES, errors.InvalidRequest, errors.UnknownMember),
        ),
        Route(
            "POST /v1/groups/{group}/members/{member}/heartbeat",
            lambda to: to.groups.heartbeat,
            "Keep a session, and learn what to read",
            needs=on(READ, GROUP),
            body=RequestBody(group.BeatBody),
            answers={200: Answer(group.BeatAnswer)},
            errors=(*_HOT_BODY, *_WRITES, *_MEMBER),
        ),
        Route(
            "POST /v1/groups/{group}/members/{member}/poll",
            lambda to: to.groups.poll,
            "Heartbeat, and fetch what is assigned",
            needs=on(READ, GROUP) + within(READ, TOPIC),
            body=RequestBody(group.PollBody),
            answers={200: Answer(group.PollAnswer)},
            errors=(*_HOT_BODY, *_WRITES, *_MEMBER),
        ),
        Route(
            "GET /v1/groups/{group}/offsets",
            lambda to: to.groups.committed,
            "Read committed offsets",
            needs=on(DESCRIBE, GROUP) + within(DESCRIBE, TOPIC),
            parameters=(Parameter("topic", str, "only of this topic"),),
            answers={200: Answer(group.CommittedOffsets)},
            errors=(*_READS, errors.InvalidRequest),
        ),
        Route(
            "POST /v1/groups/{group}/offsets",
            lambda to: to.groups.commit,
            "Commit offsets",
            needs=on(READ, GROUP) + within(READ, TOPIC),
            body=RequestBody(group.OffsetsBody),
            answers={200: Answer(group.CommitAnswer)},
            errors=(*_HOT_BODY, *_WRITES, *_TOPIC, *_MEMBER),
        ),
        Route(
            "GET /v1/groups/{group}/lag",
            lambda to: to.groups.lag,
            "Show how far behind a group is",
            needs=on(DESCRIBE, GROUP) + within(DESCRIBE, TOPIC),
            answers={200: Answer(group.GroupLag)},
            errors=(
                *_READS,
                errors.HeadMissing,
                errors.InvalidRequest,
                errors.ObjectMissing,
                errors.UnknownGroup,
            ),
        ),
        Route(
            "POST /v1/groups/{group}/reset",
            lambda to: to.groups.reset,
            "Move committed offsets",
            needs=on(READ, GROUP) + within(READ, TOPIC),
            body=RequestBody(group.ResetBody),
            answers={200: Answer(group.ResetAnswer)},
            errors=(*_HOT_BODY, *_WRITES, *_RECORD, errors.GroupNotEmpty),
        ),
    ),
    "transactions": (
        Route(
            "POST /v1/producers",
            lambda to: to.transactions.init_producer,
            "Get a producer id",
            needs=within(WRITE, TRANSACTIONAL_ID) + within(IDEMPOTENT_WRITE, CLUSTER),
            body=RequestBody(transaction.ProducerBody, is_required=False),
            answers={200: Answer(transaction.ProducerAnswer)},
            errors=(*_HOT_BODY, *_WRITES),
        ),
        Route(
            "GET /v1/transactions",
            lambda to: to.transactions.list_transactions,
            "List transactions",
            needs=within(DESCRIBE, TRANSACTIONAL_ID),
            answers={200: Answer(transaction.TransactionList)},
            errors=(*_READS, errors.InvalidRequest),
        ),
        Route(
            "POST /v1/transactions",
            lambda to: to.transactions.begin,
            "Begin a transaction",
            needs=within(WRITE, TRANSACTIONAL_ID),
            body=RequestBody(transaction.BeginBody),
            answers={200: Answer(transaction.BeginAnswer)},
            errors=(*_HOT_BODY, *_WRITES, *_INSTANCE, errors.InvalidTransactionTimeout),
        ),
        Route(
            "GET /v1/transactions/{transaction}",
            lambda to: to.transactions.describe,
            "Describe a transaction",
            needs=on(DESCRIBE, TRANSACTIONAL_ID),
            answers={200: Answer(transaction.TransactionInfo)},
            errors=(
                *_WRITES,
                errors.InvalidProducerEpoch,
                errors.InvalidRequest,
                errors.UnknownTransaction,
            ),
        ),
        Route(
            "POST /v1/transactions/{transaction}/commit",
            lambda to: to.transactions.commit,
            "Commit a transaction",
            needs=on(WRITE, TRANSACTIONAL_ID) + within(READ, GROUP) + within(READ, TOPIC),
            body=RequestBody(transaction.CommitBody, is_required=False),
            answers={200: Answer(transaction.EndAnswer)},
            errors=(
                *_HOT_BODY,
                *_WRITES,
                *_LOG,
                *_MEMBER,
                *_INSTANCE,
                errors.NotEnoughReplicas,
                errors.TransactionTooLarge,
                errors.UnknownTransaction,
            ),
        ),
        Route(
            "POST /v1/transactions/{transaction}/abort",
            lambda to: to.transactions.abort,
            "Abort a transaction",
            needs=on(WRITE, TRANSACTIONAL_ID),
            body=RequestBody(transaction.AbortBody, is_required=False),
            answers={200: Answer(transaction.EndAnswer)},
            errors=(*_HOT_BODY, *_WRITES, *_INSTANCE, errors.UnknownTransaction),
        ),
        Route(
            "POST /v1/atomic",
            lambda to: to.transactions.atomic,
            "Produce to many partitions and commit group offsets, all or nothing",
            needs=within(WRITE, TOPIC)
            + within(READ, GROUP)
            + within(READ, TOPIC)
            + within(WRITE, TRANSACTIONAL_ID),
            parameters=_ATOMIC_PARAMETERS,
            body=RequestBody(transaction.AtomicBody),
            answers={200: Answer(transaction.AtomicAnswer, headers=_ATOMIC_HEADERS)},
            errors=(*_MEMBER, *_PRODUCE, errors.IdempotencyKeyReused, errors.TransactionTooLarge),
        ),
    ),
    "topics": (
        Route(
            "GET /v1/topics",
            lambda to: to.topics.list_topics,
            "List topics",
            needs=within(DESCRIBE, TOPIC),
            errors=(*_READS, errors.InvalidRequest),
            by_fastapi=True,
        ),
        Route(
            "POST /v1/topics",
            lambda to: to.topics.create_topic,
            "Create a topic",
            needs=within(CREATE, TOPIC),
            answers={201: Answer(about="Created")},
            errors=(
                *_BODY,
                *_SETTINGS,
                errors.Contended,
                errors.InvalidTopic,
                errors.MetadataDamaged,
                errors.OutcomeUnknown,
                errors.StoreLocked,
                errors.StoreUnavailable,
                errors.TopicExists,
            ),
            by_fastapi=True,
        ),
        Route(
            "GET /v1/topics/{topic}",
            lambda to: to.topics.describe_topic,
            "Describe a topic",
            needs=on(DESCRIBE, TOPIC) + within(DESCRIBE_CONFIGS, TOPIC),
            errors=(*_READS, *_TOPIC, errors.InvalidRequest),
            by_fastapi=True,
        ),
        Route(
            "PATCH /v1/topics/{topic}",
            lambda to: to.topics.alter_topic,
            "Alter a topic",
            needs=within(ALTER, TOPIC) + within(ALTER_CONFIGS, TOPIC),
            errors=(*_BODY, *_WRITES, *_LOG, *_SETTINGS),
            by_fastapi=True,
        ),
        Route(
            "DELETE /v1/topics/{topic}",
            lambda to: to.topics.delete_topic,
            "Delete a topic",
            needs=on(DELETE, TOPIC),
            parameters=(
                Parameter("shred", bool, "whether to destroy the keys of its records as well"),
            ),
            answers=_NO_CONTENT,
            errors=(*_WRITES, *_TOPIC, errors.InvalidRequest),
            by_fastapi=True,
        ),
        Route(
            "GET /v1/topics/{topic}/partitions",
            lambda to: to.topics.list_partitions,
            "List partitions",
            needs=on(DESCRIBE, TOPIC),
            errors=(*_READS, *_LOG, errors.InvalidRequest),
            by_fastapi=True,
        ),
        Route(
            "GET /v1/topics/{topic}/partitions/{partition}/offsets",
            lambda to: to.topics.find_offset,
            "Find an offset by time",
            needs=on(DESCRIBE, TOPIC),
            parameters=(
                Parameter(
                    "at", _MOMENT, "earliest, latest, or a timestamp in ms", is_required=True
                ),
            ),
            errors=(*_READS, *_RECORD, errors.InvalidRequest, errors.ObjectMissing),
            by_fastapi=True,
        ),
        Route(
            "GET /v1/topics/{topic}/partitions/{partition}/segments",
            lambda to: to.segments.locate_records,
            "Locate records in their store",
            needs=on(READ, TOPIC),
            parameters=(
                Parameter("offset", Offset, "first offset; default: the log start"),
                Parameter("end", Offset, "offset to stop before"),
                Parameter(
                    "limit",
                    _RANGE_COUNT,
                    "as many ranges at most; next_offset says where to ask on",
                ),
            ),
            answers={200: Answer(StoredRanges)},
            errors=(
                *_READS,
                *_LOG,
                errors.InvalidRequest,
                errors.NotSupported,
                errors.OffsetOutOfRange,
            ),
        ),
        Route(
            "GET /v1/topics/{topic}/partitions/{partition}/segments/{range}",
            lambda to: to.segments.read_range,
            "Read stored bytes where the store cannot sign URLs",
            needs=on(READ, TOPIC),
            parameters=(
                Parameter(
                    "Range",
                    str,
                    "bytes=start-end, the last one included; left out or of another form: all",
                    "header",
                ),
            ),
            answers={
                200: Answer(bytes, "All bytes", (OCTETS,)),
                206: Answer(bytes, "Those that Range asks for", (OCTETS,)),
            },
            errors=(
                *_READS,
                *_LOG,
                errors.InvalidRequest,
                errors.NotSupported,
                errors.ObjectMissing,
                errors.OffsetOutOfRange,
            ),
        ),
        Route(
            "POST /v1/topics/{topic}/data-keys/{data_key}",
            lambda to: to.topics.unwrap_data_key,
            "Unwrap a data key of an encrypted topic",
            needs=on(READ, TOPIC),
            errors=(
                *_READS,
                *_TOPIC,
                errors.EncryptionKeyUnavailable,
                errors.InvalidRequest,
                errors.UnsupportedMediaType,
            ),
            by_fastapi=True,
        ),
    ),
    "security": (
        Route(
            "GET /v1/whoami",
            lambda to: to.security.who_am_i,
            "Show who the caller is",
            needs=ANY_CALLER,
            answers={200: Answer(security.WhoAmI)},
            errors=(errors.InvalidRequest,),
        ),
        Route(
            "POST /v1/keys",
            lambda to: to.security.create_key,
            "Make an API key",
            needs=within(ALTER, CLUSTER),
            body=RequestBody(security.NewKeyBody, is_required=False),
            answers={201: Answer(security.KeyWithSecret, "Created; the key is shown only now")},
            errors=(*_HOT_BODY, *_UNREAD_WRITES),
        ),
        Route(
            "GET /v1/keys",
            lambda to: to.security.list_keys,
            "List API keys",
            needs=within(DESCRIBE, CLUSTER),
            answers={200: Answer(security.KeyList)},
            errors=(*_READS, errors.InvalidRequest),
        ),
        Route(
            "GET /v1/keys/{key}",
            lambda to: to.security.describe_key,
            "Describe an API key",
            needs=within(DESCRIBE, CLUSTER),
            answers={200: Answer(security.KeyInfo)},
            errors=(*_READS, errors.InvalidRequest, errors.UnknownCredential),
        ),
        Route(
            "DELETE /v1/keys/{key}",
            lambda to: to.security.revoke_key,
            "Revoke an API key",
            needs=within(ALTER, CLUSTER),
            answers=_NO_CONTENT,
            errors=(*_WRITES, errors.InvalidRequest, errors.UnknownCredential),
        ),
        Route(
            "POST /v1/keys/{key}/rotate",
            lambda to: to.security.rotate_key,
            "Give an API key a new secret",
            needs=within(ALTER, CLUSTER),
            body=RequestBody(security.RotateBody, is_required=False),
            answers={200: Answer(security.KeyWithSecret, "The new key is shown only now")},
            errors=(*_HOT_BODY, *_WRITES, errors.UnknownCredential),
        ),
        Route(
            "GET /v1/acls",
            lambda to: to.security.list_acls,
            "List ACLs",
            needs=cluster(DESCRIBE),
            parameters=_ACL_FILTER,
            answers={200: Answer(security.AclList)},
            errors=(*_READS, errors.InvalidRequest),
        ),
        Route(
            "POST /v1/acls",
            lambda to: to.security.create_acls,
            "Add ACLs",
            needs=cluster(ALTER),
            body=RequestBody(Acl),
            answers={201: Answer(security.AclList, "They are there now")},
            errors=(*_HOT_BODY, *_WRITES),
        ),
        Route(
            "DELETE /v1/acls",
            lambda to: to.security.delete_acls,
            "Delete ACLs",
            needs=cluster(ALTER),
            parameters=_ACL_FILTER,
            answers={200: Answer(security.AclList, "Those that were deleted")},
            errors=(*_WRITES, errors.InvalidRequest),
        ),
        Route(
            "GET /v1/acls/check",
            lambda to: to.security.check_acl,
            "Say whether a principal may do something, and why",
            needs=cluster(DESCRIBE),
            parameters=(
                Parameter("principal", str, "like User:ana", is_required=True),
                Parameter("operation", Operation, is_required=True),
                Parameter("resource_type", ResourceType, is_required=True),
                Parameter("resource_name", str, "not needed for CLUSTER"),
                Parameter("host", str, "the address of the caller"),
            ),
            answers={200: Answer(security.Checked)},
            errors=(*_READS, errors.InvalidRequest),
        ),
    ),
    "quotas": (
        Route(
            "GET /v1/quotas",
            lambda to: to.quotas.list_quotas,
            "List quotas",
            needs=cluster(DESCRIBE_CONFIGS),
            parameters=(
                Parameter("user", str, "those of this user; <default> is a name, too"),
                Parameter("client_id", str, "those of this client"),
            ),
            answers={200: Answer(quotas.QuotaList)},
            errors=(*_READS, errors.InvalidRequest),
        ),
        Route(
            "PUT /v1/quotas",
            lambda to: to.quotas.change_quota,
            "Set or remove limits",
            needs=cluster(ALTER_CONFIGS),
            body=RequestBody(quotas.QuotaChange),
            answers={200: Answer(quotas.QuotaInfo, "All limits of this user and client")},
            errors=(*_HOT_BODY, *_WRITES),
        ),
    ),
    "schemas": (
        _schemas(
            "GET /",
            lambda to: to.schemas.schemas.about,
            "Say what answers here",
            ANY_CALLER,
        ),
        _schemas(
            "POST /",
            lambda to: to.schemas.schemas.take_nothing,
            "Say that somebody answers here",
            ANY_CALLER,
        ),
        _schemas(
            "GET /subjects",
            lambda to: to.schemas.subjects.list_subjects,
            "List subjects",
            within(DESCRIBE, SUBJECT),
            query="subjectPrefix deleted deletedOnly offset limit",
        ),
        _schemas(
            "POST /subjects/{subject}",
            lambda to: to.schemas.subjects.look_up,
            "Find a schema under a subject",
            on(READ, SUBJECT),
            query="normalize format deleted",
            body=_SCHEMA_BODY,
        ),
        _schemas(
            "DELETE /subjects/{subject}",
            lambda to: to.schemas.subjects.delete_subject,
            "Delete all versions of a subject",
            on(DELETE, SUBJECT),
            query="permanent",
        ),
        _schemas(
            "GET /subjects/{subject}/metadata",
            lambda to: to.schemas.subjects.find_by_metadata,
            "Show the latest version with these properties",
            on(READ, SUBJECT),
            query="key value format deleted",
        ),
        _schemas(
            "GET /subjects/{subject}/versions",
            lambda to: to.schemas.subjects.list_versions,
            "List the versions of a subject",
            on(READ, SUBJECT),
            query="deleted deletedOnly deletedAsNegative offset limit",
        ),
        _schemas(
            "POST /subjects/{subject}/versions",
            lambda to: to.schemas.subjects.register,
            "Register a schema under a subject",
            on(WRITE, SUBJECT) + within(READ, SUBJECT),
            query="normalize format force",
            body=_SCHEMA_BODY,
        ),
        _schemas(
            "GET /subjects/{subject}/versions/{version}",
            lambda to: to.schemas.subjects.describe_version,
            "Show a version of a subject",
            on(READ, SUBJECT),
            query="format deleted findTags",
        ),
        _schemas(
            "DELETE /subjects/{subject}/versions/{version}",
            lambda to: to.schemas.subjects.delete_version,
            "Delete a version of a subject",
            on(DELETE, SUBJECT),
            query="permanent",
        ),
        _schemas(
            "GET /subjects/{subject}/versions/{version}/schema",
            lambda to: to.schemas.subjects.show_schema,
            "Show the schema of a version, and nothing else",
            on(READ, SUBJECT),
            query="format deleted",
        ),
        _schemas(
            "GET /subjects/{subject}/versions/{version}/referencedby",
            lambda to: to.schemas.subjects.list_referrers,
            "List the ids of schemas that refer to a version",
            on(READ, SUBJECT),
            query="deleted offset limit",
        ),
        _schemas(
            "POST /subjects/{subject}/versions/{version}/tags",
            lambda to: to.schemas.subjects.change_tags,
            "Register a version with other tags and rules",
            on(READ, SUBJECT) + on(WRITE, SUBJECT) + within(READ, SUBJECT),
            body=RequestBody(schemas.TagBody, (schemas.MEDIA_TYPE, JSON)),
        ),
        _schemas(
            "GET /schemas",
            lambda to: to.schemas.schemas.list_all,
            "List schemas with their subjects and versions",
            within(READ, SUBJECT),
            query="subjectPrefix aliases deleted latestOnly ruleType offset limit",
        ),
        _schemas(
            "GET /schemas/types",
            lambda to: to.schemas.schemas.list_types,
            "List the types of schemas",
            ANY_CALLER,
        ),
        _schemas(
            "GET /schemas/ids/{schema}",
            lambda to: to.schemas.schemas.show,
            "Show a schema by its id",
            within(READ, SUBJECT),
            query="subject format findTags fetchMaxId",
        ),
        _schemas(
            "GET /schemas/ids/{schema}/schema",
            lambda to: to.schemas.schemas.show_text,
            "Show the text of a schema by its id",
            within(READ, SUBJECT),
            query="subject format",
        ),
        _schemas(
            "GET /schemas/ids/{schema}/subjects",
            lambda to: to.schemas.schemas.list_subjects,
            "List the subjects that have a schema",
            within(READ, SUBJECT),
            query="subject deleted offset limit",
        ),
        _schemas(
            "GET /schemas/ids/{schema}/versions",
            lambda to: to.schemas.schemas.list_versions,
            "List the versions that have a schema",
            within(READ, SUBJECT),
            query="subject deleted offset limit",
        ),
        _schemas(
            "GET /schemas/guids/{guid}",
            lambda to: to.schemas.schemas.show_by_guid,
            "Show a schema by its GUID",
            within(READ, SUBJECT),
            query="format",
        ),
        _schemas(
            "GET /schemas/guids/{guid}/ids",
            lambda to: to.schemas.schemas.list_ids_of_guid,
            "List the ids of the schema with a GUID",
            within(READ, SUBJECT),
        ),
        _schemas(
            "POST /compatibility/subjects/{subject}/versions",
            lambda to: to.schemas.rules.compare,
            "Is a schema compatible with a subject?",
            on(READ, SUBJECT),
            query="normalize verbose level",
            body=_SCHEMA_BODY,
        ),
        _schemas(
            "POST /compatibility/subjects/{subject}/versions/{version}",
            lambda to: to.schemas.rules.compare_with,
            "Is a schema compatible with a version?",
            on(READ, SUBJECT),
            query="normalize verbose level",
            body=_SCHEMA_BODY,
        ),
        _schemas(
            "GET /config",
            lambda to: to.schemas.rules.show_default_level,
            "Show the level of subjects that have none",
            cluster(DESCRIBE_CONFIGS),
        ),
        _schemas(
            "PUT /config",
            lambda to: to.schemas.rules.set_default_level,
            "Set the level of subjects that have none",
            cluster(ALTER_CONFIGS),
            body=_LEVEL_BODY,
        ),
        _schemas(
            "DELETE /config",
            lambda to: to.schemas.rules.delete_default_level,
            "Reset the level of subjects that have none",
            cluster(ALTER_CONFIGS),
        ),
        _schemas(
            "GET /config/{subject}",
            lambda to: to.schemas.rules.show_level,
            "Show the level of a subject",
            on(DESCRIBE_CONFIGS, SUBJECT),
            query="defaultToGlobal",
        ),
        _schemas(
            "PUT /config/{subject}",
            lambda to: to.schemas.rules.set_level,
            "Set the level of a subject",
            on(ALTER_CONFIGS, SUBJECT),
            body=_LEVEL_BODY,
        ),
        _schemas(
            "DELETE /config/{subject}",
            lambda to: to.schemas.rules.delete_level,
            "Remove the level of a subject",
            on(ALTER_CONFIGS, SUBJECT),
        ),
        _schemas(
            "GET /mode",
            lambda to: to.schemas.rules.show_default_mode,
            "Show the mode of subjects that have none",
            cluster(DESCRIBE_CONFIGS),
        ),
        _schemas(
            "PUT /mode",
            lambda to: to.schemas.rules.set_default_mode,
            "Set the mode of subjects that have none",
            cluster(ALTER_CONFIGS),
            query="force",
            body=_MODE_BODY,
        ),
        _schemas(
            "DELETE /mode",
            lambda to: to.schemas.rules.delete_default_mode,
            "Reset the mode of subjects that have none",
            cluster(ALTER_CONFIGS),
            query="recursive",
        ),
        _schemas(
            "GET /mode/{subject}",
            lambda to: to.schemas.rules.show_mode,
            "Show the mode of a subject",
            on(DESCRIBE_CONFIGS, SUBJECT),
            query="defaultToGlobal",
        ),
        _schemas(
            "PUT /mode/{subject}",
            lambda to: to.schemas.rules.set_mode,
            "Set the mode of a subject",
            on(ALTER_CONFIGS, SUBJECT),
            query="force",
            body=_MODE_BODY,
        ),
        _schemas(
            "DELETE /mode/{subject}",
            lambda to: to.schemas.rules.delete_mode,
            "Remove the mode of a subject",
            on(ALTER_CONFIGS, SUBJECT),
            query="recursive",
        ),
        _schemas(
            "GET /contexts",
            lambda to: to.schemas.schemas.list_contexts,
            "List contexts of schemas",
            within(DESCRIBE, SUBJECT),
            query="offset limit",
        ),
        _schemas(
            "DELETE /contexts/{context}",
            lambda to: to.schemas.schemas.delete_context,
            "Delete a context without subjects",
            cluster(ALTER_CONFIGS),
            status=204,
        ),
        _schemas(
            "GET /v1/metadata/id",
            lambda to: to.schemas.schemas.about_id,
            "Show the id of the registry",
            ANY_CALLER,
        ),
        _schemas(
            "GET /v1/metadata/version",
            lambda to: to.schemas.schemas.about_version,
            "Show the version of the registry",
            ANY_CALLER,
        ),
        _schemas(
            "GET /v1/metadata/deployment",
            lambda to: to.schemas.schemas.about_deployment,
            "Show what is special about the registry",
            ANY_CALLER,
        ),
    ),
    "dead letters": (
        Route(
            "GET /v1/dlq",
            lambda to: to.connect.dead_letters.list_topics,
            "List topics of dead letters",
            needs=within(DESCRIBE, TOPIC),
            answers={200: Answer(letters.DeadLetterTopics)},
            errors=(*_READS, errors.HeadMissing, errors.InvalidRequest),
        ),
        Route(
            "GET /v1/dlq/{topic}",
            lambda to: to.connect.dead_letters.summarize,
            "Count dead letters by exception and origin",
            needs=on(READ, TOPIC),
            answers={200: Answer(letters.LetterSummary)},
            errors=(*_READS, *_RECORD, errors.InvalidRequest, errors.ObjectMissing),
        ),
        Route(
            "GET /v1/dlq/{topic}/letters",
            lambda to: to.connect.dead_letters.show,
            "Show dead letters",
            needs=on(READ, TOPIC),
            parameters=(
                Parameter("exception", str, "class of the exception, whole or its last part"),
                Parameter("origin", str, "the topic it was read from, or was meant for"),
                Parameter("connector", str, "who gave it up"),
                Parameter("stage", str, "while doing what, such as VALUE_CONVERTER"),
                Parameter("from_ms", Offset, "timestamps of records: from this on"),
                Parameter("to_ms", Offset, "timestamps of records: before this"),
                Parameter("contains", str, "text in the value"),
                Parameter("partition", PartitionNumber, "begin with this one"),
                Parameter("offset", Offset, "begin there, in the first partition"),
                Parameter("max", Count, "letters in the answer, 50 if not given, at most 1000"),
            ),
            answers={200: Answer(letters.Letters)},
            errors=(*_READS, *_RECORD, errors.InvalidRequest, errors.ObjectMissing),
        ),
        Route(
            "POST /v1/dlq/{topic}/redrive",
            lambda to: to.connect.dead_letters.redrive,
            "Send dead letters again",
            needs=on(READ, TOPIC) + within(WRITE, TOPIC) + within(ALTER, CONNECTOR),
            body=RequestBody(letters.RedriveBody),
            answers={200: Answer(letters.RedriveAnswer)},
            errors=(
                *_HOT_BODY,
                *_WRITES,
                *_RECORD,
                errors.NotEnoughReplicas,
                errors.ObjectMissing,
            ),
        ),
    ),
    "connectors": (
        _connect(
            "GET /connect",
            lambda to: to.connect.worker.about,
            "Say what answers here",
            ANY_CALLER,
        ),
        _connect(
            "GET /health",
            lambda to: to.connect.worker.health,
            "Say that calls of Connect are answered",
            OPEN,
        ),
        _connect(
            "GET /connectors",
            lambda to: to.connect.connectors.list_all,
            "List connectors",
            within(DESCRIBE, CONNECTOR),
            query="expand",
        ),
        _connect(
            "POST /connectors",
            lambda to: to.connect.connectors.create,
            "Create a connector",
            within(CREATE, CONNECTOR),
            body=RequestBody(connectors.NewConnectorBody),
            status=201,
        ),
        _connect(
            f"GET {_CONNECTOR}",
            lambda to: to.connect.connectors.describe,
            "Describe a connector",
            on(DESCRIBE, CONNECTOR),
        ),
        _connect(
            f"DELETE {_CONNECTOR}",
            lambda to: to.connect.connectors.delete,
            "Delete a connector",
            on(DELETE, CONNECTOR),
            status=204,
            is_empty=True,
        ),
        _connect(
            f"GET {_CONNECTOR}/config",
            lambda to: to.connect.connectors.show_config,
            "Show the configuration of a connector",
            on(DESCRIBE, CONNECTOR),
        ),
        _connect(
            f"PUT {_CONNECTOR}/config",
            lambda to: to.connect.connectors.put_config,
            "Create a connector, or change its configuration",
            on(ALTER, CONNECTOR) + within(CREATE, CONNECTOR),
            body=_CONFIG_BODY,
        ),
        _connect(
            f"PATCH {_CONNECTOR}/config",
            lambda to: to.connect.connectors.patch_config,
            "Change some keys of the configuration of a connector",
            on(ALTER, CONNECTOR),
            body=_CONFIG_BODY,
        ),
        _connect(
            f"GET {_CONNECTOR}/status",
            lambda to: to.connect.states.show_status,
            "Show what a connector and its tasks do",
            on(DESCRIBE, CONNECTOR),
        ),
        _connect(
            f"PUT {_CONNECTOR}/pause",
            lambda to: to.connect.states.pause,
            "Pause a connector",
            on(ALTER, CONNECTOR),
            status=202,
            is_empty=True,
        ),
        _connect(
            f"PUT {_CONNECTOR}/resume",
            lambda to: to.connect.states.resume,
            "Resume a connector",
            on(ALTER, CONNECTOR),
            status=202,
            is_empty=True,
        ),
        _connect(
            f"PUT {_CONNECTOR}/stop",
            lambda to: to.connect.states.stop,
            "Stop a connector",
            on(ALTER, CONNECTOR),
            status=204,
            is_empty=True,
        ),
        _connect(
            f"POST {_CONNECTOR}/restart",
            lambda to: to.connect.states.restart,
            "Restart a connector, and its tasks",
            on(ALTER, CONNECTOR),
            query="includeTasks onlyFailed",
            status=202,
        ),
        _connect(
            f"GET {_CONNECTOR}/tasks",
            lambda to: to.connect.states.list_tasks,
            "List the tasks of a connector",
            on(DESCRIBE, CONNECTOR),
        ),
        _connect(
            f"GET {_CONNECTOR}/tasks-config",
            lambda to: to.connect.states.show_task_configs,
            "Show the configurations of all tasks",
            on(DESCRIBE, CONNECTOR),
        ),
        _connect(
            f"GET {_CONNECTOR}/tasks/{{task}}/status",
            lambda to: to.connect.states.show_task_status,
            "Show what a task does",
            on(DESCRIBE, CONNECTOR),
        ),
        _connect(
            f"POST {_CONNECTOR}/tasks/{{task}}/restart",
            lambda to: to.connect.states.restart_task,
            "Restart a task",
            on(ALTER, CONNECTOR),
            status=204,
            is_empty=True,
        ),
        _connect(
            f"GET {_CONNECTOR}/topics",
            lambda to: to.connect.states.show_topics,
            "Show the topics that a connector has used",
            on(DESCRIBE, CONNECTOR),
        ),
        _connect(
            f"PUT {_CONNECTOR}/topics/reset",
            lambda to: to.connect.states.reset_topics,
            "Forget which topics a connector has used",
            on(ALTER, CONNECTOR),
            status=202,
            is_empty=True,
        ),
        _connect(
            f"GET {_CONNECTOR}/offsets",
            lambda to: to.connect.offsets.show,
            "Show how far a connector has read",
            on(DESCRIBE, CONNECTOR),
        ),
        _connect(
            f"PATCH {_CONNECTOR}/offsets",
            lambda to: to.connect.offsets.change,
            "Set how far a stopped connector has read",
            on(ALTER, CONNECTOR),
            body=RequestBody(connectors.ConnectorOffsetsBody),
        ),
        _connect(
            f"DELETE {_CONNECTOR}/offsets",
            lambda to: to.connect.offsets.reset,
            "Let a stopped connector begin anew",
            on(ALTER, CONNECTOR),
        ),
        _connect(
            "GET /connector-plugins",
            lambda to: to.connect.plugins.list_plugins,
            "List the connectors that can be configured",
            ANY_CALLER,
            query="connectorsOnly",
        ),
        _connect(
            "GET /connector-plugins/{plugin}/config",
            lambda to: to.connect.plugins.show_keys,
            "Show the keys of a connector",
            ANY_CALLER,
        ),
        _connect(
            "PUT /connector-plugins/{plugin}/config/validate",
            lambda to: to.connect.plugins.validate,
            "Say what is wrong with a configuration",
            ANY_CALLER,
            body=_CONFIG_BODY,
        ),
        _connect(
            "GET /admin/loggers",
            lambda to: to.connect.worker.list_loggers,
            "List loggers that have a level",
            cluster(DESCRIBE_CONFIGS),
        ),
        _connect(
            "GET /admin/loggers/{logger}",
            lambda to: to.connect.worker.show_logger,
            "Show the level of a logger",
            cluster(DESCRIBE_CONFIGS),
        ),
        _connect(
            "PUT /admin/loggers/{logger}",
            lambda to: to.connect.worker.set_level,
            "Set the level of a logger of this gateway",
            cluster(ALTER_CONFIGS),
            query="scope",
            body=RequestBody(connectors.LevelOfLogBody),
        ),
    ),
    "cluster": (
        Route(
            "GET /v1/cluster",
            lambda to: to.cluster.describe_cluster,
            "Describe gateways, zones and partitions",
            needs=cluster(DESCRIBE),
            errors=(*_READS, errors.InvalidRequest),
            by_fastapi=True,
        ),
        Route(
            "GET /healthy",
            lambda to: to.cluster.healthy,
            "Does the process run?",
            needs=OPEN,
            errors=(),
            by_fastapi=True,
        ),
        Route(
            "GET /ready",
            lambda to: to.cluster.ready,
            "Can the stores be used?",
            needs=OPEN,
            errors=(errors.ShuttingDown, errors.StoreUnavailable),
            by_fastapi=True,
        ),
        Route(
            "GET /metrics",
            lambda to: to.cluster.show_metrics,
            "Show metrics",
            needs=cluster(DESCRIBE),
            answers={200: Answer(str, "Counters", ("text/plain",))},
            errors=(),
            by_fastapi=True,
        ),
    ),
}

ROUTES: Final = tuple(route for routes in BY_TAG.values() for route in routes)

PAGES: Final = ("/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc")
"""What FastAPI adds by itself: the document, and pages that show it."""

PAGES_NEED: Final = cluster(DESCRIBE)
