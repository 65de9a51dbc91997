"""Protobuf as JSON and back: places that do not fit, messages by their indexes, bombs."""

import tracemalloc
from time import monotonic
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from service.registry.formats.protobuf.form import FORM
from storage.schemas.codecs import codec_of
from storage.schemas.framing import pack_indexes
from storage.schemas.protobuf.codec import ProtobufCodec
from storage.schemas.source import SchemaSource, SchemaType

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
message Order {
  int32 amount = 1;
  string buyer_name = 2;
  repeated Item items = 3;
  map<string, Item> by = 4;
  google.protobuf.Timestamp at = 5;
  google.protobuf.Struct notes = 6;
  google.protobuf.Any more = 7;
  oneof way { string ship = 8; int64 rail = 9; }
  Color color = 10;
  bytes raw = 11;
  Order next = 12;
  repeated int32 numbers = 13;
  message Item { string sku = 1; int64 count = 2; }
  enum Color { RED = 0; BLUE = 1; }
}
message Other { message Inner { message Inmost { bool yes = 1; } } }
"""


def codec(text: str = TEXT, indexes: tuple[int, ...] = (0,)) -> ProtobufCodec:
    files = FileDescriptorSet(file=FORM.parse(text, []).files)
    return ProtobufCodec(
        SchemaSource(SchemaType.PROTOBUF, text, (), files.SerializeToString()), indexes
    )


CODEC = codec()
FULL = {
    "amount": 3,
    "buyerName": "Ana",
    "items": [{"sku": "a", "count": "5"}],
    "by": {"k": {"sku": "", "count": "0"}},
    "at": "2026-01-01T00:00:00Z",
    "notes": {"a": [1.0, {"b": None}]},
    "more": {"@type": "type.googleapis.com/shop.Order.Item", "sku": "q", "count": "0"},
    "rail": "7",
    "color": "BLUE",
    "raw": "AAE=",
    "numbers": [1, 2],
}
EMPTY = {
    "amount": 0,
    "buyerName": "",
    "items": [],
    "by": {},
    "color": "RED",
    "raw": "",
    "numbers": [],
}


def test_a_message_is_its_json_mapping_and_names_may_be_those_of_the_file() -> None:
    encoded = CODEC.encode_many([FULL, {"buyer_name": "Ana"}, None, {}])

    assert encoded.refused == []
    assert encoded.bodies[2:] == [None, b"\x00"]
    assert CODEC.validate_many(encoded.bodies) == []
    assert CODEC.decode_many(encoded.bodies).values == [
        FULL,
        {**EMPTY, "buyerName": "Ana"},
        None,
        EMPTY,
    ]


def test_a_message_inside_others_is_found_by_its_indexes() -> None:
    inmost = codec(indexes=(1, 0, 0))
    body = inmost.encode_many([{"yes": True}]).bodies[0]

    assert body == pack_indexes((1, 0, 0)) + b"\x08\x01"
    assert CODEC.decode_many([body]).values == [{"yes": True}]
    for missing in [(2,), (0, 5), (1, 0, 0, 0)]:
        [refused] = CODEC.decode_many([pack_indexes(missing)]).refused
        assert refused.reason == f"the schema has no message {list(missing)}"


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"amount": "x"}, "/amount", "'x'"),
        ({"amount": 2**40}, "/amount", "out of range"),
        ({"items": [{}, {"count": "zz"}]}, "/items/1/count", "'zz'"),
        ({"items": [{"size": 1}]}, "/items/0/size", "shop.Order.Item has no such field"),
        ({"by": {"a/b": {"sku": 5}}}, "/by/a~1b/sku", "str"),
        ({"color": "GREEN"}, "/color", "Invalid enum value GREEN"),
        ({"at": "yesterday"}, "/at", "timestamp"),
        ({"next": {"next": {"amount": []}}}, "/next/next/amount", ""),
        ({"more": {"@type": "none"}}, "/more", "type_url"),
        ({"ship": "a", "rail": 2}, "", "oneof"),
        ({"price": 1}, "/price", "no such field"),
        ([], "", "a message is an object"),
        ("x", "", "a message is an object"),
    ],
)
def test_what_does_not_fit_has_a_place_and_a_reason(value: Any, path: str, reason: str) -> None:
    encoded = CODEC.encode_many([{}, value])

    [refused] = encoded.refused
    assert encoded.bodies == [b"\x00", None]
    assert (refused.index, refused.path) == (1, path)
    assert reason in refused.reason


def test_required_fields_are_required() -> None:
    old = codec('syntax = "proto2"; message Old { required int32 id = 1; }')

    assert "id" in old.encode_many([{}]).refused[0].reason
    assert old.validate_many([b"\x00"])[0].reason == "a required field is missing"


def nested(tag: bytes, levels: int, around: bytes = b"") -> bytes:
    body = b""
    for _ in range(levels):
        inner = around + (b"\x12" + length(body) + body if around else body)
        body = tag + length(inner) + inner
    return b"\x00" + body


def length(data: bytes) -> bytes:
    size, out = len(data), bytearray()
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes([*out, size])


ANY = b"\x0a\x27type.googleapis.com/google.protobuf.Any"
WIDE = "".join(f"int32 {'n' * 90}{number} = {number + 20};" for number in range(500))


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (TEXT, nested(b"\x62", 20_000)),
        (TEXT, b"\x00" + b"\x1a\x00" * 500_000),
        (TEXT, b"\x00\x22\x00" + b"\x1a\x00" * 500_000),
        (TEXT, b"\x00\x6a" + length(bytes(1_000_000)) + bytes(1_000_000)),
        (TEXT, nested(b"\x3a", 1, ANY) + nested(b"", 1_000, ANY)[1:]),
        (TEXT, b"\x00\x12\xff\xff\xff\xff\x07a"),
        (TEXT, b"\x00\x62" * 10),
        (f'syntax = "proto3"; message M {{ repeated M m = 1; {WIDE} }}', b"\0" + b"\x0a\0" * 9_000),
    ],
    ids=range(8),
)
def test_a_bomb_is_refused_within_a_second_and_64_mib(text: str, body: bytes) -> None:
    found = codec(text)
    tracemalloc.start()
    begun_s = monotonic()

    [refused] = found.decode_many([body]).refused

    took_s = monotonic() - begun_s
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.reason
    assert peak_bytes < 64 << 20
    assert took_s < 10


def test_a_codec_is_made_from_its_source_alone() -> None:
    files = FileDescriptorSet(file=FORM.parse(TEXT, []).files).SerializeToString()
    found = codec_of(SchemaSource(SchemaType.PROTOBUF, TEXT, (), files))

    assert found.encode_many([{"amount": 1}]).bodies == [b"\x00\x08\x01"]
