"""Compacted segments of one partition, as the index lists them.

    root ── covers       by partition: from which offset on the pages and the head are asked
         └─ compacted    by partition: a `.segments` object, which lists what is below that

Below `covers` only these segments count. Entries that pages still have for offsets there are
ignored, and the hot segments they name may be swept once nothing else refers to them. `covers`
never reaches into the runs of the head, since runs are rolled into the index before they are
compacted: a reader that only tails the log need not read the root.

A segment covers the offsets from `start_offset` to `end_offset`. Not all of them need to have a
record: compaction by key removes some. Segments follow each other without overlap, and a stretch
that none of them covers has no records at all.

The footer of a segment says where its row groups are; the size and checksum of the footer are
here. Fields are only ever added at the end, with a default.
"""

from typing import Final

import msgspec

from storage import keys
from storage.formats import frames
from storage.formats.partitions import PartitionNumber
from storage.formats.zone_sets import ZoneSet

_MAGIC: Final = b"RSL1"


class Segment(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    object_id: bytes
    partition: PartitionNumber
    """Of the topic, not of the lane. Part of its key."""
    first_offset: int
    """Of its first record. Part of its key."""
    start_offset: int
    end_offset: int
    record_count: int
    """At least one: a stretch without records needs no segment."""
    size_bytes: int
    footer_bytes: int
    """Size of the footer at its end, including the footer's length and the magic word."""
    footer_crc: int
    min_ms: int
    max_ms: int
    zones: ZoneSet
    """Those of the head's `zones` that held it when it was committed."""
    written_ms: int
    tombstones: int = 0
    """How many of its records have a key and no value."""

    def key(self, topic_id: bytes) -> str:
        return keys.compacted_segment(topic_id, self.partition, self.first_offset, self.object_id)


class Cleaned(msgspec.Struct, array_like=True, frozen=True):
    """Everything before `end_offset` went through a compaction by key at `at_ms` or before."""

    end_offset: int
    at_ms: int


class SegmentList(msgspec.Struct, array_like=True, frozen=True):
    segments: tuple[Segment, ...] = ()
    """In the order of their offsets."""
    cleaned: tuple[Cleaned, ...] = ()
    """Ordered by end offset, which grows with time. A tombstone may be removed
    `delete.retention.ms` after the first entry that includes it, so of the entries older than
    that only the last is kept."""

    @property
    def clean_end(self) -> int:
        """The offset before which a compaction by key has seen every record."""
        return self.cleaned[-1].end_offset if self.cleaned else 0


_DECODER: Final = msgspec.msgpack.Decoder(SegmentList)


def encode(segments: SegmentList) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(segments))


def decode(data: bytes) -> SegmentList:
    """Return the list, or raise `Corrupt` if `data` is not what `encode` gave."""
    return frames.unpack(_MAGIC, data, _DECODER, "a list of segments")
