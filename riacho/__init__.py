"""Riacho from Python: producers, consumers and administration over HTTP.

    from riacho import Admin, Consumer, Producer

    with Admin() as admin:
        admin.create_topic("orders", partitions=3)

    with Producer() as producer:
        producer.send("orders", {"id": 1}, key="customer-7")

    with Consumer(group_id="billing", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.key_text(), record.json())

Each of these has an asynchronous twin: `AsyncProducer`, `AsyncConsumer`, `AsyncAdmin`. Every
error is a `RiachoError`; see `riacho.errors`. Names are imported when they are first used,
so that `import riacho` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riacho.admin.admin import Admin, AsyncAdmin, Cluster, PartitionInfo, Topic
    from riacho.admin.connectors import Connectors
    from riacho.consumer.consumer import AsyncConsumer, Consumer
    from riacho.consumer.group_calls import OffsetAndMetadata
    from riacho.errors import (
        AlreadyCommitted,
        BufferExhausted,
        CommitFailed,
        ConnectRefused,
        DeliveryTimeout,
        FencedInstance,
        GatewayUnreachable,
        NoOffset,
        SchemaRefused,
        TransactionAborted,
    )
    from riacho.producer.producer import AsyncProducer, Producer
    from riacho.records import Record, RecordMetadata, TopicPartition
    from riacho.schemas.deserializers import (
        AvroDeserializer,
        Deserializer,
        JsonSchemaDeserializer,
    )
    from riacho.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
    from riacho.schemas.registry import AsyncSchemaRegistry, SchemaRegistry
    from riacho.schemas.serializers import AvroSerializer, JsonSchemaSerializer
    from riacho.schemas.values import RegisteredSchema, SchemaReference, SchemaText
    from storage.errors import (
        Conflict,
        Corrupt,
        DuplicateSequence,
        GroupNotEmpty,
        IllegalGeneration,
        IncompatibleSchema,
        InconsistentGroup,
        InvalidConfig,
        InvalidPartitions,
        InvalidProducerEpoch,
        InvalidRecord,
        InvalidReplicationFactor,
        InvalidRequest,
        InvalidSchemaText,
        InvalidTopic,
        InvalidTransactionState,
        InvalidTransactionTimeout,
        NotEnoughReplicas,
        NotSupported,
        OffsetOutOfRange,
        OutcomeUnknown,
        OutOfOrderSequence,
        Overloaded,
        PolicyViolation,
        RecordTooLarge,
        Rejected,
        RequestTooLarge,
        RiachoError,
        TopicExists,
        TransactionTooLarge,
        Unavailable,
        UnknownGroup,
        UnknownMember,
        UnknownProducer,
        UnknownSchema,
        UnknownTopicOrPartition,
        UnknownTransaction,
    )

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AlreadyCommitted",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncSchemaRegistry",
    "AvroDeserializer",
    "AvroSerializer",
    "BufferExhausted",
    "Cluster",
    "CommitFailed",
    "Conflict",
    "ConnectRefused",
    "Connectors",
    "Consumer",
    "Corrupt",
    "DeliveryTimeout",
    "Deserializer",
    "DuplicateSequence",
    "FencedInstance",
    "GatewayUnreachable",
    "GroupNotEmpty",
    "IllegalGeneration",
    "IncompatibleSchema",
    "InconsistentGroup",
    "InvalidConfig",
    "InvalidPartitions",
    "InvalidProducerEpoch",
    "InvalidRecord",
    "InvalidReplicationFactor",
    "InvalidRequest",
    "InvalidSchemaText",
    "InvalidTopic",
    "InvalidTransactionState",
    "InvalidTransactionTimeout",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "NoOffset",
    "NotEnoughReplicas",
    "NotSupported",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "OutcomeUnknown",
    "Overloaded",
    "PartitionInfo",
    "PolicyViolation",
    "Producer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Record",
    "RecordMetadata",
    "RecordTooLarge",
    "RegisteredSchema",
    "Rejected",
    "RequestTooLarge",
    "RiachoError",
    "SchemaReference",
    "SchemaRefused",
    "SchemaRegistry",
    "SchemaText",
    "Topic",
    "TopicExists",
    "TopicPartition",
    "TransactionAborted",
    "TransactionTooLarge",
    "Unavailable",
    "UnknownGroup",
    "UnknownMember",
    "UnknownProducer",
    "UnknownSchema",
    "UnknownTopicOrPartition",
    "UnknownTransaction",
]

_HOMES = {
    "riacho.admin.admin": ("Admin", "AsyncAdmin", "Cluster", "PartitionInfo", "Topic"),
    "riacho.admin.connectors": ("Connectors",),
    "riacho.consumer.consumer": ("AsyncConsumer", "Consumer"),
    "riacho.errors": (
        "AlreadyCommitted",
        "BufferExhausted",
        "CommitFailed",
        "ConnectRefused",
        "DeliveryTimeout",
        "FencedInstance",
        "GatewayUnreachable",
        "NoOffset",
        "SchemaRefused",
        "TransactionAborted",
    ),
    "riacho.consumer.group_calls": ("OffsetAndMetadata",),
    "riacho.producer.producer": ("AsyncProducer", "Producer"),
    "riacho.records": ("Record", "RecordMetadata", "TopicPartition"),
    "riacho.schemas.deserializers": (
        "AvroDeserializer",
        "Deserializer",
        "JsonSchemaDeserializer",
    ),
    "riacho.schemas.protobuf": ("ProtobufDeserializer", "ProtobufSerializer"),
    "riacho.schemas.registry": ("AsyncSchemaRegistry", "SchemaRegistry"),
    "riacho.schemas.serializers": ("AvroSerializer", "JsonSchemaSerializer"),
    "riacho.schemas.values": ("RegisteredSchema", "SchemaReference", "SchemaText"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'riacho' has no attribute {name!r}")
    # All other names are errors, which the gateway raises too.
    value = getattr(import_module(_HOME.get(name, "storage.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
