"""Data against the schemas of its topic: what `full` looks at besides the id."""

import io
import json
from collections.abc import AsyncIterator
from uuid import UUID

import fastavro
import pytest

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

FULL = {"value_schema_validation": "full", "value_schema_subject": "注文"}
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
PROTO = 'syntax = "proto3"; message Order { message Line { string name = 1; } int32 amount = 2; }'


def avro(amount: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"amount": amount})
    return out.getvalue()


@pytest.fixture
async def edge() -> AsyncIterator[Edge]:
    async with deployment() as deployed:
        yield Edge(deployed)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("has_ids", [False, True], ids=["plain", "framed"])
async def test_one_bad_record_of_a_thousand_refuses_all(
    edge: Edge, write: Write, has_ids: bool
) -> None:
    await edge.create("t", partitions=3, **FULL)
    known = (await edge.register("注文", ORDER))["id"]
    data = [b'{"amount": %d}' % number for number in range(1_000)]
    data[700] = b'{"amount": "7"}'
    values: list[bytes | None] = [framed(known, each) if has_ids else each for each in data]
    values[5] = None

    refused = await write(edge, values)

    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_RECORD")
    assert refused.json()["records"] == [
        {
            "index": 700,
            "part": "value",
            "path": "/amount",
            "reason": '"7" is not of type "integer"',
        }
    ]
    assert refused.json()["detail"].startswith('records[700].value at /amount: "7" is not')
    assert await edge.count("t") == 0
    values[700] = None
    assert (await write(edge, values)).is_success
    while await edge.count("t") < 1_000:  # What nobody waits for may be under way.
        pass


async def test_plain_json_is_checked_against_the_latest_version(edge: Edge) -> None:
    await edge.create("t", **FULL)
    first = {"value": {"amount": 1}}
    refused = await edge.refused("t", first)
    assert refused["reason"] == "subject '注文' has no schema"

    await edge.register("注文", ORDER)
    await edge.accepted("t", first, {"value": None})
    stricter = {**ORDER, "required": ["amount", "currency"]}
    await edge.done("PUT /config/注文", {"compatibility": "NONE"})
    newer = (await edge.register("注文", stricter))["id"]

    refused = await edge.refused("t", first)
    assert refused["reason"] == '"currency" is a required property'
    await edge.accepted("t", {"value": {"amount": 1, "currency": "EUR"}})
    await edge.accepted("t", value(framed(newer - 1)))  # Its id says which version it has.
    await edge.refused("t", value(framed(newer)))
    await edge.refused("t", {"value": "no JSON"})


async def test_avro_is_checked_in_either_form(edge: Edge) -> None:
    await edge.create("t", value_schema_validation="full")
    found = await edge.register("t-value", AVRO, "AVRO")
    known, guid = found["id"], b"\x01" + UUID(found["guid"]).bytes

    await edge.accepted("t", value(framed(known, avro(7))), {"value": {"amount": 7}})
    await edge.accepted("t", {**value(avro(7)), **header("__value_schema_id", guid)})

    cut = await edge.refused("t", value(framed(known, avro(7) + b"\0")))
    assert cut["index"] == 0
    of_type = await edge.refused("t", {"value": {"amount": 7}}, {"value": {"amount": "x"}})
    assert (of_type["index"], of_type["path"]) == (1, "/amount")
    no_json = await edge.refused("t", {"value": "{"})
    assert no_json["reason"].startswith("it is not JSON")
    in_header = await edge.refused("t", {**value(b""), **header("__value_schema_id", guid)})
    assert in_header["part"] == "value"


async def test_a_record_that_grew_is_checked_by_the_version_that_it_names(edge: Edge) -> None:
    await edge.create("t", value_schema_validation="full")
    grown = {**AVRO, "fields": [*AVRO["fields"], {"name": "b", "type": "int", "default": 0}]}
    first = (await edge.register("t-value", AVRO, "AVRO"))["id"]
    second = (await edge.register("t-value", grown, "AVRO"))["id"]

    await edge.accepted(
        "t", *[value(framed(n, data)) for n, data in ((first, b"\2"), (second, b"\2\2"))]
    )

    for schema_id, data in ((first, b"\2\2"), (second, b"\2")):
        await edge.refused("t", value(framed(schema_id, data)))


async def test_protobuf_is_checked_by_the_message_that_it_names(edge: Edge) -> None:
    await edge.create("t", value_schema_validation="full")
    found = await edge.register("t-value", PROTO, "PROTOBUF")
    known, guid = found["id"], b"\x01" + UUID(found["guid"]).bytes
    order, line = b"\x00\x10\x07", b"\x04\x00\x00\x0a\x01x"

    await edge.accepted("t", *[value(framed(known, data)) for data in (order, line)])
    await edge.accepted("t", {**value(order[1:]), **header("__value_schema_id", guid + b"\0")})
    await edge.accepted("t", {"value": {"amount": 7}})

    for body in (b"", b"\x02\x02\x10\x07", b"\x00\x10", b"\x04\x00\x00\x0a\x05x"):
        await edge.refused("t", value(framed(known, body)))
    await edge.refused("t", {"value": {"amount": "x"}})


async def test_keys_and_values_of_one_record(edge: Edge) -> None:
    await edge.create("t", key_schema_validation="full", **FULL)
    await edge.register("t-key", {"type": "integer"})
    await edge.register("注文", ORDER)
    good = {**key(b"7"), "value": {"amount": 1}}

    await edge.accepted("t", good, {"value": {"amount": 1}})

    answer = await edge.produce("t", good, {**key(b"x"), "value": {}}, {**good, "value": {}})
    found = [(each["index"], each["part"]) for each in answer.json()["records"]]
    assert found == [(1, "key"), (1, "value"), (2, "value")]


async def test_plain_data_has_no_subject_by_the_name_of_its_record(edge: Edge) -> None:
    strategy = "io.confluent.kafka.serializers.subject.RecordNameStrategy"
    chosen = {"confluent_value_subject_name_strategy": strategy}
    await edge.create("t", value_schema_validation="full", **chosen)
    known = (await edge.register("Order", ORDER))["id"]

    await edge.accepted("t", value(framed(known)))

    assert "no schema id" in (await edge.refused("t", {"value": {"amount": 1}}))["reason"]
    assert (await edge.refused("t", value(framed(known, b"{}"))))["reason"].startswith('"amount"')


async def test_a_schema_with_references(edge: Edge) -> None:
    await edge.create("t", value_schema_validation="full")
    await edge.register("amounts", {"type": "integer"})
    body = {
        "schema": json.dumps({"properties": {"amount": {"$ref": "amount.json"}}}),
        "schemaType": "JSON",
        "references": [{"name": "amount.json", "subject": "amounts", "version": 1}],
    }
    await edge.done("POST /subjects/t-value/versions", body)

    await edge.accepted("t", {"value": {"amount": 1}})
    assert (await edge.refused("t", {"value": {"amount": "x"}}))["path"] == "/amount"
