"""Dated calls to the metadata table: the age of an answer is counted from before the call.

An answer describes the table at some moment between the call and the answer, and a process may
be suspended for any time before it handles the answer. So the only safe date of what was read is
the moment before the call: with a later date, an old item could pass for a fresh one.

So only this module makes a `CallBegan`, and everything that keeps what it read together with its
age (views of heads, topics) requires one. A conflict is an answer, too: it carries the items that
the table had instead, and here the date of the call that raised it.

For how long an item was *certainly unchanged* (leases, silent gateways) is measured with the
opposite dates: from after the first call that saw it until before the last one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NewType

from storage.errors import MetadataConflict
from storage.stores.metadata import MetadataStore, Op, Versioned

CallBegan = NewType("CallBegan", float)
"""A moment before a call to the table, by the monotonic clock of this process."""


class DatedConflict(MetadataConflict):
    """A `MetadataConflict` with the date of what it carries."""

    def __init__(self, current: "Mapping[str, Versioned | None]", began_s: CallBegan) -> None:
        super().__init__(current)
        self.began_s = began_s


class DatedMetadata:
    """The metadata table for callers that cache what they read."""

    def __init__(self, metadata: MetadataStore, monotonic_s: Callable[[], float]) -> None:
        self._metadata = metadata
        self._monotonic_s = monotonic_s

    async def get(self, key: str) -> tuple[Versioned | None, CallBegan]:
        """Return what `MetadataStore.get` does, and when the call began."""
        began_s = CallBegan(self._monotonic_s())
        return await self._metadata.get(key), began_s

    async def transact(self, ops: Sequence[Op]) -> tuple[Mapping[str, str], CallBegan]:
        """Return what `MetadataStore.transact` does, and when the call began.

        Raises `DatedConflict` where the store raises `MetadataConflict`.
        """
        began_s = CallBegan(self._monotonic_s())
        try:
            return await self._metadata.transact(ops), began_s
        except MetadataConflict as conflict:
            raise DatedConflict(conflict.current, began_s) from conflict
