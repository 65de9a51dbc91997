"""Rules of records that clients of several protocols write and read: they are the same to all.

What a record is beyond its value (its time, key, headers, the bytes of its value) is one line of
text, which is compared and not interpreted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.checker.log_rules import LogHistory, Partition, Value


@dataclass(frozen=True)
class SentContent:
    """A record as its client sent it."""

    value: Value
    content: str


@dataclass(frozen=True)
class ReadContent:
    """A record as a client read it."""

    door: str
    partition: Partition
    offset: int
    value: Value
    content: str


@dataclass
class DoorHistory:
    sent: list[SentContent] = field(default_factory=list)
    read: list[ReadContent] = field(default_factory=list)
    """Each record once by each door, and again whenever it differs."""
    errors: list[str] = field(default_factory=list)
    """Errors that no client of Kafka's protocol should ever receive."""


def every_record_is_as_it_was_sent(doors: DoorHistory, _: LogHistory) -> Iterator[str]:
    sent = {each.value: each.content for each in doors.sent}
    for read in doors.read:
        content = sent.get(read.value, read.content)
        if content != read.content:
            yield f"{read} was sent as {content!r}"


def every_door_shows_the_same_record(doors: DoorHistory, _: LogHistory) -> Iterator[str]:
    first: dict[tuple[Partition, int], ReadContent] = {}
    for read in doors.read:
        before = first.setdefault((read.partition, read.offset), read)
        if (before.value, before.content) != (read.value, read.content):
            yield f"{read}, and {before}"


def clients_of_kafka_meet_no_other_errors(doors: DoorHistory, _: LogHistory) -> Iterator[str]:
    yield from doors.errors


DOOR_RULES: Sequence[Callable[[DoorHistory, LogHistory], Iterator[str]]] = (
    every_record_is_as_it_was_sent,
    every_door_shows_the_same_record,
    clients_of_kafka_meet_no_other_errors,
)
