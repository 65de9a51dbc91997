"""Where records are stored, as the gateway tells it, and which of that a read wants.

A range is a stretch of bytes of one object: an Arrow slice, whose offsets are dense, or a row
group of a Parquet file, whose offsets are a column. Everything here only computes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

GROUP_BYTES: Final = 8 * 1024 * 1024
"""As much is read with one request, at most about."""
GROUP_RANGES: Final = 32
"""As many slices are read with one request; each has some 256 KiB before compression."""

ANY: Final = 2**63 - 1


class StoredRange(msgspec.Struct, frozen=True, kw_only=True):
    """Part of an object; times are the smallest and the largest of its records."""

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
        """Whether the bytes are in the URL: they were written last, and are in no bucket yet."""
        return self.url.startswith("data:")


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored from an offset up to `next_offset`."""

    segments: list[StoredRange]
    next_offset: int
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What filters leave of all records. Times are only used to leave out whole ranges."""

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
        """Return what is left if also only these offsets are wanted."""
        return replace(self, start=max(self.start, start), end=min(self.end, end))


EVERYTHING: Final = Bounds()


def wanted(ranges: Iterable[StoredRange], bounds: Bounds) -> list[StoredRange]:
    """Return those of `ranges` that may hold records within `bounds`."""
    return [
        each
        for each in ranges
        if each.end_offset > bounds.start
        and each.base_offset < bounds.end
        and each.max_timestamp >= bounds.min_ms
        and each.min_timestamp <= bounds.max_ms
    ]


def groups(ranges: Sequence[StoredRange]) -> Iterator[list[StoredRange]]:
    """Yield runs of ranges that lie next to each other in one object, to be read at once.

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
