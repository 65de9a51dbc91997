"""Transactions as items of the metadata table: reading and changing them.

The item of a transactional id decides the outcome of all its transactions. Every change is a
compare-and-set on it; a gateway that loses a race reads again and decides again. A gateway that
meets an overdue transaction ends it first, so that no call has to wait for the upkeep.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from service.transactions import state
from service.transactions.ids import ProducerIds, owner_op
from service.transactions.state import AfterEnd, Outcome, Ref, Results, Transaction
from service.world.clock import World
from storage import keys
from storage.cas import Again, Undecided, retry
from storage.errors import TransactionTooLarge
from storage.stores.metadata import (
    VALUE_BYTES_MAX,
    MetadataStore,
    Op,
    Put,
    Versioned,
    pages,
)
from storage.topics.items import is_name

ITEMS_KEPT_MAX: Final = 256
"""Maximum number of items whose last version is cached decoded."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known:
    """A transactional id as it was read; `txn` is None if it does not exist."""

    txn: Transaction | None
    version: str | None
    size_bytes: int = 0


class TransactionItems:
    def __init__(self, metadata: MetadataStore, ids: ProducerIds, world: World) -> None:
        self._metadata = metadata
        self._ids = ids
        self._world = world
        self._kept: dict[str, Known] = {}

    async def read(self, transactional_id: str) -> Known:
        """Return the item as it is now."""
        if not is_name(transactional_id):
            return Known(None, None)
        item = await self._metadata.get(keys.transaction(transactional_id))
        return self._keep(transactional_id, self._known(transactional_id, item))

    async def current(self, transactional_id: str) -> Known:
        """Return the item as it is now, after ending its transaction if that is overdue."""

        async def attempt(_: bool) -> Known:
            known = await self.read(transactional_id)
            return (
                known
                if not self.is_overdue(known.txn)
                else await self._time_out(transactional_id, known)
            )

        return await self.retry(transactional_id, attempt)

    async def hopeful(self, ref: Ref) -> Known:
        """Return the cached item if the transaction is open in it, else the item as it is now.

        For writes conditional on its version: if it has changed since, they meet a conflict.
        """
        kept = self._kept.get(ref.transactional_id)
        if kept is not None and state.is_open(kept.txn, ref) and not self.is_overdue(kept.txn):
            return kept
        return await self.current(ref.transactional_id)

    async def likely(self, transactional_id: str) -> Known:
        """Return the cached item if there is one, else the item as it is now.

        For writes conditional on its version. What it forbids may be allowed by now.
        """
        kept = self._kept.get(transactional_id)
        if kept is not None and not self.is_overdue(kept.txn):
            return kept
        return await self.current(transactional_id)

    def forget(self, transactional_id: str) -> None:
        """Drop the cached item: it was, or may have been, changed by another write."""
        self._kept.pop(transactional_id, None)

    def is_overdue(self, txn: Transaction | None) -> bool:
        return txn is not None and bool(txn.open and txn.open.is_overdue(self._world.now_ms()))

    async def _time_out(self, transactional_id: str, known: Known) -> Known:
        assert known.txn is not None, transactional_id
        next_id = await self.next_id(known.txn)
        new = state.end(known.txn, Outcome.TIMED_OUT, next_id, self._world.now_ms())
        return await self.write(transactional_id, known, new)

    async def next_id(self, txn: Transaction) -> int:
        """Return the producer id of the next epoch: the same, except after the last epoch."""
        return await self._ids.transactional() if txn.is_last_epoch else txn.producer_id

    def committed(
        self,
        txn: Transaction,
        next_id: int,
        results: Results,
        digest: bytes = b"",
        asked: AfterEnd | None = None,
    ) -> Transaction:
        now_ms = self._world.now_ms()
        outcome = Outcome.COMMITTED
        return state.end(txn, outcome, next_id, now_ms, results=results, digest=digest, asked=asked)

    async def changing(self, transactional_id: str, change: Callable[[Known], Awaitable[T]]) -> T:
        """Call `change` with the current item; retry it after conflicts and lost replies."""

        async def attempt(_: bool) -> T:
            return await change(await self.current(transactional_id))

        return await self.retry(transactional_id, attempt)

    async def retry(
        self, transactional_id: str, attempt: Callable[[bool], Awaitable[T | Again | Undecided]]
    ) -> T:
        what = f"transactional id {transactional_id!r}"
        return await retry(what, attempt, self._world.patience)

    async def write(self, transactional_id: str, known: Known, new: Transaction) -> Known:
        """Replace `known` by `new`, or raise what `transact` raises."""
        ops = self.ops(transactional_id, known, new)
        self._kept.pop(transactional_id, None)
        versions = await self._metadata.transact(ops)
        key = keys.transaction(transactional_id)
        size_bytes = sum(len(op.value) for op in ops if isinstance(op, Put) and op.key == key)
        return self._keep(transactional_id, Known(new, versions[key], size_bytes))

    def ops(self, transactional_id: str, known: Known, new: Transaction) -> list[Op]:
        """Return the operations that replace `known` by `new`."""
        value = state.encode(new)
        if len(value) > VALUE_BYTES_MAX:
            raise TransactionTooLarge(
                f"the transaction would take {len(value)} bytes of metadata, and can take"
                f" {VALUE_BYTES_MAX}: write to fewer partitions in one transaction"
            )
        put = Put(keys.transaction(transactional_id), value, known.version)
        if known.txn is not None and known.txn.producer_id == new.producer_id:
            return [put]
        return [put, owner_op(new.producer_id, transactional_id)]

    async def all(self) -> list[tuple[str, Known]]:
        """Return every transactional id."""
        found: list[tuple[str, Known]] = []
        async for page in pages(self._metadata, keys.TRANSACTIONS):
            for key, item in page:
                transactional_id = key.removeprefix(keys.TRANSACTIONS)
                found.append((transactional_id, self._known(transactional_id, item)))
        return found

    def _known(self, transactional_id: str, item: Versioned | None) -> Known:
        if item is None:
            return Known(None, None)
        kept = self._kept.get(transactional_id)
        if kept is not None and kept.version == item.version:
            return kept
        return Known(state.decode(item.value), item.version, len(item.value))

    def _keep(self, transactional_id: str, known: Known) -> Known:
        self._kept.pop(transactional_id, None)
        if known.version is not None:
            self._kept[transactional_id] = known
            if len(self._kept) > ITEMS_KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        return known
