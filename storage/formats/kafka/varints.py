"""Kafka's varints, many at once: zigzag, seven bits a byte, the lowest first."""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storage.formats.kafka.layout import Malformed

Ints: TypeAlias = NDArray[np.int64]
Octets: TypeAlias = NDArray[np.uint8]

INT_BYTES: Final = 5
LONG_BYTES: Final = 10


def read_one(data: bytes | memoryview, at: int, bytes_max: int = INT_BYTES) -> tuple[int, int]:
    """Return the number at `at` and where the next thing begins."""
    raw = 0
    for shift in range(0, 7 * bytes_max, 7):
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            _check_width(raw, bytes_max)
            return (raw >> 1) ^ -(raw & 1), at
    raise Malformed("a varint is too long")


def _check_width(raw: int, bytes_max: int) -> None:
    if raw >> (32 if bytes_max == INT_BYTES else 64):
        raise Malformed("a varint is too large")


def read(octets: Octets, at: Ints, bytes_max: int = INT_BYTES) -> tuple[Ints, Ints]:
    """Return the number at each place, and where the next thing begins.

    Reading beyond the end gives nonsense, with ends that lie beyond the end.
    """
    first = octets.take(at, mode="clip").astype(np.uint64)
    following = at + 1
    longer = np.flatnonzero(first >= 0x80)
    if len(longer):
        first &= 0x7F
        _read_longer(octets, first, following, longer, bytes_max)
    value = (first >> np.uint64(1)).view(np.int64)
    value ^= -(first & np.uint64(1)).view(np.int64)
    return value, following


def _read_longer(
    octets: Octets, raw: NDArray[np.uint64], following: Ints, rows: Ints, bytes_max: int
) -> None:
    for index in range(1, bytes_max):
        byte = octets.take(following[rows], mode="clip").astype(np.uint64)
        raw[rows] |= (byte & np.uint64(0x7F)) << np.uint64(7 * index)
        following[rows] += 1
        more = byte >= 0x80
        # The last byte of a long has room for one bit, that of an int for four.
        if index == bytes_max - 1 and (byte > (1 if bytes_max == LONG_BYTES else 0x0F)).any():
            raise Malformed("a varint is too large")
        rows = rows[more]
        if not len(rows):
            return


def write_one(value: int) -> bytes:
    """Return the bytes of a number."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def sizes(values: Ints) -> Ints:
    """Return how many bytes each number takes."""
    raw = _zigzag(values)
    count = np.ones(len(values), np.int64)
    limit = 7
    while limit < 64 and (above := raw >= np.uint64(1 << limit)).any():
        count += above
        limit += 7
    return count


def write(octets: Octets, at: Ints, values: Ints) -> Ints:
    """Write each number at its place; return where the next thing begins."""
    raw = _zigzag(values)
    following = at + 1
    if not len(raw) or raw.max() < 0x80:
        octets[at] = raw
        return following
    rows: Ints | None = None
    while True:
        more = raw >= np.uint64(0x80)
        octets[at] = np.where(more, raw & np.uint64(0x7F) | np.uint64(0x80), raw)
        left = np.flatnonzero(more)
        rows = left if rows is None else rows[left]
        if not len(rows):
            return following
        following[rows] += 1
        at, raw = at[left] + 1, raw[left] >> np.uint64(7)


def _zigzag(values: Ints) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)
