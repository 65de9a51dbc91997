"""Fences old instances of a transactional producer that write outside a transaction.

A transactional id's producer may also write without a transaction, numbered like any idempotent
producer. Its epoch then cannot be checked per partition: a newer instance fences it also in
partitions that the newer instance has not written to yet. So the commit of such records checks,
in the same metadata transaction, that the item of the transactional id has not changed since its
epoch was compared.
"""

from service.transactions.ids import ProducerIds, is_transactional
from service.transactions.items import TransactionItems
from storage import keys
from storage.errors import InvalidProducerEpoch, UnknownProducer
from storage.stores.metadata import Check


class Fences:
    def __init__(self, ids: ProducerIds, items: TransactionItems) -> None:
        self._ids = ids
        self._items = items

    async def fence(self, producer_id: int, epoch: int) -> Check | None:
        """Return the check to commit with records of this producer; None: no check is needed.

        Raises `UnknownProducer` if there is no such producer, and `InvalidProducerEpoch` if
        there is a newer instance of it.
        """
        await self._ids.check_issued(producer_id)
        if not is_transactional(producer_id):
            return None
        transactional_id = await self._ids.owner(producer_id)
        known = await self._items.read(transactional_id)
        if known.txn is None or known.version is None:
            raise UnknownProducer(
                f"producer id {producer_id} was not used for long and is forgotten; get one with"
                " POST /v1/producers"
            )
        if (known.txn.producer_id, known.txn.epoch) != (producer_id, epoch):
            raise InvalidProducerEpoch(
                f"producer {producer_id} writes with epoch {epoch}, but {known.txn.epoch} is"
                " current: a newer instance has taken its place, or a transaction has ended"
            )
        return Check(keys.transaction(transactional_id), known.version)
