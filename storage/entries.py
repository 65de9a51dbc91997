"""Index entries: where the records of one stretch of a partition are."""

from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """How the bytes an entry points to are encoded. Numbers are stored: never reuse one."""

    ARROW = 0
    PARQUET = 1


class Entry(NamedTuple):
    """Some bytes of an object, and the offsets and timestamps of the records in them.

    Entries of a partition are ordered by `end_offset` and looked up by ceiling: the entry
    for an offset is the first one that ends behind it.
    """

    partition: int
    """Within the lane."""
    end_offset: int
    record_count: int
    kind: int
    object_id: bytes
    position: int
    length: int
    min_ms: int
    max_ms: int
    crc: int
    zones: int

    @property
    def base_offset(self) -> int:
        """The first offset; for a slice, whose offsets are dense."""
        return self.end_offset - self.record_count
