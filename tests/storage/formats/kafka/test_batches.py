"""Batches of producers are checked to the last length; stored ones get their place."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import BadBatch
from storage.formats.kafka import batches, encoding, layout, varints
from storage.formats.kafka.compression import COMPRESSIONS, Compression
from storage.formats.kafka.decoding import decode
from storage.formats.kafka.layout import BatchHeader
from tests.examples import few
from tests.storage.formats.kafka.builders import built, checked, record_batches
from tests.storage.helpers.logs import batch_of

THREE = batch_of(b"a", b"b" * 100, b"c")
MANY = batch_of(*(b"%d" % index for index in range(100)))
SIZES = pytest.mark.parametrize("batch", [THREE, MANY], ids=["few", "many"])


def altered(data: bytes, body: bytes | None = None, **fields: int) -> bytes:
    """Return a batch with other fields, its length and checksum right again."""
    header = BatchHeader._make(layout.BATCH_HEADER.unpack_from(data))
    return bytes(layout.sealed(header._replace(**fields), body or data[layout.HEADER_BYTES :]))


def refused(data: bytes, **options: int) -> str:
    with pytest.raises(BadBatch) as caught:
        checked(data, **options)
    return caught.value.fault


@few
@given(record_batches(), st.sampled_from(COMPRESSIONS))
def test_a_batch_is_described(batch: pa.RecordBatch, codec: Compression) -> None:
    data = bytes(encoding.encode(batch, base_offset=0, codec=codec))

    found = checked(data)

    stamps = batch.column(0).to_pylist()
    assert (found.count, found.codec, found.claim) == (batch.num_rows, codec, None)
    assert (found.min_ms, found.max_ms) == (min(stamps), max(stamps))
    assert found.data == data


def test_the_claim_of_a_producer_is_read() -> None:
    data = altered(
        built(THREE),
        producer_id=7,
        producer_epoch=2,
        base_sequence=90,
        attributes=layout.TRANSACTIONAL,
    )

    found = checked(data)

    assert found.claim == (7, 2, 90)
    assert found.is_transactional


@SIZES
@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"attributes": 5}, "UNSUPPORTED_COMPRESSION_TYPE"),
        ({"attributes": 1}, "INVALID_RECORD"),
        ({"attributes": layout.LOG_APPEND_TIME}, "INVALID_TIMESTAMP"),
        ({"attributes": layout.CONTROL}, "INVALID_RECORD"),
        ({"attributes": layout.DELETE_HORIZON}, "INVALID_RECORD"),
        ({"attributes": layout.TRANSACTIONAL}, "INVALID_RECORD"),
        ({"base_offset": 1}, "INVALID_RECORD"),
        ({"records": 0}, "INVALID_RECORD"),
        ({"records": -1, "last_delta": -2}, "INVALID_RECORD"),
        ({"records": 2**31 - 1, "last_delta": 2**31 - 2}, "MESSAGE_TOO_LARGE"),
        ({"records": 400_000, "last_delta": 399_999}, "INVALID_RECORD"),
        ({"records": 4, "last_delta": 3}, "INVALID_RECORD"),
        ({"records": 2, "last_delta": 1}, "INVALID_RECORD"),
        ({"last_delta": 3}, "INVALID_RECORD"),
        ({"producer_id": 1}, "INVALID_RECORD"),
        ({"base_ms": -2}, "INVALID_TIMESTAMP"),
        ({"magic": 1}, "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
        ({"magic": 3}, "CORRUPT_MESSAGE"),
    ],
    ids=str,
)
def test_a_header_that_kafka_would_refuse_is_refused(
    batch: pa.RecordBatch, fields: dict[str, int], fault: str
) -> None:
    assert refused(altered(built(batch), **fields)) == fault


def test_unknown_attributes_are_kept() -> None:
    assert checked(altered(built(THREE), attributes=1 << 9)).count == 3


@SIZES
def test_a_batch_with_another_size_or_checksum_is_corrupt(batch: pa.RecordBatch) -> None:
    data = built(batch)

    assert refused(data[:-1]) == "CORRUPT_MESSAGE"
    assert refused(data[:60]) == "CORRUPT_MESSAGE"
    assert refused(data[:-1] + b"\x01") == "CORRUPT_MESSAGE"


def test_a_partition_gets_one_batch() -> None:
    assert refused(b"") == "INVALID_RECORD"
    assert refused(built(THREE) * 2) == "INVALID_RECORD"
    assert refused(built(THREE) + b"\x00") == "INVALID_RECORD"


def rows_of(*contents: bytes) -> bytes:
    """Return the body of records with these contents, each with its right length."""
    return b"".join(varints.write_one(len(content)) + content for content in contents)


def content(index: int, rest: bytes = b"\x01\x01\x00") -> bytes:
    return b"\x00\x00" + varints.write_one(index) + rest


WRONG = {
    "an offset twice": content(1),
    "a key of -2 bytes": content(2, b"\x03\x01\x00"),
    "a value of -2 bytes": content(2, b"\x01\x03\x00"),
    "a key beyond the record": content(2, b"\x40\x01\x00"),
    "a value beyond the record": content(2, b"\x01\x40\x00"),
    "a key of 2 GiB": content(2, b"\x01\xfe\xff\xff\xff\x0f\x00"),
    "a byte after the headers": content(2, b"\x01\x01\x00\x00"),
    "-1 headers": content(2, b"\x01\x01\x01"),
    "headers without room": content(2, b"\x01\x01\xfe\xff\xff\xff\x0f"),
    "a header without key": content(2, b"\x01\x01\x02\x01\x01"),
    "a header of -2 bytes": content(2, b"\x01\x01\x02\x02a\x03"),
    "a header key that is not text": content(2, b"\x01\x01\x02\x02\xff\x01"),
    "a number of six bytes": content(2, b"\x81\x80\x80\x80\x80\x00\x01\x00"),
    "a number of 33 bits": content(2, b"\x81\x80\x80\x80\x10\x01\x00"),
    "nothing": b"",
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("after", [0, 100], ids=["few", "many"])
def test_a_record_with_a_wrong_number_is_refused(wrong: bytes, after: int) -> None:
    others = [content(index) for index in range(3 + after)]
    body = rows_of(*others[:2], wrong, *others[3:])
    good = rows_of(*others)
    count = len(others)
    batch = built(THREE)

    assert checked(altered(batch, good, records=count, last_delta=count - 1)).count == count
    wrong_batch = altered(batch, body, records=count, last_delta=count - 1)
    assert refused(wrong_batch) == "INVALID_RECORD"


@SIZES
def test_times_out_of_range_are_refused(batch: pa.RecordBatch) -> None:
    stamps = [2**63 - 1, *[0] * (batch.num_rows - 1)]
    large = batch.set_column(0, "timestamp", pa.array(stamps))
    data = bytes(encoding.encode(large, base_offset=0, codec="none"))

    assert checked(data).max_ms == 2**63 - 1
    assert refused(altered(data, base_ms=0)) == "INVALID_TIMESTAMP"


@SIZES
def test_large_records_and_records_without_keys_are_refused(batch: pa.RecordBatch) -> None:
    largest = max(len(value) for value in batch.column(2).to_pylist())

    assert checked(built(batch), record_bytes_max=largest).count == batch.num_rows
    assert refused(built(batch), record_bytes_max=largest - 1) == "MESSAGE_TOO_LARGE"
    assert refused(built(batch), needs_keys=True) == "INVALID_RECORD"


@pytest.mark.parametrize("codec", COMPRESSIONS)
def test_records_that_unpack_to_too_much_are_refused(codec: Compression) -> None:
    data = bytes(encoding.encode(batch_of(bytes(10**6)), base_offset=0, codec=codec))

    assert checked(data, decompressed_bytes_max=10**6 + 20).count == 1
    assert refused(data, decompressed_bytes_max=10**6) == "MESSAGE_TOO_LARGE"


@SIZES
def test_what_takes_long_to_check_is_told_apart(batch: pa.RecordBatch) -> None:
    data = built(batch)

    assert batches.is_light(data)
    assert batches.is_light(b"")
    assert not batches.is_light(altered(data, records=batches.LIGHT_RECORDS_MAX + 1))


@few
@given(st.lists(record_batches(), min_size=1, max_size=3), st.integers(0, 2**62), st.data())
def test_batches_get_their_places(
    given_batches: list[pa.RecordBatch], base: int, data: st.DataObject
) -> None:
    stored = b"".join(encoding.encode(each, base_offset=0, codec="lz4") for each in given_batches)

    whole = batches.placed(stored, base, 5)

    found = [*layout.headers(whole)]
    ends = []
    for each, batch in zip(found, given_batches, strict=True):
        assert (each.header.base_offset, each.header.leader_epoch) == (base, 5)
        assert layout.crc_of(whole[each.start : each.end]) == each.header.crc
        base += batch.num_rows
        ends.append(base)
    first = found[0].header.base_offset
    offset = data.draw(st.integers(first, base))
    rest = batches.from_offset(whole, first, offset)
    assert len(whole) - len(rest) == next(
        (each.start for each, end in zip(found, ends, strict=True) if offset < end), len(whole)
    )


@SIZES
def test_the_time_of_appending_is_that_of_all_records(batch: pa.RecordBatch) -> None:
    stored = batches.stamped(built(batch) * 2, 77)

    assert {each.header.crc for each in layout.headers(stored)} == {
        layout.crc_of(stored[: len(stored) // 2])
    }
    assert set(decode(stored).column(0).to_pylist()) == {77}


@pytest.mark.parametrize("codec", COMPRESSIONS)
def test_batches_are_compressed_anew(codec: Compression) -> None:
    stored = b"".join(encoding.encode(each, base_offset=0, codec="gzip") for each in (THREE, MANY))

    again = batches.recompressed(stored, codec, decompressed_bytes_max=10**6)

    assert decode(again) == decode(stored)
    assert (
        again[: layout.HEADER_BYTES]
        == altered(bytes(encoding.encode(THREE, base_offset=0, codec=codec)))[: layout.HEADER_BYTES]
    )
