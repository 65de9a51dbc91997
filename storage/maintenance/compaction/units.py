"""The input and the result of a task, as bytes that are sent to a worker and back."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from storage.crypto.keyring import Keyring
from storage.formats import frames
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.formats.segment_list import Segment
from storage.head import head as heads
from storage.head.head import Head
from storage.maintenance.compaction.typed import DataSchemas
from storage.zones.zones import Zones


class TaskWorld(Protocol):
    """Clock and random identifiers of the machine on which a task runs."""

    @property
    def now_ms(self) -> Callable[[], int]: ...

    @property
    def random_bytes(self) -> Callable[[int], bytes]: ...

    def new_id(self) -> bytes: ...


class TaskStores(Protocol):
    """What a task needs from its machine."""

    @property
    def zones(self) -> Zones: ...

    @property
    def world(self) -> TaskWorld: ...

    @property
    def keyring(self) -> Keyring | None: ...

    @property
    def schemas(self) -> DataSchemas | None: ...


class Unit(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A range of one partition, to be rewritten."""

    lane: bytes
    """The lane's head, reduced to what a worker needs."""
    partition: LanePartition
    """Within the lane."""
    number: PartitionNumber
    """Of the topic."""
    is_keyed: bool
    """Whether only the last record of each key stays."""
    log_start: int
    start_offset: int
    end_offset: int
    horizon: int
    """Tombstones before this offset are removed."""
    segment_bytes: int
    stay_bytes_min: int
    """A segment of at least this size is not rewritten if no record would be removed."""
    segments: tuple[Segment, ...]
    hot: bytes
    """See `Hot.encode`."""
    range_number: int = 0
    bucket_count: int = 1
    """For a shuffle: the number of this range, and the number of buckets for keys."""
    data_key: int = 0
    """The number of the data key that seals the result; 0: it is not sealed."""
    typed: str = ""
    """The name of the topic if keys and values that have schemas get typed columns."""


class Rewritten(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The result of a unit."""

    segments: tuple[Segment, ...] = ()
    """The segments that replace the unit, including those that stayed unchanged."""
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    """Read and written; segments that stayed unchanged count in neither."""
    error: str = ""
    """Why the unit failed; empty if it did not."""


_UNITS: Final = msgspec.msgpack.Decoder(tuple[Unit, ...])
_REWRITTEN: Final = msgspec.msgpack.Decoder(tuple[Rewritten, ...])


def encode_units(units: Sequence[Unit]) -> bytes:
    return msgspec.msgpack.encode(units)


def decode_units(payload: bytes) -> tuple[Unit, ...]:
    """Return the units of a payload, or raise `Corrupt`."""
    return frames.decoded(payload, _UNITS, "the payload of a compaction")


def encode_rewritten(results: Sequence[Rewritten]) -> bytes:
    return msgspec.msgpack.encode(results)


def decode_rewritten(result: bytes) -> tuple[Rewritten, ...]:
    """Return the results of a task, or raise `Corrupt`."""
    return frames.decoded(result, _REWRITTEN, "the result of a compaction")


def slim(head: Head) -> bytes:
    """Return the head reduced to what is needed to find zones."""
    return heads.encode(
        Head(
            topic_id=head.topic_id,
            lane=head.lane,
            next_offsets=(),
            log_starts=(),
            sizes=(),
            zones=head.zones,
            replicas=head.replicas,
            isr=head.isr,
            leader_epoch=head.leader_epoch,
        )
    )
