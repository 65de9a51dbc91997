"""Transactions: begin, commit and abort, over the metadata table.

The process keeps only caches, so any gateway can answer any call. A commit is one metadata
transaction: the heads of all lanes that were written to, the group's offsets, and the transaction
item, which from then on records that the commit happened and the offsets it assigned. So a
repeated call gets the first outcome.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.groups.offsets import Commit, Committer, Offsets, Planned
from service.log.gateway import Gateway
from service.transactions import state
from service.transactions.ids import ProducerIds, parse_transactional_id
from service.transactions.items import Known, TransactionItems
from service.transactions.state import End, Open, Outcome, Ref, Results, Staged, Transaction
from service.transactions.views import View, latest, view
from storage import keys
from storage.cas import Again, Undecided
from storage.errors import (
    HeadGone,
    HeadMissing,
    InvalidProducerEpoch,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    MetadataConflict,
    OutcomeUnknown,
    RiachoError,
    Unavailable,
    UnknownTopicOrPartition,
)
from storage.lanes.atomic import Bases, LaneRuns, check_width
from storage.lanes.rolls import TRUSTED_S
from storage.stores.metadata import Op

TIMEOUT_MS_DEFAULT: Final = 60_000
TIMEOUT_MS_MAX: Final = 900_000
"""Kafka's transaction.max.timeout.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance of a producer: its id, and an epoch that sets it apart from earlier ones."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit:
    """Offsets that are recorded with the commit of the transaction."""

    group_id: str
    commits: Sequence[Commit]
    committer: Committer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    ref: Ref
    outcome: Outcome
    producer_id: int
    epoch: int
    """The next epoch, which is the current one unless more has happened since."""
    results: Results | None
    """None: it committed, but there was another commit since, and older results are not kept."""


class Transactions:
    def __init__(
        self, gateway: Gateway, offsets: Offsets, ids: ProducerIds, items: TransactionItems
    ) -> None:
        self._ids = ids
        self._items = items
        self._gateway = gateway
        self._world = gateway.world
        self._offsets = offsets

    async def init(self, transactional_id: str) -> Instance:
        """Return a new instance of the transactional id; all earlier instances are fenced.

        Repeating the call is harmless: an instance whose reply was lost is fenced by the next.
        """
        parse_transactional_id(transactional_id)

        async def change(known: Known) -> Instance:
            new = await self._renewed(known)
            await self._items.write(transactional_id, known, new)
            return Instance(producer_id=new.producer_id, epoch=new.epoch)

        return await self._items.changing(transactional_id, change)

    async def begin(
        self, transactional_id: str, timeout_ms: int, instance: Instance | None
    ) -> View:
        """Begin a transaction; without `instance`, as a new instance that fences all earlier ones.

        Instances that have begun nothing yet are fenced too: two instances with the same epoch
        would write into one transaction, and neither would ever be fenced.
        """
        parse_transactional_id(transactional_id)
        if not 1 <= timeout_ms <= TIMEOUT_MS_MAX:
            raise InvalidTransactionTimeout(
                f"timeout_ms: must be from 1 to {TIMEOUT_MS_MAX}, not {timeout_ms}"
            )

        async def change(known: Known) -> View:
            txn = known.txn
            if instance is None:
                txn = await self._renewed(known)
            else:
                ref = Ref(transactional_id, instance.producer_id, instance.epoch)
                txn = _checked(txn, ref)
                if txn.open is not None:
                    return _begun_before(ref, txn.open)
            txn = state.begin(txn, timeout_ms, self._world.now_ms())
            await self._items.write(transactional_id, known, txn)
            assert txn.open is not None, txn
            return view(Ref(transactional_id, txn.producer_id, txn.epoch), txn.open)

        return await self._items.changing(transactional_id, change)

    async def _renewed(self, known: Known) -> Transaction:
        now_ms = self._world.now_ms()
        if known.txn is None:
            return state.create(await self._ids.transactional(), now_ms)
        return state.renew(known.txn, await self._items.next_id(known.txn), now_ms)

    async def commit(
        self, ref: Ref, offsets: GroupCommit | None, names: Sequence[str] | None = None
    ) -> Ended:
        """Make all that is staged part of the log, with `offsets`, or nothing of it.

        With `names`, commit only the requests of these names, in this order; drop the others.

        Raises `InvalidTransactionState` if it was aborted or timed out, `InvalidProducerEpoch`
        if a newer instance has fenced it, `TransactionTooLarge`, and what a commit of offsets
        raises. Except after the first two the transaction is still open, and can be aborted.
        """

        async def attempt(is_in_doubt: bool) -> Ended | Again | Undecided:
            known = await self._items.hopeful(ref)
            try:
                found = state.find(known.txn, ref)
                if isinstance(found, Open):
                    return await self._commit(ref, known, found, offsets, names)
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
            return answer(known.txn, ref, found, Outcome.COMMITTED)

        return await self._items.retry(ref.transactional_id, attempt)

    async def _commit(
        self,
        ref: Ref,
        known: Known,
        opened: Open,
        offsets: GroupCommit | None,
        names: Sequence[str] | None,
    ) -> Ended | Again:
        """Commit what is staged; `Again` if the transaction has changed since `known`."""
        chosen = state.chosen(opened, names)
        planned = None
        if offsets is not None:
            planned = await self._offsets.planned(
                offsets.group_id, offsets.commits, offsets.committer
            )
        finish = _Finish(self._items, self._offsets, ref, known, chosen, planned)
        check_width(len(chosen), finish.op_count)
        try:
            bases = await self._gateway.atomic.commit(
                await self._staged(opened, chosen), finish.plan
            )
        except UnknownTopicOrPartition as error:
            if state.is_open((await self._items.read(ref.transactional_id)).txn, ref):
                raise await self._deleted(ref, opened, error) from error
            # An earlier attempt, whose reply was lost, may have committed before the topic was
            # deleted.
            bases = None
        self._items.forget(ref.transactional_id)
        return Again() if bases is None else finish.ended(bases)

    async def _staged(self, opened: Open, chosen: Sequence[Staged]) -> list[LaneRuns]:
        """Return the runs to commit, with the requirements of their topics."""
        topics = [await self._gateway.topics.get(each.topic) for each in chosen]
        is_old = not 0 <= self._world.now_ms() - opened.started_ms <= TRUSTED_S * 1000
        return [
            LaneRuns(each.topic_id, each.lane, each.runs, topic.config.in_sync_min, is_old)
            for each, topic in zip(chosen, topics, strict=True)
        ]

    async def _deleted(self, ref: Ref, opened: Open, error: RiachoError) -> RiachoError:
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
            f"transaction {ref} wrote to a topic that was deleted since, {names}, and cannot be"
            " committed any more; abort it"
        )

    async def abort(self, ref: Ref) -> Ended:
        """End the transaction; nothing of it was or will be in the log."""

        async def change(known: Known) -> Ended:
            found = state.find(known.txn, ref)
            if isinstance(found, Open):
                assert known.txn is not None, ref
                next_id = await self._items.next_id(known.txn)
                new = state.end(known.txn, Outcome.ABORTED, next_id, self._world.now_ms())
                await self._items.write(ref.transactional_id, known, new)
                found = new.ends[-1]
            return answer(known.txn, ref, found, Outcome.ABORTED)

        return await self._items.changing(ref.transactional_id, change)

    # Looking

    async def describe(self, ref: Ref) -> View:
        known = await self._items.current(ref.transactional_id)
        txn = known.txn
        if txn and not txn.open and (ref.producer_id, ref.epoch) == (txn.producer_id, txn.epoch):
            return View(ref=ref, state="empty")
        return view(ref, state.find(txn, ref))

    async def all(self) -> list[View]:
        """Return for every transactional id its open transaction, or else the last one."""
        return [
            latest(transactional_id, known.txn)
            for transactional_id, known in await self._items.all()
            if known.txn is not None
        ]


class _Finish:
    """The end of a transaction by a commit; every attempt plans it again."""

    def __init__(
        self,
        items: TransactionItems,
        offsets: Offsets,
        ref: Ref,
        known: Known,
        chosen: Sequence[Staged],
        planned: Planned | None,
    ) -> None:
        assert known.txn is not None, ref
        assert known.txn.open is not None, ref
        self._items = items
        self._offsets = offsets
        self._ref = ref
        self._known: Known | None = known
        self._staged = known.txn.open.staged
        self._chosen = chosen
        self._planned = planned
        self._next_id: int | None = None
        self.op_count = 1 + known.txn.is_last_epoch + (planned.op_count if planned else 0)

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
        assert txn.open is not None, ref
        if self._items.is_overdue(txn) or txn.open.staged != self._staged:
            return None
        if self._next_id is None:
            self._next_id = await self._items.next_id(txn)
        results = state.results_of(self._chosen, bases)
        new = self._items.committed(txn, self._next_id, results)
        ops = self._items.ops(ref.transactional_id, known, new)
        return ops if self._planned is None else ops + await self._offsets.ops(self._planned)

    def ended(self, bases: Bases) -> Ended:
        assert self._next_id is not None, self._ref
        ended = End(self._ref.producer_id, self._ref.epoch, Outcome.COMMITTED, self._next_id)
        return Ended(
            ref=self._ref,
            outcome=Outcome.COMMITTED,
            producer_id=self._next_id,
            epoch=ended.next_epoch,
            results=state.results_of(self._chosen, bases),
        )


def answer(txn: Transaction | None, ref: Ref, ended: End, wanted: Outcome) -> Ended:
    """Return the reply to a commit or abort of a transaction that has ended."""
    assert txn is not None, ref
    outcome = Outcome.ABORTED if ended.outcome is Outcome.TIMED_OUT else ended.outcome
    if outcome is not wanted:
        raise state.refusal(txn, ref, ended)
    results: Results | None = {}
    if wanted is Outcome.COMMITTED:
        is_last = txn.results_of == (ref.producer_id, ref.epoch)
        results = txn.results if is_last else None
    return Ended(
        ref=ref,
        outcome=wanted,
        producer_id=ended.next_producer_id,
        epoch=ended.next_epoch,
        results=results,
    )


def _checked(txn: Transaction | None, ref: Ref) -> Transaction:
    """Return the item, or raise unless `ref` is its current instance."""
    if txn is None:
        raise InvalidProducerEpoch(
            f"there is no transactional id {ref.transactional_id!r}, or it was not used for long"
            " and is forgotten; POST /v1/producers makes it"
        )
    if (ref.producer_id, ref.epoch) != (txn.producer_id, txn.epoch):
        raise state.superseded(ref, txn)
    return txn


def _begun_before(ref: Ref, opened: Open) -> View:
    if opened.staged:
        raise InvalidTransactionState(
            f"transaction {ref} is open and holds records already; commit or abort it first"
        )
    return view(ref, opened)
