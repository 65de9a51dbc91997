"""Deletes buckets that nobody uses any more: a client may call itself anything."""

from typing import Final

from service.process.upkeep import Upkeep
from service.security.quotas.buckets import decode_bucket
from service.settings import Settings
from service.world.clock import World
from storage import keys
from storage.errors import MetadataConflict
from storage.stores.metadata import Delete, MetadataStore, pages

UNUSED_MS: Final = 86_400_000
"""A bucket that was not used for this long is full, but for one with a debt of more than a day."""


class QuotaUpkeep(Upkeep):
    def __init__(self, metadata: MetadataStore, settings: Settings, world: World) -> None:
        super().__init__(settings, world)
        self._metadata = metadata

    async def end_overdue(self) -> None:
        """Nothing is overdue."""

    async def expire(self) -> None:
        """Delete buckets that were not used for a day: a new one is full, too."""
        oldest_ms = self._world.now_ms() - UNUSED_MS
        async for page in pages(self._metadata, keys.QUOTA_USES):
            for key, item in page:
                if decode_bucket(item.value).at_ms >= oldest_ms:
                    continue
                try:
                    await self._metadata.transact([Delete(key, item.version, can_wait=True)])
                except MetadataConflict:
                    continue  # It is in use again.
