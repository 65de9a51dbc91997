"""Sweeps the table: removes batches that no head refers to.

As with objects, only batches older than anything in flight are considered, and they are listed
before heads are read: so the heads include what was committed meanwhile or is not moved yet.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from storage.errors import MetadataConflict, OutcomeUnknown
from storage.head.head import Head
from storage.reading.table_batches import OldBatch, mentioned, old
from storage.stores.metadata import MetadataStore

CLOCKS_DIFFER_MS: Final = 3_600_000
"""Maximum clock difference. Unlike a bucket, the table does not record when it got a batch."""

_CHECKED_EVERY: Final = 100


async def orphans(
    metadata: MetadataStore, cutoff_ms: int, heads: Callable[[], AsyncIterator[Head]]
) -> list[OldBatch]:
    """Return the batches, named at `cutoff_ms` or before, that no head refers to."""
    found: dict[bytes, OldBatch] = {}
    async for some in old(metadata, cutoff_ms):
        found.update({batch.object_id: batch for batch in some})
    if found:
        # Usually there is none, and a deployment may have many heads to read.
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
    """Remove batches one by one. `check` is called every few and raises if the lease is lost."""
    for number, batch in enumerate(batches):
        if number % _CHECKED_EVERY == 0:
            await check()
        try:
            await metadata.transact([batch.removal])
        except (MetadataConflict, OutcomeUnknown):
            continue  # Changed by another process, or outcome unknown: left to the next sweep.
        removed(1, batch.size_bytes)
