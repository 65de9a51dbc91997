"""Records in the answer of a fetch: exactly those produced, in every format."""

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.http.bodies.json_fetch import ValueFormat, encode_each, json_pieces, ndjson_pieces
from service.http.bodies.produce import JSON, NDJSON, decode_produce
from storage.formats.records import Header, record_batch

FORMATS: list[ValueFormat] = ["text", "json", "base64"]
BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": BYTES}), max_size=3
)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {"timestamp": st.integers(0, 2**63 - 1), "key": BYTES, "value": BYTES, "headers": HEADERS}
    ),
    max_size=8,
)


class NoSchemas:
    """Knows no schema: what seems to have one comes as base64."""

    def find(self, name: int | str) -> str:
        return f"{name} is not known"


NONE = NoSchemas()


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    names = ("timestamp", "key", "value", "headers")
    return record_batch(*([row[name] for row in rows] for name in names))


def fetched(batch: pa.RecordBatch, value_format: ValueFormat = "text") -> list[dict[str, Any]]:
    pairs = [(range(7, 7 + batch.num_rows), batch)]
    items: list[dict[str, Any]] = json.loads(
        b"".join(json_pieces(pairs, value_format=value_format, schemas=NONE))
    )
    lines = b"".join(ndjson_pieces(pairs, value_format=value_format, schemas=NONE)).splitlines(
        keepends=True
    )
    assert [json.loads(line) for line in lines] == items
    assert all(line.endswith(b"\n") and b"\r" not in line for line in lines)
    each = [*encode_each(pairs, value_format=value_format, schemas=NONE)]
    assert [(item["offset"], item) for item in items] == [(o, json.loads(j)) for o, j in each]
    assert not any(b"\n" in line or b"\r" in line for _, line in each)
    return items


def value_of(value: bytes | str | None, value_format: ValueFormat) -> dict[str, Any]:
    [item] = fetched(record_batch([1], [None], [value]), value_format)
    return {name: field for name, field in item.items() if name.startswith("value")}


def test_a_record_has_its_fields_in_order() -> None:
    batch = record_batch([5, 6], ["k", None], ["v", None])

    assert b"".join(json_pieces([(range(3, 5), batch)])) == (
        b'[{"offset":3,"timestamp":5,"key":"k","value":"v","headers":[]},'
        b'{"offset":4,"timestamp":6,"key":null,"value":null,"headers":[]}]'
    )


def test_every_record_has_its_own_offset() -> None:
    batch = record_batch([1, 2], ["a", "b"], ["x", "y"])

    lines = b"".join(ndjson_pieces([(range(10, 12), batch), ([20, 25], batch)])).splitlines()

    assert [json.loads(line)["offset"] for line in lines] == [10, 11, 20, 25]


@pytest.mark.parametrize("value_format", FORMATS)
def test_no_records_are_an_empty_array(value_format: ValueFormat) -> None:
    assert b"".join(json_pieces([], value_format=value_format)) == b"[]"
    assert b"".join(json_pieces([(range(0), batch_of([]))], value_format=value_format)) == b"[]"
    assert b"".join(ndjson_pieces([], value_format=value_format)) == b""


def test_text_falls_back_to_base64_only_for_the_affected_field() -> None:
    batch = record_batch([1, 1, 1], ["é", b"\xff", None], [b"\xfe", "text", b"\xfd"])

    assert [
        {k: v for k, v in row.items() if k[:3] in ("key", "val")} for row in fetched(batch)
    ] == [
        {"key": "é", "value_base64": "/g=="},
        {"key_base64": "/w==", "value": "text"},
        {"key": None, "value_base64": "/Q=="},
    ]


def test_the_base64_format_always_returns_base64() -> None:
    assert value_of("hi", "base64") == {"value_base64": "aGk="}
    assert value_of(None, "base64") == {"value_base64": None}


@pytest.mark.parametrize("text", ["1e2", "1.0", "12345678901234567890123", '{"a": [1 , "\\n"]}'])
def test_json_values_are_embedded_as_stored(text: str) -> None:
    batch = record_batch([1], [None], [text])

    assert f'"value":{text},'.encode() in b"".join(
        json_pieces([(range(batch.num_rows), batch)], value_format="json")
    )


def test_json_on_several_lines_is_joined_into_one() -> None:
    batch = record_batch([1, 1], [None, None], ['{"a":\r\n [1.0,\n "x y"]}', "\n5\n"])

    first, second = b"".join(
        ndjson_pieces([(range(batch.num_rows), batch)], value_format="json")
    ).splitlines()

    assert b'"value":{"a":[1.0,"x y"]},' in first
    assert b'"value":5,' in second


@pytest.mark.parametrize("text", ["", "hello", "{", "01", "nul", "[1,]", '"\\ud800"', "[" * 5000])
def test_values_that_are_not_json_are_returned_as_text(text: str) -> None:
    assert value_of(text, "json") == {"value": text}


def test_values_that_are_neither_json_nor_text_are_returned_as_base64() -> None:
    assert value_of(b"\xff", "json") == {"value_base64": "/w=="}
    assert value_of(None, "json") == {"value": None}


def test_a_key_keeps_its_type_when_values_are_json() -> None:
    [item] = fetched(record_batch([1], ["42"], ["42"]), "json")

    assert (item["key"], item["value"]) == ("42", 42)


@pytest.mark.parametrize("value_format", FORMATS)
def test_headers_are_always_an_array(value_format: ValueFormat) -> None:
    headers: list[list[Header] | None] = [
        None,
        [{"key": "a", "value": "1"}, {"key": "a", "value": b"\xff"}],
        [],
        [{"key": "", "value": None}],
    ]
    batch = record_batch([1] * 4, [None] * 4, [None] * 4, headers)

    for part, expected in ((batch, slice(None)), (batch.slice(1), slice(1, None))):
        assert [item["headers"] for item in fetched(part, value_format)] == [
            [],
            [{"key": "a", "value": "1"}, {"key": "a", "value_base64": "/w=="}],
            [],
            [{"key": "", "value": None}],
        ][expected]


@given(RECORDS, st.sampled_from(["text", "base64"]), st.booleans())
def test_fetched_records_can_be_produced_again(
    rows: list[dict[str, Any]], value_format: ValueFormat, as_lines: bool
) -> None:
    items = fetched(batch_of(rows), value_format)
    if not items:
        return

    for item in items:
        del item["offset"]
    body = json.dumps({"records": items})
    if as_lines:
        body = "\n".join(json.dumps(item) for item in items)
    batch = decode_produce(body.encode(), NDJSON if as_lines else JSON, now_ms=1).batch

    assert batch.to_pylist() == [{**row, "headers": row["headers"] or None} for row in rows]


@given(RECORDS)
def test_values_fetched_as_json_equal_the_stored_ones(rows: list[dict[str, Any]]) -> None:
    for row, item in zip(rows, fetched(batch_of(rows), "json"), strict=True):
        if "value_base64" in item:
            assert base64.b64decode(item["value_base64"]) == row["value"]
        elif item["value"] is None:
            assert row["value"] is None or json.loads(row["value"]) is None
        else:
            text = row["value"].decode()
            assert item["value"] == text or item["value"] == json.loads(text)
