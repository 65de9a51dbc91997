"""Parameters and results of a fetch."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from service.log.questions import SharedAnswer
from service.process.limits.outgoing import Share
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.lanes.lane import Lane, LaneView
from storage.reading.fetched import Fetched
from storage.topics.topics import Topic

Place = int | Literal["earliest", "latest"]
Watch: TypeAlias = tuple[Lane, LaneView, LanePartition]
"""A lane, the view of it that was read, and a partition within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where to read: exactly one of an offset and a moment (`at`)."""

    offset: int | None = None
    at: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How long to wait, and for how many bytes."""

    min_bytes: int = 1
    max_wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult:
    topic: Topic
    partition: PartitionNumber
    fetched: Fetched
    high_watermark: int
    log_start_offset: int
    watch: Watch
    """What to watch while waiting for more records."""
    share: Share
    """The response's share of the outgoing bytes."""
    answer: SharedAnswer | None = None
    """The answer shared with other readers, if any: its encoded forms can be reused."""
