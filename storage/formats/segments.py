"""Hot segments: slices of many partitions, written as one object.

    segment  = "RSG1" 0 0 0 0  slice*  footer  trailer
    footer   = msgpack array of rows, one for each slice in the order of their bytes:
               [topic id, partition, position, length, count, min ms, max ms, crc32c]
    trailer  = length of the footer (u32)  crc32c of the footer (u32)  "RSG1"

Integers of the trailer are little-endian. Serving never reads the footer: an index entry
says where a slice is and what its checksum is. The footer is for tools that have only the
bucket: fsck, salvage, inspection. Stored data keeps this layout for as long as it exists:
never change it, add "RSG2".
"""

import struct
from collections.abc import Iterable
from typing import Final

import msgspec
from crc32c import crc32c

from storage.errors import Corrupt
from storage.formats import frames
from storage.formats.partitions import PartitionNumber
from storage.formats.slices import Slice
from storage.stores.objects import Piece

_MAGIC: Final = b"RSG1"
_HEADER: Final = _MAGIC + bytes(4)
_TRAILER: Final = struct.Struct("<II4s")

FIRST_POSITION: Final = len(_HEADER)
"""Where the first slice begins."""


class FooterRow(msgspec.Struct, array_like=True, frozen=True):
    topic_id: bytes
    partition: PartitionNumber
    position: int
    length: int
    count: int
    min_ms: int
    max_ms: int
    crc: int


_FOOTER: Final = msgspec.msgpack.Decoder(list[FooterRow])


def encode(parts: Iterable[tuple[bytes, PartitionNumber, Slice]]) -> list[Piece]:
    """Return the pieces of a segment that holds the slices of (topic id, partition) in order."""
    pieces: list[Piece] = [_HEADER]
    rows = []
    position = FIRST_POSITION
    for topic_id, partition, piece in parts:
        length = len(piece.data)
        rows.append(
            FooterRow(
                topic_id,
                partition,
                position,
                length,
                piece.count,
                piece.min_ms,
                piece.max_ms,
                piece.crc,
            )
        )
        pieces.append(piece.data)
        position += length
    footer = msgspec.msgpack.encode(rows)
    pieces.append(footer + _TRAILER.pack(len(footer), crc32c(footer), _MAGIC))
    return pieces


def footer(segment: bytes) -> list[FooterRow]:
    """Return what `segment` holds, after comparing every checksum; raise `Corrupt` otherwise."""
    if len(segment) < len(_HEADER) + _TRAILER.size or not segment.startswith(_HEADER):
        raise Corrupt("not a hot segment: its beginning is damaged")
    length, checksum, magic = _TRAILER.unpack_from(segment, len(segment) - _TRAILER.size)
    end = len(segment) - _TRAILER.size
    encoded = memoryview(segment)[max(0, end - length) : end]
    if magic != _MAGIC or len(encoded) != length or crc32c(encoded) != checksum:
        raise Corrupt("the footer of a hot segment is damaged")
    rows = frames.decoded(encoded, _FOOTER, "the footer of a hot segment")
    position = FIRST_POSITION
    for row in rows:
        data = memoryview(segment)[row.position : row.position + row.length]
        if row.position != position or len(data) != row.length or crc32c(data) != row.crc:
            raise Corrupt(f"the slice at {row.position} of a hot segment is damaged")
        position += row.length
    if position != end - length:
        raise Corrupt("a hot segment holds bytes that its footer does not mention")
    return rows


def verified(segment: bytes) -> bytes:
    """Return `segment` itself, or raise `Corrupt` if it is not what was written."""
    footer(segment)
    return segment
