"""The codecs of batches, in the framings that all clients read, bounded when they unpack.

- gzip, zstd: as their libraries write them.
- snappy: xerial's framing, as Java writes it; raw blocks, as others do, are read as well.
- lz4: frames of blocks that do not depend on each other. Arrow's own frames do not qualify: their
  blocks refer to earlier ones, which the Java client refuses.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from storage.formats.kafka.layout import Malformed

Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]

COMPRESSIONS: Final[tuple[Compression, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their number in the attributes of a batch."""

Bytes: TypeAlias = bytes | bytearray | memoryview

_XERIAL: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC: Final = _XERIAL[:8]
_XERIAL_BLOCK: Final = 32 * 1024
"""What Java's library cuts into; some readers have buffers of this size."""
_LENGTH: Final = struct.Struct(">i")

_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
"""Magic; version 1, independent blocks of up to 64 KiB, no checksums; checksum of these."""
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_PLAIN: Final = 1 << 31
"""Of a block's length: the block is stored as it is, because compressed it would be larger."""

_CHUNK: Final = 256 * 1024
"""Bytes to inflate at once: what a processor's cache holds."""

_ZSTD_SIZE_BYTES: Final = (0, 2, 4, 8)
_ZSTD_DICT_BYTES: Final = (0, 1, 2, 4)


class TooMuch(Malformed):
    """Unpacked, the bytes are more than the caller allows."""


def unpack(codec: Compression, data: Bytes, bytes_max: int) -> bytes | memoryview:
    """Return the unpacked bytes.

    Raises `TooMuch` after at most `bytes_max` and a chunk, and `Malformed` for other damage.
    """
    if codec == "none":
        if len(data) > bytes_max:
            raise TooMuch(f"{len(data)} bytes of records, at most {bytes_max} are allowed")
        return memoryview(data)
    try:
        if codec == "snappy":
            return _unpack_snappy(data, bytes_max)
        if codec == "zstd" and (size := _zstd_size(data)) is not None:
            return _whole(codec, data, size, bytes_max)
        return _inflated(codec, data, bytes_max)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise Malformed(f"not {codec}: {error}") from error


def pack(codec: Compression, data: Bytes) -> bytes:
    """Return `data`, compressed."""
    if codec == "none":
        return bytes(data)
    if codec == "gzip":
        deflate = zlib.compressobj(wbits=31)
        return deflate.compress(data) + deflate.flush()
    if codec == "snappy":
        return _XERIAL + b"".join(_snappy_blocks(data))
    if codec == "lz4":
        return b"".join([_LZ4_HEADER, *_lz4_blocks(data), bytes(4)])
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed


def _inflated(codec: str, data: Bytes, bytes_max: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        while chunk := stream.read(min(_CHUNK, bytes_max + 1 - size)):
            size += len(chunk)
            chunks.append(chunk)
            if size > bytes_max:
                raise TooMuch(f"more than the {bytes_max} bytes of records that are allowed")
    return b"".join(chunks)


def _whole(codec: str, data: Bytes, size: int, bytes_max: int) -> memoryview:
    if size > bytes_max:
        raise TooMuch(f"{size} bytes of records, at most {bytes_max} are allowed")
    # Arrow takes no memoryview, and refuses to make nothing of something.
    source = pa.py_buffer(data)
    return memoryview(pa.decompress(source, decompressed_size=size, codec=codec)) if size else _NONE


_NONE: Final = memoryview(b"")


def _zstd_size(data: Bytes) -> int | None:
    """Return the size that the only frame claims, or None if it has none."""
    if len(data) < 6 or bytes(data[:4]) != b"\x28\xb5\x2f\xfd":
        return None
    flags = data[4]
    single = flags >> 5 & 1
    size_bytes = _ZSTD_SIZE_BYTES[flags >> 6] or single
    if not size_bytes:
        return None
    at = 5 + (not single) + _ZSTD_DICT_BYTES[flags & 3]
    size = int.from_bytes(data[at : at + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    # A second frame may follow the first, which a stream reads and this does not see; an empty
    # one says little about the rest.
    return size or None


def _unpack_snappy(data: Bytes, bytes_max: int) -> bytes | memoryview:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _whole("snappy", data, _snappy_size(data), bytes_max)
    blocks: list[memoryview] = []
    at, left = len(_XERIAL), bytes_max
    while at < len(data):
        [length] = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 < length <= len(data) - at:
            raise Malformed(f"a block of snappy claims {length} bytes")
        block = memoryview(data)[at : at + length]
        blocks.append(_whole("snappy", block, _snappy_size(block), left))
        left -= len(blocks[-1])
        at += length
    return b"".join(blocks)


def _snappy_size(block: Bytes) -> int:
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    raise Malformed("a block of snappy has no size")


def _snappy_blocks(data: Bytes) -> Iterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = pa.compress(view[start : start + _XERIAL_BLOCK], codec="snappy", asbytes=True)
        yield _LENGTH.pack(len(block))
        yield block


def _lz4_blocks(data: Bytes) -> Iterator[bytes | memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK):
        plain = view[start : start + _LZ4_BLOCK]
        block = pa.compress(plain, codec="lz4_raw", asbytes=True)
        if len(block) < len(plain):
            yield struct.pack("<I", len(block))
            yield block
        else:
            yield struct.pack("<I", len(plain) | _LZ4_PLAIN)
            yield plain
