"""Where records of a partition are stored, for clients that read them without the gateway."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from storage.formats.entries import Entry
from storage.formats.partitions import LanePartition
from storage.head.head import Head
from storage.reading.fetched import Data
from storage.reading.reader import LogReader, SliceKey

TABLE_BYTES_MAX: Final = 1024 * 1024
"""Approximate maximum bytes of table slices in one answer: they are included, having no address."""


@dataclass(frozen=True, slots=True)
class Located:
    entries: list[Entry]
    next_offset: int
    """Where to continue; at or after `end`, or the end of the log, if there is no more."""
    head: Head
    local: LanePartition
    """The partition within its lane."""
    in_table: Mapping[SliceKey, Data]
    """The bytes of slices that are not in a bucket yet."""


async def locate(
    reader: LogReader,
    head: Head,
    *,
    local: LanePartition,
    offset: int | None,
    end: int | None,
    limit: int,
) -> Located:
    """Return where the records from `offset` to `end` (default: all) are; at most `limit` entries.

    Raises `ObjectMissing` if the head is stale and they have moved since.
    """
    start = head.log_starts[local] if offset is None else offset
    stop = head.next_offsets[local] if end is None else end
    entries, next_offset = await reader.locate(head, local, start, stop, limit)
    kept = _within(entries)
    if len(kept) < len(entries):
        entries, next_offset = kept, kept[-1].end_offset
    return Located(entries, next_offset, head, local, await reader.in_table(head, entries))


def _within(entries: list[Entry]) -> list[Entry]:
    """Return the leading entries whose table bytes fit into the limit, at least one."""
    size_bytes = 0
    for number, entry in enumerate(entries):
        size_bytes += entry.length if entry.is_in_table else 0
        if number and size_bytes > TABLE_BYTES_MAX:
            return entries[:number]
    return entries
