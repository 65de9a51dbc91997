"""Records against the schemas of their topic: every call that writes, every rule."""

import subprocess
import sys
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from service.registry.edge.validation.validation import SCHEMAS_MAX
from service.registry.names import parse_subject
from tests.fuzz.deployment import deployment
from tests.service.registry.edge.validation.edge import (
    ORDER,
    WRITES,
    Edge,
    Write,
    framed,
    header,
    key,
    value,
)

pytestmark = pytest.mark.anyio

CHECKED = {"confluent_value_schema_validation": "true"}
STRATEGY = "io.confluent.kafka.serializers.subject."
PROTO = 'syntax = "proto3"; package shop; message A {} message Order { message Line {} }'
AVRO = {"type": "record", "name": "Order", "namespace": "shop", "fields": []}


@pytest.fixture
async def edge() -> AsyncIterator[Edge]:
    async with deployment() as deployed:
        yield Edge(deployed)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
async def test_one_bad_record_of_a_thousand_refuses_all(edge: Edge, write: Write) -> None:
    await edge.create("t", partitions=3, **CHECKED)
    known = (await edge.register("t-value", ORDER))["id"]
    values: list[bytes | None] = [framed(known)] * 1_000
    values[5], values[700] = None, framed(known + 1)

    refused = await write(edge, values)

    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_RECORD")
    assert refused.json()["detail"].startswith(
        "records[700].value: subject 't-value' has no schema with id 2;"
    )
    assert [(each["index"], each["part"]) for each in refused.json()["records"]] == [(700, "value")]
    assert await edge.count("t") == 0
    values[700] = None
    assert (await write(edge, values)).is_success
    while await edge.count("t") < 1_000:  # What nobody waits for may be under way.
        pass
    assert await edge.count("t") == 1_000


async def test_an_atomic_call_names_the_place_in_the_request(edge: Edge) -> None:
    await edge.create("t", **CHECKED)
    await edge.create("free")
    known = (await edge.register("t-value", ORDER))["id"]
    free = {"topic": "free", "value": "anything"}
    good, bad = ({"topic": "t", **value(framed(n))} for n in (known, 9))

    refused = await edge.ask("POST /v1/atomic", {"records": [free, good, free, bad, free]})

    assert refused.json()["records"][0]["index"] == 3
    assert await edge.count("free") == await edge.count("t") == 0


async def test_a_value_without_an_id_is_refused_and_the_first_ten_are_named(edge: Edge) -> None:
    await edge.create("t", **CHECKED)
    await edge.register("t-value", ORDER)

    refused = await edge.produce("t", *[{"value": {"amount": 1}}] * 30)

    assert [each["index"] for each in refused.json()["records"]] == [*range(10)]
    assert "it has no schema id" in refused.json()["detail"]
    assert "(and 9 more)" in refused.json()["detail"]


async def test_an_id_in_a_header_counts_before_one_in_front(edge: Edge) -> None:
    await edge.create("t", **CHECKED)
    found = await edge.register("t-value", ORDER)
    guid = b"\x01" + UUID(found["guid"]).bytes
    other = await edge.register("another", {"type": "string"})

    plain = {"value": {"amount": 1}}
    await edge.accepted("t", {**plain, **header("__value_schema_id", guid)})
    await edge.accepted("t", {**value(framed(9)), **header("__value_schema_id", guid + b"\0")})
    of_keys = await edge.refused("t", {**plain, **header("__key_schema_id", guid)})
    assert "no schema id" in of_keys["reason"]
    named = b"\x01" + UUID(other["guid"]).bytes
    of_another = await edge.refused("t", {**plain, **header("__value_schema_id", named)})
    assert of_another["reason"] == "subject 't-value' has no schema with id 2"
    unknown = await edge.refused("t", {**plain, **header("__value_schema_id", b"\x01" + bytes(16))})
    assert unknown["reason"].startswith("there is no schema with GUID 00000000-")


async def test_keys_and_values_are_checked_by_their_own_rules(edge: Edge) -> None:
    await edge.create("t", confluent_key_schema_validation="true", key_schema_subject="注文/a")
    known = (await edge.register("注文/a", ORDER))["id"]

    await edge.accepted("t", {**key(framed(known)), "value": "anything"}, {"value": "no key"})

    refused = await edge.refused("t", {"key": "k", **value(framed(known))})
    assert refused["part"] == "key"


async def test_an_id_that_another_gateway_has_just_registered(edge: Edge) -> None:
    await edge.create("t", **CHECKED)
    await edge.refused("t", value(framed(1)))

    known = await edge.register_elsewhere("t-value", ORDER)

    await edge.accepted("t", value(framed(known)))


async def test_a_deleted_version_counts_no_more(edge: Edge) -> None:
    await edge.create("t", **CHECKED)
    known = (await edge.register("t-value", ORDER))["id"]
    await edge.accepted("t", value(framed(known)))

    await edge.done("DELETE /subjects/t-value/versions/1")

    await edge.refused("t", value(framed(known)))
    await edge.register("t-value", ORDER)
    await edge.accepted("t", value(framed(known)))


@pytest.mark.parametrize(
    ("strategy", "schema", "kind", "right", "wrong"),
    [
        ("RecordNameStrategy", AVRO, "AVRO", "shop.Order", "t-value"),
        ("TopicRecordNameStrategy", AVRO, "AVRO", "t-shop.Order", "shop.Order"),
        ("RecordNameStrategy", ORDER, "JSON", "Order", "t-value"),
        ("RecordNameStrategy", PROTO, "PROTOBUF", "shop.Order.Line", "shop.Line"),
        ("TopicRecordNameStrategy", PROTO, "PROTOBUF", "t-shop.A", "t-value"),
    ],
)
async def test_a_strategy_says_which_subject(
    edge: Edge, strategy: str, schema: object, kind: str, right: str, wrong: str
) -> None:
    chosen = {"confluent_value_subject_name_strategy": STRATEGY + strategy}
    await edge.create("t", **CHECKED, **chosen)
    assert (await edge.refused("t", value(framed(1))))["reason"] == "Schema 1 not found"
    known = (await edge.register(wrong, schema, kind))["id"]

    refused = await edge.refused("t", value(framed(known)))
    assert refused["reason"].startswith("subject ")

    await edge.register(right, schema, kind)
    for _ in range(2):
        await edge.accepted("t", value(framed(known)))
    await edge.done(f"DELETE /subjects/{right}")
    await edge.refused("t", value(framed(known)))


async def test_a_schema_without_a_name_has_no_subject_by_it(edge: Edge) -> None:
    chosen = {"confluent_value_subject_name_strategy": f"{STRATEGY}RecordNameStrategy"}
    await edge.create("t", **CHECKED, **chosen)
    known = (await edge.register("t-value", {"type": "string"}))["id"]

    refused = await edge.refused("t", value(framed(known)))

    assert refused["reason"] == "schema 1 has no name, which its subject would have"


async def test_a_rule_holds_from_the_moment_it_is_set(edge: Edge) -> None:
    await edge.create("t")
    await edge.accepted("t", {"value": "anything"})
    unknown = await edge.ask("PATCH /v1/topics/t", {"config": {"value.schema.validation": "all"}})
    assert (unknown.status_code, unknown.json()["code"]) == (400, "INVALID_CONFIG")
    assert "must be one of none, id, full, not 'all'" in unknown.json()["detail"]

    await edge.done("PATCH /v1/topics/t", {"config": {"value.schema.validation": "id"}})
    await edge.refused("t", {"value": "anything"})
    await edge.done("PATCH /v1/topics/t", {"config": {"value.schema.validation": "none"}})
    await edge.accepted("t", {"value": "anything"})


async def test_a_request_with_too_many_schemas_is_refused(edge: Edge) -> None:
    await edge.create("t", **CHECKED)
    known = (await edge.register("t-value", ORDER))["id"]
    validation = edge.deployed.gateway._validation
    head = await edge.deployed.gateway.schemas.head(parse_subject("t-value"))
    assert head is not None
    many = frozenset(range(known, known + SCHEMAS_MAX + 1))
    validation._live[parse_subject("t-value")] = head, many

    await edge.accepted("t", *[value(framed(each)) for each in sorted(many)[1:]])

    refused = await edge.refused("t", *[value(framed(each)) for each in sorted(many)])
    assert refused["index"] == SCHEMAS_MAX
    assert "the records before have 1,000 schemas" in refused["reason"]


def test_ids_are_checked_without_a_library_of_schemas() -> None:
    code = "import sys, service.registry.edge.validation.validation; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}

    assert "service" in loaded
    assert not loaded & {"avro", "fastavro", "google", "jsonschema_rs"}
