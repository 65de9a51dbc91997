"""Reading the input of a unit: first its segments, then its slices, in the order of offsets.

Bytes are read in chunks of some megabytes, one chunk ahead of processing, so memory is bounded
whatever the unit's size. Every byte is compared with a checksum before it is used; a copy that is
lost or damaged is read from another zone. Row groups and slices without wanted records are skipped.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from storage import keys
from storage.crypto.keyring import Keyring, required
from storage.errors import Corrupt
from storage.formats import compacted, slices
from storage.formats.compacted import SCHEMA, Footer, RowGroup, Unseal
from storage.formats.entries import KAFKA_SLICES
from storage.formats.kafka import decoding as kafka
from storage.formats.records import RECORD_SCHEMA
from storage.formats.segment_list import Segment
from storage.head import head as heads
from storage.head.replication import read_names
from storage.maintenance.compaction import keyed
from storage.maintenance.compaction.hot import Hot, Ints
from storage.maintenance.compaction.units import Unit
from storage.stores.ranges import Range
from storage.tasks import drop_error
from storage.zones.zones import Zones

T = TypeVar("T")

CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Approximate size of one read; two more such chunks may be in memory."""

CHUNK_SLICES_MAX: Final = 4096
READS_AT_ONCE_MAX: Final = 16
JOINED_BYTES: Final = 1024 * 1024
"""Small slices are joined up to this size, as each batch has a cost; larger ones are not copied."""

KEY_COLUMNS: Final = ("offset", "key")

Slices: TypeAlias = Mapping[tuple[bytes, int], bytes]
"""By object and position."""

Decode: TypeAlias = Callable[[], Iterator[pa.RecordBatch]]
"""Decompresses, which takes long: do not call it in the event loop."""


@dataclass(frozen=True, slots=True)
class Stays:
    """Yielded instead of a chunk: a segment that stays unchanged."""

    segment: Segment


class UnitReader:
    """The inputs of one unit."""

    def __init__(self, zones: Zones, unit: Unit, keyring: Keyring | None = None) -> None:
        """Read from `zones`; sealed input needs a `keyring`."""
        self.unit = unit
        self.head = heads.decode(unit.lane)
        self.hot = Hot.decode(unit.hot)
        self._zones = zones
        self._keyring = keyring
        self._gate = asyncio.Semaphore(READS_AT_ONCE_MAX)
        self._known: Slices = {}
        self._footers: dict[bytes, Footer] = {}

    def know(self, known: Slices) -> None:
        """Use slices that were read already."""
        self._known = known

    async def keys(self) -> AsyncGenerator[Decode, None]:
        """Yield keys and offsets of all records."""
        async with aclosing(ahead(self._chunks(None, only_keys=True))) as chunks:
            async for chunk in chunks:
                assert not isinstance(chunk, Stays)
                yield chunk

    async def records(self, wanted: Ints | None) -> AsyncGenerator[Decode | Stays, None]:
        """Yield complete records: at least those whose offset is `wanted` (None: all)."""
        async with aclosing(ahead(self._chunks(wanted, only_keys=False))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _chunks(
        self, wanted: Ints | None, *, only_keys: bool
    ) -> AsyncGenerator[Decode | Stays, None]:
        for segment in self.unit.segments:
            if not only_keys and stays(self.unit, segment, wanted):
                yield Stays(segment)
                continue
            footer = await self.footer(segment)
            groups = [each for each in footer.row_groups if self._is_wanted(each, wanted)]
            for chunk in _by_bytes(groups, [each.length for each in groups]):
                load = self._load_keys if only_keys else self._load_row_groups
                yield await load(segment, footer, chunk)
        for part in _hot_chunks(self.hot, wanted):
            yield await self._load_hot(part, only_keys)

    def _is_wanted(self, group: RowGroup, wanted: Ints | None) -> bool:
        if group.end_offset <= self.unit.log_start:
            return False
        return keyed.within(wanted, group.start_offset, group.end_offset) > 0

    async def footer(self, segment: Segment) -> Footer:
        """Return the footer of a segment of the unit, which is read once."""
        found = self._footers.get(segment.object_id)
        if found is None:
            start = segment.size_bytes - segment.footer_bytes
            parse = partial(compacted.footer_of, segment, self.head.topic_id)
            [found] = await self._get(
                segment, [(start, segment.size_bytes)], lambda pieces: [parse(pieces[0])]
            )
            self._footers[segment.object_id] = found
        return found

    async def _load_keys(
        self, segment: Segment, footer: Footer, groups: Sequence[RowGroup]
    ) -> Decode:
        spans = [compacted.column_ranges(footer, each.number, KEY_COLUMNS) for each in groups]
        unseal = await self._unseal(footer)

        def decode(pieces: Sequence[bytes]) -> list[pa.RecordBatch]:
            # Pages of columns have checksums that only decoding compares.
            waiting = iter(pieces)
            found = []
            for group, ranges in zip(groups, spans, strict=True):
                own = [next(waiting) for _ in ranges]
                found.append(
                    compacted.decode_columns(footer, group.number, ranges, own, KEY_COLUMNS, unseal)
                )
            return found

        batches = await self._get(segment, [one for each in spans for one in each], decode)
        return lambda: iter(batches)

    async def _load_row_groups(
        self, segment: Segment, footer: Footer, groups: Sequence[RowGroup]
    ) -> Decode:
        def check(pieces: Sequence[bytes]) -> Sequence[bytes]:
            for group, piece in zip(groups, pieces, strict=True):
                compacted.check_row_group(group, piece)
            return pieces

        unseal = await self._unseal(footer)
        pieces = await self._get(segment, [(each.position, each.end) for each in groups], check)

        def decode() -> Iterator[pa.RecordBatch]:
            for group, piece in zip(groups, pieces, strict=True):
                yield compacted.decode_row_group(footer, group.number, piece, unseal=unseal)

        return decode

    async def _unseal(self, footer: Footer) -> Unseal | None:
        """Return what opens the row groups of a segment; None: they are not sealed."""
        if not footer.data_key:
            return None
        found = await required(self._keyring).key(footer.topic_id, footer.data_key)
        return found.unseal(footer.partition)

    async def _get(
        self, segment: Segment, ranges: Sequence[Range], decode: Callable[[list[bytes]], T]
    ) -> T:
        """Return the ranges decoded, from the first zone where `decode` succeeds."""
        found: list[T] = []
        names = read_names(self.head, segment.zones, self.unit.partition)
        await self._zones.get_ranges(
            segment.key(self.head.topic_id),
            ranges,
            names,
            lambda pieces: found.append(decode(pieces)),
        )
        return found[-1]

    async def _load_hot(self, part: Hot, only_keys: bool) -> Decode:
        rows = _places(part)
        missing = [place for place in rows if place not in self._known]
        known = self._known
        if missing:
            found = await load_slices(self._zones, self._gate, [(self, part)], known)
            known = {**found, **{place: known[place] for place in rows if place in known}}
        pieces = [known[place] for place in rows]
        numbers = part.column("data_key").tolist()
        if not any(numbers):
            return partial(_decode_slices, part, pieces, only_keys)
        opening = await required(self._keyring).keys(self.head.topic_id, numbers)
        partition = self.unit.number

        def decode() -> Iterator[pa.RecordBatch]:
            opened = [
                opening[number].key.open(piece, partition) if number else piece
                for number, piece in zip(numbers, pieces, strict=True)
            ]
            yield from _decode_slices(part, opened, only_keys)

        return decode


async def load_slices(
    zones: Zones,
    gate: asyncio.Semaphore,
    parts: Sequence[tuple[UnitReader, Hot]],
    known: Slices,
) -> dict[tuple[bytes, int], bytes]:
    """Return the slices of several units, except `known` ones; read each object once."""
    by_object: dict[bytes, _ObjectRead] = {}
    for reader, hot in parts:
        columns = (hot.column(name).tolist() for name in ("position", "length", "crc", "zones"))
        ids = hot.batch.column("object_id").to_pylist()
        for object_id, position, length, crc, held in zip(ids, *columns, strict=True):
            if (object_id, position) in known:
                continue
            read = by_object.get(object_id)
            if read is None:
                names = read_names(reader.head, held, reader.unit.partition)
                read = by_object[object_id] = _ObjectRead(object_id, names, [])
            read.places.append((position, length, crc))

    async def load(read: _ObjectRead) -> list[bytes]:
        async with gate:
            return await read.load(zones)

    loads = await asyncio.gather(*(load(read) for read in by_object.values()))
    return {
        (read.object_id, place[0]): piece
        for read, pieces in zip(by_object.values(), loads, strict=True)
        for place, piece in zip(read.places, pieces, strict=True)
    }


@dataclass(slots=True)
class _ObjectRead:
    object_id: bytes
    names: list[str]
    places: list[tuple[int, int, int]]
    """Position, length and checksum of each slice."""

    async def load(self, zones: Zones) -> list[bytes]:
        try:
            return await self._load(zones, self.places)
        except Corrupt:
            if len(self.places) == 1:
                raise
        # No zone holds all of them intact, but each may be intact in some zone.
        return [(await self._load(zones, [place]))[0] for place in self.places]

    async def _load(self, zones: Zones, places: Sequence[tuple[int, int, int]]) -> list[bytes]:
        key = keys.hot_segment(self.object_id)

        def check(pieces: Sequence[bytes]) -> None:
            for (position, length, crc), piece in zip(places, pieces, strict=True):
                if len(piece) != length or crc32c(piece) != crc:
                    raise Corrupt(f"the slice at {position} of {key} is damaged")

        ranges = [(position, position + length) for position, length, _ in places]
        return await zones.get_ranges(key, ranges, self.names, check)


def stays(unit: Unit, segment: Segment, wanted: Ints | None) -> bool:
    """Whether a segment stays unchanged: no record is removed, and it is large enough."""
    if wanted is None or segment.size_bytes < unit.stay_bytes_min:
        return False
    if segment.start_offset < unit.log_start:
        return False
    if segment.tombstones and segment.start_offset < unit.horizon:
        return False
    count = keyed.within(wanted, segment.start_offset, segment.end_offset)
    return count == segment.record_count


def _hot_chunks(hot: Hot, wanted: Ints | None) -> Iterator[Hot]:
    if wanted is not None and len(hot):
        first = np.searchsorted(wanted, hot.ends - hot.counts)
        end = np.searchsorted(wanted, hot.ends)
        hot = Hot(hot.batch.take(pa.array(np.flatnonzero(end > first))))
    position = 0
    for chunk in _by_bytes(range(len(hot)), hot.lengths.tolist()):
        yield hot.part(position, position + len(chunk))
        position += len(chunk)


def _by_bytes(items: Sequence[T], sizes: Sequence[int]) -> Iterator[list[T]]:
    """Yield `items` in chunks of about `CHUNK_BYTES`."""
    chunk: list[T] = []
    filled = 0
    for item, size in zip(items, sizes, strict=True):
        if chunk and (filled + size > CHUNK_BYTES or len(chunk) >= CHUNK_SLICES_MAX):
            yield chunk
            chunk, filled = [], 0
        chunk.append(item)
        filled += size
    if chunk:
        yield chunk


def _places(hot: Hot) -> list[tuple[bytes, int]]:
    ids = hot.batch.column("object_id").to_pylist()
    return list(zip(ids, hot.column("position").tolist(), strict=True))


_EVERYTHING: Final = pa.ipc.IpcReadOptions(use_threads=False)
_KEYS: Final = pa.ipc.IpcReadOptions(
    use_threads=False, included_fields=[RECORD_SCHEMA.get_field_index("key")]
)


def _decode_slices(hot: Hot, pieces: Sequence[bytes], only_keys: bool) -> Iterator[pa.RecordBatch]:
    """Yield the records of slices with their offsets, small slices joined."""
    try:
        yield from _joined(hot, _each_decoded(hot, pieces, only_keys))
    except (pa.ArrowException, EOFError, OSError, ValueError) as error:
        raise Corrupt(f"slices do not decode: {error}") from error


def _each_decoded(hot: Hot, pieces: Sequence[bytes], only_keys: bool) -> Iterator[pa.RecordBatch]:
    """Yield the records of each slice: neighbours that are Arrow are read as one stream."""
    kinds = zip(hot.column("kind").tolist(), pieces, strict=True)
    for is_kafka, group in groupby(kinds, lambda each: each[0] in KAFKA_SLICES):
        some = [piece for _, piece in group]
        if is_kafka:
            for piece in some:
                batch = kafka.decode(piece)
                yield batch.select(["key"]) if only_keys else batch
            continue
        stream = b"".join([slices.SCHEMA_MESSAGE, *some, slices.END_OF_STREAM])
        with pa.ipc.open_stream(stream, options=_KEYS if only_keys else _EVERYTHING) as reader:
            yield from reader


def _joined(hot: Hot, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts = hot.counts.tolist()
    held: list[pa.RecordBatch] = []
    filled, first = 0, 0
    number = -1
    for number, batch in enumerate(batches):
        if number >= len(counts) or batch.num_rows != counts[number]:
            raise Corrupt(f"slice {number} has {batch.num_rows} records, the index says otherwise")
        batch.validate(full=True)  # Arrow trusts offsets, and may crash on a wrong one.
        held.append(batch)
        filled += batch.nbytes
        if filled >= JOINED_BYTES:
            yield _with_offsets(hot.part(first, number + 1), held)
            held, filled, first = [], 0, number + 1
    if number + 1 != len(counts):
        raise Corrupt(f"{number + 1} slices were read where the index has {len(counts)}")
    if held:
        yield _with_offsets(hot.part(first, number + 1), held)


def _with_offsets(hot: Hot, held: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    batch = held[0] if len(held) == 1 else pa.concat_batches(held)
    rows = np.cumsum(hot.counts) - hot.counts
    offsets = np.arange(batch.num_rows) + np.repeat(hot.ends - hot.counts - rows, hot.counts)
    columns = [pa.array(offsets), *batch.columns]
    fields = [SCHEMA.field(name) for name in ("offset", *batch.schema.names)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


async def ahead(source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield the items of `source`, while the next one is already being produced."""
    following = asyncio.create_task(_next(source))
    try:
        while items := await following:
            following = asyncio.create_task(_next(source))
            yield items[0]
    finally:
        following.cancel()
        await asyncio.wait([following])
        drop_error(following)
        await source.aclose()


async def _next(source: AsyncGenerator[T, None]) -> list[T]:
    """Return the next item, or nothing at the end."""
    try:
        return [await anext(source)]
    except StopAsyncIteration:
        return []
