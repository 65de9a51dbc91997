"""Committing a transaction: two loops, because two different things may change meanwhile.

    TransactionCommit.run   the transaction: another call added to it, ended it or fenced it, or
                            an attempt was not answered. Read its item again, and prepare the
                            commit again: the chosen runs, the group's offsets, the new item.
    AtomicCommits.commit    the heads of its lanes (storage/lanes/atomic.py): another writer
                            committed first. Append the same runs to the new heads.

The loop over heads holds a place in the queue of every lane, so it makes nothing wait for longer
than `COMMIT_S_MAX`. The loop over the transaction holds none: reading and preparing must not keep
other commits waiting. It begins no attempt after the time of a call is up (`World.patience`), so
its last attempt may end up to `COMMIT_S_MAX` later.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from service.groups.offsets import Commit, Committer, Offsets, Planned
from service.log.gateway import Gateway
from service.transactions import state
from service.transactions.items import Known, TransactionItems
from service.transactions.state import AfterEnd, End, Open, Outcome, PendingOffsets, Ref, Staged
from service.transactions.views import Ended, ended
from storage import keys
from storage.cas import Again, Undecided
from storage.errors import (
    HeadGone,
    HeadMissing,
    InvalidRequest,
    MetadataConflict,
    OutcomeUnknown,
    RiachoError,
    Unavailable,
    UnknownTopicOrPartition,
)
from storage.lanes.atomic import Bases, LaneRuns, check_width
from storage.lanes.rolls import TRUSTED_S
from storage.stores.metadata import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit:
    """Offsets that are recorded with the commit of the transaction."""

    group_id: str
    commits: Sequence[Commit]
    committer: Committer | None


def group_commit_of(pending: PendingOffsets) -> GroupCommit:
    return GroupCommit(
        group_id=pending.group_id,
        commits=[
            Commit(
                topic=each.topic,
                partition=each.partition,
                offset=each.offset,
                metadata=each.metadata,
                leader_epoch=each.leader_epoch,
            )
            for each in pending.offsets
        ],
        committer=Committer(
            member_id=pending.member_id,
            generation=pending.generation,
            instance_id=pending.instance_id,
            is_transactional=True,
            is_kafka=True,
        ),
    )


class TransactionCommit:
    """A call that commits a transaction."""

    def __init__(
        self,
        gateway: Gateway,
        offsets: Offsets,
        items: TransactionItems,
        ref: Ref,
        group_commit: GroupCommit | None,
        names: Sequence[str] | None,
        asked: AfterEnd | None = None,
    ) -> None:
        self._gateway = gateway
        self._offsets = offsets
        self._items = items
        self._ref = ref
        self._group_commit = group_commit
        self._names = names
        self._asked = asked

    async def run(self) -> Ended:
        """Commit; retry while the transaction changes, or the outcome is unknown."""
        return await self._items.retry(self._ref.transactional_id, self._attempt)

    async def _attempt(self, is_in_doubt: bool) -> Ended | Again | Undecided:
        """Commit the transaction as it is now; if it has ended, return how."""
        ref = self._ref
        known = await self._items.hopeful(ref)
        try:
            found = state.find(known.txn, ref)
            if isinstance(found, Open):
                return await self._commit(known, found)
        except (MetadataConflict, OutcomeUnknown, Unavailable):
            self._items.forget(ref.transactional_id)
            raise
        except RiachoError as error:
            if (await self._items.current(ref.transactional_id)).version != known.version:
                # The item changed since it was read: retry, the transaction may have ended.
                return Again()
            if is_in_doubt:
                return Undecided(error)
            raise
        return ended(known.txn, ref, found, Outcome.COMMITTED)

    async def _commit(self, known: Known, opened: Open) -> Ended | Again:
        """Commit what is staged; `Again` if the transaction has changed since `known`."""
        ref = self._ref
        chosen = state.chosen(opened, self._names)
        group_commits = [group_commit_of(each) for each in opened.pending]
        if self._group_commit is not None:
            group_commits.append(self._group_commit)
        if len({of.group_id for of in group_commits}) < len(group_commits):
            raise InvalidRequest("offsets: the transaction has some of this group already")
        planned = [
            await self._offsets.planned(of.group_id, of.commits, of.committer)
            for of in group_commits
        ]
        finish = _Finish(self._items, self._offsets, ref, known, chosen, planned, self._asked)
        check_width(len(chosen), finish.op_count)
        try:
            bases = await self._gateway.atomic.commit(
                await self._staged(opened, chosen), finish.plan
            )
        except UnknownTopicOrPartition as error:
            if state.is_open((await self._items.read(ref.transactional_id)).txn, ref):
                raise await self._deleted(opened, error) from error
            # An earlier attempt, whose reply was lost, may have committed before the topic was
            # deleted.
            bases = None
        self._items.forget(ref.transactional_id)
        return Again() if bases is None else finish.ended(bases)

    async def _staged(self, opened: Open, chosen: Sequence[Staged]) -> list[LaneRuns]:
        """Return the runs to commit, with the requirements of their topics."""
        topics = [await self._gateway.topics.get(each.topic) for each in chosen]
        is_old = not 0 <= self._gateway.world.now_ms() - opened.started_ms <= TRUSTED_S * 1000
        return [
            LaneRuns(each.topic_id, each.lane, each.runs, topic.in_sync_min, is_old)
            for each, topic in zip(chosen, topics, strict=True)
        ]

    async def _deleted(self, opened: Open, error: RiachoError) -> RiachoError:
        """Return the error for a commit that found a head missing."""
        gone = []
        for lane in {each.topic_id: each for each in opened.staged}.values():
            try:
                if (await self._gateway.topics.read(lane.topic)).topic_id != lane.topic_id:
                    gone.append(lane.topic)
            except UnknownTopicOrPartition:
                gone.append(lane.topic)
        names = ", ".join(sorted(map(repr, gone)))
        if not names and isinstance(error, HeadGone):
            heads = {keys.head(each.topic_id, each.lane): each.topic for each in opened.staged}
            return HeadMissing(heads.get(error.key, ""), error.key)
        if not names:
            return error
        return UnknownTopicOrPartition(
            f"transaction {self._ref} wrote to a topic that was deleted since, {names}, and cannot"
            " be committed any more; abort it"
        )


class _Finish:
    """The end of a transaction by a commit; every attempt plans it again."""

    def __init__(
        self,
        items: TransactionItems,
        offsets: Offsets,
        ref: Ref,
        known: Known,
        chosen: Sequence[Staged],
        planned: Sequence[Planned],
        asked: AfterEnd | None,
    ) -> None:
        assert known.txn is not None, ref
        assert known.txn.open is not None, ref
        self._items = items
        self._offsets = offsets
        self._ref = ref
        self._known: Known | None = known
        self._open = known.txn.open
        self._chosen = chosen
        self._planned = planned
        self._asked = asked
        self._next_id: int | None = None
        self.op_count = 1 + known.txn.is_last_epoch + sum(each.op_count for each in planned)

    async def plan(self, bases: Bases) -> list[Op] | None:
        """Return the operations of the commit; None if the transaction has changed."""
        ref = self._ref
        # Use the item read before for the first attempt: if it has changed, the next one reads it.
        known = self._known or await self._items.read(ref.transactional_id)
        self._known = None
        if not state.is_open(known.txn, ref):
            return None
        txn = known.txn
        assert txn is not None, ref
        if self._items.is_overdue(txn) or txn.open != self._open:
            return None
        if self._next_id is None:
            self._next_id = await self._items.next_id(txn)
        results = state.results_of(self._chosen, bases)
        new = self._items.committed(txn, self._next_id, results, asked=self._asked)
        ops = self._items.ops(ref.transactional_id, known, new)
        for each in self._planned:
            ops += await self._offsets.ops(each)
        return ops

    def ended(self, bases: Bases) -> Ended:
        assert self._next_id is not None, self._ref
        end = End(self._ref.producer_id, self._ref.epoch, Outcome.COMMITTED, self._next_id)
        return Ended(
            ref=self._ref,
            outcome=Outcome.COMMITTED,
            producer_id=self._next_id,
            epoch=end.next_epoch,
            results=state.results_of(self._chosen, bases),
        )
