"""Retention: hides records beyond the limits of age and size, and removes them from the index.

Lane by lane, it moves the log starts of partitions, and then removes from the lane's root what
lists only hidden records. A sweep removes the objects. If a lane fails, it is reported and the
others continue.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from service.jobs.progress import size
from service.jobs.stores import Stores
from service.jobs.work import JobContext, JobOutcome
from storage import keys
from storage.cas import Transact
from storage.errors import Contended, Corrupt, OutcomeUnknown, StoreUnavailable
from storage.formats.partitions import PartitionNumber
from storage.head import head as heads
from storage.maintenance import trimming
from storage.maintenance.pruning import prune
from storage.maintenance.retention import policy_of
from storage.maintenance.trimming import Plan, Trimmed, Trimming
from storage.reading.catalog import Catalog
from storage.topics.topics import Topic

LANES_AT_ONCE: Final = 8
CACHE_BYTES: Final = 32 * 1024 * 1024
SHOWN_MAX: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimmedPartition:
    topic: str
    partition: PartitionNumber
    before: int
    after: int
    """The new log start."""
    size_bytes: int
    """Size of the hidden records."""


@dataclass(slots=True, kw_only=True)
class RetentionReport:
    lanes: int = 0
    partitions: list[TrimmedPartition] = field(default_factory=list)
    """Partitions whose log start moved."""
    pruned_members: int = 0
    """Pages and nodes removed from roots."""
    pruned_segments: int = 0
    """Compacted segments removed from their lists."""
    failures: list[str] = field(default_factory=list)

    @property
    def offsets(self) -> int:
        return sum(each.after - each.before for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.partitions)


async def retention(work: JobContext, names: Sequence[str] = ()) -> JobOutcome:
    """Hide records beyond the limits of age and size in the named topics, or in all.

    Without the lease, only report what would be hidden.
    """
    topics = await work.topics(names)
    work.meter.planned(sum(len(topic.lanes) for topic in topics))
    transact = None if work.held is None else work.held.transact
    report = await retain(work.stores, topics, transact=transact, seen=work.meter.done)
    return _outcome(report, is_dry=work.held is None)


async def retain(
    stores: Stores,
    topics: Sequence[Topic],
    *,
    transact: Transact | None,
    seen: Callable[[int], None] = lambda _: None,
) -> RetentionReport:
    """Move log starts to where the topics' configuration wants them; return a report.

    `transact` is that of the lease; None: a dry run, which writes nothing. `seen` is called after
    every few lanes with their number. Raises `LeaseLost` if another process took over.
    """
    work = _Work(stores, transact)
    lanes = [(topic, lane) for topic in topics for lane in topic.lanes]
    for start in range(0, len(lanes), LANES_AT_ONCE):
        chunk = lanes[start : start + LANES_AT_ONCE]
        done = await asyncio.gather(
            *(work.lane(topic, lane) for topic, lane in chunk), return_exceptions=True
        )
        for result in done:
            if isinstance(result, BaseException):
                raise result
        seen(len(chunk))
    work.report.partitions.sort(key=lambda each: (each.topic, each.partition))
    return work.report


class _Work:
    def __init__(self, stores: Stores, transact: Transact | None) -> None:
        self._metadata = stores.metadata
        self._catalog = Catalog(stores.zones, stores.world.new_id, CACHE_BYTES)
        self._now_ms = stores.world.now_ms
        self._transact = transact
        self.report = RetentionReport()

    async def lane(self, topic: Topic, lane: int) -> None:
        self.report.lanes += 1
        try:
            await self._lane(topic, lane)
        except (StoreUnavailable, Contended, OutcomeUnknown, Corrupt) as error:
            self.report.failures.append(f"topic {topic.name!r}, lane {lane}: {error}")

    async def _lane(self, topic: Topic, lane: int) -> None:
        moved: dict[PartitionNumber, TrimmedPartition] = {}

        def record(trims: Sequence[Trimmed]) -> None:
            for trim in trims:
                partition = topic.partition_of(lane, trim.partition)
                before = moved.get(partition)
                moved[partition] = TrimmedPartition(
                    topic=topic.name,
                    partition=partition,
                    before=trim.before if before is None else before.before,
                    after=trim.after,
                    size_bytes=trim.size_bytes + (0 if before is None else before.size_bytes),
                )

        key = keys.head(topic.topic_id, lane)
        policy = policy_of(topic.config)
        try:
            if policy is not None:
                plan = Trimming(self._catalog).expiring(policy, self._now_ms())
                await self._trim(key, plan, record)
            if self._transact is not None:
                pruned = await prune(self._metadata, self._catalog, key, self._transact)
                self.report.pruned_members += pruned.members
                self.report.pruned_segments += pruned.segments
        finally:
            self.report.partitions += moved.values()

    async def _trim(self, key: str, plan: Plan, report: Callable[[list[Trimmed]], None]) -> None:
        if self._transact is not None:
            await trimming.trim(self._metadata, key, plan, self._transact, report)
            return
        item = await self._metadata.get(key)
        if item is not None:
            _, foreseen = await trimming.foresee(heads.decode(item.value, key), plan)
            report(foreseen)


def _outcome(report: RetentionReport, *, is_dry: bool) -> JobOutcome:
    document: dict[str, Any] = {
        "ok": not report.failures,
        "dry_run": is_dry,
        "lanes": report.lanes,
        "partitions": [asdict(each) for each in report.partitions],
        "offsets": report.offsets,
        "bytes": report.size_bytes,
        "pruned_members": report.pruned_members,
        "pruned_segments": report.pruned_segments,
        "failures": report.failures,
    }
    verb = "would begin" if is_dry else "begins"
    lines = [
        f"{each.topic}/{each.partition} {verb} at {each.after} instead of {each.before}:"
        f" {size(each.size_bytes)} less"
        for each in report.partitions[:SHOWN_MAX]
    ]
    if len(report.partitions) > SHOWN_MAX:
        lines.append("…")
    verb = "would be" if is_dry else "were"
    lines.append(
        f"{report.offsets} offsets of {len(report.partitions)} partitions {verb} dropped,"
        f" {size(report.size_bytes)}"
    )
    lines += [f"failed {each}" for each in report.failures[:SHOWN_MAX]]
    return JobOutcome(ok=not report.failures, document=document, lines=lines)
