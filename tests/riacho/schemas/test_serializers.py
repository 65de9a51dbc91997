"""Serializers and deserializers beside Confluent's: the same bytes, read by each other."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry import avro as their_avro
from confluent_kafka.schema_registry import json_schema as their_json
from confluent_kafka.schema_registry import protobuf as their_protobuf
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from riacho import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    AsyncSchemaRegistry,
    AvroDeserializer,
    AvroSerializer,
    Consumer,
    Deserializer,
    InvalidRecord,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    Producer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Record,
    SchemaReference,
    SchemaRegistry,
    SchemaText,
    UnknownSchema,
)
from riacho.schemas.serializers import Serialized
from service.registry.formats.protobuf.compiler import compile_text
from storage.errors import InvalidConfig
from tests.gateway import GatewayProcess

CUSTOMER_AVRO = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [{"name": "name", "type": "string"}],
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ORDER_AVRO = json.dumps(
    {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "amount", "type": DECIMAL},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "by", "type": ["null", CUSTOMER_AVRO]},
            {"name": "photo", "type": ["null", "bytes"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "sizes", "type": {"type": "map", "values": "double"}, "default": {}},
        ],
    }
)
ORDER = {
    "amount": Decimal("-12.30"),
    "day": date(2026, 2, 28),
    "at": datetime(2026, 1, 31, 23, 59, 59, 123456, tzinfo=UTC),
    "id": UUID("00112233-4455-6677-8899-aabbccddeeff"),
    "by": {"name": "Zoë"},
    "photo": b"\x00\xff",
    "tags": ["a", "b"],
    "sizes": {"x": 1.5},
}
ORDER_JSON = json.dumps(
    {
        "type": "object",
        "title": "Order",
        "properties": {"amount": {"type": "integer"}, "by": {"type": ["string", "null"]}},
        "required": ["amount"],
    }
)
CUSTOMER_PROTO = 'syntax = "proto3"; package shop; message Customer { string name = 1; }'
ORDER_PROTO = """
syntax = "proto3";
package shop;
import "serializers/customer.proto";
import "google/protobuf/timestamp.proto";
message Unused {}
message Order {
  message Line { int32 amount = 1; }
  Customer by = 1;
  google.protobuf.Timestamp at = 2;
  repeated Line lines = 3;
}
"""


@pytest.fixture
def registry(gateway: GatewayProcess) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(gateway.url) as asked:
        yield asked


@pytest.fixture
def theirs(gateway: GatewayProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": gateway.url}) as client:
        yield client


@pytest.fixture(scope="module")
def messages() -> dict[str, Any]:
    """Return generated classes, by the names of their messages."""
    files = compile_text(ORDER_PROTO, {"serializers/customer.proto": CUSTOMER_PROTO})
    files[-1].name = "serializers/order.proto"
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    names = ("shop.Order", "shop.Order.Line", "shop.Customer")
    return {name: GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, [])


def record(made: Serialized) -> Record:
    return Record("t", 0, 7, 0, None, made.data, made.headers)


def test_avro_is_the_same_for_both(registry: SchemaRegistry, theirs: SchemaRegistryClient) -> None:
    made = AvroSerializer(registry, ORDER_AVRO)("avro", ORDER)

    assert made.data == their_avro.AvroSerializer(theirs, ORDER_AVRO)(ORDER, context("avro"))
    assert their_avro.AvroDeserializer(theirs)(made.data, context("avro")) == ORDER
    assert AvroDeserializer(registry)(record(made)) == ORDER
    assert Deserializer(registry)(record(made)) == ORDER


def test_json_is_the_same_for_both(registry: SchemaRegistry, theirs: SchemaRegistryClient) -> None:
    value = {"amount": 3, "by": "Zoë"}
    ours = JsonSchemaSerializer(registry, ORDER_JSON)("json", value)

    made = their_json.JSONSerializer(ORDER_JSON, theirs)(value, context("json"))
    # Spaces and escapes of JSON are everyone's own; the id is not.
    assert (ours.data or b"")[:5] == (made or b"")[:5]
    read = their_json.JSONDeserializer(ORDER_JSON, schema_registry_client=theirs)
    assert read(ours.data, context("json")) == value
    assert JsonSchemaDeserializer(registry)(record(Serialized(made))) == value


def test_protobuf_is_the_same_for_both(
    registry: SchemaRegistry, theirs: SchemaRegistryClient, messages: dict[str, Any]
) -> None:
    order = messages["shop.Order"](by={"name": "Zoë"}, lines=[{"amount": 3}])
    order.at.FromJsonString("2026-01-31T23:59:59Z")
    line = order.lines[0]
    for message in (order, line):
        kind = messages[message.DESCRIPTOR.full_name]
        topic = f"proto-{message.DESCRIPTOR.name}"
        ours = ProtobufSerializer(registry, kind)(topic, message)

        made = their_protobuf.ProtobufSerializer(kind, theirs, {"use.deprecated.format": False})
        assert ours.data == made(message, context(topic))
        read = their_protobuf.ProtobufDeserializer(
            kind, {"use.deprecated.format": False}, schema_registry_client=theirs
        )
        assert read(ours.data, context(topic)) == message
        assert ProtobufDeserializer(registry, kind)(record(ours)) == message

    made = ProtobufSerializer(registry, messages["shop.Order"], id_in="header")("proto", order)
    shown = Deserializer(registry)(record(made))
    assert shown == {
        "by": {"name": "Zoë"},
        "at": "2026-01-31T23:59:59Z",
        "lines": [{"amount": 3}],
    }
    found = registry.version("proto-value")
    assert found.references == (
        SchemaReference("serializers/customer.proto", "serializers/customer.proto", 1),
    )
    with pytest.raises(InvalidRecord, match=r"a Line is no message shop\.Order"):
        ProtobufSerializer(registry, messages["shop.Order"])("proto", line)


def test_an_id_may_be_in_a_header(registry: SchemaRegistry, theirs: SchemaRegistryClient) -> None:
    made = AvroSerializer(registry, ORDER_AVRO, id_in="header")("headers", ORDER)

    asked = context("headers")
    config = {"schema.id.serializer": header_schema_id_serializer}
    data = their_avro.AvroSerializer(theirs, ORDER_AVRO, conf=config)(ORDER, asked)
    assert (made.data, list(made.headers)) == (data, asked.headers)
    assert AvroDeserializer(registry)(record(made)) == ORDER
    key = AvroSerializer(registry, '"string"', id_in="header")("headers", "k", is_key=True)
    assert [name for name, _ in key.headers] == ["__key_schema_id"]


def test_subjects_are_chosen_by_a_strategy(registry: SchemaRegistry) -> None:
    schema = '{"type": "record", "name": "Order", "namespace": "strategies", "fields": []}'
    for strategy, subject in (
        ("topic_name", "strategic-value"),
        ("record_name", "strategies.Order"),
        ("topic_record_name", "strategic-strategies.Order"),
        (
            lambda topic, is_key, name: f"{topic}/{is_key}/{name}",
            "strategic/False/strategies.Order",
        ),
    ):
        AvroSerializer(registry, schema, subject_strategy=strategy)("strategic", {})  # type: ignore[arg-type]
        assert registry.versions(subject) == [1]
    unnamed = JsonSchemaSerializer(registry, "{}", subject_strategy="record_name")
    with pytest.raises(InvalidConfig, match="by its title"):
        unnamed("strategic", 1)
    with pytest.raises(InvalidConfig, match="is not JSON"):
        AvroSerializer(registry, "{")
    with pytest.raises(InvalidConfig, match="topic_record_name"):
        AvroSerializer(registry, schema, subject_strategy="other")  # type: ignore[arg-type]


def test_what_is_registered_may_be_left_to_others(registry: SchemaRegistry) -> None:
    inner = '{"type": "record", "name": "left.In", "fields": [{"name": "a", "type": "int"}]}'
    outer = '{"type": "record", "name": "left.Out", "fields": [{"name": "in", "type": "left.In"}]}'
    registry.register("left.In", SchemaText(text=inner))
    references = [SchemaReference("left.In", "left.In", -1)]
    careful = AvroSerializer(registry, outer, references=references, auto_register=False)
    with pytest.raises(UnknownSchema):
        careful("left", {"in": {"a": 1}})
    made = AvroSerializer(registry, outer, references=references)("left", {"in": {"a": 1}})
    assert careful("left", {"in": {"a": 1}}) == made
    latest = AvroSerializer(registry)("left", {"in": {"a": 1}})
    assert latest == made
    assert AvroDeserializer(registry)(record(made)) == {"in": {"a": 1}}
    with pytest.raises(InvalidConfig, match="of type AVRO, not JSON"):
        JsonSchemaSerializer(registry)("left", {})


def test_what_does_not_fit_says_where(registry: SchemaRegistry) -> None:
    write = AvroSerializer(registry, ORDER_AVRO)
    with pytest.raises(InvalidRecord, match=r"/by/name: .*should be a string"):
        write("misfits", {**ORDER, "by": {"name": 3}})
    with pytest.raises(InvalidRecord, match="required"):
        JsonSchemaSerializer(registry, ORDER_JSON)("misfits-json", {})

    read = AvroDeserializer(registry)
    whole = write("misfits", ORDER).data or b""
    with pytest.raises(InvalidRecord, match="t/0, offset 7: /: it is cut off"):
        read(record(Serialized(whole[:-1])))
    with pytest.raises(InvalidRecord, match="the value names no schema"):
        read(record(Serialized(b"text")))
    with pytest.raises(UnknownSchema):
        read(record(Serialized(b"\x00\x00\xff\xff\xffx")))
    with pytest.raises(InvalidRecord, match="is of type AVRO"):
        JsonSchemaDeserializer(registry)(record(Serialized(whole)))
    assert read(record(Serialized(None))) is None
    assert write("misfits", None) == Serialized(None)


def test_a_producer_serializes_and_a_consumer_reads(
    gateway: GatewayProcess, registry: SchemaRegistry
) -> None:
    with Admin(gateway.url) as admin:
        admin.create_topic("typed")
    with Producer(
        gateway.url,
        key_serializer=AvroSerializer(registry, '"string"'),
        value_serializer=AvroSerializer(registry, ORDER_AVRO, id_in="header"),
    ) as producer:
        producer.send("typed", ORDER, key="ana", headers={"source": "web"})
        producer.send("typed", None, key="bia").result()
        with pytest.raises(InvalidRecord):
            producer.send("typed", {"amount": "much"}, key="ana")
    read = Deserializer(registry)
    with Consumer(gateway.url, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("typed")
        found: list[Record] = []
        while len(found) < 2:
            found += consumer.poll(1000)
    assert [(read.key(each), read(each)) for each in found] == [("ana", ORDER), ("bia", None)]
    assert [name for name, _ in found[0].headers] == ["source", "__value_schema_id"]


@pytest.mark.anyio
async def test_programs_with_an_event_loop_await(
    gateway: GatewayProcess, registry: SchemaRegistry
) -> None:
    with Admin(gateway.url) as admin:
        admin.create_topic("awaited")
    async with AsyncSchemaRegistry(gateway.url) as asked:
        orders = JsonSchemaSerializer(asked, ORDER_JSON)
        async with AsyncProducer(gateway.url, value_serializer=orders) as producer:
            await producer.send_and_wait("awaited", {"amount": 3})
        read = Deserializer(asked)
        async with AsyncConsumer(gateway.url, auto_offset_reset="earliest") as consumer:
            consumer.subscribe("awaited")
            found = await anext(consumer)
            assert await read.decode(found) == {"amount": 3}
            assert await read.decode_key(found) is None
        with pytest.raises(TypeError, match="await"):
            JsonSchemaSerializer(asked, ORDER_JSON)("awaited", {"amount": 3})
        with pytest.raises(TypeError, match="await"):
            Deserializer(asked)(found)
    async with AsyncProducer(
        gateway.url, value_serializer=JsonSchemaSerializer(registry, ORDER_JSON)
    ) as wrong:
        with pytest.raises(TypeError, match="which waits"):
            await wrong.send("awaited", {"amount": 3})
