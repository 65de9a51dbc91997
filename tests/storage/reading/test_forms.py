"""Slices in both forms: what a consumer of Kafka's protocol gets of what is stored otherwise."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt
from storage.formats import slices
from storage.formats.kafka import layout
from storage.formats.kafka.compression import COMPRESSIONS, Compression
from storage.formats.kafka.encoding import encode
from storage.reading.fetched import Fetched, StoredSlice
from storage.reading.forms import SPAN_MAX, KafkaForm, as_arrow, as_kafka, kafka_bytes
from tests.examples import some
from tests.storage.helpers.kafka_records import Kept, seen
from tests.storage.helpers.logs import batch_of

PLAIN = KafkaForm("none")


def arrow_slice(offsets: Sequence[int], start: int, end: int) -> StoredSlice:
    """Return a slice of records that have their offset as their value."""
    batch = batch_of(*(b"%d" % offset for offset in offsets))
    [piece] = slices.encode([batch], "lz4")
    numbers = memoryview(pa.array(offsets, pa.int64()).buffers()[1]).cast("B").cast("q")
    is_dense = len(offsets) == end - start
    return StoredSlice(start, end, bytes(piece.data), None if is_dense else numbers[: len(offsets)])


def offsets_of(records: Sequence[Kept]) -> list[int]:
    assert [b"%d" % each.offset for each in records] == [each.value for each in records]
    return [each.offset for each in records]


@pytest.mark.parametrize("codec", COMPRESSIONS)
def test_a_slice_is_the_same_in_both_forms(codec: Compression) -> None:
    piece = arrow_slice(range(7, 300), 7, 300)

    [made] = as_kafka((piece,), KafkaForm(codec))
    back = as_arrow(made.data, 7, 300)

    assert made.records().equals(piece.records())
    assert [each.records() for each in back] == [piece.records()]
    assert (back[0].base_offset, back[-1].end_offset) == (7, 300)
    [batch] = layout.headers(made.data)
    assert COMPRESSIONS[batch.header.attributes & layout.CODEC_BITS] == codec


def test_what_unpacks_to_much_more_becomes_several_arrow_slices() -> None:
    rows = 4 * slices.SLICE_BYTES // 1000
    batch = batch_of(*[bytes(1000)] * rows)
    data = encode(batch, base_offset=0, codec="zstd")

    pieces = as_arrow(data, 5, 5 + rows)

    assert len(pieces) > 3
    assert [piece.end_offset for piece in pieces[:-1]] == [p.base_offset for p in pieces[1:]]
    assert pa.concat_batches([piece.records() for piece in pieces]).equals(batch)


def test_another_number_of_records_than_the_index_says_is_corrupt() -> None:
    data = encode(batch_of(b"a", b"b"), base_offset=0, codec="none")
    with pytest.raises(Corrupt, match="has 2 records"):
        as_arrow(data, 5, 8)
    with pytest.raises(Corrupt):
        as_arrow(bytes(data)[:-1], 5, 7)


def test_offsets_far_apart_are_in_several_batches() -> None:
    """Keys that rarely change, between others that changed billions of times."""
    offsets = [3, 4, 4 + SPAN_MAX, 10 * SPAN_MAX, 10 * SPAN_MAX + 1]
    end = 12 * SPAN_MAX
    pieces = as_kafka((arrow_slice(offsets, 1, end),), PLAIN)

    fetched = Fetched(start_offset=1, end_offset=end, slices=[*pieces])
    records, following = seen(kafka_bytes(fetched, 10**6))

    assert offsets_of(records) == offsets
    assert following == end


@some
@given(
    st.lists(st.tuples(st.sets(st.integers(0, 9), min_size=1), st.booleans()), max_size=4),
    st.data(),
)
def test_whoever_asks_on_gets_every_record_once_and_to_the_end(
    parts: list[tuple[set[int], bool]], data: st.DataObject
) -> None:
    pieces: list[StoredSlice] = []
    expected: list[int] = []
    for number, (kept, is_joined) in enumerate(parts):
        start = 10 * number
        if is_joined:
            # Ten batches as their producers sent them: each says that it begins at 0.
            sent = [encode(batch_of(b"%d" % n), base_offset=0, codec="none") for n in range(
                start, start + 10)]  # fmt: skip
            pieces.append(StoredSlice(start, start + 10, b"".join(sent), is_kafka=True))
            expected += range(start, start + 10)
        else:
            offsets = [start + each for each in sorted(kept)]
            pieces += as_kafka((arrow_slice(offsets, start, start + 10),), PLAIN)
            expected += offsets
    end = 10 * len(parts) + data.draw(st.integers(0, 5))
    offset = data.draw(st.integers(0, end))
    expected = [each for each in expected if each >= offset]
    bytes_max = data.draw(st.sampled_from([1, 200, 10**6]))

    found: list[int] = []
    while offset < end:
        # As the reader of the log does: slices without records from there on are left out.
        some_slices = [
            each for each in pieces if len(range(*each.rows(offset, each.end_offset))) > 0
        ]
        fetched = Fetched(start_offset=offset, end_offset=end, slices=some_slices)
        records, following = seen(kafka_bytes(fetched, bytes_max))
        assert following > offset
        found += [each for each in offsets_of(records) if each >= offset]
        offset = following

    assert found == expected
    assert offset == end
