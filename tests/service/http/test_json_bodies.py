"""JSON and NDJSON produce bodies: the stored records, and the errors for invalid bodies."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.http.bodies.produce import JSON, NDJSON, Produced, decode_produce
from service.process.limits.record_limits import RecordLimits
from storage.errors import (
    InvalidRecord,
    InvalidRequest,
    RecordTooLarge,
    RequestTooLarge,
    RiachoError,
    UnsupportedMediaType,
)
from storage.formats.records import RECORD_SCHEMA

NOW_MS = 1_700_000_000_000
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


def produced(
    body: bytes | str, content_type: str | None = JSON, limits: RecordLimits | None = None
) -> Produced:
    raw = body.encode() if isinstance(body, str) else body
    return decode_produce(raw, content_type, now_ms=NOW_MS, limits=limits or RecordLimits())


def records(body: bytes | str, content_type: str | None = JSON) -> list[dict[str, Any]]:
    batch = produced(body, content_type).batch
    batch.validate(full=True)
    assert batch.schema == RECORD_SCHEMA
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def refusal(
    body: bytes | str, content_type: str | None = JSON, limits: RecordLimits | None = None
) -> str:
    with pytest.raises(RiachoError) as caught:
        produced(body, content_type, limits)
    return str(caught.value)


def one(record: str) -> dict[str, Any]:
    [row] = records(f'{{"records": [{record}]}}')
    assert [row] == records(record, NDJSON)
    return row


def test_every_field_is_optional() -> None:
    assert one("{}") == {"timestamp": NOW_MS, "key": None, "value": None, "headers": None}
    assert produced('{"records": [{}]}').partitions is None


def test_null_means_the_same_as_a_missing_field() -> None:
    names = ["key", "value", "headers", "timestamp", "partition", "key_base64", "value_base64"]

    assert one(json.dumps(dict.fromkeys(names))) == one("{}")


def test_strings_are_stored_as_utf8() -> None:
    row = one('{"key": "caf\\u00e9", "value": "a\\n\\"ção\\" \\ud83d\\ude00"}')

    assert row["key"] == "café".encode()
    assert row["value"] == 'a\n"ção" 😀'.encode()


@pytest.mark.parametrize(
    "text",
    ["1e2", "1.0", "-0", "12345678901234567890123", "1E999", "true", "[ ]", '{"a" :\t[1, "é\\n"]}'],
)
def test_other_json_is_stored_as_the_text_that_was_sent(text: str) -> None:
    row = one(f'{{"key": {text}, "value":  {text} , "headers": {{"h": {text}}}}}')

    assert row["key"] == row["value"] == row["headers"][0]["value"] == text.encode()


@given(st.lists(VALUES, min_size=1))
def test_strings_and_other_json_can_be_mixed(values: list[Any]) -> None:
    rows = records(json.dumps({"records": [{"value": value, "key": "k"} for value in values]}))

    for row, value in zip(rows, values, strict=True):
        if value is None:
            assert row["value"] is None
        elif isinstance(value, str):
            assert row["value"] == value.encode()
        else:
            assert row["value"] == json.dumps(value).encode()


@given(st.binary(), st.binary())
def test_base64_carries_any_bytes(key: bytes, value: bytes) -> None:
    fields = {"key_base64": key, "value_base64": value}
    encoded = {name: base64.b64encode(data).decode() for name, data in fields.items()}

    row = one(json.dumps(encoded))

    assert (row["key"], row["value"]) == (key, value)


@pytest.mark.parametrize("text", ["aGk", "a-_=", "Q Q=", "QQ==QQ==", "====", "QQ==\\n", "é", "="])
def test_base64_is_strict(text: str) -> None:
    body = f'{{"records": [{{}}, {{"value_base64": "{text}"}}]}}'

    assert refusal(body) == "records[1].value_base64: not valid base64"


def test_headers_are_an_object_or_an_array() -> None:
    as_object = one('{"headers": {"a": "1", "b": null, "": {"c": 1.0}}}')
    as_array = one(
        '{"headers": [{"key": "a", "value": "1"}, {"key": "b"}, {"key": "", "value": {"c": 1.0}}]}'
    )

    assert as_object == as_array
    assert as_array["headers"] == [
        {"key": "a", "value": b"1"},
        {"key": "b", "value": None},
        {"key": "", "value": b'{"c": 1.0}'},
    ]


def test_an_array_of_headers_keeps_order_and_repeats() -> None:
    row = one('{"headers": [{"key": "a", "value": "2"}, {"key": "a", "value_base64": "/w=="}]}')

    assert row["headers"] == [{"key": "a", "value": b"2"}, {"key": "a", "value": b"\xff"}]


def test_records_with_and_without_headers_can_be_mixed() -> None:
    rows = records('{"records": [{}, {"headers": {"a": "1"}}, {"headers": []}, {"headers": {}}]}')

    assert [row["headers"] for row in rows] == [None, [{"key": "a", "value": b"1"}], None, None]


def test_timestamps_and_partitions_are_kept() -> None:
    body = '{"records": [{"timestamp": 5, "partition": 2}, {}, {"timestamp": 0}]}'

    assert [row["timestamp"] for row in records(body)] == [5, NOW_MS, 0]
    assert produced(body).partitions == [2, None, None]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('{"timestamp": 1.0}', "records[0].timestamp: expected `int | null`, got `float`"),
        ('{"timestamp": true}', "records[0].timestamp: expected `int | null`, got `bool`"),
        ('{"timestamp": "5"}', "records[0].timestamp: expected `int | null`, got `str`"),
        ('{"timestamp": -1}', "records[0].timestamp: expected `int` >= 0"),
        ('{"timestamp": 9223372036854775808}', "records[0].timestamp: expected `int` <= "),
        ('{"partition": -1}', "records[0].partition: expected `int` >= 0"),
        ('{"partition": 99999999999999999999}', "records[0].partition: expected `int` <= "),
        ('{"vlaue": 1}', 'records[0]: unknown field "vlaue"; a record may have key, value, '),
        ('{"headers": 5}', "records[0].headers: expected `object | array | null`, got `int`"),
        ('{"headers": [{"kay": 1}]}', 'records[0].headers[0]: unknown field "kay"; a header may'),
        ('{"headers": [{}]}', 'records[0].headers[0]: the field "key" is missing'),
        ('{"headers": [{"key": 1}]}', "records[0].headers[0].key: expected `str`, got `int`"),
        ('{"value": 1, "value_base64": "aGk="}', "records[0]: has both value and value_base64"),
        ('{"key": "a", "key_base64": "aGk="}', "records[0]: has both key and key_base64"),
        (
            '{"headers": [{"key": "a", "value": "", "value_base64": ""}]}',
            "records[0].headers[0]: has both value and value_base64",
        ),
        ("5", "records[0]: expected `object`, got `int`"),
    ],
)
def test_the_error_names_the_wrong_field_and_its_record(record: str, reason: str) -> None:
    message = refusal(f'{{"records": [{record}, {{"value": {{}}}}]}}')

    assert message.startswith(reason)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "the body is empty"),
        (" \n", "the body is empty"),
        ("[]", "expected `object`, got `array`; the body is"),
        ("{}", 'the field "records" is missing; the body is'),
        ('{"recrods": []}', 'unknown field "recrods"; the body is'),
        ('{"records": 5}', "records: expected `array`, got `int`"),
        ('{"records": []}', "the request has no records"),
        ('{"records": [{}]}x', "the body is not valid JSON: trailing characters (byte "),
        ('{"records": [{"value": {"a": 01}}]}', "the body is not valid JSON: invalid number"),
        ('{"records": [{"value": {"a" 1}}]}', "the body is not valid JSON: expected ':'"),
        ('{"records": [{"value": "\\ud800"}]}', "the body is not valid JSON: "),
        ('{"records": [{"value": ["\\ud800"]}]}', "the body is not valid JSON: "),
        ('{"records": [{"value": ["\\udc00x"]}]}', "the body is not valid JSON: "),
        ('{"records": [{"value": NaN}]}', "the body is not valid JSON: "),
        (b'{"records": [{"value": "\xff"}]}', "the body is not valid UTF-8 (byte 24)"),
        (b'{"records": [{"value": ["\xed\xa0\x80"]}]}', "the body is not valid UTF-8 (byte 25)"),
        (b'{"records": [{"\xff": 1}]}', "the body is not valid UTF-8 (byte 15)"),
        ('{"records": [{"value": ' + "[" * 9999 + "]" * 9999 + "}]}", "the body is not acceptable"),
    ],
)
def test_the_error_says_what_is_wrong_with_the_body(body: bytes | str, reason: str) -> None:
    assert refusal(body).startswith(reason)


def test_ndjson_allows_blank_lines_and_any_line_ending() -> None:
    body = '\n{"value": "a"}\r\n\n  \n{"value": {"b": 1}}\n{"key": "c"}'

    assert [row["value"] for row in records(body, NDJSON)] == [b"a", b'{"b": 1}', None]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{}\n\n{"vlaue": 1}', 'line 3: unknown field "vlaue"; a record may have key, '),
        ('{}\n{"value_base64": "Z"}\n', "line 2: value_base64: not valid base64"),
        ("{}\n{} {}\n", "line 2: not valid JSON: trailing characters"),
        ('{\n"value": "a"}\n', "line 1: not valid JSON: input data was truncated"),
        ("{}\n[]", "line 2: expected `object`, got `array`; a record may have"),
        (b'{}\n{"value": "\xff"}', "line 2: not valid UTF-8 (byte 11)"),
        (b'{}\n{"value": ["\xff"]}', "line 2: not valid UTF-8 (byte 12)"),
        ('{}\n{"headers": [{"x": 1}]}', 'line 2: headers[0]: unknown field "x"; a header may'),
        ("\n", "the request has no records"),
        ("", "the request has no records"),
    ],
)
def test_errors_in_ndjson_name_the_line(body: bytes | str, reason: str) -> None:
    assert refusal(body, NDJSON).startswith(reason)


@given(st.binary(max_size=60), st.sampled_from([JSON, NDJSON]))
@example(b'{"records":[{"headers":{"a":"\\ud800', JSON)
def test_any_bytes_give_records_or_a_typed_error(body: bytes, content_type: str) -> None:
    with suppress(RiachoError):
        produced(body, content_type).batch.validate(full=True)


@given(VALUES, st.data())
def test_values_stored_as_json_are_valid_json(value: Any, data: st.DataObject) -> None:
    text = bytearray(json.dumps(value, ensure_ascii=False).encode())
    spot = data.draw(st.integers(0, len(text) - 1))
    text[spot : spot + 1] = data.draw(st.binary(max_size=2))

    try:
        batch = produced(b'{"records": [{"value": [%b]}]}' % bytes(text)).batch
    except RiachoError:
        return
    [stored] = batch.column("value").to_pylist()
    assert isinstance(json.loads(stored.decode()), list)


def test_a_record_has_a_size_limit() -> None:
    limits = RecordLimits(record_bytes_max=10)
    fits = '{"records": [{"key": "12", "value": "345", "headers": {"67": "890"}}]}'
    produced(fits, limits=limits)

    with pytest.raises(RecordTooLarge) as refused:
        produced(fits.replace("[", '[{"value": ""}, ').replace("890", "8901"), limits=limits)

    assert str(refused.value).startswith("records[1] has 11 bytes of key, value and headers")
    assert str(refused.value).endswith("a record may have 10")


def test_a_request_has_a_record_limit() -> None:
    limits = RecordLimits(record_count_max=2)
    produced('{"records": [{}, {}]}', limits=limits)

    with pytest.raises(RequestTooLarge, match="has 3 records and may have 2"):
        produced('{"records": [{}, {}, {}]}', limits=limits)


def test_the_number_and_names_of_headers_are_limited() -> None:
    limits = RecordLimits(header_count_max=2, header_name_bytes_max=3)
    produced('{"records": [{"headers": {"éa": "long value", "": "1"}}]}', limits=limits)

    with pytest.raises(InvalidRecord, match=r"records\[1\].headers: 3 headers; .* may have 2"):
        produced('{"records": [{}, {"headers": {"a": "1", "b": "2", "c": "3"}}]}', limits=limits)
    with pytest.raises(InvalidRecord, match=r"records\[2\].headers: a name of 4 bytes"):
        produced(
            '{"records": [{}, {"headers": {"a": "1"}}, {"headers": {"b": "1", "éé": "2"}}]}',
            limits=limits,
        )


@pytest.mark.parametrize(
    "content_type",
    [None, "", "*/*", "application/json", "Application/JSON; charset=UTF-8", "application/*"],
)
def test_a_body_without_a_content_type_is_json(content_type: str | None) -> None:
    assert len(records('{"records": [{}]}', content_type)) == 1


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/json; charset=latin-1", "application/x-www-form-urlencoded"],
)
def test_other_content_types_are_refused_with_a_list_of_supported_ones(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType) as refused:
        produced(b'{"records": [{}]}', content_type)

    assert "application/json" in str(refused.value)
    assert "application/x-ndjson" in str(refused.value)
    assert "application/vnd.apache.arrow.stream" in str(refused.value)


def test_a_long_unknown_field_is_not_repeated_in_full() -> None:
    with pytest.raises(InvalidRequest) as refused:
        produced(f'{{"records": [{{"{"x" * 5000}": 1}}]}}')

    assert len(str(refused.value)) < 300
