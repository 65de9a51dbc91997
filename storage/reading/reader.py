"""Reading the log: finding and reading the stored slices at an offset.

A fetch asks the catalog for the entries after an offset, takes as many as its budget allows, and
reads their bytes. It looks in the slice cache first, where this process puts what it writes
itself. It reads the rest by range requests, one per object and many concurrently; concurrent
readers of a slice share one read. Slices in the table are read with one request for all
(table_batches.py). Checksums are compared when bytes are read from a store, not again when they
are read from the cache.

An entry lists the zones that held its object when it was committed. Zones that came in sync
later hold it too. So the zones in the entry are asked first, and the others when these fail:
because the object is lost or damaged there, or the zone is unavailable or too slow
(docs/decisions/0020).

Compacted records are read a row group at a time, decoded in a thread and cut into slices. The
cache keeps the slices, so that consecutive reads decode a row group once
(storage/reading/row_groups.py). A reader gets all slices in one form, Arrow or Kafka's batches;
those stored as the other are converted, and the cache keeps the result, too
(storage/reading/forms.py).
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from crc32c import crc32c

from storage import keys
from storage.crypto.keyring import Keyring, OpenKey, required
from storage.errors import (
    Corrupt,
    EncryptionKeyUnavailable,
    OffsetOutOfRange,
    StoreUnavailable,
)
from storage.formats.compacted import Unseal
from storage.formats.entries import Entry
from storage.formats.partitions import LanePartition
from storage.head.head import Head
from storage.head.replication import read_names
from storage.reading import row_groups
from storage.reading.cache import ByteCache
from storage.reading.catalog import ENTRIES_MAX, Catalog
from storage.reading.fetched import Budget, Data, Fetched, StoredSlice, rows_within
from storage.reading.forms import CONVERT_INLINE_BYTES_MAX, KafkaForm, as_arrow, as_kafka
from storage.reading.row_groups import Pieces
from storage.reading.table_batches import TableBatches
from storage.tasks import shared
from storage.zones.zones import Zones

__all__ = ["Budget", "Fetched", "LogReader", "StoredSlice", "rows_within"]

SliceKey = tuple[bytes, int]
"""Object and position, which identify a slice or a row group."""

CacheKey: TypeAlias = SliceKey | tuple[bytes, int, KafkaForm | None]
"""The last: of what was converted to that form."""

READS_AT_ONCE_MAX: Final = 32

ROW_GROUPS_AT_ONCE_MAX: Final = 8
"""Maximum number of row groups read and decoded concurrently: each takes some MiB of memory."""

FIRST_ENTRIES: Final = 8
"""Number of entries in the first lookup of a fetch; each further one asks for four times that."""

SLICES_MAX: Final = 1024
"""Approximate maximum number of slices in a fetch."""

OPEN_INLINE_BYTES_MAX: Final = 64 * 1024
"""Sealed slices up to this size are opened on the event loop: a hop to a thread takes longer."""

_UNREAD: Final = (Corrupt, StoreUnavailable, EncryptionKeyUnavailable)
"""What one slice may raise while others can be read."""


class LogReader:
    def __init__(
        self,
        zones: Zones,
        catalog: Catalog,
        cache_bytes_max: int,
        keyring: Keyring | None = None,
    ) -> None:
        """Read from `zones`; without a `keyring`, records of encrypted topics are refused."""
        self._zones = zones
        self._keyring = keyring
        self._catalog = catalog
        self.cache = ByteCache[CacheKey, Data | Pieces](cache_bytes_max, _size_of)
        self._reading: dict[SliceKey, asyncio.Task[dict[SliceKey, Data]]] = {}
        self._gate = asyncio.Semaphore(READS_AT_ONCE_MAX)
        self._decoding = asyncio.Semaphore(ROW_GROUPS_AT_ONCE_MAX)
        self.store_reads = 0

    @property
    def batches(self) -> TableBatches | None:
        """The small flushes in the table, if this process can read it."""
        return self._catalog.batches

    def remember(self, object_id: bytes, position: int, data: Data) -> None:
        """Cache a slice that this process wrote: readers at the end of the log want it next."""
        # A copy: a view would keep the whole buffer of the segment, with its spare capacity.
        self.cache.put((object_id, position), bytes(data))

    async def fetch(
        self,
        head: Head,
        partition: LanePartition,
        offset: int,
        budget: Budget,
        form: KafkaForm | None = None,
    ) -> Fetched:
        """Return records from `offset` on, at least one if the head has any there.

        All slices are Arrow slices, or, with a `form`, all are Kafka's batches.
        The result ends before the first data that cannot be read from any zone. Raises
        `StoreUnavailable` or `Corrupt` if that is at `offset`, and `OffsetOutOfRange` if
        `offset` is before the log start or after the end.
        """
        start, end = head.log_starts[partition], head.next_offsets[partition]
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        if offset == end or budget.records_max <= 0:
            return Fetched(start_offset=offset, end_offset=offset)
        taken = _Taken(offset, budget, form)
        try:
            await self._take(head, partition, taken, end)
        except _UNREAD:
            # The next fetch, which begins here, will report it.
            if not taken.slices:
                raise
        return Fetched(start_offset=offset, end_offset=taken.position, slices=taken.slices)

    async def _take(self, head: Head, partition: LanePartition, taken: "_Taken", end: int) -> None:
        """Take row groups, one after the other, and then slices, until the budget is used up."""
        while taken.position < end and not taken.is_full:
            entries = await self._catalog.after(head, partition, taken.position, FIRST_ENTRIES)
            if not entries:
                # Everything from here on was compacted away.
                taken.position = end
            elif not entries[0].is_row_group:
                await self._take_slices(head, partition, taken, entries)
                return
            for entry in entries:
                if not taken.is_full:
                    taken.take(await self._row_group_in(head, entry, taken.form))

    async def _take_slices(
        self, head: Head, partition: LanePartition, taken: "_Taken", first: Sequence[Entry]
    ) -> None:
        entries = await self._entries(head, partition, first, taken)
        try:
            data = await self._read(head, entries)
        except _UNREAD:
            if len(entries) == 1:
                raise
            data = await self._read_ahead(head, entries)
        for entry, piece in zip(entries, data, strict=False):
            if taken.is_full:
                break
            taken.take(await self._in_form(entry, piece, taken.form))

    async def _entries(
        self, head: Head, partition: LanePartition, first: Sequence[Entry], taken: "_Taken"
    ) -> list[Entry]:
        """Return the entries from `first` on that the budget allows, at least one."""
        found = list(first)
        start, limit = max(taken.position, first[0].base_offset), FIRST_ENTRIES
        while True:
            within = _within(found, start, taken.left)
            position = found[-1].end_offset
            if (
                len(within) < len(found)
                or position >= head.next_offsets[partition]
                or len(found) >= SLICES_MAX
            ):
                return within
            # A few slices are usually enough; the rest need not be unpacked.
            limit = min(4 * limit, ENTRIES_MAX)
            found += await self._catalog.after(head, partition, position, limit)

    async def offset_at(
        self, head: Head, partition: LanePartition, timestamp_ms: int
    ) -> tuple[int, int]:
        """Return the first offset stamped `timestamp_ms` or later, and its timestamp.

        If there is none: the end of the log, and -1.
        """
        offset = head.log_starts[partition]
        while entry := await self._catalog.since(head, partition, timestamp_ms, offset):
            if entry.is_row_group:
                pieces = await self._row_group(head, entry)
                found = await asyncio.to_thread(
                    row_groups.first_since, pieces, timestamp_ms, offset
                )
            else:
                [data] = await self._read(head, [entry])
                pieces = await self._in_form(entry, data, None)
                found = row_groups.first_since(pieces, timestamp_ms, offset)
            if found is not None:
                return found
            # Only records before the log start were late enough. At most one entry has such.
            offset = entry.end_offset
        return head.next_offsets[partition], -1

    async def locate(
        self, head: Head, partition: LanePartition, offset: int, end: int, limit: int = ENTRIES_MAX
    ) -> tuple[list[Entry], int]:
        """Return where the records from `offset` to `end` are stored, and where to continue.

        The last entry may extend beyond `end`; see `Catalog.after`.
        """
        start, log_end = head.log_starts[partition], head.next_offsets[partition]
        if not start <= offset <= log_end:
            raise OffsetOutOfRange(offset, start, log_end)
        found: list[Entry] = []
        position, end = offset, min(end, log_end)
        while position < end and len(found) < limit:
            entries = await self._catalog.after(head, partition, position, limit - len(found))
            wanted = [entry for entry in entries if entry.start_offset < end]
            found += wanted
            if len(wanted) < len(entries) or not entries:
                return found, max(end, wanted[-1].end_offset if wanted else position)
            position = found[-1].end_offset
        return found, position

    async def in_table(self, head: Head, entries: Sequence[Entry]) -> dict[SliceKey, Data]:
        """Return the bytes of the slices in the table, which have no address in a store.

        As they are stored: those that are sealed are not opened.
        """
        inside = [entry for entry in entries if entry.is_in_table]
        if any(entry.data_key for entry in inside):
            # Not from the cache, which has them opened.
            found: Sequence[Data] = await self._stored(head, inside)
        else:
            found = await self._read(head, inside)
        return {_key(entry): data for entry, data in zip(inside, found, strict=True)}

    async def _row_group(self, head: Head, entry: Entry) -> Pieces:
        """Return a row group as slices; concurrent readers share one read and decoding."""

        async def load() -> Pieces:
            segment = entry.segment
            assert segment is not None, entry
            footer = await self._catalog.footer(head, segment)
            key = segment.key(head.topic_id)
            unseal: Unseal | None = None
            if entry.data_key:
                found = await required(self._keyring).key(head.topic_id, entry.data_key)
                unseal = found.unseal(segment.partition)
            async with self._decoding:
                [data] = await self._get(head, key, [entry])
                decode = partial(row_groups.pieces_of, footer, entry.row_group, data, unseal)
                return await asyncio.to_thread(decode)

        found = await self.cache.get_or_load(_key(entry), load)
        assert isinstance(found, tuple), entry
        return found

    async def _row_group_in(self, head: Head, entry: Entry, form: KafkaForm | None) -> Pieces:
        """Return a row group as slices in a form."""
        if form is None:
            return await self._row_group(head, entry)

        async def load() -> Pieces:
            pieces = await self._row_group(head, entry)
            async with self._decoding:
                return await asyncio.to_thread(as_kafka, pieces, form)

        return await self._converted((*_key(entry), form), load)

    async def _in_form(self, entry: Entry, data: Data, form: KafkaForm | None) -> Pieces:
        """Return a slice in a form; concurrent readers share one conversion."""
        base_offset, end_offset = entry.base_offset, entry.end_offset
        if entry.is_kafka == (form is not None):
            return (StoredSlice(base_offset, end_offset, data, is_kafka=entry.is_kafka),)

        def convert() -> Pieces:
            if form is None:
                return as_arrow(data, base_offset, end_offset)
            return as_kafka((StoredSlice(base_offset, end_offset, data),), form)

        async def load() -> Pieces:
            if len(data) <= CONVERT_INLINE_BYTES_MAX:
                return convert()
            async with self._decoding:
                return await asyncio.to_thread(convert)

        return await self._converted((*_key(entry), form), load)

    async def _converted(
        self, key: CacheKey, load: Callable[[], Coroutine[None, None, Pieces]]
    ) -> Pieces:
        found = await self.cache.get_or_load(key, load)
        assert isinstance(found, tuple), key
        return found

    async def _read(self, head: Head, entries: Sequence[Entry]) -> list[Data]:
        found = {_key(entry): self.cache.get(_key(entry)) for entry in entries}
        missing = [entry for entry in entries if found[_key(entry)] is None]
        if missing:
            found.update(await self._load(head, missing))
        data = [found[_key(entry)] for entry in entries]
        return [piece for piece in data if isinstance(piece, bytes | memoryview)]

    async def _read_ahead(self, head: Head, entries: Sequence[Entry]) -> list[Data]:
        """Return the data before the first entry that cannot be read; raise if it is the first."""
        data = await self._read(head, entries[:1])
        try:
            for entry in entries[1:]:
                data += await self._read(head, [entry])
        except _UNREAD:
            # The next fetch, which begins here, will report it.
            pass
        return data

    async def _load(self, head: Head, entries: Sequence[Entry]) -> dict[SliceKey, Data]:
        by_object: dict[bytes, list[Entry]] = {}
        for entry in entries:
            if _key(entry) not in self._reading:
                # One request reads all slices in the table, whatever batches they are in.
                place = b"" if entry.is_in_table else entry.object_id
                by_object.setdefault(place, []).append(entry)
        for group in by_object.values():
            self._start_reading(head, group)
        reads = dict.fromkeys(self._reading[_key(entry)] for entry in entries)
        # Shielded, because other callers may wait for the same slices by now.
        results = await asyncio.gather(*(asyncio.shield(read) for read in reads))
        return {key: data for result in results for key, data in result.items()}

    def _start_reading(self, head: Head, entries: Sequence[Entry]) -> None:
        """Read slices of one object; concurrent readers share the read."""
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
            if len(entries) == 1 or entries[0].is_in_table:
                raise
        # No zone holds all of them intact, but each may be intact in some zone.
        results: dict[SliceKey, Data] = {}
        for entry in entries:
            results |= await self._load_slices(head, [entry])
        return results

    async def _load_slices(self, head: Head, entries: Sequence[Entry]) -> dict[SliceKey, Data]:
        pieces = await self._opened(head, entries, await self._stored(head, entries))
        results: dict[SliceKey, Data] = {}
        for entry, piece in zip(entries, pieces, strict=True):
            results[_key(entry)] = piece
            self.cache.put(_key(entry), piece)
        return results

    async def _stored(self, head: Head, entries: Sequence[Entry]) -> list[bytes]:
        """Return the bytes of slices that are in one object or all in the table."""
        if not entries[0].is_in_table:
            return await self._get(head, keys.hot_segment(entries[0].object_id), entries)
        assert self.batches is not None, "who reads such a head must be able to read the table"
        async with self._gate:
            return await self.batches.read(entries)

    async def _opened(
        self, head: Head, entries: Sequence[Entry], pieces: list[bytes]
    ) -> list[bytes]:
        """Return slices as they were before they were sealed, if they are."""
        numbers = {entry.data_key for entry in entries} - {0}
        if not numbers:
            return pieces
        found = await required(self._keyring).keys(head.topic_id, numbers)
        if sum(map(len, pieces)) <= OPEN_INLINE_BYTES_MAX:
            return _opened(head, entries, pieces, found)
        return await asyncio.to_thread(_opened, head, entries, pieces, found)

    async def _get(self, head: Head, key: str, entries: Sequence[Entry]) -> list[bytes]:
        """Return the bytes of entries of one object, as they were stored."""
        ranges = [(entry.position, entry.position + entry.length) for entry in entries]
        names = read_names(head, entries[0].zones, entries[0].partition)

        def check(pieces: Sequence[bytes]) -> None:
            for entry, piece in zip(entries, pieces, strict=True):
                if len(piece) != entry.length or crc32c(piece) != entry.crc:
                    what = "slice" if entry.segment is None else "row group"
                    raise Corrupt(f"the {what} at {entry.position} of {key} is damaged")

        async with self._gate:
            self.store_reads += 1
            return await self._zones.get_ranges(key, ranges, names, check)


class _Taken:
    """What a fetch has taken so far, and what it may still take."""

    def __init__(self, offset: int, budget: Budget, form: KafkaForm | None) -> None:
        self.slices: list[StoredSlice] = []
        self.form = form
        self.position = offset
        self.left = budget
        self.is_full = False

    def take(self, pieces: Sequence[StoredSlice]) -> None:
        """Take as many of the next `pieces` as the budget allows, and always the first."""
        for piece in pieces:
            first, end = piece.rows(self.position, piece.end_offset)
            if first < end:
                if self.slices and piece.budget_bytes > self.left.bytes_max:
                    self.is_full = True
                    return
                self.slices.append(piece)
                wanted = min(end, first + self.left.records_max)
                self.left = Budget(
                    records_max=self.left.records_max - (wanted - first),
                    bytes_max=self.left.bytes_max - piece.budget_bytes,
                )
                if wanted < end:
                    self.position = piece.offsets_of(wanted - 1, wanted)[0] + 1
                    self.is_full = True
                    return
            # Skip covered offsets after the last record, so that they are not read again.
            self.position = max(self.position, piece.end_offset)
            if self.left.records_max <= 0 or self.left.bytes_max <= 0:
                self.is_full = True
                return


def _opened(
    head: Head, entries: Sequence[Entry], pieces: Sequence[bytes], keys: Mapping[int, OpenKey]
) -> list[bytes]:
    opened = []
    for entry, piece in zip(entries, pieces, strict=True):
        if entry.data_key:
            found = keys[entry.data_key]
            piece = found.key.open(piece, found.partition_of(head.lane, entry.partition))
        opened.append(piece)
    return opened


def _size_of(value: Data | Pieces) -> int:
    return row_groups.size_of(value) if isinstance(value, tuple) else len(value)


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
