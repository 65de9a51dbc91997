"""Changing a head without appending to it: read, decide, compare-and-set, retry."""

from collections.abc import Callable
from typing import Final

from storage.cas import Keep, Patience, Replace, Transact, change_item
from storage.head import head as heads
from storage.head.head import Head
from storage.stores.metadata import MetadataStore, Versioned

HEAD_ATTEMPTS_MAX: Final = 20
"""A busy lane commits every few milliseconds, so a change may lose several races. There is no wait
between two attempts: the head that the conflict returned would be outdated after it."""


async def change_head(
    metadata: MetadataStore,
    key: str,
    change: Callable[[Head], Head],
    transact: Transact | None = None,
) -> Head | None:
    """Return the head after `change`, which is called again whenever another writer was first.

    `change` returns the head it was given if there is nothing to do. Then nothing is written;
    this also recognises our own write whose reply was lost. Returns None if the head no longer
    exists. `transact` replaces the store's own, to add conditions that fence.

    Raises `Contended` if other writers won every race, `OutcomeUnknown` if the store did not
    report the outcome of the last attempt, and what `change` and the store raise.
    """

    async def decide(item: Versioned | None) -> Keep[Head | None] | Replace[Head | None]:
        if item is None:
            return Keep(None)
        head = heads.decode(item.value, key)
        new = change(head)
        return Keep(head) if new is head else Replace(heads.encode(new), new)

    patience = Patience(HEAD_ATTEMPTS_MAX)
    return await change_item(metadata, key, decide, patience, transact=transact)
