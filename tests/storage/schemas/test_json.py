"""JSON that follows a schema, encoded and decoded."""

import json
from typing import Any

from storage.schemas.codec import TOO_DEEP
from storage.schemas.codecs import codec_of
from storage.schemas.refused import RefusedValue
from storage.schemas.source import Named, SchemaSource, SchemaType

USER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
LIST = {"type": "array", "items": {"$ref": "user.json"}}
CODEC = codec_of(
    SchemaSource(SchemaType.JSON, json.dumps(LIST), (Named("user.json", json.dumps(USER)),))
)


def test_values_are_checked_when_they_are_encoded_and_not_when_they_are_read() -> None:
    encoded = CODEC.encode_many([[{"id": 1}], [{"id": 1}, {"id": "x"}], None, [{}], ["\ud800"]])

    assert encoded.bodies == [b'[{"id":1}]', None, None, None, None]
    assert encoded.refused[:2] == [
        RefusedValue(1, "/1/id", '"x" is not of type "integer"'),
        RefusedValue(3, "/0", '"id" is a required property'),
    ]
    assert [each.index for each in encoded.refused] == [1, 3, 4]
    assert CODEC.validate_many([b"[]", b"{}"])[0].index == 1
    assert CODEC.decode_many([b'[{"id":1}]', b"{}", None]).values == [[{"id": 1}], {}, None]


def test_what_is_no_json_or_too_much_is_refused() -> None:
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]

    assert CODEC.encode_many([deep]).refused == [RefusedValue(0, "", TOO_DEEP)]
    assert "too large" in CODEC.encode_many([[{"id": 1}]], room_bytes=4).refused[0].reason
    bad = [b"[" * 1_000_000, b"{", b"[]x", b'"\xff"']
    refused = CODEC.decode_many(bad).refused
    assert [each.index for each in refused] == [0, 1, 2, 3]
    assert refused[0].reason == TOO_DEEP
