"""Waiting for the lease of maintenance: until it is free, its holder is dead, or time is over."""

import asyncio
from collections.abc import Sequence

import pytest

from service.jobs.lease import NAME, Busy, held
from storage import keys, leases
from storage.errors import OutcomeUnknown
from storage.leases import LeaseItem
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Op, Put, Versioned
from tests.service.jobs.test_lease import world_of
from tests.storage.helpers.worlds import Clock, HandClock, new_metadata

pytestmark = pytest.mark.anyio


async def test_finding_a_job_alive_names_its_holder() -> None:
    metadata, clock = new_metadata(), HandClock()

    async def second() -> None:
        async with held(metadata, world_of(clock, 2), "sweep"):
            raise AssertionError("there are two")

    async with held(metadata, world_of(clock, 1), "compact"):
        waiting = asyncio.create_task(second())
        while not waiting.done():
            await clock.advance(1.0)

    with pytest.raises(Busy, match=r"compact on .*, process \d+ holds the lease .* for \d+ s"):
        await waiting
    assert clock.now_s < 1000.0 + 30


async def test_who_waits_gets_it_when_it_is_given_back() -> None:
    metadata, clock = new_metadata(), HandClock()
    done: list[str] = []

    async def second() -> None:
        async with held(metadata, world_of(clock, 2), "sweep", wait_s=1000):
            done.append("second")

    async with held(metadata, world_of(clock, 1), "compact"):
        waiting = asyncio.create_task(second())
        for _ in range(100):
            await clock.advance(1.0)
        done.append("first")
    while not waiting.done():
        await clock.advance(1.0)

    assert done == ["first", "second"]


async def test_a_job_that_died_is_replaced_without_being_told_to_wait() -> None:
    metadata, clock = new_metadata(), Clock()
    dead = leases.encode(LeaseItem("dead", 7, 3))
    await metadata.transact([Put(keys.lease(NAME), dead, None)])

    async with held(metadata, world_of(clock), "compact", lease_s=30) as lease:
        assert lease.epoch == 8

    assert 1030 <= clock.now_s < 1040


async def test_waiting_for_a_job_that_goes_on_ends_with_an_error_when_the_time_is_over() -> None:
    metadata, clock = new_metadata(), HandClock()

    async def second() -> None:
        async with held(metadata, world_of(clock, 2), "sweep", wait_s=100):
            raise AssertionError("there are two")

    async with held(metadata, world_of(clock, 1), "compact"):
        waiting = asyncio.create_task(second())
        while not waiting.done():
            await clock.advance(0.5)

        with pytest.raises(Busy, match="for 100 s; --wait SECONDS waits for it"):
            await waiting
        assert clock.now_s == 1100.0


class SleepsClock(Clock):
    """A clock that knows for how long somebody slept."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await super().sleep(seconds)


async def test_a_short_lease_is_looked_at_more_often() -> None:
    metadata, clock = new_metadata(), SleepsClock()
    dead = leases.encode(LeaseItem("dead", 7, 3))
    await metadata.transact([Put(keys.lease(NAME), dead, None)])

    async with held(metadata, world_of(clock), "compact", lease_s=2.5):
        assert clock.sleeps[:10] == [0.25] * 10


class DeafMetadata(MemoryMetadata):
    """A table that loses every request to change it, once it `is_deaf`."""

    is_deaf = False

    async def transact(self, ops: Sequence[Op]) -> dict[str, str]:
        if self.is_deaf:
            raise OutcomeUnknown("no answer")
        return dict(await super().transact(ops))


async def test_who_cannot_take_over_from_a_dead_job_does_not_try_for_ever() -> None:
    versions = iter(range(10**6))
    metadata, clock = DeafMetadata(lambda: str(next(versions))), Clock()
    dead = leases.encode(LeaseItem("dead", 7, 3))
    await metadata.transact([Put(keys.lease(NAME), dead, None)])
    metadata.is_deaf = True

    with pytest.raises(Busy, match=r"^dead holds the lease 'maintenance' for 1060 s"):
        async with held(metadata, world_of(clock), "compact", lease_s=30):
            raise AssertionError("it is not ours")

    # Once after twice the time of the lease.
    assert clock.now_s == 1060.5


class FreedMetadata(MemoryMetadata):
    """A table in which the holder gives the lease back just before the fourth look."""

    looks = 0

    async def get(self, key: str) -> Versioned | None:
        self.looks += 1
        item = await super().get(key)
        if self.looks == 4 and item is not None:
            free = leases.encode(LeaseItem("", 7))
            await super().transact([Put(key, free, item.version)])
        return await super().get(key)


async def test_a_lease_that_is_given_back_between_two_looks_is_taken() -> None:
    versions = iter(range(10**6))
    metadata, clock = FreedMetadata(lambda: str(next(versions))), Clock()
    other = leases.encode(LeaseItem("other", 7, 3))
    await metadata.transact([Put(keys.lease(NAME), other, None)])

    async with held(metadata, world_of(clock), "compact") as lease:
        assert (lease.epoch, clock.now_s) == (8, 1001.0)
