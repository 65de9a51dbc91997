"""Protobuf by the registry: files as Confluent's converter makes them, values of all types."""

from dataclasses import replace
from typing import Any

# The client has the option in which types are kept, so this process knows it: it is none of the
# unknown fields of what a file says.
import confluent_kafka.schema_registry.protobuf  # noqa: F401
import pytest

from service.connect.converters.registry.access import RegistryAccess
from service.connect.converters.registry.protobuf import names
from service.connect.converters.registry.protobuf.from_connect import protobuf_of
from service.connect.data.errors import DataFault
from service.connect.data.schema import (
    INT8,
    INT32,
    INT64,
    STRING,
    ConnectSchema,
    Type,
    array,
    decimal,
    map_of,
    struct,
)
from storage.schemas.source import SchemaType
from tests.service.connect.converters.registry.values import (
    EVERYTHING,
    LATER,
    VALUE,
    converter,
    read,
    stored,
)

pytestmark = pytest.mark.anyio

PROTOBUF = "protobuf.ProtobufConverter"


def test_files_are_those_of_confluent() -> None:
    line = struct([("sku", STRING)], name="shop.Line")
    schema = struct(
        [
            ("small", INT8),
            ("price", decimal(2)),
            ("lines", array(line)),
            ("Line", line.optional()),
            ("counts", map_of(STRING, INT32)),
        ],
        name="shop.eu.Order",
    )
    written = protobuf_of(schema, optional_for_nullables=False)
    assert written.name == "shop.eu.Order"
    assert written.text == (
        'syntax = "proto3";\n'
        "package shop.eu;\n"
        'import "confluent/meta.proto";\n'
        'import "confluent/type/decimal.proto";\n'
        "message Order {\n"
        "  message Line {\n    string sku = 1;\n  }\n"
        "  message LineMessage {\n    string sku = 1;\n  }\n"
        "  message ConnectDefault1Entry {\n    string key = 1;\n    int32 value = 2;\n  }\n"
        "  int32 small = 1 [(confluent.field_meta) = "
        '{ params: { key: "connect.type" value: "int8" } }];\n'
        "  confluent.type.Decimal price = 2 [(confluent.field_meta) = "
        '{ params: { key: "scale" value: "2" } }];\n'
        "  repeated Line lines = 3;\n"
        "  LineMessage Line = 4;\n"
        "  repeated ConnectDefault1Entry counts = 5;\n"
        "}\n"
    )


@pytest.mark.parametrize("value", [VALUE, LATER])
async def test_every_type_comes_back(access: RegistryAccess, value: dict[str, Any]) -> None:
    made = converter(PROTOBUF, access, optional_for_nullables="true")
    found, back = await read(made, await stored(made, EVERYTHING, value))
    assert back == value
    assert found is not None
    assert [(field.name, field.schema.type, field.schema.name) for field in found.fields] == [
        (field.name, field.schema.type, short(field.schema)) for field in EVERYTHING.fields
    ]
    assert found.by_name["price"].schema.parameter("scale") == "2"
    assert found.by_name["id"].schema.parameter(names.TAG) == "2"
    # The package is not in the name of what was read: it would be another message.
    again = await stored(made, found, back, "again")
    assert await read(made, again) == (found, back)


MAPS = {map_of(STRING, INT32): "ConnectDefault1", map_of(INT32, STRING): "ConnectDefault2"}


def short(schema: ConnectSchema) -> str | None:
    """Return the name that a schema has when it comes back."""
    if schema.type is Type.STRUCT:
        return names.short_name(schema.name or "")
    return MAPS.get(schema, schema.name)


async def test_null_is_nothing_unless_told_otherwise(access: RegistryAccess) -> None:
    schema = struct([("a", STRING.optional()), ("b", INT64.optional())], name="R")
    for said, expected in (("false", {"a": "", "b": 0}), ("true", {"a": None, "b": None})):
        made = converter(PROTOBUF, access, optional_for_nullables=said)
        _, back = await read(made, await stored(made, schema, {"a": None}, f"t-{said}"))
        assert back == expected


async def test_files_of_others_are_read(access: RegistryAccess) -> None:
    text = """syntax = "proto3";
        package a.b;
        enum Kind { NONE = 0; SOME = 5; }
        message First { string s = 1; }
        message R {
          Kind kind = 1;
          uint64 big = 2;
          map<string, First> firsts = 3;
          oneof which { string text = 4; First first = 5; }
          optional int32 maybe = 6;
        }"""
    found = await access.registered("s", SchemaType.PROTOBUF, text, normalize=False)
    head = b"\x00" + found.schema_id.to_bytes(4, "big") + b"\x02\x02"
    body = (
        b"\x08\x05"
        b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        b"\x1a\x08\x0a\x01k\x12\x03\x0a\x01v"
        b"\x2a\x03\x0a\x01w"
    )
    made = converter(PROTOBUF, access)
    schema, value = await read(made, head + body)
    assert value == {
        "which_0": {"first": {"s": "w"}},
        "kind": "SOME",
        "big": -1,
        "firsts": {"k": {"s": "v"}},
        "maybe": None,
    }
    assert schema is not None
    again = replace(schema, name="a.c.R")
    _, back = await read(made, await stored(made, again, value))
    assert back == {**value, "maybe": 0}


async def test_what_does_not_fit_is_refused(access: RegistryAccess) -> None:
    made = converter(PROTOBUF, access)
    schema = struct([("a", INT8), ("b", array(STRING))], name="R")
    head = (await stored(made, schema, {"a": 1, "b": []}))[:5]
    for value in ({"a": 200, "b": []}, {"b": []}, {"a": 1, "b": [None]}, {"a": 1, "b": ["\ud800"]}):
        with pytest.raises(DataFault):
            made.to_bytes("orders", schema, value)
    for body in (b"", b"\x04", b"\x00\xff", b"\x00\x08"):
        with pytest.raises(DataFault):
            await read(made, head + body)
    for wrong in (INT32, struct([("a", array(array(STRING)))]), struct([("a-b", STRING)])):
        with pytest.raises(DataFault):
            await stored(made, wrong, {"a": []} if wrong.type is Type.STRUCT else 1)


async def test_a_message_inside_itself_is_refused(access: RegistryAccess) -> None:
    text = 'syntax = "proto3"; message Node { Node next = 1; }'
    found = await access.registered("s", SchemaType.PROTOBUF, text, normalize=False)
    with pytest.raises(DataFault, match="contains itself"):
        await read(
            converter(PROTOBUF, access), b"\x00" + found.schema_id.to_bytes(4, "big") + b"\x00"
        )
