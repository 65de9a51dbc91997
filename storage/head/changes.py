"""Changing a head without appending to it: read, decide, compare-and-set, retry."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from storage.errors import Contended, MetadataConflict, OutcomeUnknown
from storage.head import head as heads
from storage.head.head import Head
from storage.stores.metadata import MetadataStore, Op, Put, Versioned

ATTEMPTS_MAX: Final = 20
"""A busy lane commits every few milliseconds, so a change may lose several races."""

Transact = Callable[[Sequence[Op]], Awaitable[Mapping[str, str]]]


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
    put = transact or metadata.transact
    item = await metadata.get(key)
    doubt: OutcomeUnknown | None = None
    for _ in range(ATTEMPTS_MAX):
        if item is None:
            return None
        head = heads.decode(item.value, key)
        new = change(head)
        if new is head:
            return head
        try:
            await put([Put(key, heads.encode(new), item.version)])
        except MetadataConflict as conflict:
            # Another writer's change replaced the item, so none of our attempts is in doubt.
            item, doubt = await found_instead(metadata, key, conflict), None
        except OutcomeUnknown as error:
            item, doubt = await metadata.get(key), error
        else:
            return new
    if doubt is not None:
        raise OutcomeUnknown(f"{key} may have been changed, or not: {doubt}") from doubt
    raise Contended(f"others changed {key} {ATTEMPTS_MAX} times in a row; try again")


async def found_instead(
    metadata: MetadataStore, key: str, conflict: MetadataConflict
) -> Versioned | None:
    """Return the item found instead of the expected one; read it if the conflict lacks it."""
    return conflict.current[key] if key in conflict.current else await metadata.get(key)
