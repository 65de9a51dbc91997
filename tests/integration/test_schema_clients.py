"""Confluent's own client of a schema registry, and its serializers, on `riacho serve`."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import (
    ConfigCompatibilityLevel,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.gateway import GatewayProcess, start_gateway
from tests.integration import secured

INT = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
TEXT = INT.replace('"int"', '"string"')
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "lines", "type": {"type": "array", "items": "shop.Line"}},
        ],
    }
)
LINE = json.dumps(
    {"type": "record", "name": "shop.Line", "fields": [{"name": "amount", "type": "double"}]}
)
VALUE = SerializationContext("orders", MessageField.VALUE)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture(params=["", "/registry"])
def client(
    gateway: GatewayProcess, request: pytest.FixtureRequest
) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": gateway.url + request.param}) as found:
        yield found


def test_every_call_of_the_client(client: SchemaRegistryClient) -> None:
    subject = "a/b %é-value"
    schema = Schema(INT, "AVRO")
    schema_id = client.register_schema(subject, schema)
    assert client.register_schema(subject, schema) == schema_id
    assert json.loads(client.get_schema(schema_id).schema_str or "") == json.loads(INT)
    found = client.lookup_schema(subject, schema)
    assert (found.schema_id, found.version, found.subject) == (schema_id, 1, subject)
    assert client.get_latest_version(subject).version == 1
    assert client.get_version(subject, 1).schema_id == schema_id
    assert client.get_versions(subject) == [1]
    assert subject in client.get_subjects()
    assert client.test_compatibility(subject, Schema(TEXT, "AVRO")) is False
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, Schema(TEXT, "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.FULL_TRANSITIVE))
    assert client.get_config(subject).compatibility_level == "FULL_TRANSITIVE"
    assert client.get_compatibility() == "BACKWARD"
    assert client.delete_version(subject, 1) == 1
    assert client.delete_subject(subject, permanent=True) == [1]
    with pytest.raises(SchemaRegistryError) as missing:
        client.get_versions(subject)
    assert (missing.value.http_status_code, missing.value.error_code) == (404, 40401)


def test_what_the_avro_serializer_writes_its_deserializer_reads(
    client: SchemaRegistryClient,
) -> None:
    client.register_schema("line", Schema(LINE, "AVRO"))
    order = Schema(ORDER, "AVRO", [SchemaReference("shop.Line", "line", 1)])
    serialize = AvroSerializer(
        client, order, conf={"subject.name.strategy": topic_subject_name_strategy}
    )
    value = {
        "id": "8a1f6b0e-6b0a-4f5e-9d3a-0a1b2c3d4e5f",
        "note": None,
        "lines": [{"amount": 1.5}, {"amount": -2.0}],
    }
    raw = serialize(value, VALUE)
    assert raw[0] == 0
    schema_id = int.from_bytes(raw[1:5])
    assert client.get_latest_version("orders-value").schema_id == schema_id

    read: Any = AvroDeserializer(client)(raw, VALUE)
    assert {**read, "id": str(read["id"])} == value


def test_with_security_a_subject_that_one_may_not_read_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    root = secured.super_key(tmp_path / "data")
    with (
        start_gateway(tmp_path, env=secured.CLOSED) as gateway,
        secured.client(gateway.url, root) as http,
        ExitStack() as clients,
    ):

        def as_user(key: str) -> SchemaRegistryClient:
            _, key_id, secret, *_ = key.split("_")
            conf = {"url": gateway.url, "basic.auth.user.info": f"{key_id}:{secret}"}
            return SchemaRegistryClient(conf)

        ana_key = secured.new_key(http, "User:ana")
        for operation in ("READ", "WRITE"):
            secured.allow(http, "User:ana", operation, "a-value", resource_type="SUBJECT")
        boss, ana = as_user(root), as_user(ana_key)
        clients.callback(boss.close)
        clients.callback(ana.close)
        hidden = boss.register_schema("b-value", Schema(TEXT, "AVRO"))
        secured_wait(gateway.url, ana_key)

        mine = ana.register_schema("a-value", Schema(INT, "AVRO"))
        assert ana.get_schema(mine).schema_type == "AVRO"
        assert ana.get_subjects() == ["a-value"]
        for call in (
            lambda: ana.get_latest_version("b-value"),
            lambda: ana.register_schema("b-value", Schema(INT, "AVRO")),
            lambda: ana.get_schema(hidden),
        ):
            with pytest.raises(SchemaRegistryError) as refused:
                call()
            assert refused.value.http_status_code == 404
        told = [ask(gateway.url, ana_key, name) for name in ("b-value", "nothing")]
        assert told[0].replace("b-value", "nothing") == told[1]
        with (
            as_user("rk_0000000000000000_x_y") as nobody,
            pytest.raises(SchemaRegistryError) as unknown,
        ):
            nobody.get_subjects()
        assert unknown.value.http_status_code == 401


def ask(url: str, key: str, subject: str) -> str:
    path = f"{url}/subjects/{subject}/versions/1"
    answer = httpx.get(path, headers={"authorization": f"Bearer {key}"})
    return f"{answer.status_code} {answer.text}"


def secured_wait(url: str, key: str) -> None:
    """Wait until the gateway has seen the newest ACLs: a known subject looks as it does."""
    import time

    give_up_s = time.monotonic() + 60
    path, headers = f"{url}/config/a-value", {"authorization": f"Bearer {key}"}
    while '"error_code":40408' in httpx.get(path, headers=headers).text:
        assert time.monotonic() < give_up_s
        time.sleep(0.1)


def test_one_schema_has_one_id_over_three_gateways(tmp_path: Path) -> None:
    with (
        start_gateway(tmp_path) as one,
        start_gateway(tmp_path) as two,
        start_gateway(tmp_path) as three,
    ):
        urls = [each.url for each in (one, two, three)]

        def register(number: int, subject: str, schema: str) -> dict[str, Any]:
            path = f"{urls[number % 3]}/subjects/{subject}/versions"
            answer = httpx.post(path, json={"schema": schema}, timeout=120)
            while answer.status_code == 500 or answer.status_code == 503:
                answer = httpx.post(path, json={"schema": schema}, timeout=120)
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            return found

        with ThreadPoolExecutor(25) as pool:
            same = list(pool.map(lambda n: register(n, "same", INT), range(50)))
            assert {(each["id"], each["version"]) for each in same} == {(1, 1)}

            def different(number: int) -> dict[str, Any]:
                fields = [{"name": f"f{number}", "type": "int", "default": number}]
                schema = {"type": "record", "name": "R", "fields": fields}
                return register(number, "different", json.dumps(schema))

            found = list(pool.map(different, range(50)))
        assert sorted(each["version"] for each in found) == list(range(1, 51))
        assert sorted(each["id"] for each in found) == list(range(2, 52))
        for url in urls:
            versions = httpx.get(f"{url}/subjects/different/versions").json()
            assert versions == list(range(1, 51))
