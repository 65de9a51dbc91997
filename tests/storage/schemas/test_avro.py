"""Avro as JSON and back, beside another implementation, and bytes that would become too much."""

import io
import json
import math
import tracemalloc
from datetime import UTC, date, datetime, time
from decimal import Decimal
from time import monotonic
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas.avro.codec import AvroCodec
from storage.schemas.avro.writing import append_long
from storage.schemas.codecs import codec_of
from storage.schemas.refused import RefusedValue
from storage.schemas.source import Named, SchemaSource, SchemaType
from tests.examples import some

ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "shop",
    "fields": [{"name": "street", "type": "string"}, {"name": "zip", "type": ["null", "string"]}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int", "default": 1},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": "float"},
        {"name": "price", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 3}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": ["int", "string", ADDRESS]}},
        {"name": "to", "type": "Address"},
        {"name": "next", "type": ["null", "Order"]},
    ],
}
NAIVE = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC).replace(tzinfo=None)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
ADDRESSES = st.fixed_dictionaries(
    {"street": st.text(), "zip": st.none() | st.builds(lambda s: {"string": s}, st.text())}
)
ORDERS = st.recursive(
    st.none(),
    lambda inner: st.fixed_dictionaries(
        {
            "id": LONGS,
            "count": INTS,
            "paid": st.booleans(),
            "weight": st.sampled_from([0.0, 1.1, -3.5, 1e30, 16777216.0, "NaN", "-Infinity"]),
            "price": st.floats(allow_nan=False, allow_infinity=False) | st.just("Infinity"),
            "note": st.none() | st.builds(lambda s: {"string": s}, st.text()),
            "raw": st.text("\x00\x7f\x80\xff", max_size=9),
            "hash": st.text("\x00\x7f\x80\xff", min_size=3, max_size=3),
            "kind": st.sampled_from(["A", "B"]),
            "tags": st.lists(st.text(), max_size=3),
            "sizes": st.dictionaries(
                st.text(max_size=3),
                st.builds(lambda n: {"int": n}, INTS)
                | st.builds(lambda a: {"shop.Address": a}, ADDRESSES),
                max_size=2,
            ),
            "to": ADDRESSES,
            "next": st.builds(lambda o: o and {"shop.Order": o}, inner),
        }
    ),
    max_leaves=2,
).filter(lambda order: order is not None)


def codec(schema: Any, natural: bool = False) -> AvroCodec:
    return AvroCodec(SchemaSource(SchemaType.AVRO, json.dumps(schema)), natural=natural)


ORDER_CODEC = codec(ORDER)


def only(schema: Any, value: Any) -> Any:
    """Return the body of a value that fits, or why it does not fit."""
    encoded = codec(schema).encode_many([value])
    return encoded.refused[0] if encoded.refused else encoded.bodies[0]


def read_by_another(schema: Any, body: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(schema), None)


def written_by_another(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@given(ORDERS)
@some
def test_what_it_encodes_it_decodes_and_another_reads_and_writes_the_same(order: Any) -> None:
    [body] = ORDER_CODEC.encode_many([order]).bodies

    assert body is not None
    decoded = ORDER_CODEC.decode_many([body])
    assert decoded.refused == []
    assert decoded.values == [order]
    theirs = read_by_another(ORDER, body)
    assert repr(codec(ORDER, natural=True).decode_many([body]).values) == repr([theirs])
    assert written_by_another(ORDER, theirs) == body


@given(ORDERS, st.integers(0, 400), st.integers(1, 255))
@some
def test_no_bytes_are_more_than_refused(order: Any, at: int, flip: int) -> None:
    [body] = ORDER_CODEC.encode_many([order]).bodies
    assert body is not None
    changed = bytearray(body)
    changed[at % len(body)] ^= flip

    cut, followed, flipped = body[:-1], body + b"\x00", bytes(changed)
    found = ORDER_CODEC.decode_many([cut, followed, flipped, None, body])

    assert [each.index for each in found.refused[:2]] == [0, 1]
    assert found.values[3:] == [None, order]
    assert ORDER_CODEC.validate_many([cut, followed, flipped]) == found.refused


def test_plain_values_of_unions_get_the_branch_that_they_fit() -> None:
    union = ["null", "int", "double", "string", {"type": "array", "items": "int"}, ADDRESS]
    for plain, tagged in [
        (3, {"int": 3}),
        (2**40, {"double": 2.0**40}),
        (1.5, {"double": 1.5}),
        ("a", {"string": "a"}),
        ([1], {"array": [1]}),
        ({"street": "x", "zip": None}, {"Address": {"street": "x", "zip": None}}),
        ({"street": "x", "zip": "1"}, {"shop.Address": {"street": "x", "zip": {"string": "1"}}}),
    ]:
        assert only(union, plain) == only(union, tagged) is not None
    mapped = ["null", {"type": "map", "values": "int"}]
    assert only(mapped, {"map": 1}) == only(mapped, {"map": {"map": 1}})


@pytest.mark.parametrize(
    ("schema", "value", "path", "reason"),
    [
        (ADDRESS, {"street": 3, "zip": None}, "/street", "3 should be a string"),
        (ADDRESS, {"zip": None}, "/street", "the field is missing, and has no default"),
        (ADDRESS, {"street": "", "zip": 3}, "/zip", "3 should be a string"),
        (ADDRESS, {"street": "", "zip": {"string": 3}}, "/zip/string", "3 should be a string"),
        (ADDRESS, {"street": "", "zip": None, "a/~": 1}, "/a~1~0", "has no such field"),
        (ADDRESS, [], "", "an array should be an object, the record shop.Address"),
        ({"type": "array", "items": ADDRESS}, [{"street": "", "zip": None}, 5], "/1", "5 should"),
        ({"type": "map", "values": "int"}, {"a": 2**31}, "/a", "out of the range of an int"),
        ("long", 2**63, "", "out of the range of a long"),
        ("int", 1.5, "", "it should be an int, a whole number"),
        ("int", True, "", "it should be an int"),
        ("boolean", 1, "", "1 should be a boolean"),
        ("double", "1", "", "'1' should be a double"),
        ("float", 1e300, "", "out of the range of a float"),
        ("string", "\ud800", "", "surrogate"),
        ("bytes", "\u0100", "", "characters 0 to 255"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "", "3 bytes instead of 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "", "'B' is not a symbol of E"),
        (["null", "int", "string"], [1], "", "fits no type of the union: null, int, string"),
        ({"type": "int", "logicalType": "date"}, "31.1.", "", "not a date such as 2026-01-31"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            1.234,
            "",
            "more than 2 digits after the point",
        ),
    ],
)
def test_what_does_not_fit_has_a_place_and_a_reason(
    schema: Any, value: Any, path: str, reason: str
) -> None:
    refused = only(schema, value)

    assert isinstance(refused, RefusedValue)
    assert refused.path == path
    assert reason in refused.reason


def test_logical_types_look_like_what_is_below_them_and_are_taken_as_people_write_them() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    day = {"type": "int", "logicalType": "date"}
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    micros = {"type": "long", "logicalType": "local-timestamp-micros"}
    clock = {"type": "int", "logicalType": "time-millis"}
    nullable = ["null", moment]
    for schema, written, shown, natural in [
        (decimal, -12.5, "\xfb\x1e", Decimal("-12.50")),
        (decimal, "\x04\xe2", "\x04\xe2", Decimal("12.50")),
        (day, "2026-01-31", 20484, date(2026, 1, 31)),
        (moment, "1970-01-01T01:00:00.5+01:00", 500, datetime(1970, 1, 1, 0, 0, 0, 500000, UTC)),
        (micros, "1970-01-01T00:00:01", 1_000_000, NAIVE),
        (clock, "00:00:01.5", 1500, time(0, 0, 1, 500000)),
        (nullable, "1970-01-01T00:00:00Z", {"long": 0}, datetime(1970, 1, 1, tzinfo=UTC)),
    ]:
        body = only(schema, written)
        assert codec(schema).decode_many([body]).values == [shown]
        assert codec(schema, natural=True).decode_many([body]).values == [natural]
        assert only(schema, shown) == only(schema, natural) == body
        assert written_by_another(schema, natural) == body


def test_defaults_are_filled_in_and_references_are_known() -> None:
    source = SchemaSource(
        SchemaType.AVRO,
        json.dumps(
            {
                "type": "record",
                "name": "Box",
                "fields": [
                    {"name": "to", "type": "shop.Address", "default": {"street": "x", "zip": None}},
                    {"name": "raw", "type": "bytes", "default": "\xff"},
                    {"name": "any", "type": ["null", "int"], "default": 7},
                ],
            }
        ),
        (Named("shop.Address", json.dumps(ADDRESS)),),
    )
    found = codec_of(source)

    bodies = found.encode_many([{}]).bodies
    assert found.decode_many(bodies).values == [
        {"to": {"street": "x", "zip": None}, "raw": "\xff", "any": {"int": 7}}
    ]


def longs(*numbers: int) -> bytes:
    out = bytearray()
    for number in numbers:
        append_long(number, out)
    return bytes(out)


def doubled(levels: int) -> Any:
    """Return a schema whose value of no bytes has two to the power of `levels` parts."""
    inner: Any = "null"
    for level in range(levels):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"L{level - 1}"}]
        inner = {"type": "record", "name": f"L{level}", "fields": fields[: 2 if level else 1]}
    return inner


NULLS = {"type": "array", "items": "null"}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": side, "type": ["null", "Tree"]} for side in ("left", "right")],
}
EMPTY = {"type": "record", "name": "Empty", "fields": []}
LONG_NAMES = {
    "type": "record",
    "name": "Wide",
    "fields": [{"name": f"{'n' * 200}{n}", "type": "null"} for n in range(200)],
}
FOREST = longs(1) * 100_000


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ("string", longs(2**31 - 1) + b"a"),
        ("bytes", longs(2**62)),
        ("bytes", longs(-5)),
        ("string", b"\xff" * 11),
        (NULLS, longs(2**60)),
        (NULLS, longs(-(2**60), 0, 0)),
        (NULLS, longs(3_000_000) * 100_000),
        ({"type": "array", "items": EMPTY}, longs(10**9, 0)),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, longs(10**9, 0)),
        ({"type": "map", "values": "null"}, longs(2**60)),
        ({"type": "array", "items": LONG_NAMES}, longs(100_000, 0)),
        (TREE, FOREST),
        (TREE, longs(0, 1) * 300_000),
        ({"type": "array", "items": TREE}, longs(2**18) + longs(1, 0, 0, 0) * 2**18 + b"\x00"),
        (doubled(90), b""),
    ],
    ids=range(15),
)
def test_a_bomb_is_refused_within_a_second_and_64_mib(schema: Any, body: bytes) -> None:
    found = codec(schema)
    tracemalloc.start()
    begun_s = monotonic()

    [refused] = found.decode_many([body]).refused

    took_s = monotonic() - begun_s
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.reason
    assert peak_bytes < 64 << 20
    assert took_s < 10  # A tenth of it on a machine that does nothing else, not traced.


def test_unions_that_could_be_many_things_end_soon() -> None:
    nodes = [
        {
            "type": "record",
            "name": name,
            "fields": [
                {"name": "next", "type": ["A", "B", "null"]},
                {"name": "leaf", "type": kind},
            ],
        }
        for name, kind in (("A", "int"), ("B", "string"))
    ]
    schema = [*nodes[:1], "null"]
    schema[0]["fields"][0]["type"] = ["A", nodes[1], "null"]
    value: Any = None
    for _ in range(90):
        value = {"next": value, "leaf": 1.5}

    refused = only(schema, value)

    assert "name the types in unions" in refused.reason


def test_numbers_without_a_place_in_json_are_strings() -> None:
    bodies = codec("double").encode_many(["NaN", "-Infinity", 0.1]).bodies
    assert bodies[0] is not None
    assert math.isnan(read_by_another("double", bodies[0]))
    assert codec("double").decode_many(bodies).values == ["NaN", "-Infinity", 0.1]
