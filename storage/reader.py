"""Reading the log: from an offset to stored slices.

A fetch asks the catalog which entries follow an offset, takes as many as its budget allows,
and reads their bytes: from the slice cache, where this process put what it wrote itself, else
by range requests, one per object, many at a time, each slice at most once however many readers
want it. Checksums are compared when bytes come out of a store, not again when out of the cache.

An entry says which zones held its object when it was committed. Zones that were brought in sync
later hold it too, so those in the entry are asked first, and the others when these fail: because
the object is lost or damaged there, or the zone is away or too slow (docs/decisions/0020).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from storage import keys, slices
from storage.cache import ByteCache
from storage.catalog import ENTRIES_MAX, Catalog
from storage.entries import Entry
from storage.errors import Corrupt, OffsetOutOfRange, StoreUnavailable
from storage.head import Head
from storage.replication import read_names
from storage.tasks import shared
from storage.zones import Zones

SliceKey = tuple[bytes, int]
"""Object and position: where a slice is, and so what it is."""

Data: TypeAlias = bytes | memoryview

READS_AT_ONCE_MAX: Final = 32

FIRST_ENTRIES: Final = 8
"""As many entries a fetch asks the catalog for at first; four times as many each time after."""

SLICES_MAX: Final = 1024
"""As many slices a fetch returns at most, about."""

RECORD_OVERHEAD_BYTES: Final = 16
"""What a record costs in a response besides its key and value, when counting a budget."""


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice as it was read, with the offsets its entry gives it."""

    base_offset: int
    end_offset: int
    data: Data

    def records(self) -> pa.RecordBatch:
        return slices.decode_unchecked(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much a fetch may return; always at least one record, whatever its size."""

    records_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A stretch of a partition, as slices of which the first and last may be cut."""

    start_offset: int
    """The offset asked for: records of the first slice before it are not wanted."""
    end_offset: int
    """Where the result ends, and where the next fetch begins."""
    slices: list[StoredSlice] = field(default_factory=list)

    def batches(self, bytes_max: int) -> list[tuple[int, pa.RecordBatch]]:
        """Return the records as (base offset, batch), cut to what was asked for.

        At most `bytes_max` of keys, values and headers, and at least one record. Stored
        slices are compressed, so this may be less than the slices hold.
        """
        cut: list[tuple[int, pa.RecordBatch]] = []
        left = bytes_max
        for piece in self.slices:
            first = max(piece.base_offset, self.start_offset)
            end = min(piece.end_offset, self.end_offset)
            batch = piece.records().slice(first - piece.base_offset, end - first)
            fitting = rows_within(batch, left)
            if fitting < batch.num_rows:
                batch = batch.slice(0, max(fitting, 0 if cut else 1))
                if batch.num_rows:
                    cut.append((first, batch))
                break
            cut.append((first, batch))
            left -= batch.nbytes
        return cut

    @property
    def size_bytes(self) -> int:
        """How much is stored of what was asked for, about."""
        return sum(len(piece.data) for piece in self.slices)


class LogReader:
    def __init__(self, zones: Zones, catalog: Catalog, cache_bytes_max: int) -> None:
        self._zones = zones
        self._catalog = catalog
        self.cache = ByteCache[SliceKey, Data](cache_bytes_max, len)
        self._reading: dict[SliceKey, asyncio.Task[dict[SliceKey, Data]]] = {}
        self._gate = asyncio.Semaphore(READS_AT_ONCE_MAX)
        self.store_reads = 0

    def remember(self, object_id: bytes, position: int, data: Data) -> None:
        """Keep a slice that this process wrote: whoever tails the log wants it next."""
        # A copy: a view would keep the buffer of the whole segment, and what that grew into.
        self.cache.put((object_id, position), bytes(data))

    async def fetch(self, head: Head, partition: int, offset: int, budget: Budget) -> Fetched:
        """Return records from `offset` on, at least one if the head has any there.

        They end before anything that no zone at hand holds; raises `StoreUnavailable` or
        `Corrupt` if that comes first, and `OffsetOutOfRange` if `offset` is before the log
        start or behind the end.
        """
        start, end = head.log_starts[partition], head.next_offsets[partition]
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        if offset == end or budget.records_max <= 0:
            return Fetched(start_offset=offset, end_offset=offset)
        entries = await self._entries(head, partition, offset, budget)
        try:
            data = await self._read(head, entries)
        except (Corrupt, StoreUnavailable):
            if len(entries) == 1:
                raise
            data = await self._read_ahead(head, entries)
        pieces = [
            StoredSlice(entry.base_offset, entry.end_offset, piece)
            for entry, piece in zip(entries, data, strict=False)
        ]
        last = min(pieces[-1].end_offset, offset + budget.records_max)
        return Fetched(start_offset=offset, end_offset=last, slices=pieces)

    async def _entries(
        self, head: Head, partition: int, offset: int, budget: Budget
    ) -> list[Entry]:
        """Return the entries from `offset` on that the budget allows, at least one."""
        found: list[Entry] = []
        position, limit = offset, FIRST_ENTRIES
        while position < head.next_offsets[partition] and len(found) < SLICES_MAX:
            # Mostly a few slices are all that is wanted; the rest need not be unpacked.
            found += await self._catalog.after(head, partition, position, limit)
            taken = _within(found, offset, budget)
            if len(taken) < len(found):
                return taken
            position, limit = found[-1].end_offset, min(4 * limit, ENTRIES_MAX)
        return found

    async def offset_at(self, head: Head, partition: int, timestamp_ms: int) -> tuple[int, int]:
        """Return the first offset stamped `timestamp_ms` or later, and its timestamp.

        If there is none: the end of the log, and -1.
        """
        offset = head.log_starts[partition]
        while entry := await self._catalog.since(head, partition, timestamp_ms, offset):
            [data] = await self._read(head, [entry])
            stamps = slices.decode_unchecked(data).column(0)
            hidden = max(0, offset - entry.base_offset)
            late = pc.greater_equal(stamps.slice(hidden), timestamp_ms)
            row = pc.index(late, True).as_py()
            if row >= 0:
                return entry.base_offset + hidden + row, stamps[hidden + row].as_py()
            # Only records before the log start were late enough; at most one entry has such.
            offset = entry.end_offset
        return head.next_offsets[partition], -1

    async def locate(self, head: Head, partition: int, offset: int) -> list[Entry]:
        """Return where the records from `offset` on are stored; see `Catalog.after`."""
        start, end = head.log_starts[partition], head.next_offsets[partition]
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        return [] if offset == end else await self._catalog.after(head, partition, offset)

    async def _read(self, head: Head, entries: Sequence[Entry]) -> list[Data]:
        found = {_key(entry): self.cache.get(_key(entry)) for entry in entries}
        missing = [entry for entry in entries if found[_key(entry)] is None]
        if missing:
            found.update(await self._load(head, missing))
        data = [found[_key(entry)] for entry in entries]
        return [piece for piece in data if piece is not None]

    async def _read_ahead(self, head: Head, entries: Sequence[Entry]) -> list[Data]:
        """Return what comes before that which cannot be had; raise if that is the first."""
        data = await self._read(head, entries[:1])
        try:
            for entry in entries[1:]:
                data += await self._read(head, [entry])
        except (Corrupt, StoreUnavailable):
            # Whoever goes on from here will be told.
            pass
        return data

    async def _load(self, head: Head, entries: Sequence[Entry]) -> dict[SliceKey, Data]:
        by_object: dict[bytes, list[Entry]] = {}
        for entry in entries:
            if _key(entry) not in self._reading:
                by_object.setdefault(entry.object_id, []).append(entry)
        for group in by_object.values():
            self._start_reading(head, group)
        reads = dict.fromkeys(self._reading[_key(entry)] for entry in entries)
        # Shielded, because others may wait for the same slices by now.
        results = await asyncio.gather(*(asyncio.shield(read) for read in reads))
        return {key: data for result in results for key, data in result.items()}

    def _start_reading(self, head: Head, entries: Sequence[Entry]) -> None:
        """Read slices of one object, for everyone who wants them meanwhile."""
        read = shared(self._load_object(head, entries))
        for entry in entries:
            self._reading[_key(entry)] = read

        def done(_: object) -> None:
            for entry in entries:
                del self._reading[_key(entry)]

        read.add_done_callback(done)

    async def _load_object(self, head: Head, entries: Sequence[Entry]) -> dict[SliceKey, Data]:
        try:
            return await self._load_slices(head, entries)
        except Corrupt:
            if len(entries) == 1:
                raise
        # No zone holds all of them whole, but each may be whole in some zone.
        results: dict[SliceKey, Data] = {}
        for entry in entries:
            results |= await self._load_slices(head, [entry])
        return results

    async def _load_slices(self, head: Head, entries: Sequence[Entry]) -> dict[SliceKey, Data]:
        ranges = [(entry.position, entry.position + entry.length) for entry in entries]
        names = read_names(head, entries[0].zones, entries[0].partition)
        key = keys.hot_segment(entries[0].object_id)

        def check(pieces: Sequence[bytes]) -> None:
            for entry, piece in zip(entries, pieces, strict=True):
                if len(piece) != entry.length or crc32c(piece) != entry.crc:
                    raise Corrupt(f"the slice at {entry.position} of {key} is damaged")

        async with self._gate:
            self.store_reads += 1
            pieces = await self._zones.get_ranges(key, ranges, names, check)
        results: dict[SliceKey, Data] = {}
        for entry, piece in zip(entries, pieces, strict=True):
            results[_key(entry)] = piece
            self.cache.put(_key(entry), piece)
        return results


def _key(entry: Entry) -> SliceKey:
    return entry.object_id, entry.position


def _within(entries: Sequence[Entry], offset: int, budget: Budget) -> list[Entry]:
    """Return the entries from the first on that the budget allows, at least one."""
    taken: list[Entry] = []
    size_bytes = 0
    for entry in entries:
        if taken and (
            size_bytes + entry.length > budget.bytes_max
            or entry.base_offset >= offset + budget.records_max
        ):
            break
        taken.append(entry)
        size_bytes += entry.length
    return taken


def rows_within(batch: pa.RecordBatch, bytes_max: int) -> int:
    """Return how many rows from the first on take `bytes_max` at most, headers as an average."""
    if batch.nbytes <= bytes_max:
        return int(batch.num_rows)
    sizes = pc.add(
        pc.fill_null(pc.binary_length(batch.column(1)), 0),
        pc.fill_null(pc.binary_length(batch.column(2)), 0),
    )
    overhead = RECORD_OVERHEAD_BYTES + batch.column(3).nbytes // max(1, batch.num_rows)
    total = pc.cumulative_sum(pc.add(sizes.cast(pa.int64()), overhead))
    return pc.sum(pc.less_equal(total, bytes_max)).as_py() or 0
