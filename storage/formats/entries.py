"""Index entries: where the records of one stretch of a partition are."""

from enum import IntEnum
from typing import Final, NamedTuple

from storage.formats.partitions import LanePartition
from storage.formats.segment_list import Segment
from storage.formats.zone_sets import ZoneSet


class Kind(IntEnum):
    """How the bytes an entry points to are encoded. Numbers are stored: never reuse one."""

    ARROW = 0
    PARQUET = 1
    TABLE = 2
    """An Arrow slice in the metadata table (storage/reading/table_batches.py); only in a head."""

    KAFKA = 3
    """Kafka's v2 record batches as they came, one or several (docs/decisions/0042)."""

    TABLE_KAFKA = 4
    """The same, in the metadata table; only in a head."""

    ARROW_SEALED = 16
    PARQUET_SEALED = 17
    TABLE_SEALED = 18
    KAFKA_SEALED = 19
    TABLE_KAFKA_SEALED = 20
    """The same, sealed with a data key of the topic (storage/crypto/envelope.py)."""


SEALED: Final = 16
"""What distinguishes a sealed kind from the one that it becomes when it is opened."""

_TABLE_KINDS: Final = {Kind.ARROW: Kind.TABLE, Kind.KAFKA: Kind.TABLE_KAFKA}
"""By the kind of a slice in an object, its kind in the table. Neither is sealed."""

_OBJECT_KINDS: Final = {int(table): int(kind) for kind, table in _TABLE_KINDS.items()}


def _and_sealed(*kinds: Kind) -> frozenset[int]:
    return frozenset([*map(int, kinds), *(kind + SEALED for kind in kinds)])


IN_TABLE: Final = _and_sealed(Kind.TABLE, Kind.TABLE_KAFKA)
ROW_GROUPS: Final = _and_sealed(Kind.PARQUET)
OBJECT_SLICES: Final = _and_sealed(Kind.ARROW, Kind.KAFKA)
SLICES: Final = OBJECT_SLICES | IN_TABLE
KAFKA_SLICES: Final = _and_sealed(Kind.KAFKA, Kind.TABLE_KAFKA)


def in_table(kind: int) -> int:
    """Return the kind of a slice in an object once it is in the table; sealed stays sealed."""
    return int(_TABLE_KINDS[Kind(kind & ~SEALED)]) | kind & SEALED


def in_object(kind: int) -> int:
    """Return the kind of a slice in the table once it is in an object; sealed stays sealed."""
    return _OBJECT_KINDS[kind & ~SEALED] | kind & SEALED


class Entry(NamedTuple):
    """Some bytes of an object, and the offsets and timestamps of the records in them.

    Entries of a partition are ordered by `end_offset` and looked up by ceiling: the entry
    for an offset is the first one that ends after it.

    A slice is an entry of a page or of the head. A row group of a compacted segment is an entry
    made from the segment's own footer; it has a `segment`, and some of the offsets it covers may
    have no record.
    """

    partition: LanePartition
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
    zones: ZoneSet
    data_key: int = 0
    """The number of the topic's data key that it is sealed with; 0: it is not sealed."""

    segment: Segment | None = None
    """Only of a row group. This field and those below are not stored in pages."""
    row_group: int = -1
    covers_from: int = -1

    @property
    def is_in_table(self) -> bool:
        return self.kind in IN_TABLE

    @property
    def is_row_group(self) -> bool:
        return self.kind in ROW_GROUPS

    @property
    def is_kafka(self) -> bool:
        return self.kind in KAFKA_SLICES

    @property
    def start_offset(self) -> int:
        """The first offset that this covers; it may have no record."""
        return self.covers_from if self.segment is not None else self.base_offset

    @property
    def base_offset(self) -> int:
        """The first offset of a slice, whose offsets are dense."""
        return self.end_offset - self.record_count


STORED_FIELDS: Final = Entry._fields.index("segment")
"""Number of fields of an entry that a page stores."""
