"""Small flushes that are stored in the metadata table until the head is rolled.

    batch/<last digit of id>/<id>  =  length (u32, little-endian)  zstd(segment), in a frame

The segment is the same as in an object (formats/segments.py). Half a kilobyte of it is Arrow's
and the footer's, mostly zeros. The table charges by the kilobyte, so the segment is compressed.

A run of kind `TABLE` has its slices here. Otherwise it is like a run in a bucket: data first,
sequence second; written once, under a name that is never used again; garbage if no head
references it. A write takes a few milliseconds, and up to some kilobytes it is also cheaper
(docs/decisions/0024).

The table counts as every zone, including future ones (`EVERYWHERE`): all zones depend on it
anyway.

A roll copies the batches of a head into one segment in the zones; after its commit the batches
are removed (`Catalog.roll`, `Rolls`). A reader with an older head finds them missing and reads
the head again. Batches left over, because the process died or its commit failed, are swept
(`old`, `mentioned`; service/jobs/sweep/batches.py).
"""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from crc32c import crc32c

from storage import keys
from storage.errors import (
    Corrupt,
    MetadataConflict,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    RiachoError,
    StoreUnavailable,
)
from storage.formats import frames, segments
from storage.formats.entries import Entry, in_object
from storage.formats.partitions import PartitionNumber
from storage.formats.segments import FooterRow
from storage.formats.slices import Slice
from storage.formats.zone_sets import ZoneSet
from storage.head import head as heads
from storage.head.head import Head
from storage.head.roots import Overtaken
from storage.stores.metadata import Delete, MetadataStore, Put, Versioned, pages
from storage.stores.objects import Piece

log = logging.getLogger("riacho")

_MAGIC: Final = b"RTB1"
_LENGTH: Final = struct.Struct("<I")

SEGMENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum decoded size that is accepted; segments in the table are far smaller."""

WRITES_MAX: Final = 5
"""Maximum number of attempts of a write that is not answered."""

REMOVED_AT_ONCE: Final = 16
_LISTED_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Move:
    """Batches that one roll moves out of the table."""

    pieces: list[Piece]
    """The segment with their slices, by partition and offset; empty: none could be read."""
    positions: Mapping[tuple[bytes, int], int]
    """The position of each slice in the segment, by batch and position in the batch."""
    removals: tuple[Delete, ...]
    """To be applied once the roll is committed."""

    def listed(self, entries: Iterable[Entry], object_id: bytes, zones: ZoneSet) -> list[Entry]:
        """Return `entries` as a page lists them, now that `zones` hold the segment."""
        return [self._listed(entry, object_id, zones) for entry in entries]

    def _listed(self, entry: Entry, object_id: bytes, zones: ZoneSet) -> Entry:
        if not entry.is_in_table:
            return entry
        kind = in_object(entry.kind)
        position = self.positions.get((entry.object_id, entry.position))
        if position is None:
            # Keep its identifier: the object does not exist, like any lost object.
            return entry._replace(kind=kind, zones=zones)
        return entry._replace(kind=kind, object_id=object_id, position=position, zones=zones)


class TableBatches:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def write(self, object_id: bytes, segment: bytes) -> None:
        """Store the segment under an unused name; return when a commit may reference it.

        Raises `StoreUnavailable` if the outcome is unknown: it may be stored, as garbage.
        """
        put = Put(keys.table_batch(object_id), encode(segment), None, can_wait=True)
        for _ in range(WRITES_MAX):
            try:
                await self._metadata.transact([put])
            except OutcomeUnknown:
                continue
            except MetadataConflict as conflict:
                # Written by an attempt that was not answered.
                found = conflict.current.get(put.key)
                if found is None or found.value != put.value:
                    raise ObjectExists(f"{put.key} holds something else") from conflict
            return
        raise StoreUnavailable("the table does not say whether it took this; send it again")

    async def read(self, entries: Sequence[Entry]) -> list[bytes]:
        """Return the bytes of slices, in the order asked.

        Raises `ObjectMissing` if a batch does not exist or was removed, and `Corrupt`.
        """
        found = await self._found({entry.object_id for entry in entries})
        bodies = {object_id: decode(item.value) for object_id, item in found.items()}
        return [_slice(entry, bodies.get(entry.object_id)) for entry in entries]

    async def is_there(self, object_id: bytes) -> bool:
        return bool(await self._found([object_id]))

    async def move(self, head: Head, entries: Sequence[Entry]) -> Move:
        """Return the segment that a roll of `head`, which has `entries`, writes for its batches.

        Raises `Overtaken` if another process has rolled it meanwhile.
        """
        inside = [entry for entry in entries if entry.is_in_table]
        found = await self._found({entry.object_id for entry in inside})
        missing = {entry.object_id for entry in inside} - found.keys()
        if missing and await self._is_rolled(head):
            raise Overtaken("another process has rolled the lane")
        bodies = {object_id: _body(item) for object_id, item in found.items()}
        footers = {object_id: _footer(body) for object_id, body in bodies.items()}
        positions: dict[tuple[bytes, int], int] = {}
        parts: list[tuple[bytes, PartitionNumber, Slice]] = []
        position = segments.FIRST_POSITION
        for entry in inside:
            row = footers.get(entry.object_id, {}).get(entry.position)
            try:
                data = _slice(entry, bodies.get(entry.object_id))
                if row is None:
                    raise Corrupt(f"{keys.table_batch(entry.object_id)} does not list its slices")
            except Corrupt as error:
                # The log continues without it, as with an object that all zones have lost.
                log.error("records are lost: %s", error)
                continue
            piece = Slice(
                memoryview(data), entry.record_count, entry.min_ms, entry.max_ms, entry.crc
            )
            parts.append((head.topic_id, row.partition, piece))
            positions[entry.object_id, entry.position] = position
            position += entry.length
        return Move(
            segments.encode(parts) if parts else [],
            positions,
            tuple(
                Delete(keys.table_batch(id_), item.version, can_wait=True)
                for id_, item in found.items()
            ),
        )

    async def remove(self, batches: Sequence[Delete]) -> None:
        """Remove batches; if that fails, the sweep removes them later."""
        gate = asyncio.Semaphore(REMOVED_AT_ONCE)

        async def remove(batch: Delete) -> None:
            # One by one: in a transaction they would cost twice as much.
            async with gate:
                with suppress(RiachoError):
                    await self._metadata.transact([batch])

        await asyncio.gather(*map(remove, batches))

    async def _found(self, object_ids: Collection[bytes]) -> dict[bytes, Versioned]:
        # Sorted, so that the order is the same in every process, though sets are given.
        names = {keys.table_batch(object_id): object_id for object_id in sorted(object_ids)}
        found = await self._metadata.get_many(list(names))
        return {names[key]: item for key, item in found.items()}

    async def _is_rolled(self, head: Head) -> bool:
        """Whether the lane was rolled since `head`, or deleted."""
        item = await self._metadata.get(keys.head(head.topic_id, head.lane))
        return item is None or heads.decode(item.value).root != head.root


@dataclass(frozen=True, slots=True)
class OldBatch:
    """A batch that is garbage unless a head references it."""

    object_id: bytes
    size_bytes: int
    removal: Delete


async def old(metadata: MetadataStore, cutoff_ms: int) -> AsyncIterator[list[OldBatch]]:
    """Yield the batches that were named at `cutoff_ms` or before.

    Its age is known only by the writer's clock: the table keeps no time.
    """
    for digit in keys.DIGITS:
        async for page in pages(metadata, keys.table_batches(digit), _LISTED_AT_ONCE):
            found = [_old(key, item) for key, item in page]
            yield [batch for batch in found if int.from_bytes(batch.object_id[:6]) <= cutoff_ms]


def _old(key: str, item: Versioned) -> OldBatch:
    object_id = bytes.fromhex(key.rpartition("/")[2])
    return OldBatch(object_id, len(item.value), Delete(key, item.version))


def mentioned(head: Head) -> set[bytes]:
    """Return the batches of a head; also those before the log start, as a roll reads them all."""
    return {run.object_id for run in head.runs if run.is_in_table}


def encode(segment: bytes) -> bytes:
    """Return the value of an item that holds a segment."""
    packed = pa.compress(segment, codec="zstd", asbytes=True)
    return frames.seal(_MAGIC, _LENGTH.pack(len(segment)) + packed)


def decode(value: bytes) -> bytes:
    """Return the segment that an item holds, or raise `Corrupt`."""
    payload = frames.unseal(_MAGIC, value)
    try:
        [length] = _LENGTH.unpack_from(payload)
        if length > SEGMENT_BYTES_MAX:
            raise ValueError(f"it says that it has {length} bytes")
        found: bytes = pa.decompress(payload[_LENGTH.size :], length, "zstd", asbytes=True)
    except (struct.error, pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt(f"a batch in the table cannot be decoded: {error}") from error
    return found


def _slice(entry: Entry, segment: bytes | None) -> bytes:
    key = keys.table_batch(entry.object_id)
    if segment is None:
        raise ObjectMissing(f"there is no {key}")
    data = segment[entry.position : entry.position + entry.length]
    if len(data) != entry.length or crc32c(data) != entry.crc:
        raise Corrupt(f"the slice at {entry.position} of {key} is damaged")
    return data


def _body(item: Versioned) -> bytes:
    """Return the segment in an item; empty if it is damaged."""
    with suppress(Corrupt):
        return decode(item.value)
    return b""


def _footer(segment: bytes) -> Mapping[int, FooterRow]:
    """Return the footer rows of a segment by position; empty if it is damaged."""
    with suppress(Corrupt):
        return {row.position: row for row in segments.footer(segment)}
    return {}
