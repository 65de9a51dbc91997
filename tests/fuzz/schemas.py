"""Decoders of schemas, as callers of the registry send them."""

import json
from collections.abc import Callable

from hypothesis import strategies as st

from service.registry.formats.form import form_of
from storage.schemas.json_schema.reading import read, write
from storage.schemas.source import InvalidSchema, SchemaType
from tests.fuzz.decoder import Decoder
from tests.service.registry.formats.json_schema.values import SCHEMAS
from tests.service.registry.formats.test_avro import SIMPLE, compound

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


ALL = [
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
]
