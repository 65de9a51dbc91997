"""What is asked of a fetch, and what it returns."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from service.limits.outgoing import Share
from service.log.questions import Answer
from storage.lanes.lane import Lane, LaneView
from storage.reading.fetched import Fetched
from storage.topics.topics import Topic

Place = int | Literal["earliest", "latest"]
Watch: TypeAlias = tuple[Lane, LaneView, int]
"""A lane, how it was when it was looked at, and a partition within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where to read: exactly one of an offset and a moment (`at`)."""

    offset: int | None = None
    at: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How long to wait for how much."""

    min_bytes: int = 1
    max_wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult:
    topic: Topic
    partition: int
    fetched: Fetched
    high_watermark: int
    log_start_offset: int
    watch: Watch
    """What to wait for if this was not enough."""
    share: Share
    """How many bytes the response may have, and who counts them."""
    answer: Answer | None = None
    """What was read for others, too: its encoded forms can be shared."""
