"""Transactions: begin, commit and abort, over the metadata table.

The process keeps only caches, so any gateway can answer any call. A commit is one metadata
transaction: the heads of all lanes that were written to, the group's offsets, and the transaction
item, which from then on records that the commit happened and the offsets it assigned. So a
repeated call gets the first outcome.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.groups.offsets import Offsets
from service.log.gateway import Gateway
from service.transactions import state
from service.transactions.commit import GroupCommit, TransactionCommit
from service.transactions.ids import ProducerIds, parse_transactional_id
from service.transactions.items import Known, TransactionItems
from service.transactions.state import AfterEnd, Open, Outcome, Ref, Transaction
from service.transactions.views import Ended, View, ended, latest, view
from storage.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    InvalidTransactionTimeout,
)

TIMEOUT_MS_DEFAULT: Final = 60_000
TIMEOUT_MS_MAX: Final = 900_000
"""Kafka's transaction.max.timeout.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance of a producer: its id, and an epoch that sets it apart from earlier ones."""

    producer_id: int
    epoch: int


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
        self,
        ref: Ref,
        offsets: GroupCommit | None,
        names: Sequence[str] | None = None,
        asked: AfterEnd | None = None,
    ) -> Ended:
        """Make all that is staged part of the log, with `offsets`, or nothing of it.

        With `names`, commit only the requests of these names, in this order; drop the others.

        Raises `InvalidTransactionState` if it was aborted or timed out, `InvalidProducerEpoch`
        if a newer instance has fenced it, `TransactionTooLarge`, and what a commit of offsets
        raises. Except after the first two the transaction is still open, and can be aborted.
        """
        call = TransactionCommit(
            self._gateway, self._offsets, self._items, ref, offsets, names, asked
        )
        return await call.run()

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
            return ended(known.txn, ref, found, Outcome.ABORTED)

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
