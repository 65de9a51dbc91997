"""Slices in the form that a reader asks for: Arrow, or Kafka's v2 batches.

What came as Arrow is stored as Arrow, what came by Kafka's protocol as Kafka's batches, and what
was compacted as Parquet, which is read as Arrow slices (row_groups.py). A reader speaks one of
the two, and everything it reads that is stored as the other is converted: once in each process,
because `LogReader` caches the result.

    stored        read as Arrow              read as Kafka's batches
    Arrow         as it is                   one batch a slice
    Parquet       slices of a row group      one batch a slice, with its gaps between offsets
    Kafka         slices of the same size    as it is, but for base offsets (`kafka_bytes`)

Each takes milliseconds, so do not convert large slices in the event loop.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from storage.errors import Corrupt
from storage.formats import slices
from storage.formats.kafka import layout
from storage.formats.kafka.compression import Compression
from storage.formats.kafka.decoding import decode
from storage.formats.kafka.encoding import encode
from storage.reading.fetched import Data, Fetched, StoredSlice
from storage.reading.row_groups import Pieces

CONVERT_INLINE_BYTES_MAX: Final = 4 * 1024
"""Slices up to this size are converted in the event loop: a hop to a thread takes longer."""


SPAN_MAX: Final = 2**31 - 1
"""Maximum difference of offsets in a batch, which has 32 bits for it."""

_FRONT: Final = struct.Struct(">qii")
"""Base offset, length, leader epoch: what lies in front of a batch's magic and checksum."""


@dataclass(frozen=True, slots=True)
class KafkaForm:
    """Everything as v2 batches, to be sent by `kafka_bytes`."""

    codec: Compression
    """Of batches that are made from Arrow slices. Others keep the codec that they came with."""


def as_arrow(data: Data, base_offset: int, end_offset: int) -> Pieces:
    """Return a slice of Kafka's batches as Arrow slices of about `SLICE_BYTES`."""
    records = decode(data)
    pieces = []
    first = base_offset
    parts = [*slices.cut(records, records.nbytes)]
    for part, encoded in zip(parts, slices.encode(parts, "lz4"), strict=True):
        end = first + part.num_rows
        # A copy: a view would keep the whole buffer of all slices.
        pieces.append(StoredSlice(first, end, bytes(encoded.data), None, part.nbytes))
        first = end
    if first != end_offset:
        raise Corrupt(f"a slice has {first - base_offset} records, its entry says otherwise")
    return tuple(pieces)


def as_kafka(pieces: Pieces, form: KafkaForm) -> Pieces:
    """Return Arrow slices as v2 batches, usually one each."""
    return tuple(made for piece in pieces for made in _as_kafka(piece, form))


def _as_kafka(piece: StoredSlice, form: KafkaForm) -> Iterator[StoredSlice]:
    records, offsets = piece.records(), piece.offsets
    if offsets is None:
        data = encode(records, base_offset=piece.base_offset, codec=form.codec)
        yield StoredSlice(piece.base_offset, piece.end_offset, bytes(data), is_kafka=True)
        return
    first, start = 0, piece.base_offset
    while first < len(offsets):
        # A batch has 32 bits for what its offsets differ; keys that rarely change exceed that.
        last = bisect_left(offsets, offsets[first] + SPAN_MAX, first)
        part = offsets[first:last]
        end = offsets[last] if last < len(offsets) else piece.end_offset
        data = encode(
            records.slice(first, last - first),
            base_offset=part[0],
            codec=form.codec,
            offsets=np.frombuffer(part, np.int64),
            end=min(end, part[0] + SPAN_MAX),
        )
        yield StoredSlice(start, end, bytes(data), part, is_kafka=True)
        first, start = last, end


def kafka_bytes(fetched: Fetched, bytes_max: int) -> list[Data]:
    """Return what was read as Kafka's batches; concatenated, it is what a consumer gets.

    Whole batches, from the one that holds `start_offset` on, about `bytes_max` at most and always
    the first: consumers skip earlier records, and ask again behind the last batch. Base offsets
    are set, and large batches not copied. Where compaction left no records behind the last
    batch, an empty one ends at `end_offset`, so that a consumer reaches the end of the log.
    """
    found: list[Data] = []
    left, reached = bytes_max, fetched.start_offset
    for piece in fetched.slices:
        spans = _spans(piece, fetched.start_offset)
        fitting = _fitting(spans, left) or ([] if found else spans[:1])
        found += _placed(memoryview(piece.data), fitting)
        if len(fitting) < len(spans):
            return found
        if spans:
            left -= spans[-1].end - spans[0].start
            reached = spans[-1].end_offset
    while reached < fetched.end_offset:
        end = min(fetched.end_offset, reached + SPAN_MAX)
        found.append(_nothing(reached, end))
        reached = end
    return found


class _Span(NamedTuple):
    """Where a batch of a slice is, and the offsets that it gets."""

    start: int
    end: int
    base_offset: int
    end_offset: int


def _spans(piece: StoredSlice, start_offset: int) -> list[_Span]:
    """Return the batches of a slice from the one that holds `start_offset` on."""
    found = []
    base = piece.base_offset
    for start, end, header in layout.headers(piece.data):
        if piece.offsets is not None:
            base = header.base_offset
        span = _Span(start, end, base, base + header.last_delta + 1)
        if span.end_offset > start_offset:
            found.append(span)
        base = span.end_offset
    return found


def _fitting(spans: Sequence[_Span], bytes_max: int) -> Sequence[_Span]:
    first = spans[0].start if spans else 0
    return spans[: bisect_right(spans, first + bytes_max, key=lambda span: span.end)]


def _placed(data: memoryview, spans: Sequence[_Span]) -> list[Data]:
    """Return adjacent batches of a slice with their base offsets and leader epoch 0.

    Neither is in a batch's checksum, so producers' batches stay as they are.
    """
    if len(spans) == 1:
        return [_front(spans[0]), data[spans[0].start + _FRONT.size : spans[0].end]]
    if not spans:
        return []
    first = spans[0].start
    copy = bytearray(data[first : spans[-1].end])
    for span in spans:
        copy[span.start - first : span.start - first + _FRONT.size] = _front(span)
    return [memoryview(copy)]


def _front(span: _Span) -> bytes:
    return _FRONT.pack(span.base_offset, span.end - span.start - layout.PREFIX_BYTES, 0)


def _nothing(start_offset: int, end_offset: int) -> bytes:
    """Return a batch that covers offsets and has no records, as compaction in Kafka leaves it."""
    header = layout.BatchHeader(
        base_offset=start_offset,
        length=0,
        leader_epoch=0,
        magic=layout.MAGIC,
        crc=0,
        attributes=0,
        last_delta=end_offset - start_offset - 1,
        base_ms=-1,
        max_ms=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=0,
    )
    return bytes(layout.sealed(header, b""))
