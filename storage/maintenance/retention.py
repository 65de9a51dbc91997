"""Which records exceed the retention limits. Pure, over index entries.

Records expire from the front of a partition, entry by entry (a slice, or a row group of a compacted
segment), where Kafka expires segments:

- by age, while all records of the first entry are older than `retention.ms`. A young record
  protects everything after it, since a log has no holes;
- by size, while at least `retention.bytes` remain. The last entry never expires by size.

No object is removed, here or by the caller: only the log start moves, which is metadata.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from storage.formats.entries import Entry
from storage.topics.config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The retention limits. None: no limit."""

    age_ms_max: int | None = None
    size_bytes_min: int | None = None
    """Keep the fewest entries that have at least this many bytes."""


def policy_of(config: TopicConfig) -> Policy | None:
    """Return the retention limits of a topic; None if its records never expire."""
    if not config.is_deleted:
        return None
    policy = Policy(age_ms_max=config.retention_ms, size_bytes_min=config.retention_bytes)
    return None if policy == Policy() else policy


@dataclass(frozen=True, slots=True)
class Going:
    """An entry whose records all expire."""

    end_offset: int
    size_bytes: int


def expired(
    entries: Iterable[Entry], policy: Policy, *, size_bytes: int, end_offset: int, now_ms: int
) -> list[Going]:
    """Return the leading `entries` that expire.

    `size_bytes` is the size of the partition from the first of them on, `end_offset` its end.
    """
    going: list[Going] = []
    for entry in entries:
        if not _is_old(entry, policy, now_ms) and not (
            policy.size_bytes_min is not None
            and size_bytes - entry.length >= policy.size_bytes_min
            and entry.end_offset < end_offset
        ):
            break
        size_bytes -= entry.length
        going.append(Going(entry.end_offset, entry.length))
    return going


def _is_old(entry: Entry, policy: Policy, now_ms: int) -> bool:
    return policy.age_ms_max is not None and now_ms - entry.max_ms > policy.age_ms_max


def before(entries: Iterable[Entry], offset: int) -> list[Going]:
    """Return the leading `entries` that end at or before `offset`."""
    return [
        Going(entry.end_offset, entry.length) for entry in entries if entry.end_offset <= offset
    ]
