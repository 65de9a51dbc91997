"""The index: immutable objects that list the slices that the head no longer lists.

    head ── root ─┬─ level 2  nodes  (each lists 32 pages)
                  ├─ level 1  pages  (each merged from 32 smaller ones)
                  └─ level 0  pages  (each rolled out of the head)

A roll writes the head's entries as a small page and a root that lists it. When a level has
`FANOUT` members they become one member of the next: pages of level 0 are merged into one
larger page sorted by partition, so that a reader of one partition finds many of its entries in
one read; from there on a node lists its members. An append therefore costs the same whatever
the history's length, and a fetch reads a root, at most a few nodes and one page, all small,
immutable and cacheable.

Everything here is pure. `storage/reading/catalog.py` reads and writes the objects.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import Corrupt
from storage.formats import frames
from storage.formats.entries import STORED_FIELDS, Entry
from storage.formats.partitions import LanePartition
from storage.keys import ID_BYTES

FANOUT: Final = 32

BLOCK_ROWS: Final = 64
"""Entries unpacked together: slicing the columns costs as much as unpacking a dozen rows."""

_PAGE_MAGIC: Final = b"RPG1"
_SEALED_PAGE_MAGIC: Final = b"RPG2"
"""Of a page with the column `data_key`: one that lists sealed slices."""
_LIST_MAGIC: Final = b"RLS1"

_PAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("end_offset", pa.int64(), nullable=False),
        pa.field("record_count", pa.int64(), nullable=False),
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("object_id", pa.binary(ID_BYTES), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("min_ms", pa.int64(), nullable=False),
        pa.field("max_ms", pa.int64(), nullable=False),
        pa.field("crc", pa.uint32(), nullable=False),
        pa.field("zones", pa.uint32(), nullable=False),
        pa.field("data_key", pa.uint32(), nullable=False),
    ]
)
_DATA_KEY: Final = len(_PAGE_SCHEMA) - 1
_SCHEMAS: Final = {
    _PAGE_MAGIC: pa.schema([*_PAGE_SCHEMA][:_DATA_KEY]),
    _SEALED_PAGE_MAGIC: _PAGE_SCHEMA,
}
_SCHEMA_MESSAGES: Final = {
    magic: schema.serialize().to_pybytes() for magic, schema in _SCHEMAS.items()
}
_PAGE_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_PAGE_READING: Final = pa.ipc.IpcReadOptions(use_threads=False)


class Page:
    """Entries of one lane, ordered by partition and end offset."""

    __slots__ = ("_batch", "_ends", "_partitions", "_unpacked")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        # Bisecting the columns' memory costs nothing to set up, unlike a list of entries.
        self._partitions = memoryview(batch.column(0).buffers()[1]).cast("B").cast("i")
        self._ends = memoryview(batch.column(1).buffers()[1]).cast("B").cast("q")
        self._unpacked: tuple[int, list[Entry]] = -1, []
        """The block that was read last: a reader that continues asks for its next rows."""

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    @property
    def size_bytes(self) -> int:
        return int(self._batch.nbytes)

    def after(self, partition: LanePartition, offset: int, limit: int) -> list[Entry]:
        """Return up to `limit` entries of the partition that end after `offset`, in order."""
        start, end = self._rows(partition)
        first = bisect_right(self._ends, offset, start, end)
        return self._entries(first, min(end, first + limit))

    def since(self, partition: LanePartition, timestamp_ms: int, offset: int) -> Entry | None:
        """Return the first entry after `offset` that has a record at `timestamp_ms` or later."""
        start, end = self._rows(partition)
        first = bisect_right(self._ends, offset, start, end)
        newest = self._batch.column(8).slice(first, end - first)
        row = pc.index(pc.greater_equal(newest, timestamp_ms), True).as_py()
        return None if row < 0 else self._entries(first + row, first + row + 1)[0]

    def entries(self) -> list[Entry]:
        return self._entries(0, len(self))

    def _rows(self, partition: LanePartition) -> tuple[int, int]:
        rows = len(self)
        return (
            bisect_left(self._partitions, partition, 0, rows),
            bisect_right(self._partitions, partition, 0, rows),
        )

    def _entries(self, start: int, end: int) -> list[Entry]:
        if end - start > BLOCK_ROWS:
            return self._unpack(start, end)
        found: list[Entry] = []
        for block in range(start // BLOCK_ROWS, -(-end // BLOCK_ROWS)):
            number, entries = self._unpacked
            if number != block:
                entries = self._unpack(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS)
                self._unpacked = block, entries
            origin = block * BLOCK_ROWS
            found += entries[max(0, start - origin) : end - origin]
        return found

    def _unpack(self, start: int, end: int) -> list[Entry]:
        columns = [c.to_pylist() for c in self._batch.slice(start, max(0, end - start)).columns]
        return [Entry(*row) for row in zip(*columns, strict=True)]

    def encode(self) -> bytes:
        is_sealed = pc.any(pc.greater(self._batch.column(_DATA_KEY), 0)).as_py()
        magic = _SEALED_PAGE_MAGIC if is_sealed else _PAGE_MAGIC
        schema = _SCHEMAS[magic]
        columns = self._batch.columns[: len(schema)]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema, options=_PAGE_OPTIONS) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
            end = sink.tell()
        message = memoryview(sink.getvalue())[len(_SCHEMA_MESSAGES[magic]) : end]
        return frames.seal(magic, bytes(message))

    @classmethod
    def decode(cls, data: bytes) -> "Page":
        """Return the page, or raise `Corrupt`."""
        is_sealed = data[: len(_PAGE_MAGIC)] == _SEALED_PAGE_MAGIC
        magic = _SEALED_PAGE_MAGIC if is_sealed else _PAGE_MAGIC
        payload = frames.unseal(magic, data)
        try:
            # As a stream, which can be read without threads: they would take longer to wake up.
            written = b"".join((_SCHEMA_MESSAGES[magic], payload))
            with pa.ipc.open_stream(written, options=_PAGE_READING) as stream:
                batch = stream.read_next_batch()
            batch.validate(full=True)
            if not is_sealed:
                columns = [*batch.columns, pa.array(np.zeros(batch.num_rows, np.uint32))]
                batch = pa.RecordBatch.from_arrays(columns, schema=_PAGE_SCHEMA)
            return cls(batch)
        except (pa.ArrowException, EOFError, OSError, ValueError, StopIteration) as error:
            raise Corrupt(f"an index page does not decode: {error}") from error

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Page":
        """Return a page of `entries`, which are in order."""
        rows = [entry[:STORED_FIELDS] for entry in entries]
        columns = zip(*rows, strict=True) if rows else ([] for _ in _PAGE_SCHEMA)
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, _PAGE_SCHEMA, strict=True)
        ]
        return cls(pa.RecordBatch.from_arrays(arrays, schema=_PAGE_SCHEMA))

    @classmethod
    def merge(cls, pages: Iterable["Page"]) -> "Page":
        """Return one page with the entries of all `pages`."""
        table = pa.Table.from_batches([page._batch for page in pages])
        table = table.sort_by([("partition", "ascending"), ("end_offset", "ascending")])
        return cls(_one_batch(table))

    def live(self, floors: Sequence[int]) -> "Page":
        """Return the page without entries that end at the floor of their partition or before."""
        floor = pc.take(pa.array(floors, pa.int64()), self._batch.column(0))
        table = pa.Table.from_batches([self._batch])
        return Page(_one_batch(table.filter(pc.greater(self._batch.column(1), floor))))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else Page.of([])._batch


class IndexRef(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A reference to a page or node, with what a reader needs to decide whether to open it."""

    object_id: bytes
    is_page: bool
    entry_count: int
    ends: tuple[int, ...]
    """By partition: where it ended when this member was the newest."""
    newest_ms: tuple[int, ...]
    """By partition: the largest timestamp in this member, -1 if it has no records of it."""

    def end(self, partition: LanePartition) -> int:
        # Older members do not list partitions that were added later.
        return self.ends[partition] if partition < len(self.ends) else 0

    def newest(self, partition: LanePartition) -> int:
        return self.newest_ms[partition] if partition < len(self.newest_ms) else -1


class Members(msgspec.Struct, array_like=True, frozen=True):
    """What a root or a node lists: members by level, each level oldest first."""

    levels: tuple[tuple[IndexRef, ...], ...] = ()
    covers: tuple[int, ...] = ()
    """Only of a root; by partition: entries of members before this offset are ignored."""
    compacted: tuple[bytes, ...] = ()
    """Only of a root; by partition: the list of its compacted segments, empty if there is none."""

    def covered(self, partition: LanePartition) -> int:
        """Return the offset before which only compacted segments count."""
        return self.covers[partition] if partition < len(self.covers) else 0

    def segment_list(self, partition: LanePartition) -> bytes:
        """Return the name of the partition's list of compacted segments, empty if none."""
        return self.compacted[partition] if partition < len(self.compacted) else b""

    def floors(self, log_starts: Sequence[int]) -> list[int]:
        """Return the floor of each partition: an entry is live only if it ends after it."""
        return [max(start, self.covered(LanePartition(p))) for p, start in enumerate(log_starts)]

    def in_order(self) -> list[IndexRef]:
        """Return all members, oldest first: higher levels are older."""
        return [ref for level in reversed(self.levels) for ref in level]

    def level(self, number: int) -> tuple[IndexRef, ...]:
        return self.levels[number] if number < len(self.levels) else ()


_MEMBERS: Final = msgspec.msgpack.Decoder(Members)


def encode_members(members: Members) -> bytes:
    return frames.seal(_LIST_MAGIC, msgspec.msgpack.encode(members))


def decode_members(data: bytes) -> Members:
    """Return what a root or node lists, or raise `Corrupt`."""
    return frames.unpack(_LIST_MAGIC, data, _MEMBERS, "a root or node of an index")


def ref_of_page(object_id: bytes, page: Page, ends: Sequence[int]) -> IndexRef:
    """Return the reference to a page, made when the lane's partitions ended at `ends`."""
    newest = [-1] * len(ends)
    for entry in page.entries():
        newest[entry.partition] = max(newest[entry.partition], entry.max_ms)
    return IndexRef(
        object_id=object_id,
        is_page=True,
        entry_count=len(page),
        ends=tuple(ends),
        newest_ms=tuple(newest),
    )


def ref_of_members(object_id: bytes, members: Sequence[IndexRef], *, is_page: bool) -> IndexRef:
    """Return the reference to one object that takes the place of `members`."""
    partitions = [LanePartition(number) for number in range(len(members[-1].ends))]
    return IndexRef(
        object_id=object_id,
        is_page=is_page,
        entry_count=sum(ref.entry_count for ref in members),
        ends=members[-1].ends,
        newest_ms=tuple(max(ref.newest(p) for ref in members) for p in partitions),
    )


def replace_level(members: Members, number: int, level: tuple[IndexRef, ...]) -> Members:
    levels = list(members.levels) + [()] * (number + 1 - len(members.levels))
    levels[number] = level
    return msgspec.structs.replace(members, levels=tuple(levels))


def live_members(members: Members, log_starts: Sequence[int]) -> Members:
    """Return a root without the members that cannot have live entries.

    What they list is before the log start, or compacted. The caller that commits the result must
    commit log starts that are not lower.
    """
    floors = members.floors(log_starts)
    live: set[bytes] = set()
    known: tuple[int, ...] = ()
    for ref in members.in_order():
        # A partition that ends where it did in the member before has no entries in this one.
        before = known + (0,) * (len(ref.ends) - len(known))
        ends = zip(ref.ends, floors, before, strict=False)
        if any(end > max(floor, old) for end, floor, old in ends):
            live.add(ref.object_id)
        known = ref.ends
    levels = tuple(tuple(r for r in level if r.object_id in live) for level in members.levels)
    return msgspec.structs.replace(members, levels=levels)


def with_segment_list(members: Members, partition: LanePartition, object_id: bytes) -> Members:
    """Return a root in which the partition's compacted segments are listed by `object_id`."""
    compacted = list(members.compacted) + [b""] * (partition + 1 - len(members.compacted))
    compacted[partition] = object_id
    return msgspec.structs.replace(members, compacted=tuple(compacted))


def with_covered(members: Members, partition: LanePartition, offset: int) -> Members:
    """Return a root whose pages are read only from `offset` of the partition on."""
    covers = list(members.covers) + [0] * (partition + 1 - len(members.covers))
    covers[partition] = offset
    return msgspec.structs.replace(members, covers=tuple(covers))


def first_behind(refs: Sequence[IndexRef], partition: LanePartition, offset: int) -> int:
    """Return the position of the first member that ends after `offset` in the partition."""
    return bisect_right(refs, offset, key=lambda ref: ref.end(partition))
