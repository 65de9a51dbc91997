"""Decoders of schemas, as callers of the registry send them, and of data against them."""

import base64
import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import strategies as st

from service.registry.formats.form import form_of
from service.registry.formats.json_schema.form import FORM
from storage.schemas.codec import ROOM_BYTES, ROOM_RATIO, Codec
from storage.schemas.columns import Decoder as ColumnDecoder
from storage.schemas.columns import typed_array
from storage.schemas.columns_avro import AvroDecoder
from storage.schemas.columns_json import JsonDecoder
from storage.schemas.columns_protobuf import ProtobufDecoder
from storage.schemas.json_schema.reading import read, write
from storage.schemas.json_schema.values import JsonValues
from storage.schemas.source import InvalidSchema, SchemaSource, SchemaType
from tests.fuzz.decoder import Decoder
from tests.service.registry.formats.json_schema.values import SCHEMAS
from tests.service.registry.formats.test_avro import SIMPLE, compound
from tests.storage.schemas.test_avro import ORDER, ORDER_CODEC, ORDERS
from tests.storage.schemas.test_columns import proto
from tests.storage.schemas.test_json import CODEC as JSON
from tests.storage.schemas.test_json import USER
from tests.storage.schemas.test_protobuf import CODEC as PROTOBUF
from tests.storage.schemas.test_protobuf import FULL

TREE = "a few bytes may be an object with a dictionary, or a type with its fields"
DEEP = st.sampled_from(
    [
        *(b"[" * 5_000, b'{"not":' * 5_000, b'{"type":"array","items":' * 5_000),
        *(b'["null",' * 5_000, b'{"$ref":"#"}', b'{"maximum":1e999999999999999999999}'),
        b'{"allOf":[{"$ref":"#/anyOf/0"}],"anyOf":[{"$ref":"#/allOf/0"}]}',
        b'{"type":"fixed","name":"a","size":99999999999999999999}',
        b'{"type":"record","name":"a","fields":[{"name":"a","type":"a","default":{"a":{}}}]}',
    ]
)


def _stored(kind: SchemaType) -> Callable[[bytes], str]:
    def decode(data: bytes) -> str:
        schema = form_of(kind).parse(data.decode(errors="replace"), [])
        assert schema.unreadable(schema) == []
        assert schema.normalized
        return schema.canonical

    return decode


def _text_of(schemas: st.SearchStrategy[object]) -> st.SearchStrategy[bytes]:
    return schemas.map(lambda schema: json.dumps(schema).encode())


def _proto_text(names: list[str]) -> bytes:
    fields = "".join(f"repeated M f{n}={n + 1};" for n, _ in enumerate(names))
    inner = "".join(f"message {name}{{oneof o{{string a=1;int32 b=2;}}}}" for name in names)
    return f'syntax="proto3";message M{{{inner}{fields}}}'.encode()


def _serialized(names: list[str]) -> bytes:
    file = FileDescriptorProto(name="a.proto", syntax="proto3")
    for name in names:
        file.message_type.add(name=name).field.add(name="f", number=1, label=1, type=5)
    return base64.b64encode(file.SerializeToString())


NAMES = st.lists(st.sampled_from("ABCDEF"), max_size=4, unique=True)
SCHEMA = FORM.parse('{"type":"object","properties":{"a":{"type":"integer"}}}', [])
VALUES = JsonValues(SCHEMA.documents, SCHEMA.checks)


class Unfit(Exception):
    """A codec has refused a body."""


def _read(codec: Codec) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> Any:
        found = codec.decode_many([data])
        if found.refused:
            assert found.values == [None]
            raise Unfit(found.refused[0].reason)
        return found.values[0]

    return decode


def _written(codec: Codec) -> Callable[[Any], bytes]:
    # Protobuf's library moves parts of a message of any type.
    return lambda value: codec.encode_many([deepcopy(value)]).bodies[0] or b"null"


def _data(
    covers: tuple[str, ...], codec: Codec, values: st.SearchStrategy[Any], hard: Sequence[bytes]
) -> Decoder:
    return Decoder(
        covers=covers,
        decode=_read(codec),
        encode=_written(codec),
        valid=values.map(_written(codec)),
        hard=st.sampled_from(hard),
        errors=(Unfit,),
        factor=ROOM_RATIO,
        limit_bytes=ROOM_BYTES,
        why="what values take is counted while they are decoded",
    )


SHORT = b"\x00\x01\x7f\x80\xff"
DATA = [
    _data(
        (
            "storage.schemas.avro.codec.AvroCodec.decode_many",
            "storage.schemas.avro.reading._double",
            "storage.schemas.avro.reading._float",
            "storage.schemas.avro.reading._shortest",
        ),
        ORDER_CODEC,
        ORDERS,
        [b"\xff" * 11, b"\xfe" * 40, SHORT * 9],
    ),
    _data(
        (
            "storage.schemas.protobuf.codec.ProtobufCodec.decode_many",
            "storage.schemas.protobuf.codec.ProtobufCodec._parsed",
            "storage.schemas.framing.unpack_indexes",
        ),
        PROTOBUF,
        st.sampled_from([FULL, {}]),
        [b"\x00" + b"\x1a\x00" * 5_000, b"\x00" + b"\x62" * 500, b"\xfe" * 40, SHORT],
    ),
    _data(
        ("storage.schemas.json_schema.codec.JsonCodec.decode_many",),
        JSON,
        st.just([{"id": 1}]),
        [b"[" * 5_000, b'{"a":' * 5_000, b"1e999", b'"\\ud800"'],
    ),
]


def _typed(decoder: ColumnDecoder) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> Any:
        found = typed_array(decoder, [data])
        found.validate(full=True)
        if found.null_count:
            raise Unfit("it does not decode")
        return found.to_pylist()

    return decode


def _column(
    covers: str, decoder: ColumnDecoder, valid: st.SearchStrategy[bytes], hard: Sequence[bytes]
) -> Decoder:
    return Decoder(
        covers=(covers, "storage.schemas.columns.typed_array"),
        decode=_typed(decoder),
        valid=valid,
        hard=st.sampled_from(hard),
        errors=(Unfit,),
        factor=250,
        limit_bytes=2 * ROOM_BYTES,
        why="cells are counted while values are decoded",
    )


COLUMNS = [
    _column(
        "storage.schemas.columns_avro.AvroDecoder.decode",
        AvroDecoder(SchemaSource(SchemaType.AVRO, json.dumps(ORDER))),
        ORDERS.map(_written(ORDER_CODEC)),
        [b"\xff" * 11, b"\xfe" * 40, SHORT * 9],
    ),
    _column(
        "storage.schemas.columns_json.JsonDecoder.decode",
        JsonDecoder(json.dumps({"type": "array", "items": USER})),
        st.just(b'[{"id":1}]'),
        [b"[" * 5_000, b'{"a":' * 5_000, b"[{},{}]", b"[1e999]", b'["\\ud800"]'],
    ),
    _column(
        "storage.schemas.columns_protobuf.ProtobufDecoder.decode",
        ProtobufDecoder(proto(), (1,)),
        st.just(b"\x08\x05\x4a\x02\x08\x03"),
        [b"\x4a\x00" * 5_000, b"\x22\x02" * 500, b"\xfe" * 40, SHORT],
    ),
]

ALL = [
    *DATA,
    *COLUMNS,
    Decoder(
        covers=("service.registry.formats.json_schema.form._JsonSchemaForm.parse",),
        decode=_stored(SchemaType.JSON),
        encode=str.encode,
        valid=_text_of(SCHEMAS),
        hard=DEEP,
        errors=(InvalidSchema,),
        factor=600,
        limit_bytes=256 * 1024,
        why=TREE,
    ),
    Decoder(
        covers=("storage.schemas.json_schema.reading.read",),
        decode=lambda data: write(read(data.decode(errors="replace"))),
        encode=str.encode,
        valid=_text_of(SCHEMAS),
        hard=DEEP,
        errors=(InvalidSchema,),
        factor=250,
        why=TREE,
    ),
    Decoder(
        covers=(
            "service.registry.formats.avro.form.AvroForm.parse",
            "storage.schemas.avro.parsing.parse_avro",
            "storage.schemas.avro.parsing._loaded",
        ),
        decode=_stored(SchemaType.AVRO),
        encode=str.encode,
        valid=_text_of(st.recursive(SIMPLE, compound, max_leaves=6)),
        hard=DEEP,
        errors=(InvalidSchema,),
        factor=600,
        limit_bytes=256 * 1024,
        why=TREE,
    ),
    Decoder(
        covers=(
            "service.registry.formats.protobuf.form.ProtobufForm.parse",
            "service.registry.formats.protobuf.form._descriptor",
        ),
        decode=_stored(SchemaType.PROTOBUF),
        encode=str.encode,
        valid=NAMES.map(_proto_text) | NAMES.map(_serialized),
        errors=(InvalidSchema,),
        factor=600,
        limit_bytes=256 * 1024,
        why=TREE,
    ),
    Decoder(
        covers=("storage.schemas.json_schema.values.JsonValues._examined",),
        decode=lambda data: VALUES.validate_many([data]),
        valid=st.builds(lambda n: json.dumps({"a": n}).encode(), st.integers() | st.text()),
        hard=DEEP,
        factor=250,
        why=TREE,
    ),
]
