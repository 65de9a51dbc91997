"""The layout of a batch: 61 bytes, then records, compressed together.

    base offset      int64     position of the first record; written by the log
    length           int32     of all that follows
    leader epoch     int32     written by the log
    magic            int8      2
    crc              uint32    CRC32C of all that follows
    attributes       int16     codec (3 bits), log append time, transactional, control, horizon
    last delta       int32     offset of the last record, less that of the first
    base timestamp   int64
    max timestamp    int64
    producer id      int64     -1: not idempotent
    producer epoch   int16
    base sequence    int32
    count            int32     of records

Integers are big-endian. What the log writes lies in front of the checksum's range, so that a
batch gets its place without being read.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
assert BATCH_HEADER.size == HEADER_BYTES
PREFIX_BYTES: Final = 12
"""Base offset and length: what the length does not count."""
CHECKED_FROM: Final = 21
"""Where the range of the checksum begins."""
MAGIC: Final = 2
MAGIC_AT: Final = 16

CODEC_BITS: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_PREFIX: Final = struct.Struct(">qi")


class Malformed(Exception):
    """The bytes are not batches. Callers say whose fault that is."""


class BatchHeader(NamedTuple):
    """The fields of a batch in front of its records."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    base_ms: int
    max_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def size(self) -> int:
        """The bytes of the whole batch."""
        return PREFIX_BYTES + self.length


class PlacedBatch(NamedTuple):
    """A batch among others, as `headers` finds it."""

    start: int
    end: int
    header: BatchHeader


def headers(data: bytes | bytearray | memoryview) -> Iterator[PlacedBatch]:
    """Yield the header of each batch, or raise `Malformed`. Checks lengths and magic only."""
    start, size = 0, len(data)
    while start < size:
        if size - start < HEADER_BYTES:
            raise Malformed(f"{size - start} bytes are left, a batch has at least {HEADER_BYTES}")
        if data[start + MAGIC_AT] != MAGIC:
            raise Malformed(f"the magic byte is {data[start + MAGIC_AT]}, not {MAGIC}")
        header = BatchHeader._make(BATCH_HEADER.unpack_from(data, start))
        end = start + header.size
        if header.size < HEADER_BYTES or end > size:
            raise Malformed(f"a batch claims {header.size} bytes, {size - start} are left")
        yield PlacedBatch(start, end, header)
        start = end


def crc_of(batch: bytes | bytearray | memoryview) -> int:
    """Return the checksum that the one batch should have."""
    return crc32c(memoryview(batch)[CHECKED_FROM:])


def place(data: bytearray, start: int, base_offset: int, leader_epoch: int) -> None:
    """Write the place of the batch at `start` into its header."""
    struct.pack_into(">q", data, start, base_offset)
    struct.pack_into(">i", data, start + PREFIX_BYTES, leader_epoch)


def seal(data: bytearray, start: int, end: int, header: BatchHeader) -> None:
    """Write `header` to the batch that lies there, with the checksum that it then has."""
    BATCH_HEADER.pack_into(data, start, *header)
    crc = crc32c(memoryview(data)[start + CHECKED_FROM : end])
    struct.pack_into(">I", data, start + MAGIC_AT + 1, crc)


def sealed(header: BatchHeader, body: bytes | memoryview) -> bytearray:
    """Return the batch of these records, with its length and checksum."""
    size = HEADER_BYTES + len(body)
    out = bytearray(size)
    out[HEADER_BYTES:] = body
    seal(out, 0, size, header._replace(length=size - PREFIX_BYTES))
    return out
