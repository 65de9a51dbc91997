"""A replicated lane, parts of which are compacted into small segments, as a job does it."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from storage.formats import index
from storage.formats.compacted import SCHEMA, CompactedWriter
from storage.formats.segment_list import Segment, SegmentList
from storage.head import head as heads
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.replicated import ReplicatedLane
from tests.storage.helpers.worlds import TOPIC_ID

SEGMENT_RECORDS = 20
ROW_GROUP_BYTES = 150


class CompactedLane(ReplicatedLane):
    async def compact(
        self, partition: int = 0, keep: Callable[[int], bool] = lambda _: True
    ) -> list[Segment]:
        """Compact what was rolled and not compacted yet; return the new segments."""
        members = await self.catalog.root(self.head)
        listed = await self.catalog.segment_list(self.head, partition)
        start, end = members.covered(partition), heads.inline_start(self.head, partition)
        written = [
            segment
            for first in range(start, end, SEGMENT_RECORDS)
            if (segment := await self._written(partition, first, end, keep)) is not None
        ]
        members = index.with_covered(members, partition, end)
        members = index.live_members(members, self.head.log_starts)
        segments = SegmentList((*listed.segments, *written), listed.cleaned)
        saved = await self.catalog.save_root(self.head, members, {partition: segments})
        assert not self.head.isr & ~saved.zones
        self.head = heads.drop_runs(self.head, 0, saved.new_root)
        return written

    async def _written(
        self, partition: int, first: int, end: int, keep: Callable[[int], bool]
    ) -> Segment | None:
        end = min(end, first + SEGMENT_RECORDS)
        offsets = [offset for offset in range(first, end) if keep(offset)]
        records = batch_of(*(self.values[partition][offset] for offset in offsets))
        columns = [pa.array(offsets, pa.int64()), *records.columns]
        with TemporaryDirectory() as folder:
            writer = CompactedWriter(
                Path(folder) / "segment",
                topic_id=TOPIC_ID,
                partition=partition,
                start_offset=first,
                row_group_bytes=ROW_GROUP_BYTES,
            )
            writer.write(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
            written = writer.close(end)
            if written is None:
                return None
            segment = written.segment(object_id=self.new_id(), zones=self.head.isr, written_ms=0)
            for number, name in enumerate(self.head.zones):
                if self.head.isr >> number & 1:
                    store = self.zones.store(name)
                    await store.put_file(segment.key(TOPIC_ID), written.path)
        return segment
