"""Arrow to batches and back, compared with other programs."""

import os

import aiokafka.codec
import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import BadBatch, Corrupt
from storage.formats.kafka import encoding, layout
from storage.formats.kafka.compression import COMPRESSIONS, Compression
from storage.formats.kafka.decoding import decode
from tests.examples import few
from tests.storage.formats.kafka.builders import (
    batch_of_rows,
    built,
    checked,
    record_batches,
)
from tests.storage.helpers.damage import check_gives_a_value_or_corrupt
from tests.storage.helpers.logs import batch_of

CODECS_OF_AIOKAFKA = [
    codec for codec in COMPRESSIONS if codec == "none" or getattr(aiokafka.codec, f"has_{codec}")()
]
MUTATIONS = int(os.environ.get("RIACHO_TEST_MUTATIONS", "2000"))


@few
@given(record_batches())
def test_batches_are_those_of_another_program(batch: pa.RecordBatch) -> None:
    theirs = built(batch)

    assert bytes(encoding.encode(batch, base_offset=0, codec="none")) == theirs
    decoded = decode(theirs)
    decoded.validate(full=True)
    assert decoded == batch


@few
@given(
    st.lists(record_batches(), min_size=1, max_size=4),
    st.sampled_from(COMPRESSIONS),
    st.integers(1, 5000),
)
def test_what_is_encoded_is_decoded(
    batches: list[pa.RecordBatch], codec: Compression, bytes_max: int
) -> None:
    slices = [
        b"".join(encoding.encode_all(batch, base_offset=9, codec=codec, bytes_max=bytes_max))
        for batch in batches
    ]

    decoded = decode(b"".join(slices))

    decoded.validate(full=True)
    assert decoded == pa.concat_batches(batches)


@few
@given(record_batches(), st.data())
def test_gaps_between_offsets_are_kept(batch: pa.RecordBatch, data: st.DataObject) -> None:
    step = data.draw(st.integers(1, 1000))
    base = data.draw(st.integers(0, 2**50))
    offsets = base + np.arange(batch.num_rows, dtype=np.int64) * step + 3
    end = int(offsets[-1]) + data.draw(st.integers(1, 9))

    pieces = [
        *encoding.encode_all(
            batch, base_offset=base, codec="none", offsets=offsets, end=end, bytes_max=2000
        )
    ]

    found: list[int] = []
    for piece in pieces:
        [header] = [each.header for each in layout.headers(piece)]
        assert header.base_offset == base
        base += header.last_delta + 1
        found += [record.offset for record in DefaultRecordBatch(bytes(piece))]
    assert found == offsets.tolist()
    assert base == end


def test_batches_are_about_as_large_as_they_may_be() -> None:
    batch = batch_of(*[bytes(1000)] * 100, bytes(9000), *[b"x"] * 100)

    pieces = [*encoding.encode_all(batch, base_offset=0, codec="none", bytes_max=5000)]

    counts = [each.header.records for piece in pieces for each in layout.headers(piece)]
    assert counts == [4] * 25 + [1, 100]


@pytest.mark.parametrize("codec", CODECS_OF_AIOKAFKA)
@few
@given(record_batches(rows_max=70))
def test_another_program_reads_our_batches(codec: Compression, batch: pa.RecordBatch) -> None:
    theirs = DefaultRecordBatch(bytes(encoding.encode(batch, base_offset=4, codec=codec)))

    assert theirs.validate_crc()

    rows = [
        (each.timestamp, each.key, each.value, [{"key": k, "value": v} for k, v in each.headers])
        for each in theirs
    ]
    assert batch_of_rows([(*row[:3], row[3] or None) for row in rows]) == batch


SEEDS = [
    bytes(encoding.encode(batch, base_offset=0, codec=codec))
    for codec in COMPRESSIONS
    for batch in (
        batch_of_rows([(5, b"key", b"value" * 9, [{"key": "h", "value": None}])] * 3),
        batch_of_rows([(5, b"key", b"value" * 9, [{"key": "h", "value": b"1"}])] * 70),
    )
]


@settings(max_examples=30)
@given(st.randoms(use_true_random=False))
def test_mutated_batches_are_refused_or_right(random: "st.Random") -> None:
    """Whatever passes the check is decoded, with the counts and times that the check found."""
    for _ in range(MUTATIONS // 30):
        data = bytearray(random.choice(SEEDS))
        for _ in range(random.randint(1, 3)):
            at = random.choice((random.randrange(len(data)), random.randrange(61, len(data))))
            data[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        if len(data) > layout.HEADER_BYTES:
            header = layout.BatchHeader._make(layout.BATCH_HEADER.unpack_from(data))
            data = layout.sealed(header, data[layout.HEADER_BYTES :])
        check_gives_a_value_or_corrupt(decode, bytes(data))
        try:
            found = checked(bytes(data))
        except BadBatch:
            continue
        decoded = decode(bytes(data))
        decoded.validate(full=True)
        stamps = decoded.column(0).to_pylist()
        assert (found.count, found.min_ms, found.max_ms) == (
            decoded.num_rows,
            min(stamps),
            max(stamps),
        )


@few
@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_corrupt(anything: bytes) -> None:
    check_gives_a_value_or_corrupt(decode, anything)


def test_a_wrong_checksum_of_a_slice_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        decode(SEEDS[0], 1)
