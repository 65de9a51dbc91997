"""Changing a head without appending to it: read, decide, compare-and-set, again if need be."""

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
    """Return the head after `change`, which is asked anew whenever somebody else was first.

    `change` returns the head it was given if there is nothing to do; then nothing is written,
    and that is also how a write whose answer was lost is recognised. None: there is no such
    head any more. `transact` takes the place of the store's own, to add what fences.

    Raises `Contended` if others were always faster, `OutcomeUnknown` if the store did not say
    what became of the last attempt, and what `change` and the store raise.
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
            # Somebody else's change came instead of all that we have sent.
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
    """Return the item that was there instead of the one expected; read it only if need be."""
    return conflict.current[key] if key in conflict.current else await metadata.get(key)
