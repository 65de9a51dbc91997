"""The maintenance lease: one job at a time, and a job that lost it cannot change anything.

Compaction, retention and sweep share it, because a sweep must not see what a compaction has
written and not yet committed. While it is held, it is renewed concurrently with the job.
Transactions and renewals take turns: a renewal changes the version that a transaction checks.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from service.world.clock import World
from storage import leases
from storage.errors import OutcomeUnknown, StoreUnavailable, Unavailable
from storage.leases import Lease, LeaseItem, LeaseLost
from storage.stores.metadata import MetadataStore, Op
from storage.tasks import drop_error

NAME: Final = "maintenance"

LEASE_S: Final = 30.0
"""A job that has not renewed the lease for this long is replaced. Renewed every third of it."""

LOOK_S: Final = 0.5


class Busy(Unavailable):
    """Another job holds the lease."""

    code = "MAINTENANCE_RUNNING"


class HeldLease:
    """The lease, while this process holds it."""

    def __init__(self, lease: Lease, world: World, holder: str) -> None:
        self.holder = holder
        self._lease = lease
        self._world = world
        self._turn = asyncio.Lock()

    @property
    def epoch(self) -> int:
        """Counts holders. With `holder` it lets a remote worker check who holds the lease."""
        return self._lease.epoch or 0

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        """Apply `ops`, all or nothing, if the lease is still held. Raises as `Lease.transact`."""
        async with self._turn:
            return await self._lease.transact(ops)

    async def check(self) -> None:
        """Renew the lease if that is due. Raises `LeaseLost` if it is not held any more."""
        async with self._turn:
            if self._lease.epoch is not None and not self._lease.is_due:
                return
            try:
                is_ours = await self._lease.keep()
            except (StoreUnavailable, OutcomeUnknown):
                # Unknown; it is still held as long as no other process can have taken it.
                if self._world.monotonic_s() - self._lease.renewed_s < self._lease.lease_s:
                    return
                raise LeaseLost(f"{self._lease.key} could not be renewed for too long") from None
            if not is_ours:
                raise LeaseLost(f"{self._lease.key} was taken over by another job")

    async def keep(self) -> None:
        """Renew the lease until cancelled. Raises `LeaseLost`."""
        while True:
            await self._world.sleep(self._lease.lease_s / 10)
            await self.check()


@asynccontextmanager
async def held(
    metadata: MetadataStore,
    world: World,
    job: str,
    *,
    wait_s: float = 0.0,
    lease_s: float = LEASE_S,
) -> AsyncIterator[HeldLease]:
    """Hold the lease while the body runs. If it is lost, the body is cancelled: `LeaseLost`.

    Raises `Busy` if another live job still holds it after `wait_s`. Finding out whether the holder
    is dead takes `lease_s`; that wait happens in any case.
    """
    holder = world.random_bytes(8).hex()
    lease = Lease(
        metadata,
        NAME,
        holder=holder,
        lease_s=lease_s,
        monotonic_s=world.monotonic_s,
        now_ms=world.now_ms,
        about=f"{job} on {socket.gethostname()}, process {os.getpid()}",
    )
    await _take(lease, metadata, world, wait_s)
    mine = HeldLease(lease, world, holder)
    work = asyncio.current_task()
    assert work is not None
    keeping = asyncio.create_task(mine.keep())
    keeping.add_done_callback(lambda _: None if keeping.cancelled() else work.cancel())
    try:
        yield mine
    except asyncio.CancelledError:
        if keeping.done() and not keeping.cancelled() and work.uncancel() == 0:
            raise _lost(keeping) from None
        raise
    finally:
        if keeping.done() and not keeping.cancelled():
            drop_error(keeping)  # Raised above, or the work noticed it by itself.
        else:  # Also if all tasks were cancelled at the end of the process.
            keeping.cancel()
            await asyncio.wait([keeping])
            await lease.release()


def _lost(keeping: "asyncio.Task[None]") -> BaseException:
    error = keeping.exception()
    assert error is not None, "a lease is kept until it is lost"
    return error


async def _take(lease: Lease, metadata: MetadataStore, world: World, wait_s: float) -> None:
    began_s = world.monotonic_s()
    first: LeaseItem | None = None
    while not await lease.keep():
        other = await leases.current(metadata, NAME)
        first = first or other
        waited_s = world.monotonic_s() - began_s
        # A holder whose item has not changed since the first look may be dead; then `keep` takes
        # the lease over.
        is_alive = other != first or waited_s > 2 * lease.lease_s
        if other is not None and is_alive and waited_s >= wait_s:
            raise Busy(_held_by(other, world.now_ms()))
        await world.sleep(min(LOOK_S, lease.lease_s / 10))


def _held_by(other: LeaseItem, now_ms: int) -> str:
    return (
        f"{other.about or other.holder} holds the lease {NAME!r} for"
        f" {max(0, now_ms - other.since_ms) // 1000} s; --wait SECONDS waits for it"
    )
