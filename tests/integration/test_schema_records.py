"""Records with schemas: what HTTP writes Confluent's deserializers read, and the other way."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass

from tests.gateway import GatewayProcess, start_gateway

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "amount", "type": "int"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
            {"name": "raw", "type": "bytes", "default": "\xff"},
            {"name": "kinds", "type": {"type": "array", "items": ["int", "string"]}},
        ],
    }
)
JSON_SCHEMA = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"amount": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["amount"],
    }
)
PROTO = """syntax = "proto3";
package shop;

message Unused {}
message Outer {
  message Order {
    int32 amount = 1;
    string note = 2;
    repeated int64 sizes = 3;
  }
}
"""
FIRST = 'syntax = "proto3"; message Order { int32 amount = 1; map<string, double> by = 2; }'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path_factory.mktemp("records")) as found:
        yield found


class Topic:
    """A topic as a program sees it that has nothing but HTTP and JSON."""

    def __init__(self, http: httpx.Client, name: str) -> None:
        self.name = name
        self.http = http
        self.done("POST", "/v1/topics", json={"name": name})

    def done(self, method: str, path: str, **more: Any) -> Any:
        answer = self.http.request(method, path, **more)
        assert answer.is_success, answer.text
        return answer.json()

    def produce(self, *records: Any, **schemas: Any) -> Any:
        path = f"/v1/topics/{self.name}/records"
        return self.done("POST", path, json={"records": records, **schemas})

    def fetch(self, value_format: str = "json") -> list[Any]:
        path = f"/v1/topics/{self.name}/partitions/0/records"
        found: list[Any] = self.done("GET", path, params={"value_format": value_format})["records"]
        return found

    def values(self) -> list[bytes]:
        return [base64.b64decode(each["value_base64"]) for each in self.fetch("base64")]

    def context(self, part: MessageField = MessageField.VALUE) -> SerializationContext:
        return SerializationContext(self.name, part, headers=[])


@pytest.fixture
def topic(gateway: GatewayProcess, request: pytest.FixtureRequest) -> Iterator[Topic]:
    with httpx.Client(base_url=gateway.url, timeout=60) as http:
        yield Topic(http, request.node.name.replace("[", "-").rstrip("]"))


@pytest.fixture
def registry(gateway: GatewayProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": gateway.url}) as found:
        yield found


@pytest.fixture(params=[prefix_schema_id_serializer, header_schema_id_serializer])
def placed(request: pytest.FixtureRequest) -> Any:
    """Return how a serializer says which schema it is."""
    return {"schema.id.serializer": request.param}


def sent(topic: Topic, data: bytes, context: SerializationContext) -> dict[str, Any]:
    """Write what a serializer made, and return the record as it is read."""
    headers = [
        {"key": name, "value_base64": base64.b64encode(value).decode()}
        for name, value in context.headers or ()
    ]
    topic.produce({"value_base64": base64.b64encode(data).decode(), "headers": headers})
    found: dict[str, Any] = topic.fetch()[-1]
    assert len(found["headers"]) == len(headers)
    return found


def test_avro_from_json_and_back(
    topic: Topic, registry: SchemaRegistryClient, placed: dict[str, Any]
) -> None:
    order = {"amount": 3, "note": "x", "day": "2026-01-31", "kinds": [1, {"string": "2"}]}
    done = topic.produce({"value": order, "key": 7}, value_schema=AVRO, key_schema='"long"')
    schema_id, key_id = done["value_schema_id"], done["key_schema_id"]
    assert registry.get_latest_version(f"{topic.name}-value").schema_id == schema_id
    assert registry.get_latest_version(f"{topic.name}-key").schema_id == key_id

    [value] = topic.values()
    read: Any = AvroDeserializer(registry)(value, topic.context())
    assert read["day"].isoformat() == "2026-01-31"
    assert {**read, "day": 0} == {**order, "day": 0, "raw": b"\xff", "kinds": [1, "2"]}

    context = topic.context()
    data = AvroSerializer(registry, AVRO, conf=placed)(read, context)
    record = sent(topic, data, context)
    shown = {
        "amount": 3,
        "note": {"string": "x"},
        "day": 20484,
        "raw": "\xff",
        "kinds": [{"int": 1}, {"string": "2"}],
    }
    assert (record["value"], record["value_schema_id"]) == (shown, schema_id)
    first = topic.fetch()[0]
    assert (first["key"], first["key_schema_id"], first["value"]) == (7, key_id, shown)
    topic.produce({"value": shown}, value_schema_id=schema_id)
    assert topic.values()[-1] == value


def test_json_schema_from_json_and_back(
    topic: Topic, registry: SchemaRegistryClient, placed: dict[str, Any]
) -> None:
    order = {"amount": 3, "note": "ü"}
    done = topic.produce({"value": order}, value_schema=JSON_SCHEMA, value_schema_type="JSON")

    [value] = topic.values()
    deserialize = JSONDeserializer(None, schema_registry_client=registry)
    assert deserialize(value, topic.context()) == order

    context = topic.context()
    data = JSONSerializer(JSON_SCHEMA, registry, conf=placed)(order, context)
    record = sent(topic, data, context)
    assert (record["value"], record["value_schema_id"]) == (order, done["value_schema_id"])


def message_of(text: str, name: str) -> Any:
    from service.registry.formats.protobuf.form import FORM

    pool = DescriptorPool()
    [parsed] = FORM.parse(text, []).files
    file = FileDescriptorProto.FromString(parsed.SerializeToString())
    file.name = "order.proto"
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def test_protobuf_from_json_and_back(
    topic: Topic, registry: SchemaRegistryClient, placed: dict[str, Any]
) -> None:
    topic.produce({"value": {"by": {"a": 1.5}}}, value_schema=FIRST, value_schema_type="PROTOBUF")
    [value] = topic.values()
    first = message_of(FIRST, "Order")
    read = ProtobufDeserializer(first, {"use.deprecated.format": False}, registry)(
        value, topic.context()
    )
    assert MessageToDict(read) == {"by": {"a": 1.5}}
    assert topic.fetch()[0]["value"] == {"amount": 0, "by": {"a": 1.5}}

    order = message_of(PROTO, "shop.Outer.Order")
    inner = ParseDict({"amount": 5, "sizes": ["7"]}, order())
    other = Topic(topic.http, f"{topic.name}-inner")
    context = other.context()
    serialize = ProtobufSerializer(order, registry, {"use.deprecated.format": False, **placed})
    record = sent(other, serialize(inner, context), context)
    assert record["value"] == {"amount": 5, "note": "", "sizes": ["7"]}


def test_each_way_to_read_decodes_and_nothing_fails_for_what_cannot_be(topic: Topic) -> None:
    schema_id = topic.produce({"value": 5}, value_schema='"int"')["value_schema_id"]
    cut = base64.b64encode(b"\x00" + schema_id.to_bytes(4)).decode()
    topic.produce(
        {"value": {"a": 1}},
        {"value_base64": cut},
        {"value_base64": "AAAAf/8="},
        {"value": None},
        {"value_base64": "/w=="},
        {"value": "text", "headers": [{"key": "__value_schema_id", "value_base64": "AQAA"}]},
    )
    wanted = [
        {"value": 5, "value_schema_id": schema_id},
        {"value": {"a": 1}},
        {"value_base64": cut, "value_schema_id": schema_id, "value_error": "it is cut off"},
        {"value_base64": "AAAAf/8=", "value_error": "Schema 32767 not found"},
        {"value": None},
        {"value_base64": "/w=="},
        {"value": "text"},
    ]

    def shown(records: list[Any]) -> list[Any]:
        return [{n: each[n] for n in each if n.startswith("value")} for each in records]

    path = f"/v1/topics/{topic.name}/partitions/0/records"
    query = {"value_format": "json", "max_records": "7"}
    assert shown(topic.fetch()) == wanted
    lines = topic.http.get(path, params=query, headers={"accept": "application/x-ndjson"})
    assert shown([json.loads(line) for line in lines.text.splitlines()]) == wanted
    tail = topic.http.get(path, params=query, headers={"accept": "text/event-stream"})
    data = [line[6:] for line in tail.text.splitlines() if line.startswith("data: ")]
    assert shown([json.loads(line) for line in data]) == wanted
    place = {"topic": topic.name, "partition": 0}
    many = topic.done("POST", "/v1/fetch", json={"partitions": [place], "value_format": "json"})
    assert shown(many["partitions"][0]["records"]) == wanted
    member = topic.done("POST", "/v1/groups/readers/members", json={"topics": [topic.name]})
    polled = topic.done(
        "POST",
        f"/v1/groups/readers/members/{member['member_id']}/poll",
        json={
            "generation": member["generation"],
            "positions": [{**place, "offset": 0}],
            "value_format": "json",
        },
    )
    assert shown(polled["partitions"][0]["records"]) == wanted
    assert {"value_schema_id", "value_error"}.isdisjoint(topic.fetch("text")[0])


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        ({"value_schema_id": 99_999}, 404, "UNKNOWN_SCHEMA", "Schema 99999 not found"),
        ({"value_subject": "none"}, 404, "UNKNOWN_SCHEMA", "Subject 'none' not found"),
        ({"value_subject": "known", "value_version": 9}, 404, "UNKNOWN_SCHEMA", "Version 9"),
        ({"value_schema": "{"}, 400, "INVALID_SCHEMA", "JSON"),
        ({"value_schema": '"int"', "value_schema_id": 1}, 400, "INVALID_REQUEST", "alone"),
        ({"value_version": 1}, 400, "INVALID_REQUEST", "value_subject"),
        ({"value_schema_type": "AVRO"}, 400, "INVALID_REQUEST", "value_schema"),
        ({"value_subject": "known", "value_schema": '"int"'}, 409, "INCOMPATIBLE_SCHEMA", "int"),
    ],
)
def test_what_is_wrong_with_a_schema_is_said(
    gateway: GatewayProcess, body: dict[str, Any], status: int, code: str, says: str
) -> None:
    with httpx.Client(base_url=gateway.url, timeout=60) as http:
        http.post("/v1/topics", json={"name": "wrong"})
        http.post("/subjects/known/versions", json={"schema": '"string"'})
        answer = http.post("/v1/topics/wrong/records", json={"records": [{"value": 1}], **body})
        told = answer.json()

        assert (answer.status_code, told["code"]) == (status, code), told
        assert says in told["detail"]
        found = http.get("/v1/topics/wrong/partitions/0/records").json()
        assert found["records"] == []


def test_one_bad_record_of_a_thousand_refuses_all_and_is_named(topic: Topic) -> None:
    records: list[Any] = [{"value": {"amount": n, "kinds": []}, "key": n} for n in range(1000)]
    records[700] = {"value": {"amount": 1, "kinds": [1, 2.5]}, "key": "x"}
    answer = topic.http.post(
        f"/v1/topics/{topic.name}/records",
        json={"value_schema": AVRO, "key_schema": '"int"', "records": records},
    )

    assert answer.status_code == 400
    told = answer.json()
    assert told["code"] == "INVALID_RECORD"
    assert told["records"] == [
        {"index": 700, "part": "key", "path": "", "reason": "it should be an int, a whole number"},
        {
            "index": 700,
            "part": "value",
            "path": "/kinds/1",
            "reason": "it should be an int, a whole number",
        },
    ]
    assert told["detail"].startswith("records[700].key: it should be an int")
    assert topic.fetch() == []
