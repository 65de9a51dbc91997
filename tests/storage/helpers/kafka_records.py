"""Records as a Kafka client makes them and sees them, by another implementation than ours."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from storage.formats.kafka import compression, layout
from storage.formats.kafka.batches import Batches, check
from storage.formats.kafka.compression import COMPRESSIONS, Compression

LIMIT = 10**8


@dataclass(frozen=True, slots=True)
class Kept:
    """A record, and its offset once it has one."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1


VARIED = [
    Kept(1_700_000_000_000, b"k", b"v"),
    Kept(1_700_000_000_007, b"", b""),
    Kept(1_700_000_000_003, b"only a key", None),
    Kept(1_700_000_000_003, b"\xff\x00", b"\xfe", (("h", b"1"), ("h", b"2"), ("\u00e9", None))),
    Kept(1_700_000_000_009, "k\u00fc".encode(), b"{}" * 300, (("empty", b""),)),
]
"""Every case that one of the readers could get wrong; each has a key."""


def made(
    records: Sequence[Kept],
    codec: Compression = "none",
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return a batch of the records; `producer` is id, epoch and first sequence."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=LIMIT,
    )
    for number, each in enumerate(records):
        assert builder.append(number, each.timestamp, each.key, each.value, list(each.headers))
    return packed(bytes(builder.build()), codec)


def packed(batch: bytes, codec: Compression) -> bytes:
    """Return an uncompressed batch compressed."""
    if codec == "none":
        return batch
    body = compression.pack(codec, batch[layout.HEADER_BYTES :])
    front = bytearray(batch[: layout.HEADER_BYTES])
    length = layout.HEADER_BYTES - layout.PREFIX_BYTES + len(body)
    struct.pack_into(">i", front, 8, length)
    struct.pack_into(">h", front, layout.CHECKED_FROM, COMPRESSIONS.index(codec))
    whole = bytes(front) + body
    return whole[:17] + struct.pack(">I", layout.crc_of(whole)) + whole[layout.CHECKED_FROM :]


def checked(data: bytes) -> Batches:
    return check(
        memoryview(data), record_bytes_max=LIMIT, needs_keys=False, decompressed_bytes_max=LIMIT
    )


def batch_of(
    records: Sequence[Kept],
    codec: Compression = "none",
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> Batches:
    return checked(made(records, codec, producer=producer))


def seen(pieces: Iterable[bytes | memoryview]) -> tuple[list[Kept], int]:
    """Return the records of what a consumer got, and the offset that it asks for next."""
    data = b"".join(pieces)
    found: list[Kept] = []
    following = -1
    for start, end, header in layout.headers(data):
        assert header.leader_epoch == 0
        assert header.crc == layout.crc_of(data[start:end])
        following = header.base_offset + header.last_delta + 1
        codec = COMPRESSIONS[header.attributes & layout.CODEC_BITS]
        body = compression.unpack(codec, data[start + layout.HEADER_BYTES : end], LIMIT)
        plain = bytearray(data[start : start + layout.HEADER_BYTES]) + bytes(body)
        struct.pack_into(">i", plain, 8, len(plain) - layout.PREFIX_BYTES)
        struct.pack_into(">h", plain, layout.CHECKED_FROM, header.attributes & ~layout.CODEC_BITS)
        if header.records:
            found += [
                Kept(each.timestamp, each.key, each.value, tuple(each.headers), each.offset)
                for each in DefaultRecordBatch(bytes(plain))
            ]
    return found, following


def rows(batch: pa.RecordBatch, offsets: Iterable[int]) -> list[Kept]:
    return [
        Kept(
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((each["key"], each["value"]) for each in row["headers"] or ()),
            offset,
        )
        for offset, row in zip(offsets, batch.to_pylist(), strict=True)
    ]
