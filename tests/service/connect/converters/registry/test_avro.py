"""Avro by the registry: schemas as Confluent's converter registers them, values of all types."""

import io
import json
import math
from random import Random
from typing import Any

import fastavro
import pytest

from service.connect.converters.registry.access import RegistryAccess
from service.connect.converters.registry.avro.from_connect import AvroOptions, avro_of
from service.connect.converters.registry.avro.names import UNION
from service.connect.converters.registry.avro.to_connect import connect_of
from service.connect.data.errors import DataFault, TaskFault
from service.connect.data.schema import (
    FLOAT64,
    INT8,
    INT32,
    STRING,
    ConnectSchema,
    Type,
    array,
    decimal,
    default_of,
    map_of,
    struct,
)
from storage.schemas.avro.parsing import parse_avro
from storage.schemas.source import SchemaType
from tests.kafka_programs.transforms.cases import typed_struct
from tests.service.connect.converters.registry.values import (
    EVERYTHING,
    LATER,
    VALUE,
    converter,
    read,
    stored,
)

pytestmark = pytest.mark.anyio

AVRO = "avro.AvroConverter"
DECIMAL_2 = (
    '{"type":"bytes","scale":2,"precision":64,"connect.version":1,'
    '"connect.parameters":{"scale":"2"},'
    '"connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"}'
)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (INT8, '{"type":"int","connect.type":"int8"}'),
        (STRING.optional(), '["null","string"]'),
        (ConnectSchema(Type.INT32, default=1), '{"type":"int","connect.default":1}'),
        (
            ConnectSchema(Type.INT32, is_optional=True, default=1),
            '[{"type":"int","connect.default":1},"null"]',
        ),
        (decimal(2), DECIMAL_2),
        (array(INT32.optional()), '{"type":"array","items":["null","int"]}'),
        (
            struct([("a", STRING.optional()), ("b", struct([("c", INT32)]))]),
            '{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro",'
            '"fields":[{"name":"a","type":["null","string"],"default":null},'
            '{"name":"b","type":{"type":"record","name":"ConnectDefault2",'
            '"fields":[{"name":"c","type":"int"}]}}]}',
        ),
        (
            struct([("p", decimal(2))], name="n.R", version=1, doc="d"),
            '{"type":"record","name":"R","namespace":"n","fields":[{"name":"p","type":'
            f'{DECIMAL_2}}}],"connect.doc":"d","connect.version":1,"connect.name":"n.R"}}',
        ),
        (
            map_of(INT32, STRING),
            '{"type":"array","items":{"type":"record","name":"MapEntry",'
            '"namespace":"io.confluent.connect.avro","fields":[{"name":"key","type":"int"},'
            '{"name":"value","type":"string"}]}}',
        ),
    ],
)
def test_schemas_are_those_of_confluent(schema: ConnectSchema, text: str) -> None:
    written = avro_of(schema, AvroOptions(), tagged=True).text
    assert written == text
    tree, _ = parse_avro(text, {})
    assert connect_of(tree).schema == schema


@pytest.mark.parametrize("value", [VALUE, LATER])
async def test_every_type_comes_back(access: RegistryAccess, value: dict[str, Any]) -> None:
    made = converter(AVRO, access)
    data = await stored(made, EVERYTHING, value)
    assert await read(converter(AVRO, access), data) == (EVERYTHING, value)
    optional = EVERYTHING.optional()
    assert await read(made, await stored(made, optional, value)) == (optional, value)


async def test_others_can_read_it(access: RegistryAccess) -> None:
    data = await stored(converter(AVRO, access), EVERYTHING, VALUE)
    written = avro_of(EVERYTHING, AvroOptions(), tagged=True)
    found = fastavro.schemaless_reader(io.BytesIO(data[5:]), json.loads(written.text), None)
    assert found == {**VALUE, "pairs": [{"key": 1, "value": "x"}]}


async def test_generated_schemas_and_values_come_back(access: RegistryAccess) -> None:
    random = Random(7)
    made = converter(AVRO, access)
    for number in range(60):
        schema, value = typed_struct(random)
        data = await stored(made, schema, value, f"t{number}")
        found, back = await read(made, data)
        assert found == schema
        assert back == filled(schema, value)


def filled(schema: ConnectSchema, value: Any) -> Any:
    """Return a value with defaults instead of null, as it is written."""
    if value is None:
        return default_of(schema)
    if schema.type is not Type.STRUCT:
        return value
    return {field.name: filled(field.schema, value.get(field.name)) for field in schema.fields}


async def test_a_union_has_one_field_for_each_type(access: RegistryAccess) -> None:
    made = converter(AVRO, access)
    text = '["null","string",{"type":"record","name":"a.R","fields":[{"name":"x","type":"int"}]}]'
    record = struct([("x", INT32)], name="a.R")
    union = struct([("string", STRING.optional()), ("R", record.optional())], name=UNION).optional()
    tree, _ = parse_avro(text, {})
    assert connect_of(tree).schema == union
    for value in ({"string": "s"}, {"R": {"x": 1}}):
        assert await read(made, await stored(made, union, value)) == (union, value)


async def test_schemas_of_others_are_read(access: RegistryAccess) -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "R",
            "doc": "why",
            "fields": [
                {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
                {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
                {"name": "d", "type": "double", "default": 1.5, "doc": "how"},
                {"name": "n", "type": ["null", {"type": "map", "values": "bytes"}]},
            ],
        }
    )
    found = await access.registered("s", SchemaType.AVRO, text, normalize=False)
    value = {"e": "B", "f": b"\x01\xff", "d": math.inf, "n": {"k": b"\xfe"}}
    body = found.codec.encode_many([{**value, "n": {"map": {"k": "\xfe"}}}]).bodies[0]
    assert body is not None
    schema, back = await read(
        converter(AVRO, access), b"\x00" + found.schema_id.to_bytes(4, "big") + body
    )
    assert back == value
    assert schema is not None
    assert (schema.name, dict(schema.parameters)) == (
        "R",
        {
            "io.confluent.connect.avro.record.doc": "why",
            "io.confluent.connect.avro.field.doc.d": "how",
        },
    )
    kinds = {field.name: (field.schema.type, field.schema.name) for field in schema.fields}
    assert kinds == {
        "e": (Type.STRING, "E"),
        "f": (Type.BYTES, "F"),
        "d": (Type.FLOAT64, None),
        "n": (Type.MAP, None),
    }
    assert schema.by_name["d"].schema.default == 1.5
    made = converter(AVRO, access)
    assert await read(made, await stored(made, schema, value)) is not None


async def test_tombstones_stay(access: RegistryAccess) -> None:
    made = converter(AVRO, access)
    assert made.to_bytes("t", EVERYTHING, None) is None
    assert made.to_data("t", None) == (None, None)


async def test_what_does_not_fit_is_refused(access: RegistryAccess) -> None:
    made = converter(AVRO, access)
    schema = struct([("a", INT8), ("b", FLOAT64)])
    await stored(made, schema, {"a": 1, "b": 1.5})
    for value in (
        {"a": 200, "b": 1.0},
        {"a": 1},
        {"a": 1, "b": 1.0, "c": 1},
        {"a": 1, "b": "1"},
        1,
    ):
        with pytest.raises(DataFault):
            made.to_bytes("orders", schema, value)
    with pytest.raises(DataFault, match="without a schema"):
        made.to_bytes("orders", None, {})
    with pytest.raises(DataFault, match="was not registered"):
        made.to_bytes("elsewhere", schema, {"a": 1, "b": 1.5})
    for data in (b"", b"{}", b"\x00\x00\x00\x00\x63", b"\x00\x00\x00\x00\x01"):
        with pytest.raises(DataFault):
            await read(made, data)


async def test_an_incompatible_schema_is_refused_for_its_own_records(
    access: RegistryAccess,
) -> None:
    made = converter(AVRO, access)
    old, new = struct([("a", INT32)], name="R"), struct([("a", STRING)], name="R")
    await stored(made, old, {"a": 1})
    await made.prepare_write("orders", [old, new, None])
    assert made.to_bytes("orders", old, {"a": 2}) is not None
    with pytest.raises(DataFault, match="incompatible"):
        made.to_bytes("orders", new, {"a": "x"})


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "orders-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "n.R"),
        ("TopicRecordNameStrategy", "orders-n.R"),
    ],
)
async def test_subjects(access: RegistryAccess, strategy: str, subject: str) -> None:
    made = converter(AVRO, access, value_subject_name_strategy=strategy)
    await stored(made, struct([("a", INT32)], name="n.R").optional(), {"a": 1})
    assert (await access.latest(subject)).schema_id == 1


async def test_values_may_be_written_by_the_newest_version(access: RegistryAccess) -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","string"]}]}'
    found = await access.registered("orders-value", SchemaType.AVRO, text, normalize=False)
    made = converter(AVRO, access, use_latest_version="true", auto_register_schemas="false")
    data = await stored(made, struct([("a", STRING)], name="R"), {"a": "x"})
    assert data == b"\x00" + found.schema_id.to_bytes(4, "big") + b"\x02\x02x"


async def test_nothing_is_registered_unasked(access: RegistryAccess) -> None:
    schema = struct([("a", STRING)], name="R")
    made = converter(AVRO, access, auto_register_schemas="false")
    with pytest.raises(DataFault, match="Schema not found"):
        await stored(made, schema, {"a": "x"})
    text = avro_of(schema, AvroOptions(), tagged=True).text
    await access.registered("orders-value", SchemaType.AVRO, text, normalize=False)
    assert await stored(made, schema, {"a": "x"})


async def test_hostile_schemas_are_refused(access: RegistryAccess) -> None:
    inner: Any = "int"
    for level in range(30):
        twice = [{"name": "a", "type": inner}, {"name": "b", "type": f"r{level - 1}"}]
        fields = twice if level else twice[:1]
        inner = {"type": "record", "name": f"r{level}", "fields": fields}
    scale = {"connect.parameters": {"scale": "x"}}
    wrong: Any = {"type": "bytes", "logicalType": "decimal", "precision": 4, **scale}
    for number, said in enumerate((inner, wrong, {"type": "int", "connect.parameters": {"a": 1}})):
        found = await access.registered(
            f"s{number}", SchemaType.AVRO, json.dumps(said), normalize=False
        )
        with pytest.raises(DataFault, match=f"schema {found.schema_id}"):
            await read(converter(AVRO, access), b"\x00" + found.schema_id.to_bytes(4, "big") + b"0")


async def test_without_a_registry_nothing_is_converted() -> None:
    made = converter(AVRO, None)
    with pytest.raises(TaskFault, match="no schema registry"):
        await made.prepare("t", [b"\x00\x00\x00\x00\x01"])
