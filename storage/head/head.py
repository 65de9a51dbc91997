"""The head: the one metadata item of a lane, and the arithmetic of offsets.

A lane is up to 64 consecutive partitions of a topic that commit together. Its head says where
each partition ends and which slices were committed last; older slices are listed by index
objects behind `root`. A commit is a pure function, new head = `append(old head, runs)`,
followed by one compare-and-set. Nothing else assigns offsets.

    head  = next offset, log start and size of every partition, replicas, ISR, epoch, root
            runs, oldest first
            windows of idempotent producers (storage/head/producers.py), and pages with more of them
    run   = slices that lie next to each other in one object, committed together
    slice = [partition, records, bytes, ms after the run's base, span in ms, crc32c]

A slice's offsets are not stored. They are dense, so they are counted backwards from where its
partition ends now. This keeps the head small, and the table charges by its size.

Partitions are numbered within the lane here: 0 is the lane's first. Fields are only ever added
at the end, with a default, so that older heads still decode.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from storage import keys
from storage.errors import Corrupt
from storage.formats import entries, frames, zone_sets
from storage.formats.entries import IN_TABLE, SEALED, Entry, Kind
from storage.formats.partitions import LanePartition
from storage.formats.zone_sets import ZoneSet
from storage.head.producers import Key, Window

_MAGIC: Final = b"RHD1"

INLINE_BYTES_MAX: Final = 4096
"""Runs beyond about this size are rolled into an index page. DynamoDB charges a write by the
kilobyte and a bucket a page by the request; their sum is smallest around here (docs/scale)."""

_RUN_BYTES: Final = 30
_SLICE_BYTES: Final = 17

_KIND_BITS: Final = 8
_KIND_MASK: Final = (1 << _KIND_BITS) - 1


class RunSlice(msgspec.Struct, array_like=True, frozen=True, gc=False):
    partition: LanePartition
    count: int
    length: int
    after_ms: int
    """Smallest timestamp, counted from the run's `base_ms`."""
    span_ms: int
    crc: int


class Run(msgspec.Struct, array_like=True, frozen=True):
    object_id: bytes
    position: int
    base_ms: int
    slices: tuple[RunSlice, ...]
    zones: ZoneSet
    """Those of the head's `zones` that hold the object."""
    kind: int = int(Kind.ARROW)
    """The kind of its slices in the lowest byte, the number of their data key in those above."""

    @property
    def data_key(self) -> int:
        """The number of the data key that its slices are sealed with; 0: they are not."""
        return self.kind >> _KIND_BITS

    @property
    def is_in_table(self) -> bool:
        return self.kind & _KIND_MASK in IN_TABLE


def kind_of(kind: Kind, data_key: int) -> int:
    """Return the `kind` of a run whose slices have this kind; data key 0: they are not sealed."""
    return int(kind) + SEALED + (data_key << _KIND_BITS) if data_key else int(kind)


def in_table(run: Run) -> Run:
    """Return a run whose slices were written to the table instead of an object."""
    kind = entries.in_table(run.kind & _KIND_MASK) | run.data_key << _KIND_BITS
    return msgspec.structs.replace(run, kind=kind)


class WindowPage(msgspec.Struct, array_like=True, frozen=True):
    """An object that holds windows of producers that wrote nothing for a while."""

    object_id: bytes
    level: int
    count: int
    first_producer_id: int
    last_producer_id: int


class Head(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    topic_id: bytes
    lane: int
    commits: int = 0
    run_count: int = 0
    """Runs committed in the life of the lane; the last `len(runs)` of them are inline."""
    next_offsets: tuple[int, ...]
    log_starts: tuple[int, ...]
    sizes: tuple[int, ...]
    zones: tuple[str, ...]
    """Names of all zones that ever held data of this lane. Only ever appended to, since sets of
    zones in runs and index entries refer to positions."""
    replicas: tuple[int, ...]
    isr: ZoneSet
    leader_epoch: int = 0
    root: bytes = b""
    runs: tuple[Run, ...] = ()
    producers: tuple[Window, ...] = ()
    """Windows of idempotent producers, most recently used last."""
    producer_pages: tuple[WindowPage, ...] = ()
    """Pages with the windows that no longer fit in the head, newest last."""

    @property
    def partition_count(self) -> int:
        return len(self.next_offsets)

    @property
    def partitions(self) -> list[LanePartition]:
        return [LanePartition(number) for number in range(self.partition_count)]


def create(topic_id: bytes, lane: int, partition_count: int, zones: Sequence[str]) -> Head:
    """Return the head of an empty lane that is replicated to `zones`."""
    nothing = (0,) * partition_count
    return Head(
        topic_id=topic_id,
        lane=lane,
        next_offsets=nothing,
        log_starts=nothing,
        sizes=nothing,
        zones=tuple(zones),
        replicas=tuple(range(len(zones))),
        isr=zone_sets.first(len(zones)),
    )


def widen(head: Head, partition_count: int) -> Head:
    """Return the head with empty partitions added up to `partition_count`."""
    added = (0,) * (partition_count - head.partition_count)
    return msgspec.structs.replace(
        head,
        commits=head.commits + 1,
        next_offsets=head.next_offsets + added,
        log_starts=head.log_starts + added,
        sizes=head.sizes + added,
    )


def append(head: Head, runs: Sequence[Run]) -> Head:
    """Return the head after `runs` were committed, in that order, after all earlier runs.

    Every slice gets the next offsets of its partition; `base_offsets` returns them.
    """
    next_offsets, sizes = list(head.next_offsets), list(head.sizes)
    for run in runs:
        for piece in run.slices:
            next_offsets[piece.partition] += piece.count
            sizes[piece.partition] += piece.length
    return msgspec.structs.replace(
        head,
        commits=head.commits + 1,
        run_count=head.run_count + len(runs),
        next_offsets=tuple(next_offsets),
        sizes=tuple(sizes),
        runs=head.runs + tuple(runs),
    )


def base_offsets(head: Head, runs: Sequence[Run]) -> list[dict[LanePartition, int]]:
    """Return, for each of `runs`, the first offset each partition gets if appended to `head`."""
    next_offsets = list(head.next_offsets)
    bases: list[dict[LanePartition, int]] = []
    for run in runs:
        first: dict[LanePartition, int] = {}
        for piece in run.slices:
            first.setdefault(piece.partition, next_offsets[piece.partition])
            next_offsets[piece.partition] += piece.count
        bases.append(first)
    return bases


def first_runs(head: Head, count: int) -> Head:
    """Return the head as it was when it had only the `count` oldest of its runs."""
    ends = list(head.next_offsets)
    for run in head.runs[count:]:
        for piece in run.slices:
            ends[piece.partition] -= piece.count
    return msgspec.structs.replace(
        head,
        runs=head.runs[:count],
        run_count=head.run_count - len(head.runs) + count,
        next_offsets=tuple(ends),
    )


def drop_runs(head: Head, count: int, root: bytes) -> Head:
    """Return the head without its `count` oldest runs, which `root` now lists."""
    return msgspec.structs.replace(head, runs=head.runs[count:], root=root)


def with_windows(head: Head, changed: Mapping[Key, Window]) -> Head:
    """Return the head with its windows replaced by `changed`, which become the last used."""
    kept = [window for window in head.producers if window.key not in changed]
    return msgspec.structs.replace(head, producers=(*kept, *changed.values()))


def inline_bytes(head: Head) -> int:
    """Return the approximate size of the runs in the encoded head."""
    # Lists, not generators: this is called several times for each commit.
    return len(head.runs) * _RUN_BYTES + _SLICE_BYTES * sum([len(r.slices) for r in head.runs])


def inline_start(head: Head, partition: LanePartition) -> int:
    """Return the offset from which the inline runs list all records of the partition."""
    return head.next_offsets[partition] - sum(
        piece.count for run in head.runs for piece in run.slices if piece.partition == partition
    )


def inline_entries(head: Head, partition: LanePartition) -> list[Entry]:
    """Return the index entries of the partition's inline slices, oldest first."""
    return _entries(head, partition)


def all_entries(head: Head) -> list[Entry]:
    """Return every inline entry, ordered by partition and offset."""
    return sorted(_entries(head, None))


def _entries(head: Head, only: LanePartition | None) -> list[Entry]:
    """Return the entries of one partition or of all, in the order of their commits."""
    ends = list(head.next_offsets)
    found = []
    for run in reversed(head.runs):
        # Offsets are known from the end, so everything is walked backwards.
        position = run.position + sum(piece.length for piece in run.slices)
        for piece in reversed(run.slices):
            position -= piece.length
            if only is None or piece.partition == only:
                found.append(_entry(run, piece, position, ends[piece.partition]))
                ends[piece.partition] -= piece.count
    found.reverse()
    return found


def _entry(run: Run, piece: RunSlice, position: int, end_offset: int) -> Entry:
    min_ms = run.base_ms + piece.after_ms
    return Entry(
        partition=piece.partition,
        end_offset=end_offset,
        record_count=piece.count,
        kind=run.kind & _KIND_MASK,
        object_id=run.object_id,
        position=position,
        length=piece.length,
        min_ms=min_ms,
        max_ms=min_ms + piece.span_ms,
        crc=piece.crc,
        zones=run.zones,
        data_key=run.data_key,
    )


_DECODER: Final = msgspec.msgpack.Decoder(Head)


def encode(head: Head) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(head))


def decode(value: bytes, key: str | None = None) -> Head:
    """Return the head, or raise `Corrupt` if `value` is not what `encode` gave.

    `key` is where it was found: a head of another lane is `Corrupt`, too.
    """
    head = frames.unpack(_MAGIC, value, _DECODER, "a head")
    if key is not None and key != (own := keys.head(head.topic_id, head.lane)):
        raise Corrupt(f"the item at {key} is the head of another lane, {own}")
    return head
