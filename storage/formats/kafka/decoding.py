"""Stored batches to Arrow, for readers of other doors and for compaction."""

from typing import Final

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from storage.errors import Corrupt
from storage.formats.kafka import layout
from storage.formats.kafka.columns import record_batch_of
from storage.formats.kafka.compression import COMPRESSIONS, Bytes, unpack
from storage.formats.kafka.layout import HEADER_BYTES, BatchHeader, Malformed
from storage.formats.kafka.small import FEW, SmallRecord, records
from storage.formats.kafka.walk import walk
from storage.formats.records import Header, record_batch

UNPACKED_BYTES_MAX: Final = 2**31 - 1
"""Of one batch: what was checked when it was written, and what Arrow's offsets can count."""


def decode(data: Bytes, crc: int | None = None) -> pa.RecordBatch:
    """Return the records of a slice: adjacent batches of one partition.

    Raises `Corrupt` if the bytes are not what was stored. `crc` is the checksum of the slice;
    None: it was compared when it was read.
    """
    if crc is not None and crc32c(data) != crc:
        raise Corrupt("the checksum of a slice does not match")
    pieces = _Pieces()
    try:
        for start, end, header in layout.headers(data):
            pieces.add(header, memoryview(data)[start + HEADER_BYTES : end])
        return pieces.joined()
    except Malformed as error:
        raise Corrupt(f"not a slice of batches: {error}") from error


class _Pieces:
    """Records in order: small batches gather until a large one comes."""

    def __init__(self) -> None:
        self._done: list[pa.RecordBatch] = []
        self._few: list[SmallRecord] = []
        self._stamps: list[int] = []

    def add(self, header: BatchHeader, packed: memoryview) -> None:
        number = header.attributes & layout.CODEC_BITS
        if number >= len(COMPRESSIONS):
            raise Malformed(f"compression type {number}")
        body = bytes(unpack(COMPRESSIONS[number], packed, UNPACKED_BYTES_MAX))
        appended = bool(header.attributes & layout.LOG_APPEND_TIME)
        if header.records < FEW:
            for each in records(body, header.records):
                self._few.append(each)
                self._stamps.append(
                    header.max_ms if appended else _in_range(header.base_ms + each.time_delta)
                )
            return
        self._close()
        walked = walk(body, header.records)
        stamps = (
            np.full(header.records, header.max_ms, np.int64)
            if appended
            else walked.time_delta + header.base_ms
        )
        self._done.append(record_batch_of(body, walked, stamps))

    def _close(self) -> None:
        few, stamps = self._few, self._stamps
        if few:
            self._few, self._stamps = [], []
            headers = [_named(each) for each in few] if any(each.headers for each in few) else None
            self._done.append(
                record_batch(
                    stamps, [each.key for each in few], [each.value for each in few], headers
                )
            )

    def joined(self) -> pa.RecordBatch:
        self._close()
        if not self._done:
            raise Malformed("there is no batch")
        if len(self._done) == 1:
            return self._done[0]
        table = pa.Table.from_batches(self._done)
        [batch] = table.combine_chunks().to_batches()
        return batch


def _in_range(stamp: int) -> int:
    if not -(2**63) <= stamp < 2**63:
        raise Malformed("a timestamp is out of range")
    return stamp


def _named(record: SmallRecord) -> list[Header] | None:
    return [{"key": name, "value": value} for name, value in record.headers] or None
