"""What names the schema of a value, as Confluent's serializers write it."""

import io

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import framing

GUID = "89791762-2336-4186-9674-299b90a802e2"


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**20), min_size=1, max_size=6))
def test_prefixes_and_headers_are_those_of_confluent(schema_id: int, path: list[int]) -> None:
    theirs = SchemaId("PROTOBUF", schema_id, GUID, path)
    indexes = framing.pack_indexes(tuple(path))

    assert framing.framed(schema_id, indexes) == theirs.id_to_bytes()
    assert framing.header_of(GUID, indexes) == theirs.guid_to_bytes()
    read = SchemaId("PROTOBUF")
    read.from_bytes(io.BytesIO(framing.framed(schema_id, indexes) + b"data"))
    assert (read.id, read.message_indexes) == (schema_id, path)

    found = framing.split(theirs.id_to_bytes() + b"data")
    assert found == (schema_id, indexes + b"data")
    assert framing.unpack_indexes(found[1]) == (tuple(path), len(indexes))
    assert framing.split_header(theirs.guid_to_bytes()) == (GUID, indexes)
    assert framing.split_header(theirs.id_to_bytes()) == (schema_id, indexes)


@pytest.mark.parametrize("value", [b"", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01", b"{}" * 4])
def test_other_values_are_not_framed(value: bytes) -> None:
    assert framing.split(value) is None
    assert framing.split_header(value) is None


@pytest.mark.parametrize(
    "body", [b"", b"\x02", b"\x01", b"\x02\x01", b"\xff" * 9, b"\xfe\xff\xff\xff\x0f", b"\x80"]
)
def test_indexes_that_are_none_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="indexes"):
        framing.unpack_indexes(body)
