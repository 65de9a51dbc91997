"""Bodies and answers of the calls about dead letters."""

from typing import Annotated

import msgspec

from service.http.bodies.fields import Count, Offset, PartitionNumber

Rate = Annotated[float, msgspec.Meta(ge=0.1, le=1_000_000, description="letters per second")]


class LetterFilterBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which letters are meant: those that match all that is given."""

    exception: str | None = None
    """Class of the exception, whole or its last part."""
    origin: str | None = None
    """The topic that it was read from, or was meant for."""
    connector: str | None = None
    stage: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    """Timestamps of records: from the first, before the second."""
    contains: str | None = None
    """Text in the value."""


class Continuation(msgspec.Struct, forbid_unknown_fields=True):
    """Where the next call goes on in a partition, and where it ends."""

    partition: PartitionNumber
    offset: Offset
    end: Offset


class RedriveBody(msgspec.Struct, forbid_unknown_fields=True):
    to: Annotated[str, msgspec.Meta(description="origin, topic:NAME or sink:CONNECTOR")]
    filter: LetterFilterBody = LetterFilterBody()
    rate: Rate | None = None
    max: Count | None = None
    """Letters that this call sends at most."""
    dry_run: bool = False
    transform: dict[str, str] = {}
    """Keys of a connector: `transforms` and what belongs to it, `value.converter`."""
    next: list[Continuation] | None = None
    """As the answer before had it; without, all letters that are there now."""


class RedriveRefusal(msgspec.Struct):
    """A letter that cannot be sent: it stays."""

    partition: int
    offset: int
    reason: str


class RedriveAnswer(msgspec.Struct):
    looked_at: int
    """Letters that this call has read."""
    matched: int
    """Those of them that the filter means."""
    sent: int
    """With `dry_run`: that would be sent."""
    sent_before: int
    """That an earlier re-drive has sent to the same destination."""
    dropped: int
    """By the transform: they count as dealt with."""
    destinations: dict[str, int]
    """Letters sent, by topic."""
    exceptions: dict[str, int]
    """The same letters, by exception."""
    refused: list[RedriveRefusal]
    """The first of those that cannot be sent."""
    refused_count: int
    next: list[Continuation]
    done: bool


class DeadLetterTopic(msgspec.Struct):
    topic: str
    connectors: list[str]
    """Whose configurations name it."""
    letters: int
    """Records in it, sent again or not."""
    exists: bool


class DeadLetterTopics(msgspec.Struct):
    topics: list[DeadLetterTopic]


class LetterGroup(msgspec.Struct):
    """Letters that have the same reason and origin; empty: without context headers."""

    exception: str
    origin: str
    connector: str
    stage: str
    count: int
    sent: int
    """Again, to any destination."""
    first_ms: int
    last_ms: int
    example: str
    """The message of the latest."""


class LetterSummary(msgspec.Struct):
    topic: str
    letters: int
    looked_at: int
    """Fewer than `letters` if there are too many: the oldest."""
    groups: list[LetterGroup]


class LetterInfo(msgspec.Struct, omit_defaults=True):
    partition: int
    offset: int
    timestamp: int
    key: str | None = None
    value: str | None = None
    """Text; what is no UTF-8 is `value_base64`."""
    key_base64: str | None = None
    value_base64: str | None = None
    headers: dict[str, str | None] = {}
    """Without those of the context."""
    context: dict[str, str] = {}
    """Without `__connect.errors.`: topic, partition, offset, exception.message, …"""
    count: int = 0
    """How often it was given up."""
    sent: bool = False
    """Again, to any destination."""


class Letters(msgspec.Struct):
    letters: list[LetterInfo]
    next: list[Continuation]
    """Where to go on; empty: there are no more."""
