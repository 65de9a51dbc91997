"""What keeps an old instance of a transactional producer out when it writes plainly.

A transactional id's producer may also write without a transaction, numbered like any idempotent
producer. Its epoch is not the business of one partition then: a newer instance fences it in
partitions that it has not touched itself yet. So the commit of such records checks, in the same
metadata transaction, that the transactional id is what it was when its epoch was compared.
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
        """Return what must hold when records of this producer are committed; None: nothing.

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
                f"producer {producer_id} of {transactional_id!r} writes with epoch {epoch}, but"
                f" {known.txn.epoch} is current: a newer instance has taken its place, or a"
                " transaction has ended"
            )
        return Check(keys.transaction(transactional_id), known.version)
