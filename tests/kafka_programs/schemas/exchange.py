"""Clients that write the values of `vectors.json`, and read what others wrote.

Each writes every value twice: with the id of its schema before it, and in a header.
"""

import base64
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.json_format import MessageToDict

from tests.kafka_programs.programs import go_program, run, schema_registry_js
from tests.kafka_programs.schemas.serializers import (
    as_json,
    deserializer,
    serializer,
    value_of,
)
from tests.kafka_programs.schemas.vectors import Case, descriptors, flat, native

PATIENCE_S: Final = 120.0
FORMS: Final = {"prefix": prefix_schema_id_serializer, "header": header_schema_id_serializer}

Read = dict[str, dict[str, Any]]
"""What records say, by topic and key; a key is the name of who wrote it, and the form."""


class Client(Protocol):
    def forms(self, case: Case) -> Sequence[str]:
        """Return how this client writes a case, if it does."""

    def write(self, cases: Sequence[Case]) -> None:
        """Register the schemas, and send each value twice."""

    def read(self, cases: Sequence[Case], count: int) -> Read:
        """Return what the first `count` records of all topics say."""

    def expected(self, case: Case) -> Any:
        """Return what this client reads of a case."""


class Python:
    """Confluent's own, on librdkafka."""

    def __init__(self, bootstrap: str, registry: str) -> None:
        self._bootstrap = bootstrap
        self._conf = {"url": registry}

    def forms(self, case: Case) -> Sequence[str]:
        return list(FORMS)

    def write(self, cases: Sequence[Case]) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        with SchemaRegistryClient(self._conf) as client:
            for case in cases:
                for form, ids in FORMS.items():
                    context = SerializationContext(case.name, MessageField.VALUE, {})
                    serialize = serializer(client, case, {"schema.id.serializer": ids})
                    data = serialize(value_of(case), context)
                    key = f"python {form}"
                    producer.produce(case.name, data, key, headers=context.headers)
        assert producer.flush(PATIENCE_S) == 0

    def read(self, cases: Sequence[Case], count: int) -> Read:
        messages = consumed(self._bootstrap, [case.name for case in cases], count)
        seen: Read = {case.name: {} for case in cases}
        with SchemaRegistryClient(self._conf) as client:
            of = {case.name: deserializer(client, case) for case in cases}
            for each in messages:
                topic = str(each.topic())
                context = SerializationContext(topic, MessageField.VALUE, each.headers())
                value = of[topic](each.value(), context)
                is_message = hasattr(value, "DESCRIPTOR")
                seen[topic][key_of(each)] = MessageToDict(value) if is_message else value
        return seen

    def expected(self, case: Case) -> Any:
        return native(case.value, tagged=False) if case.type == "AVRO" else case.value


class Http:
    """A program that has nothing but HTTP and JSON."""

    def __init__(self, url: str) -> None:
        self._topics = f"{url}/v1/topics"

    def forms(self, case: Case) -> Sequence[str]:
        # Of a file of Protobuf, it writes the first message.
        is_written = case.message in ("", "shop.Order")
        return ["prefix"] if is_written else []

    def write(self, cases: Sequence[Case]) -> None:
        for case in cases:
            for form in self.forms(case):
                record = {"key": f"http {form}", "value": self.expected(case)}
                body = {"value_subject": case.subject, "records": [record]}
                path = f"{self._topics}/{case.name}/records"
                answer = httpx.post(path, json=body, timeout=PATIENCE_S)
                assert answer.is_success, (case.name, answer.text)

    def read(self, cases: Sequence[Case], count: int) -> Read:
        seen: Read = {}
        for case in cases:
            query = {"value_format": "json", "offset": 0}
            path = f"{self._topics}/{case.name}/partitions/0/records"
            answer = httpx.get(path, params=query, timeout=PATIENCE_S).raise_for_status()
            seen[case.name] = {each["key"]: each["value"] for each in answer.json()["records"]}
        assert sum(len(each) for each in seen.values()) == count
        return seen

    def expected(self, case: Case) -> Any:
        return as_json(case)


class Program:
    """A program that takes `write` or `read`, and a file that says where and what."""

    def __init__(
        self, command: Sequence[str], folder: Path, is_tagged: bool, given: dict[str, Any]
    ) -> None:
        self._command = command
        self._folder = folder
        self._is_tagged = is_tagged
        self._given = given

    def forms(self, case: Case) -> Sequence[str]:
        return list(FORMS)

    def write(self, cases: Sequence[Case]) -> None:
        self.run("write", cases, 0)

    def read(self, cases: Sequence[Case], count: int) -> Read:
        seen: Read = self.run("read", cases, count)
        return seen

    def run(self, task: str, cases: Sequence[Case] = (), count: int = 0) -> Any:
        """Return what the program prints of a task."""
        told = [
            {
                "name": each.name,
                "type": each.type,
                "text": each.text,
                "message": each.message,
                "references": each.references,
                "value": flat(each.value) if each.type == "AVRO" else each.value,
            }
            for each in cases
        ]
        file = self._folder / f"{task}.json"
        file.write_text(json.dumps({**self._given, "cases": told, "expected": count}))
        return json.loads(run([*self._command, task, str(file)], cwd=self._given["cwd"]))

    def expected(self, case: Case) -> Any:
        return flat(case.value, tagged=self._is_tagged) if case.type == "AVRO" else case.value


def client(name: str, bootstrap: str, registry: str, folder: Path, user: str = "") -> Client:
    """Return the client of a language, or skip the test."""
    if name == "python":
        return Python(bootstrap, registry)
    if name == "http":
        return Http(registry)
    return program(name, bootstrap, registry, folder, user)


def program(name: str, bootstrap: str, registry: str, folder: Path, user: str = "") -> Program:
    """Return the client of a language that is a program, or skip the test."""
    given = {"bootstrap": bootstrap, "registry": registry, "user": user, "cwd": None}
    if name == "go":
        return Program([str(go_program()), "schemas"], folder, False, given)
    given["descriptors"] = base64.b64encode(descriptors().SerializeToString()).decode()
    given["cwd"] = str(schema_registry_js())
    command = ["node", str(Path(__file__).with_name("schemas.mjs"))]
    # avsc writes and reads unions of records with the name of the record.
    return Program(command, folder, True, given)


def consumed(bootstrap: str, topics: Iterable[str], count: int) -> list[Message]:
    """Return the first `count` records of topics with one partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "python"})
    try:
        consumer.assign([TopicPartition(each, 0, 0) for each in topics])
        found: list[Message] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), PATIENCE_S)
            assert messages, f"{len(found)} of {count} records came"
            for each in messages:
                assert each.error() is None, each.error()
            found += messages
        return found
    finally:
        consumer.close()


def key_of(message: Message) -> str:
    key = message.key()
    assert isinstance(key, bytes)
    return key.decode()
