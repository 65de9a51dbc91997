"""Types of schemas as Arrow's, their union, and values of them."""

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP
from google.protobuf.wrappers_pb2 import DESCRIPTOR as WRAPPERS
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.records import record_batch
from storage.schemas.carried import carried
from storage.schemas.columns import LEAVES_MAX, ColumnUnion, fitted, typed_array
from storage.schemas.columns_avro import AvroDecoder
from storage.schemas.columns_json import JsonDecoder
from storage.schemas.columns_protobuf import ProtobufDecoder
from storage.schemas.framing import VALUE_HEADER, header_of, prefix_of
from storage.schemas.source import Named, SchemaSource, SchemaType

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)


def record(name: str, **fields: Any) -> dict[str, Any]:
    parts = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": parts}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def avro_decoder(schema: Any, *references: Any) -> AvroDecoder:
    named = tuple(Named(each["name"], json.dumps(each)) for each in references)
    return AvroDecoder(SchemaSource(SchemaType.AVRO, json.dumps(schema), named))


def test_avro_types_and_values() -> None:
    line = record(
        "Line", day=logical("int", "date"), cost=logical("bytes", "decimal", precision=5, scale=2)
    )
    schema = record(
        "Order",
        at=logical("long", "timestamp-millis"),
        local=logical("long", "local-timestamp-micros"),
        clock=logical("int", "time-millis"),
        size={"type": "enum", "name": "Size", "symbols": ["S", "L"]},
        raw={"type": "fixed", "name": "Raw", "size": 2},
        lines={"type": "array", "items": "Line"},
        by={"type": "map", "values": ["null", "Line"]},
        maybe=["null", "double"],
        number=["int", "long", "null"],
        either=["string", "int"],
        parent=["null", "Order"],
        nothing="null",
    )
    one = {"day": date(2026, 1, 2), "cost": Decimal("-1.50")}
    value = {
        "at": MOMENT, "local": MOMENT.replace(tzinfo=None), "clock": time(1, 2, 3), "size": "L",
        "raw": b"\0\1", "lines": [one], "by": {"k": one, "n": None}, "maybe": None,
        "number": 2**40, "either": 5, "parent": None, "nothing": None,
    }  # fmt: skip
    named: dict[str, Any] = {}
    fastavro.parse_schema(line, named)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named), value)

    decoder = avro_decoder(schema, line)
    array = typed_array(decoder, [out.getvalue(), b"\x02", b""])
    del value["nothing"]
    expected = {**value, "by": [("k", one), ("n", None)], "either": "5"}
    assert array.to_pylist() == [expected, None, None]
    types = {field.name: field.type for field in decoder.type}
    assert types["at"] == pa.timestamp("us", "UTC")
    assert types["local"] == pa.timestamp("us")
    assert types["lines"].value_type.field("cost").type == pa.decimal128(5, 2)
    assert (types["number"], types["parent"]) == (pa.int64(), pa.string())


def test_bad_avro_is_null_and_ends() -> None:
    nulls = avro_decoder({"type": "array", "items": "null"})
    assert nulls.type == pa.string()
    forever = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" * 2
    assert typed_array(nulls, [forever]).to_pylist() == [None]
    chain = avro_decoder(record("Chain", next=["null", "Chain"]))
    assert typed_array(chain, [b"\x02" * 1_000_000]).to_pylist() == [None]
    late = avro_decoder(logical("long", "timestamp-millis"))
    assert typed_array(
        late, [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x02"]
    ).to_pylist() == [
        None,
        datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
    ]
    doubled = record("A0")
    for number in range(1, 40):
        doubled = record(f"A{number}", left=doubled, right=f"A{number - 1}")
    doubled["fields"].append({"name": "x", "type": "int"})
    with pytest.raises(ValueError, match="more than 4000 parts"):
        avro_decoder(doubled)


def test_json_types_and_values() -> None:
    schema = {
        "type": "object",
        "$defs": {"tree": {"type": "object", "properties": {"sub": {"$ref": "#/$defs/tree"}}}},
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": ["number", "null"]},
            "ok": {"type": "boolean"},
            "at": {"type": "string", "format": "date-time"},
            "day": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "any": {},
            "loose": {"type": "object"},
            "tree": {"$ref": "#/$defs/tree"},
            "far": {"$ref": "http://example.org/far.json#/properties/x"},
            "gone": {"$ref": "http://example.org/gone.json"},
            "": {"type": "string"},
        },
    }
    far = json.dumps({"properties": {"x": {"type": "integer"}}})
    decoder = JsonDecoder(json.dumps(schema), {"http://example.org/far.json": far})
    right = {
        "id": 7, "price": 1, "ok": True, "at": "2026-01-02T03:04:05.678Z", "day": "2026-01-02",
        "tags": ["a", None, "b"], "any": [1, {"x": 2}], "loose": {"y": 1},
        "tree": {"sub": {"sub": {}}}, "far": 5, "gone": "z", "": "unseen", "more": 1,
    }  # fmt: skip
    wrong = {"id": "7", "price": "x", "ok": 1, "at": "now", "day": 5, "tags": "a", "far": 2**70}
    bodies = [json.dumps(each).encode() for each in (right, wrong, [1], None)]
    found = typed_array(decoder, [*bodies, b"{", b"\xff"]).to_pylist()
    assert found[0] == {
        "id": 7, "price": 1.0, "ok": True, "at": MOMENT, "day": date(2026, 1, 2),
        "tags": ["a", None, "b"], "any": '[1,{"x":2}]', "loose": '{"y":1}',
        "tree": {"sub": '{"sub":{}}'}, "far": 5, "gone": '"z"',
    }  # fmt: skip
    assert found[1] == dict.fromkeys(found[0])
    assert found[2:] == [None] * 4
    wide = {"type": "array", "items": {"properties": {f"p{n}": {} for n in range(900)}}}
    # Three bytes each, which would be 90 million cells.
    assert typed_array(JsonDecoder(json.dumps(wide)), [b"[" + b"{}," * 100_000 + b"{}]"]).null_count


def proto() -> list[FileDescriptorProto]:
    file = FileDescriptorProto(name="f.proto", package="p", syntax="proto3")
    file.dependency.extend([TIMESTAMP.name, WRAPPERS.name])
    file.message_type.add(name="Empty")
    outer = file.message_type.add(name="Outer")
    inner = outer.nested_type.add(name="Inner")
    inner.field.add(name="n", number=1, type=4, label=1)
    kinds = file.enum_type.add(name="Kind")
    kinds.value.add(name="ZERO", number=0)
    for number, (name, kind, type_name) in enumerate(
        [
            ("count", 13, ""),
            ("kind", 14, ".p.Kind"),
            ("inner", 11, ".p.Outer.Inner"),
            ("self", 11, ".p.Outer"),
            ("at", 11, ".google.protobuf.Timestamp"),
            ("text", 11, ".google.protobuf.StringValue"),
        ]
    ):
        outer.field.add(name=name, number=number + 1, type=kind, label=1)
        outer.field[-1].type_name = type_name
        if not type_name:
            outer.field[-1].ClearField("type_name")
    outer.field.add(name="many", number=9, type=11, label=3, type_name=".p.Outer.Inner")
    entry = outer.nested_type.add(name="ByEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=8, label=1)
    entry.field.add(name="value", number=2, type=9, label=1)
    outer.field.add(name="by", number=10, type=11, label=3, type_name=".p.Outer.ByEntry")
    imports = [FileDescriptorProto.FromString(each.serialized_pb) for each in (TIMESTAMP, WRAPPERS)]
    return [*imports, file]


def test_protobuf_types_and_values() -> None:
    decoder = ProtobufDecoder(proto(), (1,))
    data = (
        b"\x08\x05\x10\x07\x1a\x02\x08\x01\x22\x02\x08\x09\x2a\x02\x08\x02\x32\x03\x0a\x01x"
        b"\x4a\x00\x4a\x02\x08\x03\x52\x05\x08\x01\x12\x01y"
    )
    assert typed_array(decoder, [data, b"", b"\x08"]).to_pylist() == [
        {
            "count": 5, "kind": "7", "inner": {"n": Decimal(1)}, "self": '{"count": 9}',
            "at": datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), "text": "x",
            "many": [{"n": Decimal(0)}, {"n": Decimal(3)}], "by": [("true", "y")],
        },
        {
            "count": 0, "kind": "ZERO", "inner": None, "self": None, "at": None, "text": None,
            "many": [], "by": [],
        },
        None,
    ]  # fmt: skip
    assert ProtobufDecoder(proto(), (1, 0)).type == pa.struct([("n", pa.decimal128(20, 0))])
    for indexes in ((0,), (2,), (1, 9), ()):
        with pytest.raises((ValueError, KeyError)):
            ProtobufDecoder(proto(), indexes)


def test_a_union_of_types_keeps_names_where_it_can() -> None:
    union = ColumnUnion()
    kinds = [
        pa.struct([("a", pa.int32()), ("l", pa.list_(pa.struct([("x", pa.int32())])))]),
        pa.struct([("A", pa.int64()), ("b", pa.string())]),
        pa.struct([("a", pa.string()), ("l", pa.list_(pa.struct([("x", pa.string())])))]),
        pa.string(),
        pa.struct([("a", pa.bool_()), ("m", pa.map_(pa.string(), pa.float32()))]),
        pa.struct([("m", pa.map_(pa.string(), pa.float64()))]),
    ]
    places = [union.add("value_", kind) for kind in kinds]
    assert [each and each[0] for each in places] == ["value_"] * 3 + ["value__v2"] + ["value_"] * 2
    assert [f"{field.name}: {field.type}" for field in union.fields] == [
        "value_: struct<a: int64, l: list<item: struct<x: int32, x_v2: string>>, b: string,"
        " a_v2: string, a_v3: bool, m: map<string, double>>",
        "value__v2: string",
    ]
    values: list[Any] = [{"a": "z", "l": [{"x": "q"}, None]}, None, {"a": None, "l": None}]
    place = places[2]
    assert place is not None
    wide = fitted(pa.array(values, kinds[2]), place[1], union.fields[0].type)
    wide.validate(full=True)
    empty = dict.fromkeys(("a", "l", "b", "a_v2", "a_v3", "m"))
    assert wide.to_pylist() == [
        {**empty, "a_v2": "z", "l": [{"x": None, "x_v2": "q"}, None]},
        None,
        empty,
    ]
    many = pa.struct([(f"f{number}", pa.int32()) for number in range(LEAVES_MAX)])
    assert union.add("value_", many) is None
    assert len(union.fields) == 2


@given(
    st.lists(st.sampled_from([None, b"", b"\0\0\0\0", b"\0\0\0\0\1", b"\0\0\0\1\0xy", b"\1abcde"]))
)
def test_rows_with_ids_are_found(values: list[bytes | None]) -> None:
    guid = "00000000-0000-0000-0000-000000000007"
    with_header = [number % 3 == 0 for number in range(len(values))]
    headers = [
        [{"key": VALUE_HEADER, "value": b"x"}, {"key": VALUE_HEADER, "value": header_of(guid)}]
        if has
        else None
        for has in with_header
    ]
    batch = record_batch(
        [0] * (len(values) + 1), [None] * (len(values) + 1), [b"-", *values], [None, *headers]
    )
    batch = batch.slice(1)
    found: dict[int, Any] = {}
    for each in carried(batch.column("value"), batch.column("headers"), VALUE_HEADER):
        bodies = each.bodies(batch.column("value"))
        found |= {
            row: (each.ref, body) for row, body in zip(each.rows.tolist(), bodies, strict=True)
        }
    expected: dict[int, Any] = {}
    for row, value in enumerate(values):
        if value is not None and with_header[row]:
            expected[row] = (guid, value)
        elif value is not None and value[:1] == b"\0" and len(value) >= 5:
            expected[row] = (int.from_bytes(value[1:5], "big"), value[5:])
    assert found == expected
    assert prefix_of(1) == b"\0\0\0\0\1"
