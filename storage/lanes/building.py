"""Builds one hot segment, and the runs that commit it, from record batches. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

import pyarrow as pa
from crc32c import crc32c

from storage.crypto.envelope import Sealer
from storage.formats import segments, slices
from storage.formats.entries import Kind
from storage.formats.kafka.batches import Batches
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.formats.slices import Codec, Sent, Slice
from storage.formats.zone_sets import ZoneSet
from storage.head.head import Run, RunSlice, kind_of
from storage.stores.objects import Piece

UNPACKED_BYTES_MAX: Final = 4 * slices.SLICE_BYTES
"""Maximum size, unpacked, of several of Kafka's batches in a slice: a reader may unpack it all."""

Records: TypeAlias = pa.RecordBatch | Batches
"""Records of one partition, in the form that they are stored in."""

Stored: TypeAlias = Records | Sent


def count_of(records: Records) -> int:
    return records.count if isinstance(records, Batches) else int(records.num_rows)


def size_of(records: Records) -> int:
    return len(records.data) if isinstance(records, Batches) else int(records.nbytes)


def kind_of_slices(records: Records) -> Kind:
    return Kind.KAFKA if isinstance(records, Batches) else Kind.ARROW


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePart:
    """The part of a segment that belongs to one lane."""

    topic_id: bytes
    first_partition: PartitionNumber
    """The topic's number of the lane's first partition."""
    codec: Codec
    zones: ZoneSet
    batches: "Sequence[tuple[LanePartition, Sequence[Stored], int]]"
    """Partition (within the lane), its record batches in order, and their approximate size."""
    kind: Kind = Kind.ARROW
    """What its slices are: `KAFKA` if all its batches are `Batches`, `ARROW` if none is."""
    sealer: Sealer | None = None
    """What seals the slices; None: they are stored as they are."""

    @property
    def is_encoded(self) -> bool:
        """Whether its slices are there already, so that building them takes little time."""
        return self.kind is Kind.KAFKA and self.sealer is None

    def number_of(self, partition: LanePartition) -> PartitionNumber:
        """Return the number in the topic of a partition of the lane."""
        return PartitionNumber(self.first_partition + partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSegment:
    pieces: list[Piece]
    runs: list[Run]
    """One for each part, in the same order."""
    stored: list[tuple[int, memoryview]]
    """Position and bytes of every slice, before it was sealed."""


def build(object_id: bytes, parts: Sequence[LanePart]) -> BuiltSegment:
    """Return the segment that holds `parts`; the slices of a part are adjacent."""
    runs: list[Run] = []
    rows: list[tuple[bytes, PartitionNumber, Slice]] = []
    stored: list[tuple[int, memoryview]] = []
    position = segments.FIRST_POSITION
    for part in parts:
        plain = _joined(part) if part.kind is Kind.KAFKA else _encode(part)
        encoded = plain if part.sealer is None else _sealed(part, part.sealer, plain)
        runs.append(_run(object_id, position, part, encoded))
        for (partition, piece), (_, opened) in zip(encoded, plain, strict=True):
            rows.append((part.topic_id, part.number_of(partition), piece))
            stored.append((position, opened.data))
            position += len(piece.data)
    return BuiltSegment(pieces=segments.encode(rows), runs=runs, stored=stored)


def _encode(part: LanePart) -> list[tuple[LanePartition, Slice]]:
    """Return the slices of each partition in order; batches sent as a slice are kept as is."""
    found: list[tuple[LanePartition, Slice | None]] = []
    batches: list[pa.RecordBatch] = []
    for partition, waiting, size_bytes in part.batches:
        for is_sent, group in groupby(waiting, lambda each: _is_slice(each, part.codec)):
            if is_sent:
                found += [(partition, each.stored()) for each in group if isinstance(each, Sent)]
                continue
            plain = [_plain(each) for each in group]
            joined = plain[0] if len(plain) == 1 else pa.concat_batches(plain)
            size_bytes = size_bytes if len(plain) == len(waiting) else joined.nbytes
            cut = [*slices.cut(joined, size_bytes)]
            batches += cut
            found += [(partition, None)] * len(cut)
    encoded = iter(slices.encode(batches, part.codec) if batches else ())
    return [(partition, next(encoded) if each is None else each) for partition, each in found]


def _joined(part: LanePart) -> list[tuple[LanePartition, Slice]]:
    """Return slices of Kafka's batches as they came; small neighbours share one."""
    found: list[tuple[LanePartition, Slice]] = []
    for partition, waiting, _ in part.batches:
        held: list[Batches] = []
        held_bytes = unpacked_bytes = 0
        for each in waiting:
            assert isinstance(each, Batches), part.kind
            held_bytes += len(each.data)
            unpacked_bytes += each.record_bytes
            if held and (held_bytes > slices.SLICE_BYTES or unpacked_bytes > UNPACKED_BYTES_MAX):
                found.append((partition, _of(held)))
                held, held_bytes, unpacked_bytes = [], len(each.data), each.record_bytes
            held.append(each)
        found.append((partition, _of(held)))
    return found


def _of(held: Sequence[Batches]) -> Slice:
    data = held[0].data if len(held) == 1 else memoryview(b"".join([each.data for each in held]))
    return Slice(
        data,
        sum(each.count for each in held),
        min(each.min_ms for each in held),
        max(each.max_ms for each in held),
        crc32c(data),
    )


def _sealed(
    part: LanePart, sealer: Sealer, encoded: Sequence[tuple[LanePartition, Slice]]
) -> list[tuple[LanePartition, Slice]]:
    sealed = []
    for partition, piece in encoded:
        data = memoryview(sealer.seal(piece.data, part.number_of(partition)))
        stored = Slice(data, piece.count, piece.min_ms, piece.max_ms, crc32c(data))
        sealed.append((partition, stored))
    return sealed


def _plain(each: "Stored") -> pa.RecordBatch:
    assert not isinstance(each, Batches), "a lane's part has one kind of slices"
    return each.batch if isinstance(each, Sent) else each


def _is_slice(each: "Stored", codec: Codec) -> bool:
    return isinstance(each, Sent) and each.codec == codec


def _run(
    object_id: bytes, position: int, part: LanePart, encoded: Sequence[tuple[LanePartition, Slice]]
) -> Run:
    base_ms = min(piece.min_ms for _, piece in encoded)
    return Run(
        object_id=object_id,
        position=position,
        base_ms=base_ms,
        slices=tuple(
            RunSlice(
                partition,
                piece.count,
                len(piece.data),
                piece.min_ms - base_ms,
                piece.max_ms - piece.min_ms,
                piece.crc,
            )
            for partition, piece in encoded
        ),
        zones=part.zones,
        kind=kind_of(part.kind, 0 if part.sealer is None else part.sealer.key.number),
    )
