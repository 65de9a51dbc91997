"""What is too old or too much to be kept. Pure, over index entries.

Records go from the front of a partition, entry by entry (a slice, or a row group of a compacted
segment), as Kafka's go segment by segment:

- by age, while all records of the first entry are older than `retention.ms`. A young record
  protects everything behind it, since a log has no holes;
- by size, while what is left has `retention.bytes` at least. The last entry never goes by that.

Nothing is removed here or by whoever acts on it: the log start moves, which is metadata.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from storage.formats.entries import Entry
from storage.topics.config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How long records stay. None: no limit."""

    age_ms_max: int | None = None
    size_bytes_min: int | None = None
    """As many bytes stay at least, and not an entry more than it takes."""


def policy_of(config: TopicConfig) -> Policy | None:
    """Return how long records of a topic stay; None if they do for ever."""
    if not config.is_deleted:
        return None
    policy = Policy(age_ms_max=config.retention_ms, size_bytes_min=config.retention_bytes)
    return None if policy == Policy() else policy


@dataclass(frozen=True, slots=True)
class Going:
    """An entry whose records all go."""

    end_offset: int
    size_bytes: int


def expired(
    entries: Iterable[Entry], policy: Policy, *, size_bytes: int, end_offset: int, now_ms: int
) -> list[Going]:
    """Return which of `entries`, from the first on, go.

    `size_bytes` is what the partition has from the first of them on, `end_offset` where it ends.
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
    """Return which of `entries`, from the first on, end at `offset` or before."""
    return [
        Going(entry.end_offset, entry.length) for entry in entries if entry.end_offset <= offset
    ]
