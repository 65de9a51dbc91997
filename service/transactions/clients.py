"""Transactions of Kafka's clients, over the same items as all others.

A client names its transaction by the pair of producer id and epoch that it was told (told.py).
This module finds the open transaction that is meant, begins it, and ends it; batch_staging.py adds
the records. An older client says in advance what it will write (`begin`), and that begins a
transaction; a newer one just writes.
"""

from dataclasses import dataclass

from service.groups.offsets import Offsets
from service.transactions import state
from service.transactions import told as tellings
from service.transactions.commit import group_commit_of
from service.transactions.ids import ProducerIds, parse_transactional_id
from service.transactions.items import Known, TransactionItems
from service.transactions.room import check_item_bytes
from service.transactions.state import AfterEnd, Outcome, PendingOffsets, Ref, Transaction
from service.transactions.told import Pair
from service.transactions.transactions import TIMEOUT_MS_MAX, Transactions
from service.world.clock import World
from storage.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NotItsProducer,
    ProducerOvertaken,
)


@dataclass(frozen=True, slots=True)
class NamedTransaction:
    """A transaction as a client names it."""

    transactional_id: str
    pair: Pair
    is_new_client: bool
    """Whether it hears the next epoch at each end (KIP-890)."""

    def __str__(self) -> str:
        return f"{self.transactional_id}.{self.pair[0]}.{self.pair[1]}"


class ClientTransactions:
    def __init__(
        self,
        transactions: Transactions,
        items: TransactionItems,
        ids: ProducerIds,
        offsets: Offsets,
        world: World,
    ) -> None:
        self._transactions = transactions
        self._items = items
        self._ids = ids
        self._offsets = offsets
        self._world = world

    async def init(self, transactional_id: str, timeout_ms: int, known_as: Pair | None) -> Pair:
        """Return a new pair; everyone with another one is fenced.

        `known_as` is that of a client that only wants the next epoch; it is refused if another
        one has taken over. If it asks again because the answer was lost, it gets the same one.
        """
        parse_transactional_id(transactional_id)
        if not 1 <= timeout_ms <= TIMEOUT_MS_MAX:
            raise InvalidTransactionTimeout(
                f"the transaction timeout must be from 1 to {TIMEOUT_MS_MAX} ms, not {timeout_ms}"
            )

        async def change(known: Known) -> Pair:
            txn, now_ms = known.txn, self._world.now_ms()
            told = None if txn is None else txn.told
            if known_as is not None and (told is None or known_as not in {told.pair, told.former}):
                raise InvalidProducerEpoch(
                    f"{transactional_id!r} is not at producer id {known_as[0]} and epoch"
                    f" {known_as[1]} any more: a newer instance has taken over"
                )
            is_repeated = told is not None and known_as is not None and known_as == told.former
            if told is not None and txn is not None and is_repeated and txn.open is None:
                return told.pair
            if txn is None:
                new = state.create(await self._ids.transactional(), now_ms)
            else:
                new = state.renew(txn, await self._items.next_id(txn), now_ms)
            new = state.tell(new, tellings.given(new.pair, timeout_ms, known_as))
            await self._items.write(transactional_id, known, new)
            return new.pair

        return await self._items.changing(transactional_id, change)

    async def begin(self, named: NamedTransaction) -> None:
        """Begin a transaction, unless it is open already.

        The item is always read: an older client names the next transaction as it did the last,
        which may have ended at another gateway.
        """

        async def change(known: Known) -> None:
            new = opened(known.txn, named, self._world.now_ms(), begins=True)
            if new is not known.txn:
                await self._items.write(named.transactional_id, known, new)

        await self._items.changing(named.transactional_id, change)

    async def check_open(self, named: NamedTransaction) -> None:
        """Raise unless the transaction is open."""
        known = await self._items.current(named.transactional_id)
        opened(known.txn, named, self._world.now_ms(), begins=False)

    async def add_offsets(self, named: NamedTransaction, pending: PendingOffsets) -> None:
        """Let the commit record these offsets; raise if the group refuses them now."""
        of = group_commit_of(pending)
        await self._offsets.check(
            await self._offsets.planned(of.group_id, of.commits, of.committer)
        )

        async def change(known: Known) -> None:
            now_ms = self._world.now_ms()
            txn = opened(known.txn, named, now_ms, begins=named.is_new_client)
            new = state.add_offsets(txn, pending)
            if new != known.txn:
                check_item_bytes(len(state.encode(new)))
                await self._items.write(named.transactional_id, known, new)

        await self._items.changing(named.transactional_id, change)

    async def end(self, named: NamedTransaction, *, is_commit: bool) -> Pair:
        """Commit or abort; return the pair that a newer client uses from now on.

        A repeated call gets the first answer. Raises `InvalidTransactionState` if it ended the
        other way, `ProducerOvertaken` if a newer client's was ended by someone else, and what
        `Transactions.commit` raises.
        """
        asked = AfterEnd.FOR_THE_NEXT_EPOCH if named.is_new_client else AfterEnd.SILENTLY
        known = await self._items.current(named.transactional_id)
        if is_commit and is_open(known.txn, named):
            assert known.txn is not None, named
            ref = Ref(named.transactional_id, *known.txn.pair)
            try:
                done = await self._transactions.commit(ref, None, asked=asked)
            except (InvalidTransactionState, InvalidProducerEpoch):
                txn = (await self._items.current(named.transactional_id)).txn
                found = _before(txn, named, is_commit=True)
                if found is None:
                    raise
                return found
            return done.producer_id, done.epoch

        async def change(known: Known) -> Pair:
            txn = known.txn
            found = _before(txn, named, is_commit=is_commit)
            if found is not None:
                return found
            assert txn is not None, named
            if is_commit and txn.open is not None:
                raise InvalidTransactionState(f"transaction {named} began while it was committed")
            new = state.end(
                txn,
                Outcome.COMMITTED if is_commit else Outcome.ABORTED,
                await self._items.next_id(txn),
                self._world.now_ms(),
                results={} if is_commit else None,
                asked=asked,
            )
            await self._items.write(named.transactional_id, known, new)
            return new.pair

        return await self._items.changing(named.transactional_id, change)


def _before(txn: Transaction | None, named: NamedTransaction, *, is_commit: bool) -> Pair | None:
    """Return the answer to a call that has nothing to end any more; None: there is something."""
    told = None if txn is None else txn.told
    if txn is None or told is None:
        raise _not_this(txn, named)
    if told.pair == named.pair:
        if txn.open is not None or named.is_new_client:
            # The end of nothing, too, raises the epoch: what comes late is not of the next one.
            return None
        if told.ended is None:
            if is_commit:
                raise InvalidTransactionState(f"transaction {named} has not begun")
            return told.pair
    elif told.ended is None or told.ended[0] != named.pair:
        if named.is_new_client and told.former == named.pair:
            # It timed out, or was aborted through another door.
            if is_commit:
                raise ProducerOvertaken(f"transaction {named} was ended by someone else")
            return told.pair
        raise _not_this(txn, named)
    if told.ended[1] != is_commit:
        was = "committed" if told.ended[1] else "aborted"
        raise InvalidTransactionState(f"transaction {named} was {was} already")
    return told.pair


def is_open(txn: Transaction | None, named: NamedTransaction) -> bool:
    return (
        txn is not None
        and txn.told is not None
        and txn.told.pair == named.pair
        and txn.open is not None
    )


def opened(
    txn: Transaction | None, named: NamedTransaction, now_ms: int, *, begins: bool
) -> Transaction:
    """Return the item with an open transaction of this client, or raise why there is none."""
    if txn is None or txn.told is None or txn.told.pair != named.pair:
        raise _not_this(txn, named)
    if txn.open is not None:
        return txn
    if not begins:
        raise InvalidTransactionState(f"transaction {named} is not open")
    return state.begin(txn, txn.told.timeout_ms, now_ms)


def _not_this(
    txn: Transaction | None, named: NamedTransaction
) -> InvalidProducerEpoch | NotItsProducer:
    """Return the error for a pair that is not the one the client was told last."""
    known = set()
    if txn is not None:
        known = {txn.producer_id, *(each.producer_id for each in txn.ends)}
        if txn.told is not None:
            known.add(txn.told.pair[0])
    if named.pair[0] not in known:
        return NotItsProducer(
            f"{named.transactional_id!r} is not of producer id {named.pair[0]}, or it was not used"
            " for long and is forgotten"
        )
    return InvalidProducerEpoch(
        f"{named.transactional_id!r} is not at producer id {named.pair[0]} and epoch"
        f" {named.pair[1]} any more: a newer instance has taken over, or its transaction was ended"
        " by a timeout or through another door"
    )
