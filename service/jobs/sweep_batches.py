"""Sweeping the table: batches that no head mentions are removed.

As with objects, only what is older than anything in flight is looked at, and it is listed before
heads are read: what was committed meanwhile is there, and so is what was not moved yet.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from storage.errors import MetadataConflict, OutcomeUnknown
from storage.head.head import Head
from storage.reading.table_batches import OldBatch, mentioned, old
from storage.stores.metadata import MetadataStore

CLOCKS_DIFFER_MS: Final = 3_600_000
"""A bucket says when it got an object, a table does not: how far clocks may be apart, at most."""

_CHECKED_EVERY: Final = 100


async def orphans(
    metadata: MetadataStore, cutoff_ms: int, heads: Callable[[], AsyncIterator[Head]]
) -> list[OldBatch]:
    """Return the batches, named at `cutoff_ms` or before, that no head mentions."""
    found: dict[bytes, OldBatch] = {}
    async for some in old(metadata, cutoff_ms):
        found.update({batch.object_id: batch for batch in some})
    if found:
        # Mostly there is none, and a deployment may have many heads.
        async for head in heads():
            for object_id in mentioned(head):
                found.pop(object_id, None)
    return list(found.values())


async def remove(
    metadata: MetadataStore,
    batches: list[OldBatch],
    check: Callable[[], Awaitable[None]],
    removed: Callable[[int, int], None],
) -> None:
    """Remove batches, one by one; `check` raises now and then if we may not any more."""
    for number, batch in enumerate(batches):
        if number % _CHECKED_EVERY == 0:
            await check()
        try:
            await metadata.transact([batch.removal])
        except (MetadataConflict, OutcomeUnknown):
            continue  # Somebody else was first; or the next sweep finds it gone, or not.
        removed(1, batch.size_bytes)
