"""Confluent's serializers and Kafka's clients on topics that check schemas, on `riacho serve`."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.struct_pb2 import Struct

import riacho
from tests.integration.test_kafka_clients import Door

STRATEGY = "io.confluent.kafka.serializers.subject."
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
AVRO = json.dumps({**ORDER, "namespace": "shop"})
JSON = json.dumps({"title": "Order", "properties": {"amount": {"type": "integer"}}})


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    found = Door(tmp_path_factory.mktemp("checked"))
    with found.process:
        yield found


@pytest.fixture
def registry(door: Door) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": door.process.url}) as found:
        yield found


def create(door: Door, topic: str, **config: str) -> None:
    """Create a topic; in names of settings, `_` is a dot."""
    named = {name.replace("_", "."): text for name, text in config.items()}
    admin = AdminClient({"bootstrap.servers": door.address})
    admin.create_topics([NewTopic(topic, 1, 1, config=named)])[topic].result()


def produce(door: Door, topic: str, *records: tuple[Any, ...], **config: Any) -> list[str]:
    """Produce values, or values and headers; return what became of each: "", or an error."""
    outcomes: list[str] = []

    def delivered(error: Any, _: Message) -> None:
        outcomes.append(error.name() if error else "")

    producer = Producer(
        {"bootstrap.servers": door.address, "linger.ms": 100, "log_level": 0, **config}
    )
    for value, *headers in records:
        producer.produce(
            topic, value, headers=headers[0] if headers else None, on_delivery=delivered
        )
    assert producer.flush(120) == 0
    return outcomes


def count(door: Door, topic: str) -> int:
    found = httpx.get(f"{door.process.url}/v1/topics/{topic}/partitions").json()
    return sum(each["high_watermark"] for each in found["partitions"])


def bytes_of(serializer: Any, value: Any, topic: str, headers: Any = None) -> bytes:
    found: bytes = serializer(value, SerializationContext(topic, MessageField.VALUE, headers))
    return found


@pytest.mark.parametrize("level", ["id", "full"])
def test_what_the_serializers_write_is_taken_and_what_is_not_theirs_refused(
    door: Door, registry: SchemaRegistryClient, level: str
) -> None:
    message = Struct()
    message.update({"amount": 7})
    proto = ProtobufSerializer(Struct, registry)
    for kind, serializer, value in (
        ("avro", AvroSerializer(registry, AVRO), {"amount": 7}),
        ("json", JSONSerializer(JSON, registry), {"amount": 7}),
        ("proto", proto, message),
    ):
        topic = f"{kind}-{level}"
        create(door, topic, value_schema_validation=level)
        good = bytes_of(serializer, value, topic)

        assert produce(door, topic, (good,), (None,)) == ["", ""]
        foreign = good[:1] + (9_999).to_bytes(4) + good[5:]
        assert produce(door, topic, (foreign,)) == ["INVALID_RECORD"]
        cut = produce(door, topic, (good[:-1],))
        assert cut == ["" if level == "id" else "INVALID_RECORD"]
        assert count(door, topic) == (3 if level == "id" else 2)


def test_ids_in_headers(door: Door, registry: SchemaRegistryClient) -> None:
    create(door, "headers", value_schema_validation="full")
    config = {"schema.id.serializer": header_schema_id_serializer}
    serializer = AvroSerializer(registry, AVRO, conf=config)
    headers: list[tuple[str, bytes]] = []
    data = bytes_of(serializer, {"amount": 7}, "headers", headers)
    [(name, _)] = headers
    assert name == "__value_schema_id"

    assert produce(door, "headers", (data, headers)) == [""]
    assert produce(door, "headers", (data,)) == ["INVALID_RECORD"]
    assert produce(door, "headers", (data + b"\0", headers)) == ["INVALID_RECORD"]


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("RecordNameStrategy", record_subject_name_strategy),
        ("TopicRecordNameStrategy", topic_record_subject_name_strategy),
    ],
)
def test_strategies_have_the_subjects_of_the_serializers(
    door: Door, registry: SchemaRegistryClient, name: str, strategy: Any
) -> None:
    topic = f"by-{name}"
    create(
        door,
        topic,
        confluent_value_schema_validation="true",
        confluent_value_subject_name_strategy=STRATEGY + name,
    )
    config = {"subject.name.strategy": strategy}
    message = Struct()
    for serializer, value in (
        (AvroSerializer(registry, AVRO, conf=config), {"amount": 7}),
        (JSONSerializer(JSON, registry, conf=config), {"amount": 7}),
        (ProtobufSerializer(Struct, registry, conf=config), message),
    ):
        assert produce(door, topic, (bytes_of(serializer, value, topic),)) == [""]
    by_topic = registry.register_schema(f"{topic}-value", Schema('"int"', "AVRO"))

    assert produce(door, topic, (b"\0" + by_topic.to_bytes(4) + b"\2",)) == ["INVALID_RECORD"]


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_producer_goes_on_after_a_batch_that_was_refused(
    door: Door, registry: SchemaRegistryClient, is_idempotent: bool
) -> None:
    topic = f"going-on-{is_idempotent}"
    create(door, topic, confluent_value_schema_validation="true")
    known = registry.register_schema(f"{topic}-value", Schema('"int"', "AVRO"))
    values = [b"\0" + known.to_bytes(4) + b"%d" % n for n in range(1_000)]
    values[250] = b"\0" + (9_999).to_bytes(4)

    outcomes = produce(
        door,
        topic,
        *[(value,) for value in values],
        **{"enable.idempotence": is_idempotent, "batch.num.messages": 100},
    )

    assert len(outcomes) == 1_000
    assert Counter(outcomes).keys() == {"", "INVALID_RECORD"}
    assert 1 <= outcomes.count("INVALID_RECORD") <= 100
    assert count(door, topic) == outcomes.count("")


def test_kafkas_tools_see_the_settings(door: Door) -> None:
    create(door, "seen", confluent_value_schema_validation="true")
    admin = AdminClient({"bootstrap.servers": door.address})
    resource = ConfigResource(ResourceType.TOPIC, "seen")

    def shown() -> dict[str, ConfigEntry]:
        found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result()
        return found

    before = shown()
    assert before["confluent.value.schema.validation"].value == "true"
    assert not before["confluent.value.schema.validation"].is_default
    strategy = before["confluent.key.subject.name.strategy"]
    assert (strategy.value, strategy.is_default) == (f"{STRATEGY}TopicNameStrategy", True)

    def change(name: str, text: str) -> None:
        entry = ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ResourceType.TOPIC, "seen", incremental_configs=[entry])
        admin.incremental_alter_configs([changed])[changed].result()

    change("value.schema.validation", "full")
    assert shown()["value.schema.validation"].value == "full"
    with pytest.raises(Exception, match="must be one of none, id, full, not 'all'"):
        change("value.schema.validation", "all")
    with pytest.raises(Exception, match="must be one of io"):
        create(door, "wrong", confluent_key_subject_name_strategy="TopicNameStrategy")


def test_our_own_producer_loses_only_the_record_that_does_not_fit(
    door: Door, registry: SchemaRegistryClient
) -> None:
    create(door, "ours", value_schema_validation="full")
    registry.register_schema("ours-value", Schema(JSON, "JSON"))
    values = [json.dumps({"amount": "x" if n == 70 else n}) for n in range(100)]

    with riacho.Producer(door.process.url, linger_ms=100) as producer:
        sent = [producer.send("ours", value=value) for value in values]
        producer.flush()

    failed = [n for n, each in enumerate(sent) if each.exception() is not None]
    assert failed == [70]
    error = sent[70].exception()
    assert isinstance(error, riacho.InvalidRecord)
    assert "at /amount" in str(error)
    assert count(door, "ours") == 99
