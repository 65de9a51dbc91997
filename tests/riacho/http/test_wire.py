"""Bodies are encoded and decoded in both formats."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from riacho.http import wire
from riacho.records import Record, header_pairs, payload_bytes
from storage.formats.records import RECORD_SCHEMA, record_batch

PAYLOAD = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.text(max_size=5), PAYLOAD), max_size=3).map(tuple)
ROWS = st.lists(st.tuples(st.integers(0, 2**60), PAYLOAD, PAYLOAD, HEADERS), min_size=1)


def columns_of(rows: list[tuple[int, bytes | None, bytes | None, tuple[()]]]) -> wire.Columns:
    return wire.Columns(*zip(*rows, strict=True))


@given(ROWS, st.sampled_from(["lz4", "zstd", "none"]))
def test_arrow_bodies_contain_every_record(rows: list, compression: wire.Compression) -> None:
    body, headers = wire.encode_records(columns_of(rows), compression)

    table = ipc.open_stream(body).read_all()
    assert headers == {"content-type": "application/vnd.apache.arrow.stream"}
    assert table.schema == RECORD_SCHEMA
    assert table.column("key").to_pylist() == [row[1] for row in rows]
    assert table.column("value").to_pylist() == [row[2] for row in rows]
    found = [[(h["key"], h["value"]) for h in row or ()] for row in table["headers"].to_pylist()]
    assert found == [list(row[3]) for row in rows]


def arrow_reply(*batches: tuple[int, list[bytes]]) -> bytes:
    bases = json.dumps([base for base, _ in batches]).encode()
    sink = pa.BufferOutputStream()
    schema = RECORD_SCHEMA.with_metadata({b"riacho.base_offsets": bases})
    with ipc.new_stream(sink, schema) as writer:
        for base, values in batches:
            stamps = list(range(base, base + len(values)))
            writer.write_batch(record_batch(stamps, [None] * len(values), values))
    return sink.getvalue().to_pybytes()


def test_offsets_are_counted_from_the_base_of_each_batch() -> None:
    reply = arrow_reply((10, [b"a", b"b"]), (20, [b"c"]))

    records = wire.decode_arrow("t", 3, reply, 10)

    assert records == [
        Record("t", 3, 10, 10, None, b"a"),
        Record("t", 3, 11, 11, None, b"b"),
        Record("t", 3, 20, 20, None, b"c"),
    ]


@pytest.mark.parametrize(("start", "offsets"), [(11, [11, 20]), (12, [20]), (21, [])])
def test_rows_before_the_requested_offset_are_skipped(start: int, offsets: list[int]) -> None:
    reply = arrow_reply((10, [b"a", b"b"]), (20, [b"c"]))

    assert [r.offset for r in wire.decode_arrow("t", 0, reply, start)] == offsets


@pytest.mark.parametrize(("start", "offsets"), [(0, [3, 7, 8]), (4, [7, 8]), (9, [])])
def test_offsets_can_be_in_a_column(start: int, offsets: list[int]) -> None:
    batch = record_batch([1, 2, 3], [None] * 3, [b"a", b"b", b"c"])
    batch = batch.append_column("offset", pa.array([3, 7, 8], pa.int64()))
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)

    records = wire.decode_arrow("t", 0, sink.getvalue().to_pybytes(), start)

    assert [record.offset for record in records] == offsets
    assert [record.value for record in records] == [b"a", b"b", b"c"][3 - len(offsets) :]


def test_without_pyarrow_the_body_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "has_arrow", lambda: False)

    body, headers = wire.encode_records(
        wire.Columns([5], [None], [b"\xff"], [(("h", b"v"),)]), "none"
    )

    assert headers == {"content-type": "application/json"}
    assert json.loads(body) == {
        "records": [
            {
                "timestamp": 5,
                "key_base64": None,
                "value_base64": "/w==",
                "headers": [{"key": "h", "value_base64": "dg=="}],
            }
        ]
    }


def test_json_replies_can_mix_text_and_base64() -> None:
    reply = [
        {"offset": 1, "timestamp": 2, "key": "k", "value_base64": "/w==", "headers": []},
        {
            "offset": 2,
            "timestamp": 3,
            "key": None,
            "value": "v",
            "headers": [{"key": "a", "value": "1"}, {"key": "a", "value": None}],
        },
    ]

    assert wire.decode_json("t", 0, reply) == [
        Record("t", 0, 1, 2, b"k", b"\xff"),
        Record("t", 0, 2, 3, None, b"v", (("a", b"1"), ("a", None))),
    ]


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        (None, None),
        (b"\xff", b"\xff"),
        (bytearray(b"a"), b"a"),
        ("ö", "ö".encode()),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        (7, b"7"),
        (True, b"true"),
    ],
)
def test_payloads_are_encoded_as_by_the_gateway(payload: object, stored: bytes) -> None:
    assert payload_bytes(payload) == stored  # type: ignore[arg-type]


def test_a_value_that_is_not_json_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match="give bytes, text or plain JSON"):
        payload_bytes(object())  # type: ignore[arg-type]


def test_headers_can_be_a_mapping_or_pairs() -> None:
    assert header_pairs({"a": "1"}) == (("a", b"1"),)
    assert header_pairs([("a", b"1"), ("a", None)]) == (("a", b"1"), ("a", None))
    assert header_pairs(None) == ()


def test_a_record_decodes_its_value_and_key() -> None:
    record = Record("t", 0, 0, 0, b"k", b'{"a":1}')

    assert (record.text(), record.json(), record.key_text()) == ('{"a":1}', {"a": 1}, "k")
    assert Record("t", 0, 0, 0, None, None).json() is None
