"""Where records are stored, as reported by the gateway, and which ranges a read needs.

A range is a byte range of one object: an Arrow slice, whose offsets are dense, or a row group of
a Parquet file, whose offsets are a column. Nothing here does I/O.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

GROUP_BYTES: Final = 8 * 1024 * 1024
"""Approximate maximum of bytes per request."""
GROUP_RANGES: Final = 32
"""Maximum slices per request; each has some 256 KiB before compression."""

ANY: Final = 2**63 - 1


class StoredRange(msgspec.Struct, frozen=True, kw_only=True):
    """Part of an object, with the smallest and the largest timestamp of its records."""

    base_offset: int
    end_offset: int
    count: int
    format: str
    url: str
    start: int
    end: int
    crc32c: int
    min_timestamp: int
    max_timestamp: int
    row_group: int = -1
    footer_start: int = 0
    footer_end: int = 0
    footer_crc32c: int = 0

    @property
    def is_parquet(self) -> bool:
        return self.format == "parquet"

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def is_in_url(self) -> bool:
        """Whether the bytes are in the URL, because they are too new to be in a bucket."""
        return self.url.startswith("data:")


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """The stored ranges from an offset up to `next_offset`."""

    segments: list[StoredRange]
    next_offset: int
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The records that pass the filters. Times are only used to skip whole ranges."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_min: int = 0
    partition_max: int = ANY
    start: int = 0
    end: int = ANY
    min_ms: int = -ANY
    max_ms: int = ANY

    def takes(self, topic: str, partition: int) -> bool:
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and self.partition_min <= partition <= self.partition_max
        )

    def within(self, *, start: int = 0, end: int = ANY) -> "Bounds":
        """Return these bounds restricted to the given offsets as well."""
        return replace(self, start=max(self.start, start), end=min(self.end, end))


EVERYTHING: Final = Bounds()


def wanted(ranges: Iterable[StoredRange], bounds: Bounds) -> list[StoredRange]:
    """Return the `ranges` that may hold records within `bounds`."""
    return [
        each
        for each in ranges
        if each.end_offset > bounds.start
        and each.base_offset < bounds.end
        and each.max_timestamp >= bounds.min_ms
        and each.min_timestamp <= bounds.max_ms
    ]


def groups(ranges: Sequence[StoredRange]) -> Iterator[list[StoredRange]]:
    """Yield runs of ranges that are adjacent in one object, to be read with one request.

    A row group is a run of its own: it is large enough.
    """
    run: list[StoredRange] = []
    for each in ranges:
        if run and not _belongs(run, each):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _belongs(run: Sequence[StoredRange], each: StoredRange) -> bool:
    last = run[-1]
    return (
        not each.is_parquet
        and each.url == last.url
        and each.start == last.end
        and len(run) < GROUP_RANGES
        and each.end - run[0].start <= GROUP_BYTES
    )
