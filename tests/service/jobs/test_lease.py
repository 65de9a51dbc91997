"""The lease of maintenance: one job at a time, and who lost it stops."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from service.clock import World
from service.jobs.lease import NAME, Busy, held
from storage import keys, leases
from storage.errors import StoreUnavailable
from storage.leases import LeaseItem, LeaseLost
from storage.memory import MemoryMetadata
from storage.metadata import Op, Put
from tests.storage.worlds import Clock, HandClock, new_metadata, turns

pytestmark = pytest.mark.anyio


def world_of(clock: Clock, seed: int = 0) -> World:
    chance = random.Random(seed)
    return World(
        now_ms=clock.now_ms,
        monotonic_s=clock.monotonic_s,
        sleep=clock.sleep,
        random=chance.random,
        random_bytes=chance.randbytes,
    )


async def stolen(metadata: MemoryMetadata) -> None:
    item = await metadata.get(keys.lease(NAME))
    assert item is not None
    thief = leases.encode(LeaseItem("a thief", 99))
    await metadata.transact([Put(keys.lease(NAME), thief, item.version)])


async def test_the_next_job_begins_when_the_last_has_ended() -> None:
    metadata, clock = new_metadata(), Clock()

    for seed in range(3):
        async with held(metadata, world_of(clock, seed), "compact") as lease:
            holder = await leases.current(metadata, NAME)
            assert holder is not None
            assert (holder.holder, holder.epoch) == (lease.holder, lease.epoch)

    assert clock.now_s == 1000.0
    assert await leases.current(metadata, NAME) is None


async def test_who_finds_a_job_alive_is_told_whose_it_is() -> None:
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


async def test_who_lost_it_is_stopped_at_once() -> None:
    metadata, clock = new_metadata(), HandClock()
    stopped: list[str] = []

    async def job() -> None:
        async with held(metadata, world_of(clock), "compact"):
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append("stopped")

    working = asyncio.create_task(job())
    await turns()
    await stolen(metadata)
    while not working.done():
        await clock.advance(1.0)

    with pytest.raises(LeaseLost):
        await working
    assert stopped == ["stopped"]
    thief = await leases.current(metadata, NAME)
    assert thief is not None
    assert thief.holder == "a thief"


async def test_who_lost_it_can_change_nothing() -> None:
    metadata, clock = new_metadata(), HandClock()

    async def job() -> None:
        async with held(metadata, world_of(clock), "compact") as lease:
            await stolen(metadata)
            await lease.transact([Put("head/x/0", b"", None)])

    with pytest.raises(LeaseLost):
        await job()
    assert await metadata.get("head/x/0") is None


async def test_a_cancelled_job_gives_it_back_and_is_cancelled() -> None:
    metadata, clock = new_metadata(), HandClock()

    async def job() -> None:
        async with held(metadata, world_of(clock), "compact"):
            await asyncio.Event().wait()

    working = asyncio.create_task(job())
    await turns()
    working.cancel()

    with pytest.raises(asyncio.CancelledError):
        await working
    assert await leases.current(metadata, NAME) is None


class AwayMetadata(MemoryMetadata):
    is_away = False

    async def transact(self, ops: Sequence[Op]) -> dict[str, str]:
        if self.is_away:
            raise StoreUnavailable("the table is away")
        return dict(await super().transact(ops))


@pytest.mark.parametrize(("away_s", "is_lost"), [(20, False), (60, True)])
async def test_a_table_that_is_away_for_a_while_is_waited_for(away_s: int, is_lost: bool) -> None:
    versions = iter(range(10**6))
    metadata, clock = AwayMetadata(lambda: str(next(versions))), HandClock()
    finished = asyncio.Event()

    async def job() -> None:
        async with held(metadata, world_of(clock), "compact", lease_s=30):
            await finished.wait()

    working = asyncio.create_task(job())
    await turns()
    metadata.is_away = True
    for _ in range(away_s):
        await clock.advance(1.0)
    metadata.is_away = False
    for _ in range(20):
        await clock.advance(1.0)

    assert working.done() is is_lost
    finished.set()
    if is_lost:
        with pytest.raises(LeaseLost):
            await working
    else:
        await working


async def test_transactions_and_renewals_take_turns() -> None:
    metadata, clock = new_metadata(), Clock()
    count = 200

    async with held(metadata, world_of(clock), "compact", lease_s=0.01) as lease:
        for number in range(count):
            await lease.transact([Put(f"head/x/{number}", b"", None)])

    assert len(await metadata.list("head/x/")) == count
