"""Records as bytes, and as one line that says all of them.

A value begins with a name that is unique in its run, by which the rules know the record; behind a
bar follows padding. So records have all sizes, and histories stay small.
"""

import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from aiokafka.record.memory_records import MemoryRecords

from storage.formats.kafka.batches import recompressed
from storage.formats.kafka.compression import COMPRESSIONS
from storage.reading.fetched import Data
from tests.service.kafka.cluster import batch

_BAR: Final = b"|"
UNPACKED_BYTES_MAX: Final = 1 << 24

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Content:
    """What a client sends as a record."""

    stamp_ms: int
    key: bytes | None
    value: bytes
    headers: Sequence[Header] = ()

    @property
    def line(self) -> str:
        return line_of(self.stamp_ms, self.key, self.value, self.headers)


def name_of(value: bytes) -> str:
    """Return what the rules call the record with this value."""
    return value.partition(_BAR)[0].decode()


def line_of(
    stamp_ms: int, key: bytes | None, value: bytes | None, headers: Iterable[Header]
) -> str:
    """Return a line that differs if anything of the record does."""
    padding = None if value is None else (len(value), zlib.crc32(value))
    return f"{stamp_ms} {key!r} {padding} {[*headers]}"


class Maker:
    """Makes up records."""

    def __init__(self, chance: random.Random, padding_bytes_max: int) -> None:
        self._chance = chance
        self._padding_bytes_max = padding_bytes_max

    def content(self, name: str, stamp_ms: int) -> Content:
        chance = self._chance
        value = name.encode()
        if self._padding_bytes_max and chance.random() < 0.5:
            length = chance.randint(0, self._padding_bytes_max)
            # Half of it repeats, so that codecs find something to do.
            noise = chance.randbytes(length // 2).replace(_BAR, b".")
            value += _BAR + noise + bytes(length - length // 2)
        key = None if chance.random() < 0.3 else chance.randbytes(chance.choice([0, 3, 20]))
        headers: list[Header] = []
        if chance.random() < 0.4:
            for _ in range(chance.randint(1, 4)):
                content = chance.choice([None, b"", b"\xff\x00", b"text"])
                headers.append((chance.choice(["a", "a", "", "ключ"]), content))
        return Content(stamp_ms - chance.choice([0, 0, 1, 50]), key, value, headers)


def encoded(
    contents: Sequence[Content], codec: int, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytes:
    """Return the records as one batch of format v2."""
    headers: Any = {n: [*each.headers] for n, each in enumerate(contents) if each.headers}
    plain = batch(
        *(each.value for each in contents),
        keys=[each.key for each in contents],
        stamps=[each.stamp_ms for each in contents],
        producer=producer,
        headers=headers,
    )
    if not codec:
        return plain
    # With our own codecs: those of Python write the time into gzip, and no run would be repeated.
    return recompressed(plain, COMPRESSIONS[codec], decompressed_bytes_max=UNPACKED_BYTES_MAX)


@dataclass(frozen=True)
class Found:
    """A record that was read."""

    offset: int
    name: str
    line: str


def decoded(batches: Data) -> tuple[list[Found], int | None]:
    """Return the records of batches as another library reads them, and the offset behind them."""
    data = recompressed(batches, "none", decompressed_bytes_max=UNPACKED_BYTES_MAX)
    found: list[Found] = []
    following: int | None = None
    records = MemoryRecords(data)
    while records.has_next():
        one: Any = records.next_batch()
        assert one.validate_crc(), "a checksum is wrong"
        for record in one:
            line = line_of(record.timestamp, record.key, record.value, record.headers)
            found.append(Found(record.offset, name_of(record.value or b""), line))
        following = one.next_offset
    return found, following


def of_arrow(offsets: Sequence[int], records: pa.RecordBatch) -> list[Found]:
    """Return records as clients of HTTP read them."""
    stamps, keys, values, headers = (column.to_pylist() for column in records.columns)
    return [
        Found(
            offset,
            name_of(value or b""),
            line_of(stamp, key, value, [(h["key"], h["value"]) for h in pairs or ()]),
        )
        for offset, stamp, key, value, pairs in zip(
            offsets, stamps, keys, values, headers, strict=True
        )
    ]
