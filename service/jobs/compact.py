"""Compaction as a job: runs tasks of `storage/maintenance/compaction`, and reports the result."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from service.jobs.progress import Meter, size
from service.jobs.runners.runners import Gather, Regroup, Runner, Spread, beside, results
from service.jobs.work import JobContext, JobOutcome
from storage.maintenance.compaction import job, keyed, plan, tasks
from storage.maintenance.compaction.plan import CompactionOptions
from storage.maintenance.compaction.summary import CompactionProgress, Left, Summary
from storage.maintenance.compaction.survey import LanePlan
from storage.maintenance.compaction.swap import Swapper
from storage.reading.catalog import Catalog
from storage.reading.table_batches import TableBatches
from storage.stores.metadata import Op

CACHE_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of index objects that a survey caches."""

LEFT_SHOWN_MAX: Final = 20


async def compact(
    work: JobContext, names: Sequence[str] = (), *, force: bool = False, dry_run: bool = False
) -> JobOutcome:
    """Compact what is due of the named topics, or of all.

    Named topics are compacted however little is new; the shares and lags of their configuration
    still apply. With `force` the shares do not apply either.
    """
    topics = await work.topics(names)
    options = CompactionOptions(
        now_ms=work.stores.world.now_ms(),
        force=force,
        hot_bytes_min=0 if names else plan.HOT_BYTES_MIN,
    )
    swapper = _swapper(work)
    if dry_run or work.held is None:
        lanes, summary = await job.look(swapper, topics, options)
        return _planned(lanes, summary)

    async def work_for(size_bytes: int) -> "_Tasks":
        return _Tasks(await work.runners.for_bytes(size_bytes))

    summary = await job.compact(
        swapper,
        topics,
        work_for,
        options,
        monotonic_s=work.stores.world.monotonic_s,
        progress=_MeteredProgress(work.meter),
        keyring=work.stores.keyring,
    )
    return _done(summary)


def _swapper(work: JobContext) -> Swapper:
    stores, held = work.stores, work.held

    async def refused(_: Sequence[Op]) -> dict[str, str]:
        raise AssertionError("a dry run changes nothing")

    return Swapper(
        Catalog(stores.zones, stores.world.new_id, CACHE_BYTES, TableBatches(stores.metadata)),
        stores.zones,
        stores.metadata,
        held.transact if held is not None else refused,
        stores.world.sleep,
        stores.world.random,
    )


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Adapts a runner to the interface that compaction needs (`job.Work`)."""

    runner: Runner

    @property
    def parallelism(self) -> int:
        return self.runner.parallelism

    def run(self, payloads: Sequence[bytes]) -> AsyncIterator[tuple[int, bytes]]:
        return results(self.runner, tasks.run, payloads)

    def shuffle(self, payloads: Sequence[bytes]) -> AsyncIterator[tuple[int, bytes]]:
        found = self.runner.shuffle(
            Spread(tasks.spread, keyed.KEYS),
            payloads,
            Regroup(tasks.regroup, keyed.SURVIVORS),
            last=Gather(partial(tasks.gather, list(payloads))),
        )
        return beside(self.runner, found)


class _MeteredProgress(CompactionProgress):
    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._records = self._bytes = self._planned = 0

    def planned(self, partitions: int, size_bytes: int) -> None:
        self._planned += size_bytes
        self._meter.planned(size_bytes)

    def done(self, records: int, size_bytes: int) -> None:
        self._records += records
        self._bytes += size_bytes
        text = f"{self._records} records, {size(self._bytes)} of {size(self._planned)}"
        self._meter.done(size_bytes, text)


def _planned(lanes: Sequence[LanePlan], summary: Summary) -> JobOutcome:
    due: list[dict[str, Any]] = [
        {
            "topic": lane.topic.name,
            "partition": rewrite.state.number,
            "kind": rewrite.kind,
            "start_offset": rewrite.start_offset,
            "end_offset": rewrite.end_offset,
            "records": rewrite.record_count,
            "bytes": rewrite.size_bytes,
        }
        for lane in lanes
        for rewrite in lane.rewrites
    ]
    lines = [
        f"{each['topic']}/{each['partition']}: {each['kind']} offsets {each['start_offset']} to"
        f" {each['end_offset']}: {each['records']} records, {size(each['bytes'])}"
        for each in due
    ]
    total = sum(lane.size_bytes for lane in lanes)
    lines.append(f"{len(due)} partitions would be compacted: {size(total)}")
    document = {"dry_run": True, "ok": not summary.failed, "due": due, **_left(summary)}
    return JobOutcome(ok=not summary.failed, document=document, lines=lines + _left_lines(summary))


def _done(summary: Summary) -> JobOutcome:
    seconds = max(summary.seconds, 1e-9)
    document: dict[str, Any] = {
        "ok": not summary.failed,
        "partitions": len(summary.compacted),
        "records_in": summary.records_in,
        "records_out": summary.records_out,
        "bytes_in": summary.bytes_in,
        "bytes_out": summary.bytes_out,
        "ratio": round(summary.ratio, 3),
        "seconds": round(summary.seconds, 3),
        "compacted": [asdict(each) for each in summary.compacted],
        **_left(summary),
    }
    lines = [
        f"compacted {len(summary.compacted)} partitions in {summary.seconds:.1f} s:"
        f" {summary.records_in} records in, {summary.records_out} out"
        f" ({summary.records_in / seconds:.0f}/s), {size(summary.bytes_in)} in,"
        f" {size(summary.bytes_out)} out (ratio {summary.ratio:.2f})"
    ]
    return JobOutcome(ok=not summary.failed, document=document, lines=lines + _left_lines(summary))


def _left(summary: Summary) -> dict[str, Any]:
    return {
        "skipped": dict(Counter(each.reason for each in summary.skipped)),
        "failed": [asdict(each) for each in summary.failed],
    }


def _left_lines(summary: Summary) -> list[str]:
    reasons = Counter(each.reason for each in summary.skipped)
    lines = [f"left {count} partitions: {reason}" for reason, count in reasons.most_common()]
    lines[LEFT_SHOWN_MAX:] = ["…"] if len(lines) > LEFT_SHOWN_MAX else []
    return lines + [_failed(each) for each in summary.failed[:LEFT_SHOWN_MAX]]


def _failed(left: Left) -> str:
    return f"failed {left.topic}/{left.partition}: {left.reason}"
