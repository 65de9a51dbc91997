"""A lease that a test holds, renewed by nobody."""

from collections.abc import Mapping, Sequence

from service.jobs.stores import Stores
from storage.leases import Lease, LeaseLost
from storage.stores.metadata import Op


class TestHeld:
    __test__ = False

    def __init__(self, stores: Stores, holder: str = "tester") -> None:
        world = stores.world
        self.holder = holder
        self.lease = Lease(
            stores.metadata,
            "maintenance",
            holder=holder,
            lease_s=60.0,
            monotonic_s=world.monotonic_s,
            now_ms=world.now_ms,
        )
        self.checks_left = 10**9

    async def take(self) -> "TestHeld":
        assert await self.lease.keep()
        return self

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        return await self.lease.transact(ops)

    async def check(self) -> None:
        self.checks_left -= 1
        if self.checks_left < 0 or not await self.lease.keep():
            raise LeaseLost("the lease was taken over")
