"""Compacting topics: survey every lane, decide, run the work, swap, and report.

    survey    lane by lane: what is due?    from heads and indexes
    wave      as many lanes as plans fit into memory
    work      units, packed into tasks      run by a `TaskRunner`
    swap      a lane, as soon as the results of all its units are complete

A failure of one partition does not stop the others. A lost lease stops everything: results that
are not swapped by then are never swapped.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from storage.crypto.keyring import Keyring, required
from storage.errors import RiachoError
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.leases import LeaseLost
from storage.maintenance.compaction import plan, units
from storage.maintenance.compaction.gathering import Gathering, Piece
from storage.maintenance.compaction.plan import CompactionOptions, Rewrite
from storage.maintenance.compaction.summary import CompactionProgress, Left, Summary
from storage.maintenance.compaction.survey import LanePlan, Surveyor
from storage.maintenance.compaction.swap import Swapper
from storage.maintenance.compaction.units import Rewritten
from storage.topics.items import Topic

WAVE_SLICES_MAX: Final = 1_000_000
"""A wave ends when its plans have this many slices, of about 100 bytes each."""


class TaskRunner(Protocol):
    """Runs tasks: in threads of this process, or in Spark."""

    @property
    def parallelism(self) -> int: ...

    def run(self, payloads: Sequence[bytes]) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the position of each payload and its result of `tasks.run`, in any order."""

    def shuffle(self, payloads: Sequence[bytes]) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the number of each range and its result of `tasks.gather`, in any order.

        Before that, run `tasks.spread` on each payload, group by bucket, run `tasks.regroup` on
        each bucket, and group by range. Every range has a result.
        """


WorkFor: TypeAlias = Callable[[int], Awaitable[TaskRunner]]
"""Chooses what runs this many bytes of work; called once for each wave."""


async def compact(
    swapper: Swapper,
    topics: Sequence[Topic],
    work_for: WorkFor,
    options: CompactionOptions,
    *,
    monotonic_s: Callable[[], float],
    progress: CompactionProgress | None = None,
    keyring: Keyring | None = None,
) -> Summary:
    """Compact the partitions of `topics` that are due; return the result of each partition.

    Without a `keyring`, those of encrypted topics fail. Raises `LeaseLost` if another process took
    over.
    """
    began_s = monotonic_s()
    job = _Job(swapper, options, progress or CompactionProgress(), keyring=keyring)
    wave: list[LanePlan] = []
    async for lane in job.surveyor.survey(topics):
        job.progress.planned(len(lane.rewrites), lane.size_bytes)
        wave.append(lane)
        if sum(each.slice_count for each in wave) >= WAVE_SLICES_MAX:
            await job.work(wave, work_for)
            wave = []
    if wave:
        await job.work(wave, work_for)
    job.summary.seconds = monotonic_s() - began_s
    return job.summary


async def look(
    swapper: Swapper, topics: Sequence[Topic], options: CompactionOptions
) -> tuple[list[LanePlan], Summary]:
    """Return what `compact` would do now, and what it would skip. Writes nothing."""
    job = _Job(swapper, options, CompactionProgress(), rolls=False)
    return [lane async for lane in job.surveyor.survey(topics)], job.summary


class _Job:
    def __init__(
        self,
        swapper: Swapper,
        options: CompactionOptions,
        progress: CompactionProgress,
        *,
        rolls: bool = True,
        keyring: Keyring | None = None,
    ) -> None:
        self.summary = Summary()
        self.progress = progress
        self.surveyor = Surveyor(swapper, options, self._skipped, self._failed, rolls)
        self._swapper = swapper
        self._keyring = keyring
        self._options = options

    def _skipped(self, topic: Topic, partition: PartitionNumber, reason: str) -> None:
        self.summary.skipped.append(Left(topic.name, partition, reason))

    def _failed(self, topic: Topic, partition: PartitionNumber, reason: str) -> None:
        self.summary.failed.append(Left(topic.name, partition, reason))

    async def work(self, lanes: Sequence[LanePlan], work_for: WorkFor) -> None:
        """Run the plans of `lanes`, and swap each lane as soon as it is complete."""
        gathering = [Gathering(lane) for lane in lanes]
        try:
            await self._work(gathering, await work_for(sum(lane.size_bytes for lane in lanes)))
        except LeaseLost:
            raise
        except RiachoError as error:
            for each in gathering:
                each.give_up(f"{error.code}: {error}")
        for each in gathering:
            await self._swap(each)

    async def _work(self, gathering: Sequence[Gathering], work: TaskRunner) -> None:
        total = sum(each.lane.size_bytes for each in gathering)
        pieces: list[Piece] = []
        large: list[list[Piece]] = []
        for each in gathering:
            try:
                data_key = await self._data_key(each.lane.topic)
            except RiachoError as error:
                # Other topics have other keys.
                each.give_up(f"{error.code}: {error}")
                continue
            for rewrite in each.lane.rewrites:
                size_bytes = self._range_bytes(rewrite, total, work.parallelism)
                if data_key and rewrite.kind == "keyed":
                    # A shuffle writes keys of records to the disks of workers, not sealed.
                    size_bytes = max(size_bytes, 2 * rewrite.size_bytes)
                cut = each.cut(rewrite, size_bytes, self._options, data_key)
                if rewrite.kind == "keyed" and len(cut) > 1:
                    large.append(cut)
                else:
                    pieces += cut
            await self._swap_if_complete(each)
        await self._run(pieces, work)
        for cut in large:
            await self._shuffle(cut, work)

    async def _data_key(self, topic: Topic) -> int:
        """Return the number of the data key that seals what is written now; 0: none does."""
        if not topic.config.is_encrypted:
            return 0
        return (await required(self._keyring).sealer(topic)).key.number

    def _range_bytes(self, rewrite: Rewrite, total: int, parallelism: int) -> int:
        options = self._options
        if rewrite.kind == "keyed" and rewrite.size_bytes <= options.range_bytes_max:
            # Cutting it would cost a shuffle, and one worker can do it.
            return options.range_bytes_max
        return plan.range_bytes(total, parallelism, rewrite.segment_bytes, options)

    async def _run(self, pieces: Sequence[Piece], work: TaskRunner) -> None:
        sizes = [piece.size_bytes for piece in pieces]
        packs = plan.packs(sizes, work.parallelism, self._options.range_bytes_max)
        payloads = [units.encode_units([pieces[n].unit for n in pack]) for pack in packs]
        if not payloads:
            return
        async for number, result in work.run(payloads):
            for n, each in zip(packs[number], units.decode_rewritten(result), strict=True):
                await self._take(pieces[n], each)

    async def _shuffle(self, pieces: Sequence[Piece], work: TaskRunner) -> None:
        """Rewrite the ranges of one partition, which depend on each other's keys."""
        payloads = [units.encode_units([piece.unit]) for piece in pieces]
        try:
            async for number, result in work.shuffle(payloads):
                [each] = units.decode_rewritten(result)
                await self._take(pieces[number], each)
        except LeaseLost:
            raise
        except RiachoError as error:
            pieces[0].into.give_up(f"{error.code}: {error}", pieces[0].partition)
        pieces[0].into.give_up("a range got lost between workers", pieces[0].partition)
        await self._swap_if_complete(pieces[0].into)

    async def _take(self, piece: Piece, result: Rewritten) -> None:
        self.progress.done(piece.record_count, piece.size_bytes)
        piece.into.take(piece, result)
        await self._swap_if_complete(piece.into)

    async def _swap_if_complete(self, gathering: Gathering) -> None:
        if gathering.is_complete:
            await self._swap(gathering)

    async def _swap(self, gathering: Gathering) -> None:
        """Swap in what was written for a lane, unless that was done already."""
        if gathering.is_settled:
            return
        gathering.is_settled = True
        lane = gathering.lane
        for partition, reason in gathering.failures.items():
            self._failed(lane.topic, lane.number_of(partition), reason)
        changes = gathering.changes()
        if changes:
            try:
                swapped = await self._swapper.swap(lane.key, changes)
            except LeaseLost:
                raise
            except RiachoError as error:
                for partition in changes:
                    number = lane.number_of(partition)
                    self._failed(lane.topic, number, f"{error.code}: {error}")
            else:
                self._record(gathering, swapped.applied, swapped.overtaken)
        self.progress.swapped(len(lane.rewrites))

    def _record(
        self,
        gathering: Gathering,
        applied: frozenset[LanePartition],
        overtaken: frozenset[LanePartition],
    ) -> None:
        lane = gathering.lane
        self.summary.compacted += [gathering.compacted(p) for p in sorted(applied)]
        for partition in sorted(overtaken):
            reason = "overtaken: another process compacted it meanwhile"
            self._skipped(lane.topic, lane.number_of(partition), reason)
