"""Confluent's own client of a schema registry, and its serializers, on `riacho serve`."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    MetadataTags,
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.gateway import GatewayProcess, start_gateway
from tests.integration import secured

INT = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
TEXT = INT.replace('"int"', '"string"')
POSITIVE = Rule(
    name="positive",
    doc=None,
    kind=RuleKind.CONDITION,
    mode=RuleMode.WRITE,
    type="CEL",
    tags=["x"],
    params=RuleParams({"p": "q"}),
    expr="message.a > 0",
    on_success="NONE",
    on_failure="ERROR",
    disabled=False,
)


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


def code_of(call: Callable[[], object]) -> int | None:
    """Return the code of the error that the client raises, whose status goes with it."""
    with pytest.raises(SchemaRegistryError) as refused:
        call()
    code: int = refused.value.error_code
    assert refused.value.http_status_code == (code if code < 1000 else code // 100)
    return code


def test_schemas_and_versions(client: SchemaRegistryClient) -> None:
    subject = f"a/b %é{client.config()['url'][-9:]}-value"
    schema = Schema(
        INT,
        metadata=Metadata(None, MetadataProperties({"owner": "ana"}), None),
        rule_set=RuleSet(None, [POSITIVE]),
    )
    made = client.register_schema_full_response(subject, schema, normalize_schemas=True)
    client.clear_caches()
    assert client.register_schema(subject, schema) == made.schema_id
    client.clear_caches()
    for found in (
        client.get_schema(made.schema_id, subject, fmt="serialized"),
        client.get_schema_by_guid(made.guid),
        client.get_latest_version(subject).schema,
        client.get_latest_with_metadata(subject, {"owner": "ana"}).schema,
        client.get_version(subject, 1).schema,
    ):
        assert json.loads(found.schema_str) == json.loads(INT)
        assert found.metadata.properties == schema.metadata.properties
        assert found.rule_set.domain_rules == [POSITIVE]
    looked_up = client.lookup_schema(subject, schema, fmt="resolved")
    assert (looked_up.schema_id, looked_up.version) == (made.schema_id, 1)
    assert looked_up.subject == subject
    assert client.get_subjects_by_schema_id(made.schema_id, subject) == [subject]
    [used] = client.get_schema_versions(made.schema_id, subject)
    assert (used.subject, used.version) == (subject, 1)
    assert client.get_versions(subject) == [1]
    assert client.get_referenced_by(subject, 1) == []
    assert client.get_subjects(subject_prefix=subject[:4], limit=1) == [subject]
    assert client.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]
    assert "." in client.get_contexts()

    assert code_of(lambda: client.get_latest_with_metadata(subject, {"owner": "bob"})) == 40403
    assert code_of(lambda: client.get_schema(2**31 - 1)) == 40403
    assert code_of(lambda: client.get_version(subject, 9)) == 40402
    assert code_of(lambda: client.register_schema(subject, Schema("{"))) == 42201
    assert code_of(lambda: client.delete_subject(subject, permanent=True)) == 40405
    assert client.delete_version(subject, 1) == 1
    assert code_of(lambda: client.delete_version(subject, 1)) == 40406
    assert client.get_versions(subject, deleted_only=True) == [1]
    assert client.get_subjects(subject, deleted_only=True) == [subject]
    assert client.get_subjects(subject) == []
    assert client.delete_subject(subject, permanent=True) == [1]
    assert code_of(lambda: client.get_versions(subject)) == 40401


def test_levels_and_modes(client: SchemaRegistryClient) -> None:
    subject = f"levels{client.config()['url'][-9:]}"
    client.register_schema(subject, Schema(INT))
    assert client.test_compatibility(subject, Schema(TEXT), verbose=True) is False
    assert client.test_compatibility_all_versions(subject, Schema(INT), normalize=True) is True
    assert code_of(lambda: client.test_compatibility("nothing", Schema(INT))) == 40401
    assert code_of(lambda: client.register_schema(subject, Schema(TEXT))) == 409
    assert code_of(lambda: client.get_compatibility(subject)) == 40408
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.FULL_TRANSITIVE))
    assert client.get_config(subject).compatibility_level == "FULL_TRANSITIVE"
    assert client.delete_config(subject).compatibility_level == "FULL_TRANSITIVE"
    assert client.get_compatibility() == "BACKWARD"
    assert code_of(lambda: client.set_compatibility(subject, "SOME")) == 42203
    assert code_of(lambda: client.get_mode(subject)) == 40409
    assert client.update_mode(subject, "READONLY") == "READONLY"
    assert code_of(lambda: client.register_schema(subject, Schema(TEXT))) == 42205
    assert client.get_mode(subject) == client.delete_mode(subject) == "READONLY"
    assert client.get_global_mode() == "READWRITE"
    assert code_of(lambda: client.update_global_mode("IMPORT")) == 42205
    assert code_of(lambda: client.update_mode(subject, "SOME")) == 42204


def test_what_a_subject_adds(client: SchemaRegistryClient) -> None:
    subject = f"added{client.config()['url'][-9:]}"
    major, tags = {"major": "1"}, MetadataTags({"R.a": ["PII"]})
    config = ServerConfig(
        compatibility=ConfigCompatibilityLevel.FULL,
        compatibility_group="major",
        default_metadata=Metadata(None, MetadataProperties(major), None),
        override_metadata=Metadata(tags, MetadataProperties({"owner": "ana"}), ["a"]),
        default_rule_set=RuleSet(None, [POSITIVE]),
        override_rule_set=RuleSet([], []),
    )
    client.set_config(subject, config)
    found = client.get_config(subject)
    assert found.compatibility_level == ConfigCompatibilityLevel.FULL
    assert found.compatibility_group == "major"
    assert found.default_rule_set.domain_rules == [POSITIVE]
    assert found.override_metadata == config.override_metadata

    client.register_schema(subject, Schema(INT))
    latest = client.get_latest_version(subject).schema
    assert latest.metadata == Metadata(tags, MetadataProperties({**major, "owner": "ana"}), ["a"])
    assert latest.rule_set.domain_rules == [POSITIVE]
    client.clear_caches()
    assert client.lookup_schema(subject, Schema(INT)).version == 1
    assert client.get_latest_with_metadata(subject, {"owner": "ana"}).version == 1
    assert code_of(lambda: client.register_schema(subject, Schema(TEXT))) == 409
    second = Schema(TEXT, metadata=Metadata(None, MetadataProperties({"major": "2"}), None))
    assert client.test_compatibility(subject, second) is True
    client.register_schema(subject, second)
    assert client.get_latest_with_metadata(subject, {"major": "2"}).version == 2
    assert client.delete_config(subject).compatibility_group == "major"


def test_a_context_is_the_base_path(client: SchemaRegistryClient) -> None:
    base = client.config()["url"]
    name = f"c{len(base)}"
    with SchemaRegistryClient({"url": f"{base}/contexts/.{name}"}) as inside:
        serialize = AvroSerializer(inside, INT)
        data = serialize({"a": 1}, SerializationContext("t", MessageField.VALUE))
        assert data[:5] == b"\0\0\0\0\1", "a context has ids of its own"
        assert inside.get_subjects() == [f":.{name}:t-value"]
        assert inside.get_latest_version("t-value").version == 1
        assert inside.set_compatibility(level="FULL") == {"compatibility": "FULL"}
        assert inside.get_compatibility() == "FULL"
        deserialize = AvroDeserializer(inside)
        context = SerializationContext("t", MessageField.VALUE)
        assert deserialize(data, context) == {"a": 1}
    assert client.get_compatibility() == "BACKWARD"
    assert f".{name}" in client.get_contexts()
    assert client.get_version(f":.{name}:t-value", 1).version == 1


def test_with_security_a_subject_that_one_may_not_read_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    root = secured.super_key(tmp_path / "data")
    with (
        start_gateway(tmp_path, env=secured.CLOSED) as gateway,
        secured.client(gateway.url, root) as http,
        ExitStack() as clients,
    ):

        def as_user(key: str, under: str = "") -> SchemaRegistryClient:
            _, key_id, secret, *_ = key.split("_")
            conf = {"url": gateway.url + under, "basic.auth.user.info": f"{key_id}:{secret}"}
            return SchemaRegistryClient(conf)

        ana_key = secured.new_key(http, "User:ana")
        for operation in ("READ", "WRITE"):
            secured.allow(http, "User:ana", operation, "a-value", resource_type="SUBJECT")
        boss, ana = as_user(root), as_user(ana_key)
        clients.callback(boss.close)
        clients.callback(ana.close)
        hidden = boss.register_schema("b-value", Schema(TEXT, "AVRO"))
        boss.register_schema(":.other:a-value", Schema(TEXT, "AVRO"))
        secured_wait(gateway.url, ana_key)

        mine = ana.register_schema("a-value", Schema(INT, "AVRO"))
        assert ana.get_schema(mine).schema_type == "AVRO"
        assert ana.get_subjects() == ["a-value"]
        # By default, serializers look for an association of the topic first.
        serialize = AvroSerializer(ana, INT)
        data = serialize({"a": 1}, SerializationContext("a", MessageField.VALUE))
        assert data[1:5] == mine.to_bytes(4)
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
        # Nor does an alias show what its reader may not read.
        http.put("/config/a-value", json={"alias": "b-value"}).raise_for_status()
        assert ask(gateway.url, root, "a-value").startswith("200")
        assert ask(gateway.url, ana_key, "a-value") == told[1].replace("nothing", "a-value")
        http.delete("/config/a-value").raise_for_status()
        assert ask(gateway.url, ana_key, "a-value").startswith("200")
        with as_user(ana_key, "/registry/contexts/.other") as elsewhere:
            # The right to a subject is none to that of the same name in another context.
            for refused_call in (
                lambda: elsewhere.get_latest_version("a-value"),
                lambda: elsewhere.register_schema("a-value", Schema(INT)),
            ):
                assert code_of(refused_call) == 40401
            assert elsewhere.get_subjects() == []
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
