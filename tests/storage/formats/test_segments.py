"""Hot segments: the footer locates every slice, and damage anywhere raises `Corrupt`."""

import msgspec
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt
from storage.formats import segments, slices
from tests.examples import few
from tests.storage.helpers.damage import check_gives_a_value_or_corrupt, check_notices_damage
from tests.storage.helpers.logs import BATCHES, IDS, batch_of

PARTS = st.lists(st.tuples(IDS, st.integers(0, 9999), BATCHES), max_size=4)


def segment_of(parts: list[tuple[bytes, int, pa.RecordBatch]]) -> bytes:
    encoded = [(topic, p, slices.encode([batch], "lz4")[0]) for topic, p, batch in parts]
    return b"".join(segments.encode(encoded))


@few
@given(PARTS)
def test_the_footer_locates_every_slice(parts: list[tuple[bytes, int, pa.RecordBatch]]) -> None:
    segment = segment_of(parts)

    rows = segments.footer(segment)

    assert [(row.topic_id, row.partition) for row in rows] == [part[:2] for part in parts]
    for row, (_, _, batch) in zip(rows, parts, strict=True):
        data = segment[row.position : row.position + row.length]
        assert slices.decode(data, row.crc).to_pylist() == batch.to_pylist()
        assert row.count == batch.num_rows


@few
@given(PARTS, st.data())
def test_any_damage_to_a_segment_is_detected(
    parts: list[tuple[bytes, int, pa.RecordBatch]], data: st.DataObject
) -> None:
    check_notices_damage(segments.footer, segment_of(parts), data)


@few
@given(st.binary(max_size=100))
def test_any_bytes_are_a_segment_or_corrupt(anything: bytes) -> None:
    check_gives_a_value_or_corrupt(segments.footer, anything)


@few
@given(st.binary(max_size=100))
def test_any_footer_with_a_valid_checksum_is_parsed_or_corrupt(footer: bytes) -> None:
    trailer = len(footer).to_bytes(4, "little") + crc32c(footer).to_bytes(4, "little") + b"RSG1"

    check_gives_a_value_or_corrupt(segments.footer, b"RSG1\0\0\0\0" + footer + trailer)


def test_a_footer_that_skips_bytes_is_corrupt() -> None:
    segment = segment_of([(bytes(16), 0, batch_of(b"a"))])
    [row] = segments.footer(segment)
    moved = msgspec.structs.replace(row, position=row.position + 1)
    footer = msgspec.msgpack.encode([moved])
    trailer = len(footer).to_bytes(4, "little") + crc32c(footer).to_bytes(4, "little") + b"RSG1"

    with pytest.raises(Corrupt, match="slice at 9"):
        segments.footer(segment[: row.position + row.length] + footer + trailer)
