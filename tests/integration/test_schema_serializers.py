"""Confluent's serializers for Python on `riacho serve`: subjects, versions, older readers."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import (
    Metadata,
    MetadataProperties,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import (
    MessageField,
    SerializationContext,
    SerializationError,
)

from tests.gateway import GatewayProcess, start_gateway
from tests.kafka_programs.schemas.serializers import (
    deserializer,
    schema_of,
    serializer,
    value_of,
)
from tests.kafka_programs.schemas.vectors import CASES, REFERRED, Case, native

KEY: Final = MessageField.KEY
VALUE: Final = MessageField.VALUE
OF_A: Final = {"name": "a", "type": "int"}
OF_B: Final = {"name": "b", "type": ["null", "string"], "default": None}


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "shop.Grown", "fields": fields})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": gateway.url}) as found:
        for subject, (kind, text) in REFERRED.items():
            found.register_schema(subject, Schema(text, kind))
        yield found


def record_name(case: Case) -> str:
    """Return how a case calls what it describes."""
    if case.type == "PROTOBUF":
        return case.message
    schema = json.loads(case.text)
    if case.type == "JSON":
        return str(schema["title"])
    return f"{schema['namespace']}.{schema['name']}" if isinstance(schema, dict) else str(schema)


def expected(case: Case) -> Any:
    return native(case.value, tagged=False) if case.type == "AVRO" else value_of(case)


STRATEGIES: Final[dict[str, Callable[[str, Case], str]]] = {
    "TOPIC": lambda topic, case: f"{topic}-value",
    "ASSOCIATED": lambda topic, case: f"{topic}-value",
    "TOPIC_RECORD": lambda topic, case: f"{topic}-{record_name(case)}",
    "RECORD": lambda topic, case: record_name(case),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_strategy_names_the_subject(client: SchemaRegistryClient, case: Case) -> None:
    known = set(client.get_subjects())
    for strategy, subject in STRATEGIES.items():
        if strategy == "RECORD" and subject("", case) in known:
            # Two types of schemas have a record of this name.
            continue
        topic = f"{strategy}-{case.name}"
        conf = {"subject.name.strategy.type": strategy}
        context = SerializationContext(topic, VALUE, {})
        data = serializer(client, case, conf)(value_of(case), context)
        assert client.get_versions(subject(topic, case)) == [1]
        assert deserializer(client, case, conf)(data, context) == expected(case)
    context = SerializationContext(case.name, KEY, {})
    data = serializer(client, case)(value_of(case), context)
    assert client.get_latest_version(f"{case.name}-key").schema_id == int.from_bytes(data[1:5])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_registered_already_is_used(client: SchemaRegistryClient, case: Case) -> None:
    topic = f"used-{case.name}"
    context = SerializationContext(topic, VALUE, {})
    fixed = {"auto.register.schemas": False}
    with pytest.raises((SchemaRegistryError, SerializationError)):
        serializer(client, case, fixed)(value_of(case), context)
    schema_id = client.register_schema(f"{topic}-value", schema_of(case), normalize_schemas=True)
    confs: list[dict[str, Any]] = [
        {**fixed, "normalize.schemas": True},
        {"normalize.schemas": True},
        {**fixed, "use.schema.id": schema_id},
    ]
    if "." not in case.message.removeprefix("shop."):
        # With the latest version, the client finds no message inside another.
        confs.append({**fixed, "use.latest.version": True})
    for conf in confs:
        if "use.schema.id" in conf and "nested" in case.name:
            continue
        data = serializer(client, case, conf)(value_of(case), context)
        assert int.from_bytes(data[1:5]) == schema_id, conf
        latest = {"use.latest.version": True}
        assert deserializer(client, case, latest)(data, context) == expected(case)
    assert client.get_versions(f"{topic}-value") == [1]


def test_avro_is_read_with_an_older_and_a_newer_schema(client: SchemaRegistryClient) -> None:
    old, new = record(OF_A), record(OF_A, OF_B)
    context = SerializationContext("grown", VALUE, {})
    written = [
        AvroSerializer(client, text)(value, context)
        for text, value in ((old, {"a": 1}), (new, {"a": 2, "b": "x"}))
    ]

    def read(text: str) -> list[object]:
        deserialize = AvroDeserializer(client, text)
        return [deserialize(data, context) for data in written]

    assert client.get_versions("grown-value") == [1, 2]
    assert read(old) == [{"a": 1}, {"a": 2}]
    assert read(new) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    with pytest.raises(SchemaRegistryError, match="incompatible"):
        AvroSerializer(client, record(OF_B, {"name": "c", "type": "int"}))({"c": 1}, context)


def test_the_version_is_chosen_by_its_metadata(client: SchemaRegistryClient) -> None:
    context = SerializationContext("labelled", VALUE, {})
    for major, text in (("1", record(OF_A)), ("2", record(OF_A, OF_B))):
        metadata = Metadata(None, MetadataProperties({"major": major}), None)
        client.register_schema("labelled-value", Schema(text, metadata=metadata))
    conf = {"auto.register.schemas": False, "use.latest.with.metadata": {"major": "1"}}

    data = AvroSerializer(client, conf=conf)({"a": 1}, context)

    first = client.get_version("labelled-value", 1)
    assert int.from_bytes(data[1:5]) == first.schema_id
    newer = {"use.latest.with.metadata": {"major": "2"}}
    assert AvroDeserializer(client, conf=newer)(data, context) == {"a": 1, "b": None}


def test_json_that_does_not_fit_is_refused_by_the_client(client: SchemaRegistryClient) -> None:
    [case] = [each for each in CASES if each.type == "JSON"]
    context = SerializationContext("strict", VALUE, {})
    serialize = JSONSerializer(schema_of(case), client)

    for value in ({**case.value, "more": 1}, {**case.value, "customer": {"mail": None}}):
        with pytest.raises(SerializationError):
            serialize(value, context)

    data = serialize(case.value, context)
    assert JSONDeserializer(schema_of(case), None, client)(data, context) == case.value


def test_a_message_of_protobuf_is_found_by_its_place(client: SchemaRegistryClient) -> None:
    """One client that writes and reads keeps what its registration was answered."""
    [case] = [each for each in CASES if "nested" in each.name]
    context = SerializationContext("places", VALUE, {})

    data = serializer(client, case)(value_of(case), context)

    assert data[5:9] == b"\6\0\0\0"
    assert deserializer(client, case)(data, context) == value_of(case)
