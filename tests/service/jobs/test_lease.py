"""The lease of maintenance: one job at a time, and who lost it stops."""

import asyncio
import gc
import random
from collections.abc import Sequence

import pytest

from service.jobs.lease import NAME, held
from service.world.clock import World
from storage import keys, leases
from storage.errors import StoreUnavailable
from storage.leases import LeaseItem, LeaseLost
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Op, Put
from tests.storage.helpers.standing_still import StandingStill
from tests.storage.helpers.worlds import Clock, HandClock, new_metadata, turns

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


async def test_at_the_end_of_the_process_it_is_given_back_too() -> None:
    metadata, clock = new_metadata(), HandClock()

    async def job() -> None:
        async with held(metadata, world_of(clock), "compact"):
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    working = asyncio.create_task(job())
    await turns()
    for task in asyncio.all_tasks() - before - {working}:
        task.cancel()
    await turns()
    working.cancel()

    with pytest.raises(asyncio.CancelledError):
        await working
    assert await leases.current(metadata, NAME) is None


async def test_who_is_cancelled_while_it_stops_for_a_lost_lease_is_cancelled() -> None:
    metadata, clock = new_metadata(), HandClock()
    stopping = asyncio.Event()

    async def job() -> None:
        async with held(metadata, world_of(clock), "compact"):
            try:
                await asyncio.Event().wait()
            finally:
                stopping.set()
                await asyncio.Event().wait()

    working = asyncio.create_task(job())
    await turns()
    await stolen(metadata)
    while not stopping.is_set():
        await clock.advance(1.0)
    working.cancel()

    with pytest.raises(asyncio.CancelledError):
        await working


async def test_a_job_that_fails_while_the_lease_is_lost_tells_its_own_error_only() -> None:
    metadata, clock = new_metadata(), HandClock()
    unseen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: unseen.append(str(what)))

    async def job() -> None:
        async with held(metadata, world_of(clock), "compact"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise LookupError("its own") from None

    working = asyncio.create_task(job())
    await turns()
    await stolen(metadata)
    while not working.done():
        await clock.advance(1.0)

    with pytest.raises(LookupError, match="its own"):
        await working
    gc.collect()
    assert unseen == []


async def test_nobody_keeps_it_after_the_job() -> None:
    before = asyncio.all_tasks()

    async with held(new_metadata(), world_of(HandClock()), "compact"):
        await turns()

    assert asyncio.all_tasks() == before


async def test_it_is_renewed_when_a_third_of_it_has_passed() -> None:
    metadata, clock = new_metadata(), HandClock()
    beats: list[int] = []

    async with held(metadata, world_of(clock), "compact", lease_s=30):
        for _ in range(25):
            for _ in range(4):
                await clock.advance(0.25)
            item = await leases.current(metadata, NAME)
            assert item is not None
            beats.append(item.beats)

    # Every three seconds it looks whether ten have passed.
    assert beats == [0] * 11 + [1] * 12 + [2] * 2


async def test_who_has_met_another_holder_has_lost_it_before_a_renewal_is_due() -> None:
    metadata, clock = new_metadata(), HandClock()

    async with held(metadata, world_of(clock), "compact") as lease:
        await lease.check()
        await stolen(metadata)
        with pytest.raises(LeaseLost):
            await lease.transact([Put("head/x/0", b"", None)])

        assert lease.epoch == 0
        with pytest.raises(LeaseLost, match="taken over by another job"):
            await lease.check()


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


async def test_without_an_answer_it_is_ours_until_the_end_of_the_last_renewal() -> None:
    versions = iter(range(10**6))
    metadata, clock = AwayMetadata(lambda: str(next(versions))), HandClock()

    async with held(metadata, world_of(clock), "compact", lease_s=30) as lease:
        clock.now_s = 1020.0
        await lease.check()
        metadata.is_away = True
        clock.now_s = 1049.0
        await lease.check()
        clock.now_s = 1050.0
        with pytest.raises(LeaseLost, match="could not be renewed for too long"):
            await lease.check()


async def test_the_time_of_a_lease_counts_from_before_it_was_taken() -> None:
    metadata, clock = StandingStill(new_metadata()), HandClock()

    async def stand_still() -> None:
        clock.now_s += 20.0

    async def stand_still_after_the_write() -> None:
        metadata.meanwhile = stand_still

    metadata.meanwhile = stand_still_after_the_write
    async with held(metadata, world_of(clock), "compact", lease_s=30) as lease:
        clock.now_s += 15.0
        metadata.faults.append("refused")
        with pytest.raises(LeaseLost, match="could not be renewed for too long"):
            await lease.check()


async def test_transactions_and_renewals_take_turns() -> None:
    metadata, clock = new_metadata(), Clock()
    count = 200

    async with held(metadata, world_of(clock), "compact", lease_s=0.01) as lease:
        for number in range(count):
            await lease.transact([Put(f"head/x/{number}", b"", None)])

    assert len(await metadata.list("head/x/")) == count
