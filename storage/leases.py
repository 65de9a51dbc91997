"""Leases: at most one process does a job, and a suspended holder can change nothing.

A lease is an item that its holder rewrites regularly; every write gives it a new version.

- *Taking over* requires that the version has not changed for the lease time, measured by the
  taker's own monotonic clock from when it first saw that version. Clocks of different machines
  are never compared, so a wrong clock can make a lease last longer, never shorter.
- *Fencing* is what keeps it safe: every transaction of the holder also checks the version of
  the lease (`Lease.transact`). A process that takes over changes that version. A holder that was
  paused past its lease, or whose request was delayed for an hour, has no effect at all.
- *Lost replies*: only we write our name, so an item that bears it, in our epoch, is ours.

The wait only prevents constant takeovers; the check ensures correctness.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from storage import keys
from storage.errors import Conflict, MetadataConflict, OutcomeUnknown, StoreUnavailable
from storage.formats import frames
from storage.stores.metadata import Check, MetadataStore, Op, Put, Versioned

_MAGIC: Final = b"RLE1"


class LeaseLost(Conflict):
    """Another process took over. Nothing was written; the caller must stop."""

    code = "NOT_CONTROLLER"


class LeaseItem(msgspec.Struct, array_like=True, frozen=True):
    holder: str
    """Empty: the lease is free."""
    epoch: int
    """Incremented with every new holder."""
    beats: int = 0
    since_ms: int = 0
    """When the holder took it, by its own clock. For display only."""
    about: str = ""
    """Where the holder can be found. For display only."""


_DECODER: Final = msgspec.msgpack.Decoder(LeaseItem)


def encode(item: LeaseItem) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(item))


def decode(value: bytes) -> LeaseItem:
    return frames.unpack(_MAGIC, value, _DECODER, "a lease")


async def current(metadata: MetadataStore, name: str) -> LeaseItem | None:
    """Return the current lease, for display; None if it is free."""
    item = await metadata.get(keys.lease(name))
    lease = None if item is None else decode(item.value)
    return lease if lease is not None and lease.holder else None


class Lease:
    """One process's view of a lease. `holder` must be unique to this process."""

    def __init__(
        self,
        metadata: MetadataStore,
        name: str,
        *,
        holder: str,
        lease_s: float,
        monotonic_s: Callable[[], float],
        now_ms: Callable[[], int],
        about: str = "",
    ) -> None:
        assert holder, "a holder has a name"
        self.key = keys.lease(name)
        self.lease_s = lease_s
        self._metadata = metadata
        self._holder = holder
        self._about = about
        self._monotonic_s = monotonic_s
        self._now_ms = now_ms
        self._held: tuple[LeaseItem, str] | None = None
        self._written: int | None = None
        """The last epoch that was written, answered or not."""
        self.renewed_s = 0.0
        """When the last successful renewal began."""
        self._seen: tuple[str | None, float] | None = None
        """The last version seen of another holder, and when it was first seen."""

    @property
    def epoch(self) -> int | None:
        """The epoch in which this process holds the lease, as far as it knows."""
        return None if self._held is None else self._held[0].epoch

    @property
    def is_due(self) -> bool:
        """Whether a third of the lease has passed since it was renewed."""
        return self._monotonic_s() - self.renewed_s >= self.lease_s / 3

    def is_mine(self, stored: LeaseItem) -> bool:
        """Whether the stored item bears the name of this process."""
        return stored.holder == self._holder

    async def keep(self) -> bool:
        """Renew the lease, or take it if it is free or expired; return whether it is ours.

        Raises `StoreUnavailable` or `OutcomeUnknown` if the store does not answer; the next call
        then determines the outcome.
        """
        began_s = self._monotonic_s()
        if self._held is None:
            if not await self._take(began_s):
                return False
        elif not await self._write(self._beaten(self._held[0]), self._held[1]):
            return False
        self.renewed_s = began_s
        return True

    async def _take(self, began_s: float) -> bool:
        stored = await self._metadata.get(self.key)
        if stored is None:
            return await self._write(self._mine(1), None)
        item = decode(stored.value)
        if item.holder == self._holder and item.epoch == self._written:
            # An earlier unanswered write of ours was applied.
            return await self._write(self._beaten(item), stored.version)
        # One of the same name that this object has not written is of an earlier holder, which is
        # over: it may be replaced at once, in an epoch of its own.
        is_free = item.holder in ("", self._holder)
        if not is_free and not self._stood_still(stored.version, began_s):
            return False
        return await self._write(self._mine(item.epoch + 1), stored.version)

    def _stood_still(self, version: str, now_s: float) -> bool:
        if self._seen is None or self._seen[0] != version:
            # `now_s`, before the read began, would be too early: the item may be newer.
            self._seen = version, self._monotonic_s()
            return False
        return now_s - self._seen[1] >= self.lease_s

    def _mine(self, epoch: int) -> LeaseItem:
        return LeaseItem(self._holder, epoch, 0, self._now_ms(), self._about)

    def _beaten(self, item: LeaseItem) -> LeaseItem:
        return msgspec.structs.replace(item, beats=item.beats + 1)

    async def _write(self, item: LeaseItem, expected: str | None) -> bool:
        """Put `item`; return False if another process wrote first."""
        self._held, self._written = None, item.epoch
        try:
            versions = await self._metadata.transact([Put(self.key, encode(item), expected)])
        except MetadataConflict as conflict:
            return self._adopt(conflict.current.get(self.key))
        except OutcomeUnknown:
            # Not ours until a stored item proves it; the next `keep` reads it again.
            return self._adopt(await self._metadata.get(self.key), expected)
        self._held = item, versions[self.key]
        return True

    def _adopt(self, stored: Versioned | None, unanswered: str | None = None) -> bool:
        """Hold the stored item if it is ours and no write on it is unanswered."""
        if stored is None or (unanswered is not None and stored.version == unanswered):
            return False
        item = decode(stored.value)
        if (item.holder, item.epoch) != (self._holder, self._written):
            return False
        self._held = item, stored.version
        return True

    async def release(self) -> None:
        """Free the lease, so that another process can take it at once."""
        held, self._held = self._held, None
        if held is None:
            return
        free = LeaseItem("", held[0].epoch)
        try:
            await self._metadata.transact([Put(self.key, encode(free), held[1])])
        except (MetadataConflict, OutcomeUnknown, StoreUnavailable):
            return  # Another process holds it, or it will expire.

    def fenced(self, ops: Sequence[Op]) -> list[Op]:
        """Return `ops` with the check that makes them fail unless the lease is ours."""
        if self._held is None:
            raise LeaseLost(f"{self.key} is not ours")
        return [*ops, Check(self.key, self._held[1])]

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        """Apply `ops` if the lease is still ours, all or nothing.

        Raises `LeaseLost` if it is not, and otherwise any error of `MetadataStore.transact`.
        """
        try:
            return await self._metadata.transact(self.fenced(ops))
        except MetadataConflict as conflict:
            if self._is_lost(conflict):
                self._held = None
                raise LeaseLost(f"{self.key} was taken over") from conflict
            raise

    def _is_lost(self, conflict: MetadataConflict) -> bool:
        if self._held is None or self.key not in conflict.current:
            return self._held is None
        stored = conflict.current[self.key]
        return stored is None or stored.version != self._held[1]
