"""Slices: records encoded with every codec, whole or in part."""

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt
from storage.formats import slices
from storage.formats.records import RECORD_SCHEMA, record_batch
from storage.formats.slices import TOGETHER_MIN
from tests.examples import few
from tests.storage.helpers.damage import check_gives_a_value_or_corrupt, check_notices_damage
from tests.storage.helpers.logs import BATCHES, batch_of

CODECS = st.sampled_from(["lz4", "zstd", "none"])


@few
@given(st.lists(BATCHES, min_size=1, max_size=4), CODECS)
def test_slices_are_encoded_and_decoded(batches: list[pa.RecordBatch], codec: slices.Codec) -> None:
    encoded = slices.encode(batches, codec)

    for batch, piece in zip(batches, encoded, strict=True):
        assert slices.decode(piece.data, piece.crc).to_pylist() == batch.to_pylist()
        assert piece.count == batch.num_rows
        stamps = batch.column(0).to_pylist()
        assert (piece.min_ms, piece.max_ms) == (min(stamps), max(stamps))


@few
@given(st.lists(BATCHES, min_size=1, max_size=4), CODECS)
def test_a_schema_and_slices_are_an_arrow_stream(
    batches: list[pa.RecordBatch], codec: slices.Codec
) -> None:
    encoded = slices.encode(batches, codec)

    stream = b"".join(
        [slices.SCHEMA_MESSAGE, *(piece.data for piece in encoded), slices.END_OF_STREAM]
    )
    table = pa.ipc.open_stream(stream).read_all()

    assert table.schema == RECORD_SCHEMA
    assert table.to_pylist() == [row for batch in batches for row in batch.to_pylist()]


@few
@given(BATCHES, CODECS, st.data())
def test_any_damage_to_a_slice_is_detected(
    batch: pa.RecordBatch, codec: slices.Codec, data: st.DataObject
) -> None:
    [piece] = slices.encode([batch], codec)

    check_notices_damage(lambda each: slices.decode(each, piece.crc), bytes(piece.data), data)


@few
@given(st.binary(max_size=300))
def test_any_bytes_are_records_or_corrupt(anything: bytes) -> None:
    check_gives_a_value_or_corrupt(lambda each: slices.decode(each, crc32c(each)), anything)


@pytest.mark.parametrize("message", [b"", slices.SCHEMA_MESSAGE, slices.END_OF_STREAM])
def test_a_message_that_is_not_a_record_batch_is_corrupt(message: bytes) -> None:
    with pytest.raises(Corrupt, match="not a slice"):
        slices.decode_unchecked(message)


def test_a_small_batch_is_one_slice() -> None:
    batch = batch_of(b"a", b"b")

    assert list(slices.cut(batch, batch.nbytes)) == [batch]


@few
@given(st.integers(1, 3000), st.integers(0, 2000))
def test_a_large_batch_is_cut_into_equal_slices_that_add_up_to_it(rows: int, size: int) -> None:
    batch = record_batch(range(rows), [None] * rows, [bytes(size)] * rows)

    pieces = list(slices.cut(batch, batch.nbytes))

    assert pa.Table.from_batches(pieces).to_pylist() == batch.to_pylist()
    counts = [piece.num_rows for piece in pieces]
    assert max(counts) - min(counts) <= 1
    assert min(counts) >= 1
    assert all(piece.nbytes <= 2 * slices.SLICE_BYTES for piece in pieces)


def test_a_record_larger_than_a_slice_gets_a_slice_of_its_own() -> None:
    large = bytes(slices.SLICE_BYTES + 1)

    batch = batch_of(large, large, large)

    assert [piece.num_rows for piece in slices.cut(batch, batch.nbytes)] == [1, 1, 1]


@few
@given(BATCHES, st.data())
def test_a_part_of_a_slice_can_be_encoded_alone(batch: pa.RecordBatch, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, batch.num_rows - 1))
    part = batch.slice(start)

    [stored] = slices.encode([part], "none")
    decoded = slices.decode_unchecked(stored.data)

    assert decoded.to_pylist() == part.to_pylist()


@pytest.mark.parametrize("codec", ["lz4", "zstd", "none"])
@pytest.mark.parametrize("count", [1, TOGETHER_MIN - 1, TOGETHER_MIN, TOGETHER_MIN + 1, 11])
def test_batches_encoded_together_give_the_slices_that_each_gives_alone(
    codec: slices.Codec, count: int
) -> None:
    batches = [record_batch([n, n + 7], [None, b"k"], [b"%d" % n, b"v" * n]) for n in range(count)]

    found = slices.encode(iter(batches), codec)

    assert [slices.decode(each.data, each.crc) for each in found] == batches
    assert [(each.count, each.min_ms, each.max_ms) for each in found] == [
        (2, n, n + 7) for n in range(count)
    ]
    assert [bytes(each.data) for each in found] == [
        bytes(slices.encode([batch], codec)[0].data) for batch in batches
    ]


def test_an_error_in_a_later_batch_is_raised() -> None:
    good = record_batch([1], [None], [b"v"])
    other = pa.record_batch({"value": [1]})

    with pytest.raises(pa.ArrowException):
        slices.encode([*[good] * TOGETHER_MIN, other], "lz4")
