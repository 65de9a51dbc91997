"""Where records are stored, as reported by the gateway, and which ranges a read needs.

A range is a byte range of one object: a slice of Arrow or of Kafka's batches, whose offsets are
dense, or a row group of a Parquet file, whose offsets are a column. Nothing here does I/O.
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
    joint_url: str = ""
    """For this range and those directly behind it up to `joint_end`, if there are any."""
    joint_end: int = 0
    data_key: int = 0
    """The number of the topic's data key that opens it; 0: it is not sealed."""

    @property
    def is_parquet(self) -> bool:
        return self.format.startswith("parquet")

    @property
    def is_kafka(self) -> bool:
        return self.format.startswith("kafka")

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

    A row group is a run of its own: it is large enough. So is a range with a URL of its own, unless
    it has a joint URL and all ranges of that are there.
    """
    position = 0
    while position < len(ranges):
        count = _joint_count(ranges, position) or _adjacent_count(ranges, position)
        yield [*ranges[position : position + count]]
        position += count


def url_of(run: Sequence[StoredRange]) -> str:
    """Return the URL that gives all ranges of a run."""
    return run[0].joint_url if len(run) > 1 and run[0].joint_url else run[0].url


def _joint_count(ranges: Sequence[StoredRange], position: int) -> int:
    """Return how many ranges the joint URL of one gives; 0 if it has none, or some are not here."""
    first = last = ranges[position]
    if not first.joint_url:
        return 0
    for count, each in enumerate(ranges[position + 1 :], 2):
        if (
            each.start != last.end
            or each.base_offset != last.end_offset
            or _object(each) != _object(first)
        ):
            return 0
        if each.end == first.joint_end:
            return count
        last = each
    return 0


def _object(each: StoredRange) -> str:
    return each.url.partition("?")[0]


def _adjacent_count(ranges: Sequence[StoredRange], position: int) -> int:
    first = last = ranges[position]
    for count, each in enumerate(ranges[position + 1 :], 1):
        if (
            each.is_parquet
            or each.url != last.url
            or each.start != last.end
            or count == GROUP_RANGES
            or each.end - first.start > GROUP_BYTES
        ):
            return count
        last = each
    return len(ranges) - position
