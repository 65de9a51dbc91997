"""What a task is told, and what it answers: bytes that travel to a worker and back."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from storage.formats import frames
from storage.formats.segment_list import Segment
from storage.head import head as heads
from storage.head.head import Head
from storage.zones.zones import Zones


class World(Protocol):
    """Time and chance, of the machine on which a task runs."""

    @property
    def now_ms(self) -> Callable[[], int]: ...

    def new_id(self) -> bytes: ...


class Stores(Protocol):
    """What a task needs of its machine."""

    @property
    def zones(self) -> Zones: ...

    @property
    def world(self) -> World: ...


class Unit(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A range of one partition, to be written anew."""

    lane: bytes
    """The lane's head, without all that a worker does not need."""
    partition: int
    """Within the lane."""
    number: int
    """Of the topic."""
    is_keyed: bool
    """Whether only the last record of each key stays."""
    log_start: int
    start_offset: int
    end_offset: int
    horizon: int
    """Tombstones before this go."""
    segment_bytes: int
    stay_bytes_min: int
    """A segment of so many bytes is left alone if all of it would stay."""
    segments: tuple[Segment, ...]
    hot: bytes
    """See `Hot.encode`."""
    range_number: int = 0
    bucket_count: int = 1
    """Of a shuffle: which range this is, and into how many parts keys are spread."""


class Rewritten(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What became of a unit."""

    segments: tuple[Segment, ...] = ()
    """In its place. Those that could stay as they were are among them."""
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    """Of what was read and written; segments that stayed count in neither."""
    error: str = ""
    """Why it was not done."""


_UNITS: Final = msgspec.msgpack.Decoder(tuple[Unit, ...])
_REWRITTEN: Final = msgspec.msgpack.Decoder(tuple[Rewritten, ...])


def encode_units(units: Sequence[Unit]) -> bytes:
    return msgspec.msgpack.encode(units)


def decode_units(payload: bytes) -> tuple[Unit, ...]:
    """Return what a task is told, or raise `Corrupt`."""
    return frames.decoded(payload, _UNITS, "the payload of a compaction")


def encode_rewritten(results: Sequence[Rewritten]) -> bytes:
    return msgspec.msgpack.encode(results)


def decode_rewritten(result: bytes) -> tuple[Rewritten, ...]:
    """Return what a task answers, or raise `Corrupt`."""
    return frames.decoded(result, _REWRITTEN, "the result of a compaction")


def slim(head: Head) -> bytes:
    """Return what of a head tells where to read and write."""
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
