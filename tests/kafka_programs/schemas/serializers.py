"""Confluent's serializers for Python, for the cases of `vectors.json`."""

import json
from collections.abc import Callable
from functools import cache
from io import StringIO
from typing import Any

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from tests.kafka_programs.schemas.vectors import (
    REFERRED,
    Case,
    descriptors,
    message_classes,
    native,
)


@cache
def messages() -> dict[str, type[Message]]:
    return message_classes(descriptors())


def schema_of(case: Case) -> Schema:
    references = [SchemaReference(**each) for each in case.references]
    return Schema(case.text, case.type, references)


def serializer(
    client: SchemaRegistryClient, case: Case, conf: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Return a serializer, which registers the schema of the case unless told otherwise."""
    if case.type == "AVRO":
        # Of a type that is no record, it takes only the text.
        schema = schema_of(case) if case.references else case.text
        return AvroSerializer(client, schema, conf=conf)
    if case.type == "JSON":
        return JSONSerializer(schema_of(case), client, conf=conf)
    return ProtobufSerializer(messages()[case.message], client, conf)


def value_of(case: Case) -> Any:
    """Return the value of the case as its serializer takes it."""
    if case.type == "PROTOBUF":
        return ParseDict(case.value, messages()[case.message]())
    return native(case.value) if case.type == "AVRO" else case.value


def as_json(case: Case) -> Any:
    """Return the value in the JSON encoding of Avro or Protobuf, as their own libraries say it."""
    if case.type == "JSON":
        return case.value
    if case.type == "PROTOBUF":
        return MessageToDict(value_of(case), always_print_fields_with_no_presence=True)
    named: dict[str, Any] = {}
    for each in case.references:
        fastavro.parse_schema(json.loads(REFERRED[each["subject"]][1]), named)
    file = StringIO()
    parsed = fastavro.parse_schema(json.loads(case.text), named)
    fastavro.json_writer(file, parsed, [value_of(case)])
    return json.loads(file.getvalue())


def deserializer(
    client: SchemaRegistryClient, case: Case, conf: dict[str, Any] | None = None
) -> Callable[..., Any]:
    if case.type == "AVRO":
        return AvroDeserializer(client, conf=conf)
    if case.type == "JSON":
        return JSONDeserializer(None, schema_registry_client=client, conf=conf)
    return ProtobufDeserializer(messages()[case.message], conf, client)
