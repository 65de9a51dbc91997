"""Arrow produce bodies: any sensible type is accepted, and nothing in the body is trusted."""

import random
import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from service.http.bodies.arrow import SENT_BYTES_MAX, SENT_BYTES_MIN
from service.http.bodies.json_fetch import json_pieces
from service.http.bodies.produce import ARROW_STREAM, Produced, decode_produce
from service.process.limits.record_limits import RecordLimits
from storage.errors import (
    InvalidRecord,
    InvalidRequest,
    RecordTooLarge,
    RequestTooLarge,
    RiachoError,
)
from storage.formats import slices
from storage.formats.partitioner import Spreader, assign
from storage.formats.records import HEADERS_TYPE, RECORD_SCHEMA, record_batch
from tests.service.http.test_fetch_bodies import NONE

NOW_MS = 1_700_000_000_000
TEXTS = ["abc", None, "longer than the twelve bytes of a view"]
BYTES = [text.encode() if text else None for text in TEXTS]
KINDS = [
    pa.binary(),
    pa.string(),
    pa.large_binary(),
    pa.large_string(),
    pa.binary_view(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.large_binary()),
    pa.dictionary(pa.int16(), pa.string_view()),
]
HEADER_KINDS = [
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    pa.large_list(pa.struct([("value", pa.string_view()), ("key", pa.large_string())])),
    pa.map_(pa.string(), pa.binary()),
    pa.map_(pa.string_view(), pa.large_string()),
]


def array_of(kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return pa.array(TEXTS if "string" in str(kind) else BYTES, kind)
    values = pa.array([TEXTS[0], TEXTS[2]], pa.string()).cast(kind.value_type)
    return pa.DictionaryArray.from_arrays(pa.array([0, None, 1], kind.index_type), values)


def headers_of(kind: pa.DataType) -> pa.Array:
    pairs = [[("a", b"1"), ("a", None)], None, []]
    if pa.types.is_map(kind):
        return pa.array(pairs, kind)
    rows = [
        None if row is None else [{"key": key, "value": value} for key, value in row]
        for row in pairs
    ]
    return pa.array(rows, kind)


def stream(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = ipc.IpcWriteOptions(compression=compression)
    with ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def columns(**arrays: Any) -> bytes:
    return stream(pa.record_batch(arrays))


def produced(body: bytes, **limits: int) -> Produced:
    decoded = decode_produce(body, ARROW_STREAM, now_ms=NOW_MS, limits=RecordLimits(**limits))
    decoded.batch.validate(full=True)
    assert decoded.batch.schema == RECORD_SCHEMA
    return decoded


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_batches_with_the_stored_schema_are_read_back(compression: str | None) -> None:
    batch = record_batch([1, 2], ["a", None], [None, b"\xff"], [None, [{"key": "h", "value": "1"}]])

    decoded = produced(stream(batch, batch.slice(1), compression=compression))

    assert decoded.batch.to_pylist() == batch.to_pylist() + batch.to_pylist()[1:]
    assert decoded.partitions is None


def test_a_batch_with_the_stored_schema_is_not_copied() -> None:
    body = stream(record_batch([1], ["key"], ["value" * 100], [[{"key": "h", "value": "1"}]]))
    start = pa.py_buffer(body).address

    batch = produced(body).batch

    for column in batch.columns:
        for buffer in column.buffers():
            assert buffer is None or start <= buffer.address < start + len(body)


def slice_sized(seed: int, size_bytes: int = 100_000) -> pa.RecordBatch:
    """Return records with about `size_bytes` of values, which compress a little."""
    chance = random.Random(seed)
    values = [chance.randbytes(500) + bytes(500) for _ in range(size_bytes // 1000)]
    return record_batch([*range(len(values))], [None] * len(values), values)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_batches_like_slices_are_passed_on_as_they_were_sent(compression: str | None) -> None:
    batches = [slice_sized(1), slice_sized(2, 300_000)]
    body = stream(batches[0], batches[0].slice(0, 0), batches[1], compression=compression)

    decoded = produced(body)

    assert [each.codec for each in decoded.sent] == [compression or "none"] * 2
    assert [slices.decode_unchecked(each.data) for each in decoded.sent] == batches
    assert [each.batch for each in decoded.sent] == batches
    assert decoded.batch == pa.concat_batches(batches)
    first = bytes(decoded.sent[0].data)
    assert body.startswith(slices.SCHEMA_MESSAGE + first)


def with_nulls_for_timestamps() -> pa.RecordBatch:
    batch = slice_sized(1)
    missing = pa.array([None] * batch.num_rows, pa.int64())
    return pa.RecordBatch.from_arrays([missing, *batch.columns[1:]], schema=RECORD_SCHEMA)


NOT_LIKE_SLICES = {
    "too small": [slice_sized(1, SENT_BYTES_MIN - 5000)],
    "one too small": [slice_sized(1), slice_sized(2, 1000), slice_sized(3)],
    "too large": [slice_sized(1, SENT_BYTES_MAX + 5000)],
    "another order": [slice_sized(1).select(["key", "timestamp", "value", "headers"])],
    "one column more": [slice_sized(1).append_column("partition", pa.array([0] * 100, pa.int32()))],
    "one column less": [slice_sized(1).select(["timestamp", "key", "value"])],
    "another type": [
        pa.record_batch({"value": slice_sized(1).column("value").cast(pa.large_binary())})
    ],
    "metadata": [slice_sized(1).replace_schema_metadata({"a": "b"})],
    "no timestamps": [with_nulls_for_timestamps()],
}


@pytest.mark.parametrize("batches", NOT_LIKE_SLICES.values(), ids=NOT_LIKE_SLICES)
def test_other_batches_are_encoded_again(batches: list[pa.RecordBatch]) -> None:
    decoded = produced(stream(*batches, compression="lz4"))

    assert not decoded.sent
    assert decoded.batch.num_rows == sum(batch.num_rows for batch in batches)


def test_a_stream_in_the_legacy_format_is_encoded_again() -> None:
    sink, batch = pa.BufferOutputStream(), slice_sized(1)
    options = ipc.IpcWriteOptions(use_legacy_format=True)
    with ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    source = pa.BufferReader(sink.getvalue())
    ipc.MessageReader.open_stream(source).read_next_message()
    rest = sink.getvalue().to_pybytes()[source.tell() :]

    decoded = produced(slices.SCHEMA_MESSAGE + rest)

    assert decoded.batch == batch
    assert not decoded.sent


def test_a_message_with_bytes_outside_its_buffers_is_encoded_again() -> None:
    batch = slice_sized(1)
    message = slices.encode([batch], "none")[0].data
    described = 8 + struct.unpack_from("<i", message, 4)[0]
    length, junk = len(message) - described, bytes(8192)
    description = bytes(message[:described])
    # The first occurrence is the length of the body; the position of the last, empty buffer is
    # the same number.
    told, larger = struct.pack("<q", length), struct.pack("<q", length + len(junk))
    longer = description.replace(told, larger, 1)
    parts = [slices.SCHEMA_MESSAGE, longer, message[described:], junk, slices.END_OF_STREAM]

    decoded = produced(b"".join(parts))

    assert decoded.batch == batch
    assert not decoded.sent


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_passed_on_bytes_always_hold_the_decoded_records(
    compression: str | None,
) -> None:
    body = stream(slice_sized(1, SENT_BYTES_MIN + 2000), compression=compression)
    chance, given = random.Random(5), 0
    for _ in range(300):
        damaged = bytearray(body)
        for _ in range(chance.randint(1, 3)):
            # Mostly in the metadata of the message.
            end = chance.choice([len(slices.SCHEMA_MESSAGE) + 400, len(body)])
            damaged[chance.randrange(end)] ^= 1 << chance.randrange(8)
        with suppress(RiachoError):
            decoded = produced(bytes(damaged))
            given += bool(decoded.sent)
            for each in decoded.sent:
                assert slices.decode_unchecked(each.data).equals(each.batch)
            if decoded.sent:
                assert pa.concat_batches([each.batch for each in decoded.sent]) == decoded.batch
    assert given, "no damage was such that nobody can notice it"


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_keys_and_values_can_have_any_type_that_holds_bytes(kind: pa.DataType) -> None:
    batch = produced(columns(key=array_of(kind), value=array_of(kind))).batch

    assert batch.column("key").to_pylist() == batch.column("value").to_pylist() == BYTES


@pytest.mark.parametrize("kind", HEADER_KINDS, ids=str)
def test_headers_can_be_lists_or_maps(kind: pa.DataType) -> None:
    batch = produced(columns(key=BYTES, headers=headers_of(kind))).batch

    assert batch.column("headers").to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [],
    ]


@pytest.mark.parametrize(
    ("kind", "number", "expected"),
    [
        (pa.int64(), 1234, 1234),
        (pa.uint32(), 1234, 1234),
        (pa.timestamp("s"), 12, 12_000),
        (pa.timestamp("ms", "UTC"), 1234, 1234),
        (pa.timestamp("us", "Europe/Lisbon"), 1_234_999, 1234),
        (pa.timestamp("ns"), 1_234_999_999, 1234),
    ],
    ids=str,
)
def test_timestamps_are_converted_to_milliseconds(
    kind: pa.DataType, number: int, expected: int
) -> None:
    batch = produced(columns(key=["a", "b"], timestamp=pa.array([number, None], kind))).batch

    assert batch.column("timestamp").to_pylist() == [expected, NOW_MS]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()], ids=str)
def test_partitions_can_be_given_for_some_records(kind: pa.DataType) -> None:
    body = columns(value=["a", "b", "c"], partition=pa.array([2, None, 0], kind))

    decoded = produced(body)

    parts = assign(decoded.batch, decoded.partitions, 3, Spreader(cursor=1))
    assert {p: part.column("value").to_pylist() for p, part in parts.items()} == {
        2: [b"a"],
        1: [b"b"],
        0: [b"c"],
    }


def test_columns_of_only_nulls_can_have_no_type() -> None:
    nothing = pa.nulls(2)

    batch = produced(columns(key=nothing, value=["a", "b"], headers=nothing, timestamp=nothing))

    assert batch.batch.to_pylist() == [
        {"timestamp": NOW_MS, "key": None, "value": value, "headers": None}
        for value in (b"a", b"b")
    ]


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"vlaue": ["a"]}, 'unknown column "vlaue"; allowed are timestamp, key, value, headers, '),
        ({"timestamp": [1]}, "there is neither a key nor a value column"),
        ({"value": [1.5]}, 'the column "value" cannot be of type double'),
        ({"value": [["a"]]}, 'the column "value" cannot be of type list<'),
        ({"value": ["a"], "timestamp": ["b"]}, 'the column "timestamp" cannot be of type string'),
        ({"value": ["a"], "partition": [1.0]}, 'the column "partition" cannot be of type double'),
        ({"value": ["a"], "headers": [["a"]]}, 'the column "headers" cannot be of type list<'),
        ({"value": ["a", "b"], "timestamp": [1, -5]}, "records[1].timestamp: -5 is below 0"),
        (
            {"value": ["a"], "timestamp": pa.array([2**60], pa.timestamp("s"))},
            "the body is not a valid Arrow stream: ",
        ),
        (
            {"value": ["a"], "partition": pa.array([2**64 - 1], pa.uint64())},
            "the body is not a valid Arrow stream: ",
        ),
    ],
)
def test_the_error_names_the_wrong_column(arrays: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        produced(columns(**arrays))

    assert str(refused.value).startswith(reason)


def test_a_column_must_not_occur_twice() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["key", "key"])

    with pytest.raises(InvalidRequest, match='two columns "key"'):
        produced(stream(twice))


@pytest.mark.parametrize(
    "headers",
    [
        pa.array([[None]], HEADER_KINDS[0]),
        pa.array([[{"key": None, "value": b"1"}]], HEADER_KINDS[0]),
        pa.array([[None]], HEADERS_TYPE),
    ],
)
def test_a_header_needs_a_key(headers: pa.Array) -> None:
    with pytest.raises(InvalidRecord, match="header"):
        produced(columns(value=["a"], headers=headers))


def test_the_key_of_a_header_must_be_text() -> None:
    headers = pa.array([[(b"\xff", b"1")]], pa.map_(pa.binary(), pa.binary()))
    body = columns(value=["a"], headers=headers)
    with pytest.raises(InvalidRequest, match="UTF"):
        produced(body)

    lying = columns(
        value=["a"], headers=pa.array([[{"key": "\u00ff", "value": b""}]], HEADERS_TYPE)
    )
    with pytest.raises(InvalidRequest, match="UTF"):
        produced(lying.replace("\u00ff".encode(), b"\xff\xff"))


@pytest.mark.parametrize("body", [b"", b"garbage", b"ARROW1\0\0", b"\xff\xff\xff\xff\0\0\0\0"])
def test_bytes_that_are_not_a_stream_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not a valid Arrow stream"):
        produced(body)


def test_a_stream_without_records_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no records"):
        produced(stream(record_batch([], [], [])))


@pytest.mark.parametrize("rest", [b"x", stream(record_batch([1], ["a"], ["b"]))])
def test_bytes_after_the_stream_are_refused(rest: bytes) -> None:
    with pytest.raises(InvalidRequest, match="bytes follow the end"):
        produced(stream(record_batch([1], ["a"], ["b"])) + rest)


def test_truncation_is_detected_except_before_the_optional_end_mark() -> None:
    body = stream(record_batch([1, 2], ["a", "b"], ["x" * 50, "y"]))
    produced(body[:-8])

    for end in [*range(len(body) - 8), *range(len(body) - 7, len(body))]:
        with pytest.raises(InvalidRequest):
            produced(body[:end])


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compression_bomb_is_refused_before_it_is_decompressed(compression: str) -> None:
    body = stream(record_batch([1], [None], [bytes(20_000_000)]), compression=compression)
    before = pa.default_memory_pool().max_memory()

    with pytest.raises(RequestTooLarge, match="unpacks to more than 1000000 bytes"):
        produced(body, request_bytes_max=1_000_000)

    assert pa.default_memory_pool().max_memory() == before


def test_a_buffer_that_declares_a_terabyte_is_refused_before_it_is_allocated() -> None:
    body = stream(record_batch([1], [None], [bytes(100_000)]), compression="zstd")
    before, after = body.rsplit(struct.pack("<q", 100_000), 1)

    with pytest.raises(RequestTooLarge):
        produced(before + struct.pack("<q", 2**40) + after)
    for size_bytes in (-(2**40), 99_999, 100_001):
        with pytest.raises(InvalidRequest):
            produced(before + struct.pack("<q", size_bytes) + after)


def test_a_dictionary_that_expands_beyond_the_limit_is_refused() -> None:
    indices = pa.array([0] * 10_000, pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array([b"x" * 1_000_000]))

    with pytest.raises(RequestTooLarge, match="expand to more than"):
        produced(columns(value=column))


def test_the_sizes_of_batches_that_share_a_dictionary_are_added_up() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 30), pa.array([b"x" * 1_000_000]))
    batch = pa.record_batch({"value": column})

    assert produced(stream(batch)).batch.num_rows == 30
    with pytest.raises(RequestTooLarge, match="expand to more than"):
        produced(stream(*[batch] * 100))


def test_views_that_expand_beyond_the_limit_are_refused() -> None:
    column = pa.array([b"x" * 1_000_000], pa.binary_view())
    views = column.buffers()[1].to_pybytes() * 10_000
    buffers = [None, pa.py_buffer(views), *column.buffers()[2:]]
    bomb = pa.Array.from_buffers(pa.binary_view(), 10_000, buffers)

    with pytest.raises(RequestTooLarge, match="expand to more than"):
        produced(columns(value=bomb))


def test_the_view_of_a_null_is_not_read() -> None:
    column = pa.array([b"longer than twelve bytes", None], pa.binary_view())
    validity, views, *data = column.buffers()
    astray = views.to_pybytes()[:16] + struct.pack("<iiii", 2**31 - 1, 0, 0, 2**31 - 1)
    buffers = [validity, pa.py_buffer(astray), *data]
    column = pa.Array.from_buffers(pa.binary_view(), 2, buffers)

    batch = produced(columns(value=column)).batch

    assert batch.column("value").to_pylist() == [b"longer than twelve bytes", None]


def test_too_many_headers_of_zero_width_are_refused() -> None:
    entries = pa.StructArray.from_arrays(
        [pa.array([b""] * 5000, pa.binary(0)), pa.array([b""] * 5000, pa.binary(0))],
        names=["key", "value"],
    )
    headers = pa.ListArray.from_arrays(pa.array([0, 5000], pa.int32()), entries)

    with pytest.raises(InvalidRecord, match="may have 100 headers"):
        produced(columns(value=["a"], headers=headers))


def test_limits_of_records_apply() -> None:
    batch = record_batch([1, 2], ["a", "b"], ["x", "y" * 20], [None, [{"key": "n", "value": "v"}]])
    body = stream(batch)

    produced(body, record_bytes_max=23, record_count_max=2)
    with pytest.raises(RecordTooLarge, match=r"records\[1\] has 23 bytes .* may have 22"):
        produced(body, record_bytes_max=22)
    with pytest.raises(RequestTooLarge, match="has 2 records and may have 1"):
        produced(body, record_count_max=1)
    with pytest.raises(InvalidRecord, match="may have 0"):
        produced(body, header_name_bytes_max=0)


def test_rows_are_counted_before_they_are_allocated() -> None:
    body = columns(value=pa.nulls(3))
    rows = struct.pack("<q", 3)
    many = body.replace(rows, struct.pack("<q", 2**50))
    assert many != body

    with pytest.raises(RequestTooLarge, match="records and may have 100000"):
        produced(many)


SEEDS = [
    stream(
        pa.record_batch(
            {
                "timestamp": pa.array([1, None, 3], pa.timestamp("us")),
                "key": array_of(kind),
                "value": BYTES,
                "headers": headers_of(HEADER_KINDS[number % len(HEADER_KINDS)]),
                "partition": pa.array([1, None, 2], pa.int32()),
            }
        ),
        compression=[None, "lz4", "zstd"][number % 3],
    )
    for number, kind in enumerate(KINDS)
]


def spoiled(body: bytes, dice: random.Random) -> bytes:
    """Return `body` with some bytes changed, mostly to extreme lengths and offsets."""
    spoilt = bytearray(body)
    for _ in range(dice.randint(1, 4)):
        spot = dice.randrange(len(spoilt))
        width = dice.choice([1, 1, 1, 4, 8])
        number = dice.choice([0, 1, 0x7F, 0xFF, 2**31 - 1, 2**31, 2**62, 2**64 - 1])
        spoilt[spot : spot + width] = number.to_bytes(8, "little")[:width]
    return bytes(spoilt)


@given(st.sampled_from(SEEDS), st.randoms(use_true_random=False))
def test_a_damaged_stream_gives_records_or_a_typed_error(body: bytes, dice: random.Random) -> None:
    for _ in range(20):
        with suppress(RiachoError):
            batch = produced(spoiled(body, dice)).batch
            b"".join(
                json_pieces([(range(batch.num_rows), batch)], value_format="json", schemas=NONE)
            )
            assign(batch, None, 5, Spreader())


@given(st.binary(max_size=200))
def test_any_bytes_give_records_or_a_typed_error(body: bytes) -> None:
    with suppress(RiachoError):
        produced(body)
