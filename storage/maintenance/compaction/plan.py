"""What to compact, and how to divide the work. Pure: it decides from the index alone.

Two kinds of compaction, by `cleanup.policy`:

    merge    delete           slices become Parquet, every record stays
    keyed    compact[,delete] and only the last record of each key stays

**Merge** is due when enough data is new, or a new record is older than `segment.ms`. Small segments
at the end are merged again, in tiers: only if the result is at least `FANOUT` times as large as the
largest input. So a record is rewritten a logarithmic number of times, and the number of small
segments is logarithmic too.

**Keyed** considers the records since the last compaction (the *dirty* ones), up to the first
segment or slice with a record younger than `min.compaction.lag.ms`. It is due when their share is
large enough, when one is older than `max.compaction.lag.ms`, or when tombstones may be removed. It
rewrites everything up to that point, but nothing after it: a newer record there does not remove an
older one yet.

**Division**: large rewrites are cut into ranges, at the borders of segments and slices; small ones
are packed together. Each range is written to its own segments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from storage.formats.partitions import LanePartition, PartitionNumber
from storage.formats.segment_list import Cleaned, Segment, SegmentList
from storage.maintenance.compaction.hot import Hot, Ints
from storage.topics.config import TopicConfig

MIB: Final = 1024 * 1024

HOT_BYTES_MIN: Final = 8 * MIB
"""Minimum of new data for a merge, unless it is old or the merge is forced."""

FANOUT: Final = 4
"""Merge segments again only if the result is at least this many times the largest of them."""

RANGE_BYTES_MIN: Final = 64 * MIB
RANGE_BYTES_MAX: Final = 256 * MIB
"""Approximate maximum of stored data that one task reads. A failed task loses this much work, and
its memory depends on it."""

TASK_BYTES_MIN: Final = 8 * MIB
"""Minimum target size of a task; smaller units are packed together."""

TASK_UNITS_MAX: Final = 256

RANGES_PER_WORKER: Final = 3
"""Ranges for each worker: more than one, so that a slow worker does not delay the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    now_ms: int
    force: bool = False
    """Compact even if little is new. `min.compaction.lag.ms` still applies."""
    hot_bytes_min: int = HOT_BYTES_MIN
    range_bytes_min: int = RANGE_BYTES_MIN
    range_bytes_max: int = RANGE_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One partition, according to its head and index."""

    partition: LanePartition
    """Within the lane."""
    number: PartitionNumber
    """Of the topic."""
    log_start: int
    covers: int
    list_id: bytes
    """The name of its list of segments; it differs if another process compacted meanwhile."""
    listed: SegmentList
    hot: Hot
    """The live slices: those after `covers` and the log start."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing to do, with the reason for display."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What is rewritten, what stays, and the partition's list afterwards."""

    kind: Literal["merge", "keyed", "trim"]
    state: State
    kept_before: tuple[Segment, ...] = ()
    """Live segments that stay as they are, before the rewritten ones."""
    segments: tuple[Segment, ...] = ()
    """Segments to rewrite."""
    kept_after: tuple[Segment, ...] = ()
    hot: Hot = field(default_factory=lambda: Hot.of([]))
    """Slices to rewrite."""
    covers: int
    start_offset: int = 0
    end_offset: int = 0
    """The new segments cover the offsets from `start_offset` to here."""
    horizon: int = 0
    """Tombstones before this offset are removed."""
    cleaned: tuple[Cleaned, ...] = ()
    segment_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.segments) + self.hot.size_bytes

    @property
    def record_count(self) -> int:
        return sum(each.record_count for each in self.segments) + self.hot.record_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A part of a rewrite: some of its segments, then some of its slices."""

    start_offset: int
    end_offset: int
    segments: tuple[Segment, ...]
    hot: Hot

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.segments) + self.hot.size_bytes

    @property
    def record_count(self) -> int:
        return sum(each.record_count for each in self.segments) + self.hot.record_count


def decide(config: TopicConfig, state: State, options: CompactionOptions) -> Skip | Rewrite:
    """Return what to do with a partition."""
    live = tuple(each for each in state.listed.segments if each.end_offset > state.log_start)
    decided = (_keyed if config.is_compacted else _merge)(config, state, live, options)
    if isinstance(decided, Skip) and len(live) < len(state.listed.segments):
        return Rewrite(
            kind="trim",
            state=state,
            kept_before=live,
            covers=state.covers,
            cleaned=state.listed.cleaned,
        )
    return decided


def _merge(
    config: TopicConfig, state: State, live: tuple[Segment, ...], options: CompactionOptions
) -> Skip | Rewrite:
    hot = state.hot
    if not len(hot):
        return Skip("nothing is new since the last compaction")
    is_old = hot.oldest_ms <= options.now_ms - config.segment_ms
    if not (options.force or is_old or hot.size_bytes >= options.hot_bytes_min):
        return Skip(
            f"{_mib(hot.size_bytes)} MiB are new, less than {_mib(options.hot_bytes_min)} MiB, and"
            " nothing is older than segment.ms; --force compacts anyway"
        )
    full = min(config.segment_bytes, options.range_bytes_max) // 2
    count = tail([each.size_bytes for each in live], hot.size_bytes, full)
    stay, go = live[: len(live) - count], live[len(live) - count :]
    start = go[0].start_offset if go else hot.start_offset
    return Rewrite(
        kind="merge",
        state=state,
        kept_before=stay,
        segments=go,
        hot=hot,
        covers=hot.end_offset,
        start_offset=max(start, state.log_start),
        end_offset=hot.end_offset,
        cleaned=state.listed.cleaned,
        segment_bytes=config.segment_bytes,
    )


def tail(sizes: Sequence[int], added: int, full: int) -> int:
    """Return how many of the last segments to rewrite together with `added` new bytes.

    The maximum for which the total is at least `FANOUT` times the largest segment. A segment of
    `full` bytes or more, and those before it, are never rewritten.
    """
    best, total, largest = 0, added, 0
    for count, size in enumerate(reversed(sizes), 1):
        if size >= full:
            break
        total += size
        largest = max(largest, size)
        if largest * FANOUT <= total:
            best = count
    return best


def _keyed(
    config: TopicConfig, state: State, live: tuple[Segment, ...], options: CompactionOptions
) -> Skip | Rewrite:
    clean_end = state.listed.clean_end
    cut = _old_enough(config, state, live, options.now_ms)
    go = tuple(each for each in live if each.end_offset <= cut)
    hot = state.hot.before(cut)
    dirty = tuple(each for each in go if each.end_offset > clean_end)
    horizon = tombstone_horizon(state.listed, config.delete_retention_ms, options.now_ms)
    reason = _not_due(config, go, dirty, hot, horizon, options)
    if reason is not None:
        return Skip(reason)
    end = hot.end_offset if len(hot) else max(go[-1].end_offset, min(clean_end, cut))
    start = go[0].start_offset if go else hot.start_offset
    return Rewrite(
        kind="keyed",
        state=state,
        segments=go,
        kept_after=live[len(go) :],
        hot=hot,
        covers=max(state.covers, hot.end_offset) if len(hot) else state.covers,
        start_offset=max(start, state.log_start),
        end_offset=end,
        horizon=horizon,
        cleaned=_milestones(state.listed.cleaned, end, horizon, options.now_ms),
        segment_bytes=config.segment_bytes,
    )


def _old_enough(config: TopicConfig, state: State, live: tuple[Segment, ...], now_ms: int) -> int:
    """Return the offset up to which all uncompacted records are old enough to be compacted."""
    lag_ms, _ = config.compaction_lag_ms
    end = state.hot.end_offset if len(state.hot) else state.covers
    if not lag_ms:
        return end
    young_ms = now_ms - lag_ms
    for each in live:
        if each.end_offset > state.listed.clean_end and each.max_ms > young_ms:
            return each.start_offset
    young = np.flatnonzero(state.hot.column("max_ms") > young_ms)
    if not len(young):
        return end
    first = int(young[0])
    return int(state.hot.ends[first] - state.hot.counts[first])


def _not_due(
    config: TopicConfig,
    go: tuple[Segment, ...],
    dirty: tuple[Segment, ...],
    hot: Hot,
    horizon: int,
    options: CompactionOptions,
) -> str | None:
    """Return why a compaction by key is not due; None: it is due."""
    if any(each.tombstones and each.start_offset < horizon for each in go):
        return None
    if not dirty and not len(hot):
        return "nothing is new since the last compaction, or it is too young to be compacted"
    if options.force:
        return None
    _, lag_ms = config.compaction_lag_ms
    oldest_ms = min([each.min_ms for each in dirty] + ([hot.oldest_ms] if len(hot) else []))
    if oldest_ms <= options.now_ms - lag_ms:
        return None
    dirty_bytes = sum(each.size_bytes for each in dirty) + hot.size_bytes
    all_bytes = sum(each.size_bytes for each in go) + hot.size_bytes
    ratio = dirty_bytes / max(1, all_bytes)
    if ratio >= config.dirty_ratio_min:
        return None
    return (
        f"dirty ratio {ratio:.2f} is below min.cleanable.dirty.ratio {config.dirty_ratio_min:g};"
        " --force compacts anyway"
    )


def tombstone_horizon(listed: SegmentList, delete_retention_ms: int, now_ms: int) -> int:
    """Return the offset before which a compaction saw all tombstones long enough ago."""
    expired = [
        each.end_offset for each in listed.cleaned if each.at_ms + delete_retention_ms <= now_ms
    ]
    return expired[-1] if expired else 0


def _milestones(
    cleaned: tuple[Cleaned, ...], end: int, horizon: int, now_ms: int
) -> tuple[Cleaned, ...]:
    """Return the milestones after a compaction up to `end` that removed what `horizon` allows.

    Milestones up to the horizon are dropped, as no tombstone is left before it. The last one is
    always kept, as it records up to where everything is clean.
    """
    reached = cleaned[-1] if cleaned else Cleaned(0, 0)
    if end > reached.end_offset:
        cleaned = (*cleaned, Cleaned(end, max(now_ms, reached.at_ms)))
    younger = tuple(each for each in cleaned if each.end_offset > horizon)
    return younger or cleaned[-1:]


def range_bytes(
    total: int, parallelism: int, segment_bytes: int, options: CompactionOptions
) -> int:
    """Return the size of the ranges into which `total` bytes of work are cut."""
    share = total // max(1, parallelism * RANGES_PER_WORKER)
    return min(max(share, options.range_bytes_min), options.range_bytes_max, segment_bytes)


def ranges(rewrite: Rewrite, size_bytes: int) -> list[Range]:
    """Return the rewrite in pieces of about `size_bytes`, of roughly equal size."""
    count = max(1, -(-rewrite.size_bytes // max(1, size_bytes)))
    sizes = np.array([each.size_bytes for each in rewrite.segments], np.int64)
    starts = np.array([each.start_offset for each in rewrite.segments], np.int64)
    sizes = np.concatenate([sizes, rewrite.hot.lengths])
    starts = np.concatenate([starts, rewrite.hot.ends - rewrite.hot.counts])
    found: list[Range] = []
    borders = _borders(sizes, count)
    for first, end in pairwise(borders):
        held = len(rewrite.segments)
        found.append(
            Range(
                start_offset=int(starts[first]) if first else rewrite.start_offset,
                end_offset=int(starts[end]) if end < len(starts) else rewrite.end_offset,
                segments=rewrite.segments[first:end],
                hot=rewrite.hot.part(max(0, first - held), max(0, end - held)),
            )
        )
    return found


def _borders(sizes: Ints, count: int) -> list[int]:
    """Return where to cut so that `count` pieces are about equal: first, cuts, last."""
    before = np.concatenate([[0], np.cumsum(sizes)])
    wanted = before[-1] * np.arange(1, count) // count
    cuts = np.searchsorted(before, wanted, "left")
    return [int(each) for each in np.unique(np.concatenate([[0], cuts, [len(sizes)]]))]


def packs(sizes: Sequence[int], parallelism: int, bytes_max: int) -> list[list[int]]:
    """Return the numbers of `sizes`, in order, packed into tasks of about the same size."""
    share = sum(sizes) // max(1, parallelism * RANGES_PER_WORKER)
    wanted = min(max(share, TASK_BYTES_MIN), bytes_max)
    found: list[list[int]] = []
    filled = 0
    for number, size in enumerate(sizes):
        if not found or filled + size > wanted or len(found[-1]) >= TASK_UNITS_MAX:
            found.append([])
            filled = 0
        found[-1].append(number)
        filled += size
    return found


def applied(rewrite: Rewrite, written: Sequence[Segment], log_start: int) -> SegmentList:
    """Return the list of a partition after its rewrite, which wrote `written`."""
    every = (*rewrite.kept_before, *written, *rewrite.kept_after)
    return SegmentList(
        tuple(each for each in every if each.end_offset > log_start), rewrite.cleaned
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.1f}"
