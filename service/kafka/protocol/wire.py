"""What generated readers and writers call: variable integers, tags, arrays of numbers.

A reader gets the bytes `b`, the position `p` and the end. It may read behind the end of `b`, which
raises IndexError or struct.error; everything else that is wrong raises `MalformedFrame`.
"""

import struct
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | memoryview

ELEMENTS_MAX: Final = 100_000
"""Elements of all arrays of one frame, and its tagged fields: an element of three bytes is an
object of a hundred, and takes a microsecond."""

HEADER_TAGS_MAX: Final = 1_000
"""Tagged fields in front of a body; nobody knows any."""

STRING_BYTES_MAX: Final = 32_767
"""Of every string, as in Kafka, also where the layout could hold more."""


class MalformedFrame(Exception):
    """Bytes that are not what they should be; the text says where, and what is wrong.

    There is no reply to them: Kafka, too, closes the connection.
    """


def uvarint(b: Buffer, p: int, first: int) -> tuple[int, int]:
    """Return the integer whose first byte is `first`, and the position behind; `p` is the next."""
    value, shift = first & 127, 7
    while True:
        byte = b[p]
        p += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise MalformedFrame("a variable integer has more than five bytes")
    if value > 0xFFFF_FFFF:
        raise MalformedFrame("a variable integer has more than 32 bits")
    return value, p


def skip_tags(b: Buffer, p: int, end: int, count: int) -> int:
    """Return the position behind `count` tagged fields that nobody knows."""
    if count > (end - p) // 2:
        raise MalformedFrame(f"{count} tagged fields in {end - p} bytes")
    for _ in range(count):
        _, p = number(b, p)
        size, p = number(b, p)
        p += size
        if p > end:
            raise MalformedFrame("a tagged field is longer than the frame")
    return p


def number(b: Buffer, p: int) -> tuple[int, int]:
    """Return the variable integer at `p`, and the position behind it."""
    first = b[p]
    return (first, p + 1) if first < 128 else uvarint(b, p + 1, first)


def too_long(length: int, left: int) -> MalformedFrame:
    """Return the error of a length that the frame cannot hold, or that is below zero."""
    return MalformedFrame(f"a length of {length} where {left} bytes are left")


def too_many(elements: int) -> MalformedFrame:
    return MalformedFrame(f"arrays of {elements} elements, of at most {ELEMENTS_MAX}")


def is_null() -> MalformedFrame:
    return MalformedFrame("null where this version has none")


def uvarint_bytes(value: int) -> bytes:
    """Return `value`, which is not negative, as a variable integer."""
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


ONE_BYTE: Final = tuple(bytes([value]) for value in range(256))


def compact_string(text: str) -> bytes:
    """Return the length and the bytes of `text`."""
    encoded = text.encode()
    size = len(encoded)
    if size < 127:
        return ONE_BYTE[size + 1] + encoded
    if size > STRING_BYTES_MAX:
        raise ValueError(f"a string of {size} bytes, of at most {STRING_BYTES_MAX}")
    return uvarint_bytes(size + 1) + encoded


def legacy_string(text: str) -> bytes:
    """Return the length in two bytes, and the bytes of `text`."""
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def uuid_bytes(value: bytes) -> bytes:
    """Return `value` if it has 16 bytes: `struct` would fill or cut it."""
    if len(value) != 16:
        raise ValueError(f"a UUID of {len(value)} bytes")
    return value


def numbers(code: str, values: list[int]) -> bytes:
    """Return `values` side by side, each as `code` of struct."""
    return struct.pack(f">{len(values)}{code}", *values)
