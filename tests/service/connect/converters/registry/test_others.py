"""Values that converters write, read by the deserializers of confluent-kafka."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from service.connect.converters.registry.access import RegistryAccess
from service.connect.converters.registry.avro.from_connect import AvroOptions, avro_of
from service.connect.converters.registry.json_schema.from_connect import (
    JsonSchemaOptions,
    json_schema_of,
)
from tests.service.connect.converters.registry.values import EVERYTHING, VALUE, converter, stored

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("kind", "schema", "deserializer", "changed"),
    [
        (
            "avro.AvroConverter",
            Schema(avro_of(EVERYTHING, AvroOptions(), tagged=True).text, "AVRO"),
            AvroDeserializer,
            {"pairs": [{"key": 1, "value": "x"}]},
        ),
        (
            "json.JsonSchemaConverter",
            Schema(json_schema_of(EVERYTHING, JsonSchemaOptions()).text, "JSON"),
            lambda client: JSONDeserializer(None, schema_registry_client=client),
            {
                "pairs": [{"key": 1, "value": "x"}],
                "price": "+y4=",
                "raw": "AP8=",
                "day": 20484,
                "at": 3723004,
                "when": 1769821323004,
            },
        ),
    ],
    ids=["avro", "json"],
)
async def test_confluents_deserializers_read_it(
    access: RegistryAccess,
    kind: str,
    schema: Schema,
    deserializer: Callable[[SchemaRegistryClient], Any],
    changed: dict[str, Any],
) -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    assert client.register_schema("orders-value", schema) == 1, "as in our own registry"
    data = await stored(converter(kind, access), EVERYTHING, VALUE)
    context = SerializationContext("orders", MessageField.VALUE)
    assert deserializer(client)(data, context) == {**VALUE, **changed}
