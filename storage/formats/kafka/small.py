"""The records of a small batch, one by one: below `FEW` this is quicker than whole columns."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from storage.formats.kafka.layout import Malformed
from storage.formats.kafka.varints import LONG_BYTES, read_one
from storage.formats.kafka.walk import HEADER_ENTRY_BYTES_MIN, RECORD_BYTES_MIN

FEW: Final = 64
"""From this many records on, whole columns are quicker."""


class SmallRecord(NamedTuple):
    """A record, its time and offset less those of the batch."""

    time_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @property
    def size_bytes(self) -> int:
        """The size of key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += len(name.encode()) + len(value or b"")
        return size


def records(body: bytes, count: int) -> Iterator[SmallRecord]:
    """Yield the records, or raise `Malformed`."""
    if not 0 < count <= len(body) // RECORD_BYTES_MIN:
        raise Malformed(f"{len(body)} bytes cannot be {count} records")
    at = 0
    try:
        for _ in range(count):
            length, at = read_one(body, at)
            end = at + length
            record, at = _record(body, at, end)
            if at != end:
                raise Malformed("the parts of a record are not as long as the record")
            yield record
    except IndexError:
        raise Malformed("the records end before the last") from None
    except UnicodeDecodeError as error:
        raise Malformed("the key of a header is not UTF-8") from error
    if at != len(body):
        raise Malformed("there are bytes after the last record")


def _record(body: bytes, at: int, end: int) -> tuple[SmallRecord, int]:
    time_delta, at = read_one(body, at + 1, LONG_BYTES)
    offset_delta, at = read_one(body, at)
    key, at = _bytes(body, at, end)
    value, at = _bytes(body, at, end)
    many, at = read_one(body, at)
    if not 0 <= many <= max(0, end - at) // HEADER_ENTRY_BYTES_MIN:
        raise Malformed("a record has no room for the headers that it claims")
    headers = []
    for _ in range(many):
        name, at = _bytes(body, at, end)
        if name is None:
            raise Malformed("the key of a header is null")
        content, at = _bytes(body, at, end)
        headers.append((name.decode(), content))
    return SmallRecord(time_delta, offset_delta, key, value, headers), at


def _bytes(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size = body[at] >> 1
    if body[at] & 0x81:
        size, at = read_one(body, at)
        if size < 0:
            if size < -1:
                raise Malformed("a key or a value has a negative length")
            return None, at
    else:
        at += 1
    if size > end - at:
        raise Malformed("a key or a value is longer than its record")
    return body[at : at + size], at + size
