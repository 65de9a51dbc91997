"""Work under a lease: it is renewed while the work runs, and losing it cancels the work."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from storage.leases import Lease, LeaseLost

T = TypeVar("T")


async def keep_lease(lease: Lease) -> None:
    """Renew the lease if that is due. Raises `LeaseLost` if another process holds it."""
    if lease.is_due and not await lease.keep():
        raise LeaseLost("another process has taken over")


async def while_leading(lease: Lease, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` and return its result; renew the lease meanwhile, however long it takes.

    Raises `LeaseLost`, after `work` was cancelled.
    """
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=lease.lease_s / 6)
            await keep_lease(lease)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
