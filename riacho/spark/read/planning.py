"""Planning in the driver, without I/O: which offsets to read, in which tasks, and how fast.

    place + extents ──▶ spans of offsets ──▶ (located) ──▶ tasks

A span is a range of offsets in one partition. Spans are cut where stored ranges end, so that no
slice is read by two tasks, unless more tasks are requested than there are slices.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Final

from riacho.errors import new_error
from riacho.records import TopicPartition
from riacho.spark.read.options import EARLIEST, LATEST, Boundary
from riacho.spark.read.ranges import StoredRange
from storage.errors import InvalidConfig, OffsetOutOfRange, RiachoError

TASK_BYTES: Final = 64 * 1024 * 1024
"""Approximate stored bytes per task, so that a huge partition uses all cores."""

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What a partition holds."""

    log_start: int
    end: int
    size_bytes: int = 0

    def bytes_of(self, start: int, end: int) -> int:
        """Return the approximate stored size, assuming that all records have the same size."""
        return self.size_bytes * (end - start) // max(1, self.end - self.log_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The records of one partition with `start <= offset < end`."""

    partition: TopicPartition
    start: int
    end: int
    size_bytes: int = 0
    ranges: tuple[StoredRange, ...] | None = None
    """Where they are stored; None if the task must locate them."""

    @property
    def offset_count(self) -> int:
        return self.end - self.start

    def between(self, start: int, end: int) -> "Span":
        """Return a part of the span."""
        if self.ranges is None:
            size_bytes = self.size_bytes * (end - start) // max(1, self.offset_count)
            return replace(self, start=start, end=end, size_bytes=size_bytes)
        ranges = tuple(r for r in self.ranges if r.end_offset > start and r.base_offset < end)
        return replace(
            self,
            start=start,
            end=end,
            size_bytes=sum(each.size_bytes for each in ranges),
            ranges=ranges,
        )


def resolved(
    name: str,
    place: Boundary,
    extents: Mapping[TopicPartition, Extent],
    found: Mapping[TopicPartition, int | None],
    late: Callable[[TopicPartition, Extent], int],
) -> Offsets:
    """Return the offset that `place` means in each partition.

    `found` has the offsets for the times in `place`; where it is None, because no record is that
    new, `late` decides. Raises `InvalidConfig` if `place` does not name exactly the partitions
    of `extents`.
    """
    if place.end is not None:
        return {
            partition: extent.log_start if place.end == "earliest" else extent.end
            for partition, extent in extents.items()
        }
    if place.offsets is not None:
        _check_named(name, place.offsets, extents)
        return {
            partition: {EARLIEST: extent.log_start, LATEST: extent.end}.get(
                place.offsets[partition], place.offsets[partition]
            )
            for partition, extent in extents.items()
        }
    offsets: Offsets = {}
    for partition, extent in extents.items():
        offset = found[partition]
        offsets[partition] = late(partition, extent) if offset is None else offset
    return offsets


def times_of(
    name: str, place: Boundary, extents: Mapping[TopicPartition, Extent]
) -> dict[TopicPartition, int]:
    """Return the times whose offsets must be looked up before `place` can be resolved."""
    if place.at_ms is not None:
        return dict.fromkeys(extents, place.at_ms)
    if place.times_ms is None:
        return {}
    _check_named(name, place.times_ms, extents)
    return {partition: place.times_ms[partition] for partition in extents}


def _check_named(
    name: str, named: Mapping[TopicPartition, int], extents: Mapping[TopicPartition, Extent]
) -> None:
    if missing := extents.keys() - named.keys():
        raise InvalidConfig(f"{name} leaves out {_listed(missing)}; name every partition")
    if unknown := named.keys() - extents.keys():
        raise InvalidConfig(f"{name} names {_listed(unknown)}, which is not read")


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions))


def kept(
    partition: TopicPartition, start: int, end: int, extent: Extent, *, fail_on_data_loss: bool
) -> tuple[int, int]:
    """Return the offsets that can still be read; raises if some are lost and that must fail."""
    if extent.log_start <= start <= end <= extent.end:
        return start, end
    if fail_on_data_loss and start < end:
        raise lost(partition, start, end, extent)
    first = min(max(start, extent.log_start), extent.end)
    return first, max(first, min(end, extent.end))


def lost(partition: TopicPartition, start: int, end: int, extent: Extent) -> RiachoError:
    """Return the error that says which records are lost."""
    return new_error(
        OffsetOutOfRange,
        f"{partition}: offsets from {start} to {end} were to be read, but the log holds"
        f" {extent.log_start} <= offset < {extent.end}. Records were deleted, or it is another"
        " topic of that name. Set failOnDataLoss to false to go on with what is there",
    )


def tasks(
    spans: Iterable[Span], *, min_partitions: int | None = None, records_max: int | None = None
) -> list[Span]:
    """Return `spans` cut into one span per task; empty ones are left out."""
    pieces = [piece for span in spans for piece in _by_bytes(span)]
    if records_max is not None:
        pieces = [
            part
            for piece in pieces
            for part in _evenly(piece, ceil(piece.offset_count / records_max))
        ]
    if min_partitions is not None and len(pieces) < min_partitions:
        total = sum(piece.offset_count for piece in pieces)
        pieces = [
            part
            for piece in pieces
            for part in _evenly(piece, round(piece.offset_count / total * min_partitions))
        ]
    return pieces


def _by_bytes(span: Span) -> list[Span]:
    if span.start >= span.end or span.ranges == ():
        return []
    if span.ranges is None:
        return _evenly(span, ceil(span.size_bytes / TASK_BYTES))
    ends: list[int] = []
    size_bytes = 0
    for each in span.ranges:
        if size_bytes and size_bytes + each.size_bytes > TASK_BYTES:
            ends.append(max(each.base_offset, span.start))
            size_bytes = 0
        size_bytes += each.size_bytes
    starts, ends = [span.start, *ends], [*ends, span.end]
    return [span.between(start, end) for start, end in zip(starts, ends, strict=True)]


def _evenly(span: Span, count: int) -> list[Span]:
    """Return the span in `count` parts, or fewer if it has fewer offsets."""
    count = max(1, min(count, span.offset_count))
    cuts = [span.start + span.offset_count * number // count for number in range(count + 1)]
    parts = [span.between(start, end) for start, end in itertools.pairwise(cuts)]
    return [part for part in parts if part.ranges != ()]


def limited(start: Offsets, end: Offsets, offsets_max: int) -> Offsets:
    """Return how far to read from `start` towards `end`, about `offsets_max` offsets in total.

    Each partition gets its proportional share, and at least one, so that small ones do not starve.
    """
    waiting = {p: end[p] - start.get(p, 0) for p in end if end[p] > start.get(p, 0)}
    total = sum(waiting.values())
    if total <= offsets_max:
        return end
    return {p: _share(start.get(p, 0), waiting.get(p, 0), offsets_max / total, end[p]) for p in end}


def _share(start: int, waiting: int, share: float, end: int) -> int:
    if not waiting:
        return end
    most = waiting * share
    return min(end, start + (ceil(most) if most < 1 else floor(most)))


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets as the checkpoint keeps them, as with Kafka: {"orders": {"0": 23}}.

    Spark compares them as text, so equal offsets are equal text.
    """
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def from_json(document: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }
