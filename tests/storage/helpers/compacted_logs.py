"""Compacted partitions made by hand: a test chooses surviving records, files and row groups."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import pyarrow as pa

from service.log.gateway import Gateway
from storage import keys
from storage.formats import index
from storage.formats.compacted import ROW_GROUP_BYTES, SCHEMA, CompactedWriter
from storage.formats.records import RECORD_SCHEMA
from storage.formats.segment_list import Segment, SegmentList
from storage.head import head as heads
from storage.head.changes import change_head
from storage.head.head import Head
from storage.head.replication import zone_names, zones_named
from storage.head.roots import SavedRoot
from storage.reading.catalog import Catalog
from storage.reading.reader import Budget
from storage.zones.zones import Zones

EVERYTHING = Budget(records_max=10**9, bytes_max=10**9)

Rows = Sequence[tuple[int, Mapping[str, object]]]
"""Offsets, and records as `RecordBatch.to_pylist` gives them."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """One segment: the offsets that it covers, and the records in it."""

    start: int
    end: int
    rows: Rows


def batch_of_rows(rows: Rows) -> pa.RecordBatch:
    """Return the records with their offsets, as a compacted segment has them."""
    records = pa.RecordBatch.from_pylist([dict(record) for _, record in rows], RECORD_SCHEMA)
    offsets = pa.array([offset for offset, _ in rows], pa.int64())
    return pa.RecordBatch.from_arrays([offsets, *records.columns], schema=SCHEMA)


@dataclass(kw_only=True)
class Compactor:
    """Writes segments and roots; the caller commits them."""

    zones: Zones
    catalog: Catalog
    new_id: Callable[[], bytes]
    row_group_bytes: int = ROW_GROUP_BYTES
    lane_partitions: int = 64

    async def segment(self, head: Head, partition: int, stretch: Stretch) -> Segment | None:
        """Write one segment of a partition of the lane; None if it has no records."""
        number = head.lane * self.lane_partitions + partition
        with tempfile.TemporaryDirectory() as directory:
            writer = CompactedWriter(
                Path(directory) / "segment",
                topic_id=head.topic_id,
                partition=number,
                start_offset=stretch.start,
                row_group_bytes=self.row_group_bytes,
            )
            if stretch.rows:
                writer.write(batch_of_rows(stretch.rows))
            written = writer.close(stretch.end)
            if written is None:
                return None
            names = zone_names(head, head.isr)
            mask = zones_named(head, names)
            segment = written.segment(object_id=self.new_id(), zones=mask, written_ms=0)
            for name in names:
                await self.zones.store(name).put_file(segment.key(head.topic_id), written.path)
        return segment

    async def save(
        self, head: Head, partition: int, stretches: Sequence[Stretch], covers: int
    ) -> SavedRoot:
        """Write segments that take the place of everything before `covers`."""
        found = [await self.segment(head, partition, stretch) for stretch in stretches]
        segments = SegmentList(tuple(each for each in found if each is not None))
        members = index.with_covered(await self.catalog.root(head), partition, covers)
        members = index.live_members(members, head.log_starts)
        return await self.catalog.save_root(head, members, {partition: segments})


async def rolled(catalog: Catalog, head: Head) -> Head:
    """Return the head with its runs in the index: only runs that a root lists can be compacted."""
    if not head.runs:
        return head
    roll = await catalog.roll(head)
    return heads.append(heads.drop_runs(head, len(head.runs), roll.new_root), [])


def swapped(head: Head, saved: SavedRoot) -> Head:
    """Return the head with the new root, which must still fit."""
    assert saved.old_root == head.root
    assert not head.isr & ~saved.zones
    return msgspec.structs.replace(head, root=saved.new_root, commits=head.commits + 1)


async def compact(
    gateway: Gateway,
    topic_name: str,
    partition: int,
    keeps: Callable[[int], bool],
    *,
    until: int | None = None,
    segments: int = 1,
    row_group_bytes: int = ROW_GROUP_BYTES,
) -> list[int]:
    """Compact a partition of a running gateway up to `until`; return the offsets that are kept.

    `until` is where an append ended (default: the end). Records whose offset `keeps` rejects are
    dropped. Everything before `until` is rewritten, into at most `segments` files.
    """
    topic = await gateway.topics.get(topic_name)
    lane, local = topic.lane_of(partition)
    key = keys.head(topic.topic_id, lane)
    compactor = Compactor(
        zones=gateway.zones,
        catalog=gateway.catalog,
        new_id=gateway.world.new_id,
        row_group_bytes=row_group_bytes,
        lane_partitions=topic.lane_partitions,
    )
    item = await gateway.metadata.get(key)
    assert item is not None, key
    before = heads.decode(item.value)
    head = await rolled(gateway.catalog, before)
    await change_head(gateway.metadata, key, lambda now: head if now == before else now)
    start = head.log_starts[local]
    end = head.next_offsets[local] if until is None else until
    rows = [
        (offset, record)
        for offset, record in await _records(gateway, head, local, start, end)
        if keeps(offset)
    ]
    bounds = [start + (end - start) * number // segments for number in range(segments + 1)]
    stretches = [
        Stretch(start=a, end=b, rows=[row for row in rows if a <= row[0] < b])
        for a, b in pairwise(bounds)
    ]
    saved = await compactor.save(head, local, stretches, end)
    await change_head(gateway.metadata, key, lambda now: swapped(now, saved))
    # Other gateways may use their view for another second; this one reads the new head now.
    await gateway.lanes.lane(topic.topic_id, lane).view(0)
    return [offset for offset, _ in rows]


async def _records(
    gateway: Gateway, head: Head, local: int, start: int, end: int
) -> list[tuple[int, Mapping[str, object]]]:
    found: list[tuple[int, Mapping[str, object]]] = []
    while start < end:
        fetched = await gateway.reader.fetch(head, local, start, EVERYTHING)
        for offsets, batch in fetched.batches(10**9):
            found += zip(offsets, batch.to_pylist(), strict=True)
        start = fetched.end_offset
    return [row for row in found if row[0] < end]
