"""From batches to a segment: what the runs say is what the bytes hold."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats import segments, slices
from storage.formats.entries import Kind
from storage.formats.kafka.batches import Batches
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.formats.records import record_batch
from storage.formats.slices import SLICE_BYTES, Codec, Sent
from storage.formats.zone_sets import ZoneSet
from storage.head import head as heads
from storage.lanes import building as writer
from storage.lanes.building import UNPACKED_BYTES_MAX, LanePart
from tests.examples import few
from tests.storage.helpers.logs import BATCHES, batch_of

OBJECT_ID = bytes(range(16))
PARTITIONS = st.dictionaries(
    st.integers(0, 4), st.lists(BATCHES, min_size=1, max_size=3), min_size=1
)


def _nbytes(batch: pa.RecordBatch | Sent) -> int:
    return (batch.batch if isinstance(batch, Sent) else batch).nbytes  # type: ignore[no-any-return]


def part(topic: int, batches: dict[int, list[Any]]) -> LanePart:
    return LanePart(
        topic_id=bytes([topic]) * 16,
        first_partition=64,
        codec="zstd",
        zones=1,
        batches=[(p, given, sum(_nbytes(b) for b in given)) for p, given in batches.items()],
    )


@few
@given(st.lists(PARTITIONS, min_size=1, max_size=3))
def test_runs_say_where_every_record_is(lanes: list[dict[int, list[pa.RecordBatch]]]) -> None:
    built = writer.build(OBJECT_ID, [part(n, batches) for n, batches in enumerate(lanes)])

    body = b"".join(built.pieces)
    rows = segments.footer(body)
    assert [(r.position, body[r.position : r.position + r.length]) for r in rows] == [
        (position, bytes(data)) for position, data in built.stored
    ]
    for number, (run, batches) in enumerate(zip(built.runs, lanes, strict=True)):
        head = heads.append(heads.create(bytes(16), 0, 5, ["a"]), [run])
        for partition, given_batches in batches.items():
            records = [
                row
                for entry in heads.inline_entries(head, partition)
                for row in slices.decode(
                    body[entry.position : entry.position + entry.length], entry.crc
                ).to_pylist()
            ]
            assert records == [row for batch in given_batches for row in batch.to_pylist()]
            for entry in heads.inline_entries(head, partition):
                [row] = [r for r in rows if r.position == entry.position]
                assert row.topic_id == bytes([number]) * 16
                assert row.partition == 64 + partition
                assert (row.min_ms, row.max_ms) == (entry.min_ms, entry.max_ms)
                assert (row.count, row.crc) == (entry.record_count, entry.crc)


def test_the_batches_of_a_partition_become_slices_of_about_one_size() -> None:
    small = [batch_of(b"%d" % n) for n in range(100)]
    large = record_batch(range(1024), [None] * 1024, [bytes(1024)] * 1024)

    built = writer.build(OBJECT_ID, [part(0, {0: small, 1: [large]})])

    counts = {p: [s.count for s in built.runs[0].slices if s.partition == p] for p in (0, 1)}
    assert counts[0] == [100]
    assert sum(counts[1]) == 1024
    assert len(counts[1]) == pytest.approx(large.nbytes / SLICE_BYTES, abs=1)


def sent(batch: pa.RecordBatch, codec: Codec) -> Sent:
    return Sent(slices.encode([batch], codec)[0].data, codec, batch)


def test_what_was_sent_as_a_slice_is_stored_as_it_came_and_where_it_belongs() -> None:
    batches = [batch_of(b"%d" % n) for n in range(6)]
    given = [
        sent(batches[0], "zstd"),
        batches[1],
        batches[2],
        sent(batches[3], "zstd"),
        sent(batches[4], "lz4"),  # Not how this topic is compressed.
        batches[5],
    ]

    built = writer.build(OBJECT_ID, [part(0, {0: [batches[5]], 1: given})])

    run = built.runs[0]
    assert [(each.partition, each.count) for each in run.slices] == [
        (0, 1), (1, 1), (1, 2), (1, 1), (1, 2)
    ]  # fmt: skip
    stored = [bytes(data) for _, data in built.stored]
    assert stored[1] == bytes(given[0].data)
    assert stored[3] == bytes(given[3].data)
    assert stored[4] == bytes(slices.encode([pa.concat_batches(batches[4:])], "zstd")[0].data)
    found = [slices.decode(data, each.crc) for data, each in zip(stored, run.slices, strict=True)]
    assert pa.concat_batches(found[1:]) == pa.concat_batches(batches)
    for each, batch in zip(run.slices, found, strict=True):
        stamps = batch.column(0).to_pylist()
        assert run.base_ms + each.after_ms == min(stamps)
        assert run.base_ms + each.after_ms + each.span_ms == max(stamps)


def test_nothing_but_what_was_sent_needs_no_encoding() -> None:
    one = record_batch([5, 3, 9], [None] * 3, [b"a"] * 3)

    built = writer.build(OBJECT_ID, [part(0, {2: [sent(one, "zstd")]})])

    [(position, data)] = built.stored
    assert position == segments.FIRST_POSITION
    assert slices.decode_unchecked(data) == one
    [piece] = built.runs[0].slices
    assert (built.runs[0].base_ms, piece.after_ms, piece.span_ms) == (3, 0, 6)


def kafka_batch(records: int, *, stored_bytes: int, record_bytes: int) -> Batches:
    return Batches(
        data=memoryview(bytes(stored_bytes)),
        count=records,
        min_ms=records,
        max_ms=2 * records,
        codec="zstd",
        record_bytes=record_bytes,
        claim=None,
        is_transactional=False,
    )


def test_kafka_batches_share_slices_up_to_a_size_as_stored_and_unpacked() -> None:
    small = kafka_batch(1, stored_bytes=100_000, record_bytes=100_000)
    dense = kafka_batch(2, stored_bytes=100, record_bytes=UNPACKED_BYTES_MAX // 2)
    large = kafka_batch(3, stored_bytes=2 * SLICE_BYTES, record_bytes=2 * SLICE_BYTES)
    both = (LanePartition(0), [small, small, small, large, small], 0), (
        LanePartition(1), [dense, dense, dense], 0)  # fmt: skip

    built = writer.build(
        bytes(16),
        [
            writer.LanePart(
                topic_id=bytes(16),
                first_partition=PartitionNumber(0),
                codec="lz4",
                zones=ZoneSet(1),
                batches=both,
                kind=Kind.KAFKA,
            )
        ],
    )

    [run] = built.runs
    assert run.kind == Kind.KAFKA
    assert [(each.partition, each.count) for each in run.slices] == [
        (0, 2), (0, 1), (0, 3), (0, 1), (1, 4), (1, 2)]  # fmt: skip
    assert len(built.stored[0][1]) == 200_000
    assert (run.base_ms, run.slices[2].after_ms, run.slices[2].span_ms) == (1, 2, 3)
    segments.footer(b"".join(built.pieces))
