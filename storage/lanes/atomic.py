"""Committing to many lanes at once: all or nothing.

One metadata transaction over the heads makes the runs of several lanes visible, together with
the other items that must change with them (group offsets, the item of a transaction). Before
it, none of the records are in the log; after it, all of them are.

Commits happen in the order of arrival here too. A commit takes its place in the queues of all its
lanes at the same moment, so any two commits have the same order in every lane they share and
cannot deadlock.

Failures are handled as for one lane (commits.py). A caller with an item of its own in the
transaction reads from that item whether an unanswered attempt was applied.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeAlias

from storage.errors import (
    MetadataConflict,
    OutcomeUnknown,
    RiachoError,
    TransactionTooLarge,
    UnknownTopicOrPartition,
)
from storage.formats import zone_sets
from storage.head import head as heads
from storage.head import replication
from storage.head.head import Head, Run
from storage.lanes.commits import Bases as RunBases
from storage.lanes.commits import reported
from storage.lanes.lane import Lane, LaneRuntime, Lanes, LaneView
from storage.lanes.watch import COMMIT_S_MAX
from storage.stores.dated import DatedConflict
from storage.stores.metadata import TRANSACT_OPS_MAX, VALUE_BYTES_MAX, Op, Put

LaneKey: TypeAlias = tuple[bytes, int]
Bases: TypeAlias = Mapping[LaneKey, list[RunBases]]
"""By topic id and lane: for each run, the first offset of each partition within the lane."""

Plan: TypeAlias = Callable[[Bases], Awaitable[Sequence[Op] | None]]


@dataclass(frozen=True, slots=True)
class LaneRuns:
    """The runs staged for one lane, in the order of arrival."""

    topic_id: bytes
    lane: int
    runs: tuple[Run, ...]
    in_sync_min: int = 1
    """Minimum number of zones in sync at the time of the commit."""
    is_old: bool = False
    """Whether the runs were written so long ago that zones may have lost them (`TRUSTED_S`)."""

    @property
    def key(self) -> LaneKey:
        return self.topic_id, self.lane


def joined(staged: Sequence[LaneRuns]) -> list[LaneRuns]:
    """Return `staged` with one item for each lane."""
    parts: dict[LaneKey, LaneRuns] = {}
    for each in staged:
        before = parts.get(each.key)
        if before is not None:
            each = replace(
                each,
                runs=before.runs + each.runs,
                in_sync_min=max(before.in_sync_min, each.in_sync_min),
                is_old=before.is_old or each.is_old,
            )
        parts[each.key] = each
    return list(parts.values())


class AtomicCommits:
    def __init__(self, lanes: Lanes, runtime: LaneRuntime) -> None:
        self._lanes = lanes
        self._runtime = runtime

    async def commit(self, staged: Sequence[LaneRuns], plan: Plan) -> Bases | None:
        """Append everything in `staged` and apply the ops that `plan` returns, all or nothing.

        `plan` is called in every attempt, after the heads were read. It reads its own items and
        returns the ops for them. It returns None to withdraw the commit, which then returns None,
        and raises to abort it, because the commit is not allowed or was applied already.

        Raises `TransactionTooLarge`, `Contended`, `UnknownTopicOrPartition` if a topic was
        deleted, any error of `plan` and the stores, and `OutcomeUnknown`.
        """
        parts = joined(staged)
        check_width(len(parts))
        lanes = [self._lanes.lane(*part.key) for part in parts]
        # All in one step, without an await in between: see the module docstring.
        turns = [lane.take_turn() for lane in lanes]
        try:
            for turn in turns:
                await turn.reached
            return await self._commit(lanes, parts, plan)
        finally:
            for turn in turns:
                turn.give_back()

    async def _commit(
        self, lanes: Sequence[Lane], parts: list[LaneRuns], plan: Plan
    ) -> Bases | None:
        """As `commit`, while this call is first in the queues of all `lanes`."""
        doubt = _Doubt(lanes, parts)
        try:
            return await self._retry_lost_races(lanes, parts, plan, doubt)
        except UnknownTopicOrPartition as error:
            if doubt.views is not None:
                raise OutcomeUnknown(f"{error}; in the others it may have happened") from error
            raise
        except RiachoError as error:
            raise reported(error, is_in_doubt=doubt.views is not None) from error

    async def _retry_lost_races(
        self, lanes: Sequence[Lane], parts: list[LaneRuns], plan: Plan, doubt: "_Doubt"
    ) -> Bases | None:
        """Attempt the commit until it is applied or withdrawn, for at most `COMMIT_S_MAX`.

        An attempt fails if another writer changed a head or an item of `plan` first, or if it
        gets no answer. The runs stay the same; only heads and items are read again.
        """
        give_up_s = self._runtime.monotonic_s() + COMMIT_S_MAX
        views = [await _view(lane, part) for lane, part in zip(lanes, parts, strict=True)]
        for attempt in count():
            try:
                return await self._try(lanes, views, parts, plan)
            except DatedConflict as conflict:
                pairs = zip(lanes, views, strict=True)
                views = [lane.watched.adopted(view, conflict) for lane, view in pairs]
            except MetadataConflict:
                pass  # Raised by `plan` for its own items.
            except OutcomeUnknown:
                doubt.views = views
                views = [await lane.view(0) for lane in lanes]
            applied = await doubt.resolved(views)
            if applied is not None:
                return applied
            await self._runtime.next_attempt(attempt, give_up_s)
        raise AssertionError("attempts end by an error")

    async def _try(
        self,
        lanes: Sequence[Lane],
        views: Sequence[LaneView],
        parts: list[LaneRuns],
        plan: Plan,
    ) -> Bases | None:
        before = []
        for number, (lane, view) in enumerate(zip(lanes, views, strict=True)):
            head, parts[number] = await self._covering(lane, view, parts[number])
            before.append(head)
        news = [heads.append(h, part.runs) for h, part in zip(before, parts, strict=True)]
        puts: list[Op] = []
        for lane, view, new in zip(lanes, views, news, strict=True):
            value = heads.encode(new)
            if len(value) > VALUE_BYTES_MAX:
                raise TransactionTooLarge(
                    f"these are {len(new.runs)} writes to one lane, more than can be committed at"
                    " once; use fewer and larger requests, or smaller transactions"
                )
            puts.append(Put(lane.watched.key, value, view.version))
        bases = _bases(parts, before)
        others = await plan(bases)
        if others is None:
            return None
        ops = [*puts, *others]
        check_ops_count(len(puts), len(ops))
        if not ops:
            return bases
        versions, began_s = await self._runtime.dated.transact(ops)
        for lane, old, new in zip(lanes, before, news, strict=True):
            lane.upkeep.committed(old, LaneView(new, versions[lane.watched.key], began_s))
        return bases

    async def _covering(self, lane: Lane, view: LaneView, part: LaneRuns) -> tuple[Head, LaneRuns]:
        """Return the head to append to, and `part` with every run in all its zones in sync.

        A zone that fails to store a run leaves the ISR. Raises `NotEnoughReplicas` if too few
        zones remain.
        """
        head = await lane.upkeep.ready(view.head)
        runs = []
        for run in part.runs:
            whole, missing = await lane.commits.covered(head, run, is_old=part.is_old)
            if missing:
                lane.upkeep.distrust(missing, view.head.leader_epoch)
                head = replication.without_zones(head, missing)
            runs.append(whole)
        await lane.commits.check_in_sync(view, head, part.in_sync_min)
        return head, replace(part, runs=tuple(runs))


async def _view(lane: Lane, part: LaneRuns) -> LaneView:
    view = lane.known(COMMIT_S_MAX)
    if view is None or zone_sets.count(view.head.isr) < part.in_sync_min:
        # More zones may be in sync by now.
        return await lane.view(0)
    return view


@dataclass(slots=True)
class _Doubt:
    """The last attempt that was not answered, until heads read later decide it."""

    lanes: Sequence[Lane]
    parts: Sequence[LaneRuns]
    views: Sequence[LaneView] | None = None
    """The heads that it was conditional on; None: no attempt is in doubt."""

    async def resolved(self, views: Sequence[LaneView]) -> Bases | None:
        """Return the offsets if `views` include the attempt; it stays in doubt if they may yet.

        Any lane that has changed since decides it, because the attempt was conditional on all
        heads. It need not be the first lane: the attempt may be applied while the heads are read
        one by one.
        """
        if self.views is None:
            return None
        for lane, part, old, now in zip(self.lanes, self.parts, self.views, views, strict=True):
            if old.version != now.version:
                if await lane.commits.landed(old.head, part.runs, now.head):
                    return _bases(self.parts, [view.head for view in self.views])
                self.views = None
                return None
        return None


def check_width(lane_count: int, other_ops: int = 0) -> None:
    """Raise `TransactionTooLarge` if these lanes and other items do not fit into one."""
    check_ops_count(lane_count, lane_count + other_ops)


def check_ops_count(lane_count: int, op_count: int) -> None:
    if op_count > TRANSACT_OPS_MAX:
        raise TransactionTooLarge(
            f"{lane_count} lanes and {op_count - lane_count} other items would be committed"
            f" together, and the metadata table can change {TRANSACT_OPS_MAX} items at once; use"
            " fewer partitions in one transaction, or topics with a larger lane.partitions"
        )


def _bases(parts: Sequence[LaneRuns], before: Sequence[Head]) -> Bases:
    return {
        part.key: heads.base_offsets(head, part.runs)
        for part, head in zip(parts, before, strict=True)
    }


__all__ = ["AtomicCommits", "Bases", "LaneRuns", "check_width", "joined"]
