"""Sweeps a whole deployment: removes unreferenced objects, zone by zone.

    in this process   list objects, then drop the referenced ones (maintenance/sweep.py)
    with a runner     workers list both, and join them by the last digits of the names

Either way only objects that were old when the sweep began are removed, so it may be stopped and
restarted. By default Spark is used if there are more objects than this process handles at once.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from service.jobs.lease import NAME
from service.jobs.progress import size
from service.jobs.runners.runners import Gather, Runner, Spread, ThreadRunner, beside
from service.jobs.runners.spark_session import is_submitted
from service.jobs.stores import Stores
from service.jobs.sweep import batches, tasks
from service.jobs.sweep.batches import CLOCKS_DIFFER_MS
from service.jobs.sweep.report import SweepReport, outcome
from service.jobs.sweep.tasks import Removal
from service.jobs.work import JobContext, JobOutcome
from service.transactions import state
from storage import keys, leases
from storage.errors import (
    MetadataConflict,
    ObjectMissing,
    Rejected,
    RiachoError,
    StoreUnavailable,
)
from storage.head import head as heads
from storage.leases import LeaseLost
from storage.maintenance import sweep as sweeping
from storage.maintenance.sweep import Candidate, Count, TooMany, ZoneTally
from storage.stores.metadata import MetadataStore, Op, pages
from storage.topics import deleted as gone_topics
from storage.topics.all_heads import every_head
from storage.zones import items as zone_items

log = logging.getLogger(__name__)

MIN_AGE_MS: Final = 3_600_000
SAFE_AGE_MS_MIN: Final = 900_000
"""Minimum safe age: a commit may come as late as 10 minutes after its objects."""

CLOCK_SLACK_MS: Final = 60_000
"""Ignored difference to a zone's clock; some zones report whole seconds only."""

_MANY: Final = 1 << 62
"""More bytes than any limit, to request Spark."""
_DIGITS: Final = "0123456789abcdef"


class SweepLease(Protocol):
    """A lease that this process holds."""

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        """Apply `ops` if it is still held; raises `LeaseLost`."""

    async def check(self) -> None:
        """Raise `LeaseLost` unless it is still held."""


class Unsafe(Rejected):
    """Refused: the sweep might remove what is needed, and `is_unsafe` was not given."""

    code = "UNSAFE_SWEEP"


async def sweep(
    work: JobContext,
    *,
    min_age_ms: int = MIN_AGE_MS,
    limit: int | None = None,
    is_unsafe: bool = False,
    spark: bool | None = None,
) -> JobOutcome:
    """Remove unreferenced objects; without the lease, only report them.

    `spark` is as in `How`: None decides by the amount of work. Raises `Unsafe`.
    """
    removed = Count()

    def count_removed(objects: int, size_bytes: int) -> None:
        removed.add(objects, size_bytes)
        work.meter.done(objects, f"{removed.objects} objects removed, {size(removed.size_bytes)}")

    options = SweepOptions(
        min_age_ms=min_age_ms,
        limit=limit,
        is_unsafe=is_unsafe,
        clocks_differ_ms=0 if is_unsafe else CLOCKS_DIFFER_MS,
        removed=count_removed,
    )
    job = Sweep(work.stores, work.held, options)
    if spark or (spark is None and is_submitted()):
        report = await job.run_with(await work.runners.for_bytes(_MANY))
    else:
        report = await _swept(work, job, spark)
    return outcome(report, is_dry=work.held is None)


async def _swept(work: JobContext, job: "Sweep", spark: bool | None) -> "SweepReport":
    try:
        return await job.run(divides=spark is False)
    except TooMany:
        runner = await work.runners.for_bytes(_MANY)
    # With threads, all names would be in memory at once; `run` divides them into parts.
    return await (job.run() if isinstance(runner, ThreadRunner) else job.run_with(runner))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    min_age_ms: int = MIN_AGE_MS
    limit: int | None = None
    """Maximum number of objects to remove."""
    is_unsafe: bool = False
    clocks_differ_ms: int = CLOCKS_DIFFER_MS
    """Additional minimum age of batches in the table."""
    removed: Callable[[int, int], None] = lambda _objects, _bytes: None
    """Called with the objects and bytes of each removed batch."""


class Sweep:
    """One sweep. Without `held` it is a dry run, which changes nothing."""

    def __init__(self, stores: Stores, held: SweepLease | None, options: SweepOptions) -> None:
        self._stores = stores
        self._held = held
        self._options = options
        self.cutoff_ms = stores.world.now_ms() - options.min_age_ms
        self.report = SweepReport()
        self._removed = 0
        self._batches_left = 0

    async def run(self, *, divides: bool = True) -> SweepReport:
        """Sweep in this process; in parts if there are too many objects, or raise `TooMany`."""
        names = await self.prepare()
        waiting = [""]
        while waiting and names and not self._is_limit_reached:
            suffix = waiting.pop()
            try:
                found = await sweeping.find(
                    self._stores.zones,
                    names,
                    suffix,
                    self.cutoff_ms,
                    lambda: staged_keys(self._stores.metadata),
                    lambda: every_head(self._stores.metadata),
                )
            except TooMany:
                if not divides:
                    raise
                waiting += [digit + suffix for digit in _DIGITS]
                continue
            for name, orphans in found.orphans.items():
                await self._remove(name, orphans, found.tallies[name])
            self.report.add(found.tallies)
            names = [name for name in names if not self.report.zones[name].problem]
        self.report.is_complete = not (waiting or self.report.problems) and self._is_all_removed
        return self.report

    async def run_with(self, runner: Runner) -> SweepReport:
        """Sweep with many workers. Each checks by itself that the lease is still held."""
        names = await self.prepare()
        removal = await self._removal()
        # Read before objects are listed. This is safe: only objects older than both reads count.
        metadata = self._stores.metadata
        staged = await staged_keys(metadata)
        encoded = [heads.encode(head) async for head in every_head(metadata)]
        payloads = tasks.payloads(names, self.cutoff_ms, staged, encoded)
        found = runner.shuffle(
            Spread(tasks.rows, tasks.ROWS),
            payloads,
            last=Gather(partial(tasks.remove, removal)),
        )
        async with aclosing(beside(runner, found)) as results:
            async for _, result in results:
                tallies = tasks.decode(result)
                self.report.add(tallies)
                for tally in tallies.values():
                    self._count(tally.removed.objects, tally.removed.size_bytes)
        self.report.is_complete = not self.report.problems and self._is_all_removed
        return self.report

    async def _removal(self) -> Removal:
        if self._held is None:
            return Removal()
        await self._held.check()
        lease = await leases.current(self._stores.metadata, NAME)
        if lease is None:
            raise LeaseLost(f"no process holds the lease {NAME!r}")
        return Removal(
            holder=lease.holder,
            epoch=lease.epoch,
            lease=NAME,
            limit=None if self.left is None else max(0, self.left),
            first_group=int(self._stores.world.random() * tasks.GROUPS),
        )

    def _count(self, objects: int, size_bytes: int) -> None:
        self._removed += objects
        self._options.removed(objects, size_bytes)

    async def prepare(self) -> list[str]:
        """Check that the sweep is safe, remove leftover heads; return the zones to sweep.

        Raises `Unsafe`, and `Corrupt` if a head may be missing: its objects are not garbage.
        """
        age_ms = self._options.min_age_ms
        if age_ms < SAFE_AGE_MS_MIN and not self._options.is_unsafe:
            raise Unsafe(
                f"objects of the last {SAFE_AGE_MS_MIN // 60_000} minutes may be about to be"
                " committed; --unsafe sweeps younger ones, and is right only if no process writes"
            )
        if not await self._stores.metadata.list(keys.TOPICS, limit=1):
            await self._check_heads()
            if not self._options.is_unsafe:
                raise Unsafe(
                    "the metadata table has no topic, so everything would be garbage; are"
                    " --metadata and --zones of the same deployment? --unsafe sweeps all the same"
                )
        self.report.zones = {name: ZoneTally() for name in self._stores.zones.names}
        if self._held is not None:
            await self._heed_clocks()
            await self._remove_heads(self._held)
        await self._sweep_batches()
        for name, item in await self._markers():
            await self._check_marker(name, item)
        return [name for name, tally in self.report.zones.items() if not tally.problem]

    async def _heed_clocks(self) -> None:
        """Judge ages by the clock that is furthest behind: this machine's, or that of a zone.

        A zone reports when it got an object. If this machine's clock were ahead of the zone's,
        objects that are about to be committed would look old enough.
        """
        now_ms = self._stores.world.now_ms()
        behind_ms = 0
        for name in self._stores.zones.names:
            try:
                zone_ms = await sweeping.clock_of(
                    self._stores.zones.store(name), self._stores.world.new_id().hex()
                )
            except RiachoError as error:
                self.report.zones[name].problem = str(error)
                continue
            if zone_ms is not None:
                behind_ms = max(behind_ms, now_ms - zone_ms)
        if behind_ms > CLOCK_SLACK_MS:
            log.warning(
                "the clock of this machine is %d s ahead of that of a zone: corrected for it",
                behind_ms // 1000,
            )
            self.cutoff_ms -= behind_ms

    async def _sweep_batches(self) -> None:
        metadata, report = self._stores.metadata, self.report
        cutoff_ms = self.cutoff_ms - self._options.clocks_differ_ms
        found = await batches.orphans(metadata, cutoff_ms, lambda: every_head(metadata))
        report.batches = Count(len(found), sum(batch.size_bytes for batch in found))
        if self._held is None:
            return

        def removed(count: int, size_bytes: int) -> None:
            report.batches_removed.add(count, size_bytes)
            self._count(count, size_bytes)

        going = found[: self.left]
        self._batches_left = len(found) - len(going)
        await batches.remove(metadata, going, self._held.check, removed)

    async def _markers(self) -> list[tuple[str, str]]:
        found = []
        for _, stored in await self._stores.metadata.list(keys.ZONES):
            item = zone_items.decode(stored.value)
            if item.marker and item.name in self.report.zones:
                found.append((item.name, item.marker))
        return found

    async def _check_marker(self, name: str, marker: str) -> None:
        """Record a problem if the zone does not hold its marker."""
        try:
            await self._stores.zones.store(name).size(keys.zone_marker(marker))
        except ObjectMissing:
            self.report.zones[name].problem = "its marker is not there: it is empty, or another one"
        except StoreUnavailable as error:
            self.report.zones[name].problem = str(error)

    async def _check_heads(self) -> None:
        """Raise `Corrupt` if a head may be missing: its objects would look unreferenced."""
        async for _ in every_head(self._stores.metadata):
            pass

    async def _remove_heads(self, held: SweepLease) -> None:
        metadata = self._stores.metadata
        left_behind = await gone_topics.left_behind(metadata, self.cutoff_ms)
        if left_behind:
            await self._check_heads()
        for gone in left_behind:

            async def is_topic(topic_id: bytes = gone.topic_id) -> bool:
                topics = await self._stores.topics().all()
                return any(topic.topic_id == topic_id for topic in topics)

            try:
                removed = await gone_topics.remove_heads(metadata, gone, is_topic, held.transact)
            except MetadataConflict:
                continue  # Another process changed it.
            self.report.heads_removed += removed

    @property
    def left(self) -> int | None:
        """Number of objects that may still be removed; None: no limit."""
        if self._options.limit is None:
            return None
        return self._options.limit - self._removed

    @property
    def _is_limit_reached(self) -> bool:
        return self._held is not None and self.left is not None and self.left <= 0

    @property
    def _is_all_removed(self) -> bool:
        return self._held is None or (
            not self._batches_left
            and all(
                zone.orphan_count == zone.removed.objects for zone in self.report.zones.values()
            )
        )

    async def _remove(self, name: str, orphans: Sequence[Candidate], tally: ZoneTally) -> None:
        if self._held is None:
            return
        if self.left is not None:
            orphans = orphans[: max(0, self.left)]
        store = self._stores.zones.store(name)
        await sweeping.remove(store, orphans, tally, self._held.check, self._count)


async def staged_keys(metadata: MetadataStore) -> list[str]:
    """Return the objects that open transactions have staged."""
    found: list[str] = []
    async for page in pages(metadata, keys.TRANSACTIONS):
        for _, item in page:
            opened = state.decode(item.value).open
            for staged in opened.staged if opened is not None else ():
                found += [keys.hot_segment(run.object_id) for run in staged.runs]
    return found
