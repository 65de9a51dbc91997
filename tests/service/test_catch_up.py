"""Bringing zones back in sync: whoever copies stays the controller for as long as it takes."""

import asyncio
import time

import pytest

from service.catch_up import CatchUp
from service.clock import real_world
from service.settings import Settings
from storage import leases
from storage.leases import Lease, LeaseLost
from storage.memory import MemoryObjects
from storage.metadata import Put
from storage.zones import Zones
from tests.storage.worlds import new_metadata

pytestmark = pytest.mark.anyio


class Copying:
    """A controller that copies until it is let go."""

    def __init__(self) -> None:
        self.metadata = new_metadata()
        world = real_world()
        # So short that it is renewed many times while this test waits for it.
        self.lease = Lease(
            self.metadata,
            "controller",
            holder="us",
            lease_s=0.03,
            monotonic_s=time.monotonic,
            now_ms=world.now_ms,
        )
        zones = Zones({"a": MemoryObjects()})
        self.catch_up = CatchUp(Settings(), zones, self.metadata, self.lease, world)
        self.copied = asyncio.Event()
        self.was_stopped = False

    async def copy(self) -> bool:
        try:
            await self.copied.wait()
        except asyncio.CancelledError:
            self.was_stopped = True
            raise
        return True

    async def beats(self) -> int:
        item = await leases.current(self.metadata, "controller")
        return 0 if item is None else item.beats


async def test_the_lease_is_kept_while_a_lane_is_copied() -> None:
    copying = Copying()
    assert await copying.lease.keep()
    work = asyncio.create_task(copying.catch_up._while_leading(copying.copy()))

    before = await copying.beats()
    while await copying.beats() < before + 3:
        await asyncio.sleep(0)

    copying.copied.set()
    assert await work


async def test_who_lost_the_lease_stops_copying() -> None:
    copying = Copying()
    assert await copying.lease.keep()
    work = asyncio.create_task(copying.catch_up._while_leading(copying.copy()))
    await asyncio.sleep(0)

    stored = await copying.metadata.get(copying.lease.key)
    assert stored is not None
    theirs = leases.encode(leases.LeaseItem("them", 2))
    await copying.metadata.transact([Put(copying.lease.key, theirs, stored.version)])

    with pytest.raises(LeaseLost):
        await work
    assert copying.was_stopped
