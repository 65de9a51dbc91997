"""JSON Schema by the registry: schemas as Confluent's converter registers them, values."""

import json
from random import Random
from typing import Any

import pytest

from service.connect.converters.registry.access import RegistryAccess
from service.connect.converters.registry.json_schema.from_connect import (
    JsonSchemaOptions,
    json_schema_of,
)
from service.connect.converters.registry.json_schema.names import ONE_OF
from service.connect.data.errors import DataFault
from service.connect.data.schema import (
    INT8,
    INT32,
    STRING,
    ConnectSchema,
    Type,
    decimal,
    map_of,
    struct,
)
from storage.schemas.source import SchemaType
from tests.kafka_programs.transforms.cases import typed_struct
from tests.service.connect.converters.registry.test_avro import filled
from tests.service.connect.converters.registry.values import (
    EVERYTHING,
    LATER,
    VALUE,
    converter,
    read,
    stored,
)

pytestmark = pytest.mark.anyio

JSON = "json.JsonSchemaConverter"
NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (INT8, {"type": "integer", "connect.type": "int8"}),
        (STRING.optional(), {"oneOf": [NULL, {"type": "string"}]}),
        (
            ConnectSchema(Type.FLOAT64, default=1.5),
            {"type": "number", "connect.type": "float64", "default": 1.5},
        ),
        (
            decimal(2),
            {
                "type": "string",
                "connect.type": "bytes",
                "title": "org.apache.kafka.connect.data.Decimal",
                "connect.version": 1,
                "connect.parameters": {"scale": "2"},
            },
        ),
        (
            map_of(STRING, STRING),
            {
                "type": "object",
                "connect.type": "map",
                "additionalProperties": {"type": "string"},
            },
        ),
        (
            struct([("a", STRING.optional()), ("b", INT32)], name="n.R", version=2, doc="d"),
            {
                "type": "object",
                "title": "n.R",
                "description": "d",
                "connect.version": 2,
                "properties": {
                    "a": {"oneOf": [NULL, {"type": "string"}], "connect.index": 0},
                    "b": {"type": "integer", "connect.type": "int32", "connect.index": 1},
                },
            },
        ),
    ],
)
def test_schemas_are_those_of_confluent(schema: ConnectSchema, said: dict[str, Any]) -> None:
    assert json.loads(json_schema_of(schema, JsonSchemaOptions()).text) == said


@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
@pytest.mark.parametrize("value", [VALUE, LATER])
async def test_every_type_comes_back(
    access: RegistryAccess, value: dict[str, Any], decimals: str
) -> None:
    made = converter(JSON, access, decimal_format=decimals)
    data = await stored(made, EVERYTHING, value)
    assert await read(made, data) == (EVERYTHING, value)
    said = json.loads(data[5:])
    assert (said["id"], said["pairs"]) == (1 << 40, [{"key": 1, "value": "x"}])


async def test_generated_schemas_and_values_come_back(access: RegistryAccess) -> None:
    random = Random(8)
    made = converter(JSON, access)
    for number in range(60):
        schema, value = typed_struct(random)
        data = await stored(made, schema, value, f"t{number}")
        found, back = await read(made, data)
        assert found == schema
        assert back == filled(schema, value)


async def test_schemas_of_others_are_read(access: RegistryAccess) -> None:
    text = json.dumps(
        {
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            "type": "object",
            "required": ["at"],
            "properties": {
                "at": {"$ref": "#/$defs/point"},
                "kind": {"type": "string", "enum": ["a", "b"]},
                "size": {"type": ["number", "null"]},
                "any": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/point"}]},
                "both": {
                    "allOf": [{"$ref": "#/$defs/point"}, {"properties": {"y": {"type": "string"}}}]
                },
            },
        }
    )
    found = await access.registered("s", SchemaType.JSON, text, normalize=False)
    head = b"\x00" + found.schema_id.to_bytes(4, "big")
    body = b'{"at":{"x":1},"kind":"a","size":1.5,"any":{"x":2},"both":{"x":3,"y":"z"}}'
    schema, value = await read(
        converter(JSON, access, use_optional_for_nonrequired="true"), head + body
    )
    assert value == {
        "at": {"x": 1},
        "kind": "a",
        "size": 1.5,
        "any": {f"{ONE_OF}.field.1": {"x": 2}},
        "both": {"x": 3, "y": "z"},
    }
    assert schema is not None
    optional = {field.name: field.schema.is_optional for field in schema.fields}
    assert optional == {"at": False, "kind": True, "size": True, "any": True, "both": True}
    _, missing = await read(converter(JSON, access), head + b'{"at":{"x":1}}')
    assert missing == {"at": {"x": 1}, "kind": None, "size": None, "any": None, "both": None}


async def test_a_union_is_the_value_that_it_has(access: RegistryAccess) -> None:
    point = struct([("x", INT32)], name="Point").optional()
    union = struct(
        [(f"{ONE_OF}.field.0", STRING.optional()), (f"{ONE_OF}.field.1", point)], name=ONE_OF
    )
    made = converter(JSON, access)
    for value in ({f"{ONE_OF}.field.0": "s"}, {f"{ONE_OF}.field.1": {"x": 1}}):
        assert await read(made, await stored(made, union, value)) == (union, value)


async def test_what_does_not_fit_is_refused(access: RegistryAccess) -> None:
    made = converter(JSON, access)
    schema = struct([("a", INT8)])
    head = (await stored(made, schema, {"a": 1}))[:5]
    for value in ({"a": 200}, {"a": "1"}, {"b": 1}, [1]):
        with pytest.raises(DataFault):
            made.to_bytes("orders", schema, value)
    for body in (b"", b"[1]", b'{"a":300}', b'{"a":null}', b'{"a":"1"}', b"\xff"):
        with pytest.raises(DataFault):
            await read(made, head + body)
    for text in (
        "true",
        "{}",
        '{"properties":{"a":{"$ref":"#"}}}',
        '{"type":"null"}',
        '{"type":"array"}',
    ):
        found = await access.registered(f"s{len(text)}", SchemaType.JSON, text, normalize=False)
        with pytest.raises(DataFault):
            await read(made, b"\x00" + found.schema_id.to_bytes(4, "big") + b"1")
