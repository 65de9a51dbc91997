"""Periodic upkeep of transactions: aborts overdue ones and deletes expired items."""

import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from service.process.upkeep import Upkeep
from service.settings import Settings
from service.transactions.guards import decode_kept, decode_window
from service.transactions.ids import decode_owner
from service.transactions.items import Known, TransactionItems
from service.world.clock import World
from storage import keys
from storage.errors import MetadataConflict, RiachoError
from storage.stores.metadata import Delete, MetadataStore, Versioned, pages

log = logging.getLogger("riacho")

TRANSACTIONAL_ID_EXPIRATION_MS: Final = 7 * 86_400_000
"""Kafka's transactional.id.expiration.ms."""

IDEMPOTENCY_KEY_EXPIRATION_MS: Final = 86_400_000


class TransactionUpkeep(Upkeep):
    def __init__(
        self, metadata: MetadataStore, items: TransactionItems, settings: Settings, world: World
    ) -> None:
        super().__init__(settings, world)
        self._metadata = metadata
        self._items = items

    async def end_overdue(self) -> None:
        """Abort the transactions that are open for longer than their timeout."""
        for transactional_id, known in await self._items.all():
            if self._items.is_overdue(known.txn):
                # An error in one transaction must not stop the others from being checked.
                with suppress(RiachoError):
                    await self._items.current(transactional_id)
                    log.info("a transaction of %r timed out and was aborted", transactional_id)

    async def expire(self) -> None:
        """Delete transactional ids, atomic producers and idempotency keys that have expired."""
        now_ms = self._world.now_ms()
        for transactional_id, known in await self._items.all():
            if _is_idle(known, now_ms - TRANSACTIONAL_ID_EXPIRATION_MS):
                await self._delete(keys.transaction(transactional_id), known.version)
                self._items.forget(transactional_id)
        async for key, item in self._listed(keys.PRODUCERS):
            await self._forget_producer(key, item)
        oldest_ms = now_ms - self._settings.producer_id_expiration_ms
        async for key, item in self._listed(keys.ATOMIC_PRODUCERS):
            window = decode_window(item)
            if window is not None and window.changed_ms < oldest_ms:
                await self._delete(key, item.version)
        oldest_ms = now_ms - IDEMPOTENCY_KEY_EXPIRATION_MS
        async for key, item in self._listed(keys.IDEMPOTENCY_KEYS):
            if decode_kept(item).created_ms < oldest_ms:
                await self._delete(key, item.version)

    async def _forget_producer(self, key: str, item: Versioned) -> None:
        """Delete a producer id that its transactional id does not refer to any more.

        A producer id is written together with the transaction item that refers to it, and is never
        used again once dropped. So the transaction item, read after the list, decides.
        """
        producer_id = int(key.removeprefix(keys.PRODUCERS))
        txn = (await self._items.read(decode_owner(item.value))).txn
        known = set()
        if txn is not None:
            known = {txn.producer_id, *(ended.producer_id for ended in txn.ends)}
            if txn.told is not None:
                known.add(txn.told.pair[0])
        if producer_id not in known:
            await self._delete(key, item.version)

    async def _listed(self, prefix: str) -> AsyncIterator[tuple[str, Versioned]]:
        async for page in pages(self._metadata, prefix):
            for key, item in page:
                yield key, item

    async def _delete(self, key: str, version: str | None) -> None:
        assert version is not None, key
        # An item that changed since is in use: keep it.
        with suppress(MetadataConflict):
            await self._metadata.transact([Delete(key, version)])


def _is_idle(known: Known, oldest_ms: int) -> bool:
    return known.txn is not None and known.txn.open is None and known.txn.changed_ms < oldest_ms
