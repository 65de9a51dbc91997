"""The result of a fetch: stored slices, the offsets of their records, and the fetch budget.

The offsets of an appended slice are dense. A compacted slice may have only some offsets left: it
lists them explicitly, and covers more offsets than it has records. The next fetch continues at
the end of the range that the last complete slice covers, not after its last record.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from storage.formats import slices
from storage.formats.kafka import decoding as kafka

Data: TypeAlias = bytes | memoryview

Batches: TypeAlias = "Sequence[tuple[Sequence[int], pa.RecordBatch]]"
"""Records, and the offset of each."""

RECORD_OVERHEAD_BYTES: Final = 16
"""Size of a record in a response in addition to its key and value, for budgets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Maximum size of a fetch; it always returns at least one record, whatever its size."""

    records_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice as it was read, with the offsets that it covers."""

    base_offset: int
    end_offset: int
    data: Data
    offsets: memoryview | None = None
    """The offsets of its records, in order; None: every offset that it covers."""
    decoded_bytes: int = 0
    """Size of its decoded records, if known."""
    is_kafka: bool = False
    """Whether it is Kafka's batches, not an Arrow slice."""

    def records(self) -> pa.RecordBatch:
        return kafka.decode(self.data) if self.is_kafka else slices.decode_unchecked(self.data)

    def rows(self, start: int, end: int) -> tuple[int, int]:
        """Return the half-open range of rows with offsets `start <= offset < end`."""
        if self.offsets is None:
            count = self.end_offset - self.base_offset
            first = min(max(start - self.base_offset, 0), count)
            return first, max(first, min(end - self.base_offset, count))
        first = bisect_left(self.offsets, start)
        return first, bisect_left(self.offsets, end, first)

    def offsets_of(self, first: int, end: int) -> Sequence[int]:
        """Return the offsets of some rows."""
        if self.offsets is None:
            return range(self.base_offset + first, self.base_offset + end)
        return self.offsets[first:end].tolist()

    @property
    def budget_bytes(self) -> int:
        """Size counted against a budget; the decoded size if it is not sent as stored."""
        return self.decoded_bytes or len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A range of a partition, as slices; the first and last may be only partly in it."""

    start_offset: int
    """The requested offset: earlier records of the first slice are not part of the result."""
    end_offset: int
    """Where the result ends, and where the next fetch begins."""
    slices: list[StoredSlice] = field(default_factory=list)

    def batches(self, bytes_max: int) -> list[tuple[Sequence[int], pa.RecordBatch]]:
        """Return the records and their offsets, cut to the requested range.

        At most `bytes_max` of keys, values and headers, and at least one record. Stored
        slices are compressed, so this may be less than the slices hold.
        """
        cut: list[tuple[Sequence[int], pa.RecordBatch]] = []
        left = bytes_max
        for piece in self.slices:
            first, end = piece.rows(self.start_offset, self.end_offset)
            batch = piece.records().slice(first, end - first)
            fitting = rows_within(batch, left)
            if fitting < batch.num_rows:
                batch = batch.slice(0, max(fitting, 0 if cut else 1))
                if batch.num_rows:
                    cut.append((piece.offsets_of(first, first + batch.num_rows), batch))
                break
            cut.append((piece.offsets_of(first, end), batch))
            left -= batch.nbytes
        return cut

    def end_of(self, batches: Batches) -> int:
        """Return where the next fetch begins after one that returned only `batches`."""
        if sum(len(offsets) for offsets, _ in batches) == self.record_count:
            return self.end_offset
        return batches[-1][0][-1] + 1 if batches else self.start_offset

    @property
    def record_count(self) -> int:
        rows = [piece.rows(self.start_offset, self.end_offset) for piece in self.slices]
        return sum(end - first for first, end in rows)

    @property
    def memory_bytes(self) -> int:
        """Size of the slices in memory, as far as it is known."""
        return sum(piece.budget_bytes for piece in self.slices)

    @property
    def size_bytes(self) -> int:
        """Stored size of the slices, approximately the size of the result."""
        return sum(len(piece.data) for piece in self.slices)


def rows_within(batch: pa.RecordBatch, bytes_max: int) -> int:
    """Return how many leading rows fit in `bytes_max`; headers count with their average."""
    if batch.nbytes <= bytes_max:
        return int(batch.num_rows)
    sizes = pc.add(
        pc.fill_null(pc.binary_length(batch.column(1)), 0),
        pc.fill_null(pc.binary_length(batch.column(2)), 0),
    )
    overhead = RECORD_OVERHEAD_BYTES + batch.column(3).nbytes // max(1, batch.num_rows)
    total = pc.cumulative_sum(pc.add(sizes.cast(pa.int64()), overhead))
    return pc.sum(pc.less_equal(total, bytes_max)).as_py() or 0
