"""The work of compaction, as functions of bytes to bytes that run on any machine.

`run` processes complete units: it reads, filters the records, writes Parquet to a temporary
directory and stores it in every zone in sync. `spread`, `regroup` and `gather` do the same for
ranges of a partition that is too large for one worker, with a shuffle in between (keyed.py).

The objects they write are unreferenced until the job swaps them in. So a task may die at any
point, or run twice: it leaves only orphans.

Memory: some chunks of input, a row group of output, and for a compaction by key the distinct keys
of the unit. Disk: one segment, and what the last chunk added.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa

from storage.crypto.envelope import Sealer
from storage.crypto.keyring import required
from storage.errors import RiachoError
from storage.formats.compacted import CompactedWriter, WrittenSegment
from storage.formats.segment_list import Segment
from storage.formats.zone_sets import NONE, ZoneSet
from storage.head.replication import zone_names, zones_named
from storage.maintenance.compaction import keyed
from storage.maintenance.compaction.hot import Ints
from storage.maintenance.compaction.keyed import LastOffsets
from storage.maintenance.compaction.puts import put_file
from storage.maintenance.compaction.reading import (
    CHUNK_BYTES,
    READS_AT_ONCE_MAX,
    Decode,
    Stays,
    UnitReader,
    load_slices,
)
from storage.maintenance.compaction.typed import TypedColumns
from storage.maintenance.compaction.units import (
    Rewritten,
    TaskStores,
    Unit,
    decode_units,
    encode_rewritten,
)
from storage.tasks import drop_error

_FORESEEN: Final = (RiachoError, OSError, pa.ArrowException)
"""Failing stores, a full disk, invalid bytes: errors that fail only one unit."""


async def run(stores: TaskStores, payload: bytes) -> bytes:
    """Rewrite every unit of the payload; a failed unit reports its error, the others continue."""
    readers = [UnitReader(stores.zones, unit, stores.keyring) for unit in decode_units(payload)]
    results: list[Rewritten] = []
    with _folder() as folder:
        for group in _small_together(readers):
            await _read_together(stores, group)
            for reader in group:
                try:
                    results.append(await _rewrite(stores, reader, None, Path(folder)))
                except _FORESEEN as error:
                    results.append(Rewritten(error=f"{type(error).__name__}: {error}"))
                reader.know({})
    return encode_rewritten(results)


async def spread(stores: TaskStores, payload: bytes) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the last offset of every key in a range, as rows of `keyed.KEYS`."""
    [unit] = decode_units(payload)
    table = await _last_offsets(UnitReader(stores.zones, unit, stores.keyring))
    for batch in keyed.spread(table, unit.range_number, unit.bucket_count):
        yield batch


async def regroup(
    stores: TaskStores, group: int, table: pa.Table
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the surviving offsets of one bucket of keys, as `keyed.SURVIVORS`."""
    for batch in await asyncio.to_thread(lambda: list(keyed.regroup(table))):
        yield batch


async def gather(
    payloads: Sequence[bytes], stores: TaskStores, group: int, table: pa.Table
) -> bytes:
    """Rewrite the range with the number `group`, of which the offsets in `table` survive."""
    [unit] = decode_units(payloads[group])
    assert unit.range_number == group, (unit.range_number, group)
    wanted = await asyncio.to_thread(keyed.survivors, table)
    with _folder() as folder:
        reader = UnitReader(stores.zones, unit, stores.keyring)
        return encode_rewritten([await _rewrite(stores, reader, wanted, Path(folder))])


def _folder() -> "TemporaryDirectory[str]":
    # A thread may still write into it when the task is cancelled; that is no error.
    return TemporaryDirectory(prefix="riacho-", ignore_cleanup_errors=True)


def _small_together(readers: Sequence[UnitReader]) -> Iterator[list[UnitReader]]:
    """Yield groups of neighbours whose slices fit into one chunk, and large ones alone."""
    group: list[UnitReader] = []
    filled = 0
    for reader in readers:
        size_bytes = reader.hot.size_bytes
        if group and filled + size_bytes > CHUNK_BYTES:
            yield group
            group, filled = [], 0
        group.append(reader)
        filled += size_bytes
    if group:
        yield group


async def _read_together(stores: TaskStores, group: Sequence[UnitReader]) -> None:
    """Read the slices of small units together: partitions of a lane share objects."""
    if sum(reader.hot.size_bytes for reader in group) > CHUNK_BYTES:
        return
    parts = [(reader, reader.hot) for reader in group]
    try:
        known = await load_slices(stores.zones, asyncio.Semaphore(READS_AT_ONCE_MAX), parts, {})
    except RiachoError:
        # Each unit will read by itself, and the one that fails will report it.
        return
    for reader in group:
        reader.know(known)


async def _last_offsets(reader: UnitReader) -> pa.Table:
    last = LastOffsets()
    floor = reader.unit.log_start

    def add(chunk: Decode) -> None:
        for batch in chunk():
            last.add(keyed.pairs(batch, floor))

    async with aclosing(reader.keys()) as chunks:
        async for chunk in chunks:
            await asyncio.to_thread(add, chunk)
    return await asyncio.to_thread(last.table)


async def _rewrite(
    stores: TaskStores, reader: UnitReader, wanted: Ints | None, folder: Path
) -> Rewritten:
    """Rewrite the unit; `wanted` are the surviving offsets, if known already."""
    unit = reader.unit
    if unit.is_keyed and wanted is None:
        wanted = keyed.survivors(await _last_offsets(reader))
    typed = await _typed(stores, reader)
    output = _Output(stores, reader, folder, await _sealer(stores, reader), typed)
    try:
        async with aclosing(reader.records(wanted)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Stays):
                    await output.stay(chunk.segment)
                    continue
                kept = _kept(chunk, unit, wanted)
                if typed is None:
                    await _in_thread(_copy, kept, output.write)
                else:
                    await _copy_typed(kept, output.write, typed)
                await output.upload()
        await output.finish(unit.end_offset)
    except BaseException:
        output.discard()
        raise
    return output.result()


async def _sealer(stores: TaskStores, reader: UnitReader) -> Sealer | None:
    """Return what seals the result of a unit; None: it is not sealed."""
    if not reader.unit.data_key:
        return None
    found = await required(stores.keyring).key(reader.head.topic_id, reader.unit.data_key)
    return Sealer(found.key, stores.world.random_bytes)


async def _typed(stores: TaskStores, reader: UnitReader) -> TypedColumns | None:
    """Return what makes typed columns; None: there are none."""
    if not reader.unit.typed or stores.schemas is None:
        return None
    typed = TypedColumns(stores.schemas, reader.unit.typed)
    for segment in reader.unit.segments:
        known = (await reader.footer(segment)).schemas
        await typed.learn({each.ref for each in known})
        typed.expect(known)
    return typed


async def _in_thread(work: Callable[..., None], *args: object) -> None:
    """Run `work` in a thread. If cancelled, wait for it first: it may write to a file."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        drop_error(running)
        raise


def _kept(chunk: Decode, unit: Unit, wanted: Ints | None) -> Iterator[pa.RecordBatch]:
    for batch in chunk():
        yield keyed.kept(batch, wanted, floor=unit.log_start, horizon=unit.horizon)


Write: TypeAlias = Callable[[pa.RecordBatch], None]


def _copy(batches: Iterator[pa.RecordBatch], write: Write) -> None:
    for batch in batches:
        write(batch)


async def _copy_typed(batches: Iterator[pa.RecordBatch], write: Write, typed: TypedColumns) -> None:
    """Write batches as `_copy` does, but look up their schemas before."""
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        await typed.learn(await asyncio.to_thread(typed.unknown, batch))
        await _in_thread(write, batch)


class _Output:
    """The segments that replace a unit."""

    def __init__(
        self,
        stores: TaskStores,
        reader: UnitReader,
        folder: Path,
        sealer: Sealer | None,
        typed: TypedColumns | None,
    ) -> None:
        self._stores = stores
        self._head = reader.head
        self._unit = reader.unit
        self._folder = folder
        self._sealer = sealer
        self._typed = typed
        self._writer: CompactedWriter | None = None
        self._tombstones = 0
        self._position = reader.unit.start_offset
        """Where the next segment begins."""
        self._files: list[tuple[WrittenSegment, int]] = []
        self._segments: list[Segment] = []
        self._stayed: list[Segment] = []
        self._records_in = reader.hot.record_count
        self._records_in += sum(each.record_count for each in self._unit.segments)
        self._bytes_in = reader.hot.size_bytes
        self._bytes_in += sum(each.size_bytes for each in self._unit.segments)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add records; a full segment is closed, and the next one is begun."""
        rows = batch.num_rows
        if batch.nbytes > self._unit.segment_bytes:
            rows = max(1, rows * self._unit.segment_bytes // batch.nbytes)
        for start in range(0, batch.num_rows, max(1, rows)):
            self._write(batch.slice(start, rows))

    def _write(self, batch: pa.RecordBatch) -> None:
        needs_new = self._typed is not None and self._typed.needs_new_file(batch)
        if needs_new and self._writer is not None:
            self._close(batch.column("offset")[0].as_py())
        if self._writer is None:
            if self._typed is not None:
                self._typed.begin_file()
            self._writer = CompactedWriter(
                self._folder / f"{self._unit.number}-{self._position}.parquet",
                topic_id=self._head.topic_id,
                partition=self._unit.number,
                start_offset=self._position,
                seal=self._seal if self._sealer is not None else None,
                data_key=self._unit.data_key,
                typed=self._typed,
            )
        self._writer.write(batch)
        self._tombstones += keyed.tombstone_count(batch)
        if self._writer.size_bytes >= self._unit.segment_bytes:
            self._close(batch.column("offset")[-1].as_py() + 1)

    def _seal(self, row_group: bytes, start_offset: int) -> bytes:
        assert self._sealer is not None, "a segment that is not sealed has nothing to seal"
        return self._sealer.seal(row_group, self._unit.number, start_offset)

    def _close(self, end_offset: int) -> None:
        """End the segment, which covers everything up to `end_offset`."""
        if self._writer is not None:
            written = self._writer.close(end_offset)
            assert written is not None, "a segment is begun by its first record"
            self._files.append((written, self._tombstones))
        self._writer, self._tombstones = None, 0
        self._position = end_offset

    async def stay(self, segment: Segment) -> None:
        """Keep a segment unchanged among the written ones."""
        await self.finish(segment.start_offset)
        self._segments.append(segment)
        self._stayed.append(segment)
        self._position = segment.end_offset

    async def finish(self, end_offset: int) -> None:
        await _in_thread(self._close, end_offset)
        await self.upload()

    async def upload(self) -> None:
        """Store finished segments in the zones in sync."""
        while self._files:
            written, tombstones = self._files[0]
            object_id = self._stores.world.new_id()
            segment = written.segment(
                object_id=object_id, zones=NONE, written_ms=self._stores.world.now_ms()
            )
            zones = await self._put(segment.key(self._head.topic_id), written)
            written.path.unlink()
            del self._files[0]
            self._segments.append(
                msgspec.structs.replace(segment, zones=zones, tombstones=tombstones)
            )

    async def _put(self, key: str, written: WrittenSegment) -> ZoneSet:
        """Store a file in the zones in sync; return the zones that hold it, at least one."""
        names = zone_names(self._head, self._head.isr)
        held, errors = await put_file(
            self._stores.zones, key, written.path, names, size_bytes=written.size_bytes
        )
        if not held:
            raise errors[0]
        return zones_named(self._head, held)

    def discard(self) -> None:
        """Remove files that were not stored in a zone."""
        if self._writer is not None:
            self._writer.discard()
        for written, _ in self._files:
            written.path.unlink(missing_ok=True)

    def result(self) -> Rewritten:
        new = [each for each in self._segments if each not in self._stayed]
        stayed_records = sum(each.record_count for each in self._stayed)
        stayed_bytes = sum(each.size_bytes for each in self._stayed)
        return Rewritten(
            segments=tuple(self._segments),
            records_in=self._records_in - stayed_records,
            records_out=sum(each.record_count for each in new),
            bytes_in=self._bytes_in - stayed_bytes,
            bytes_out=sum(each.size_bytes for each in new),
        )
