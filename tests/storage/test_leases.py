"""Leases: one holder at a time, and a holder that was paused can change nothing."""

import asyncio
import itertools
import random

import pytest

from storage import keys, leases
from storage.errors import Corrupt, MetadataConflict, RiachoError
from storage.leases import Lease, LeaseLost
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import MetadataStore, Put
from tests.storage.helpers.faults import Fault, FaultyMetadata, random_faults
from tests.storage.helpers.worlds import Clock, new_metadata

pytestmark = pytest.mark.anyio

LEASE_S = 10.0


def lease_of(metadata: MetadataStore, holder: str, clock: Clock) -> Lease:
    return Lease(
        metadata,
        "controller",
        holder=holder,
        lease_s=LEASE_S,
        monotonic_s=clock.monotonic_s,
        now_ms=clock.now_ms,
        about=f"http://{holder}",
    )


async def test_a_second_process_takes_the_lease_only_after_renewals_stop() -> None:
    metadata, clock = new_metadata(), Clock()
    one, two = lease_of(metadata, "one", clock), lease_of(metadata, "two", clock)

    assert await one.keep()
    assert not await two.keep()
    for _ in range(5):
        clock.now_s += LEASE_S * 0.9
        assert await one.keep()
        assert not await two.keep()
    clock.now_s += LEASE_S
    assert await two.keep()
    assert not await one.keep()
    assert (one.epoch, two.epoch) == (None, 2)


async def test_only_the_clock_of_the_taker_measures_how_long_renewals_stopped() -> None:
    metadata = new_metadata()
    # Two clocks that are hours apart; one of them is set back.
    here, there = Clock(), Clock()
    there.now_s = 90_000.0
    one, two = lease_of(metadata, "one", here), lease_of(metadata, "two", there)
    await one.keep()

    assert not await two.keep()
    here.now_s -= 500.0
    there.now_s += LEASE_S * 0.99
    assert not await two.keep()
    there.now_s += LEASE_S * 0.02
    assert await two.keep()


async def test_a_paused_holder_can_change_nothing() -> None:
    metadata, clock = new_metadata(), Clock()
    paused, other = lease_of(metadata, "paused", clock), lease_of(metadata, "other", clock)
    await paused.keep()
    versions = await paused.transact([Put("zone/a", b"1", None)])
    await other.keep()
    clock.now_s += LEASE_S
    assert await other.keep()

    # It does not know yet that it lost the lease.
    assert paused.epoch == 1
    with pytest.raises(LeaseLost):
        await paused.transact([Put("zone/a", b"2", versions["zone/a"])])
    with pytest.raises(LeaseLost):
        await paused.transact([Put("zone/b", b"2", None)])

    await other.transact([Put("zone/a", b"3", versions["zone/a"])])
    item = await metadata.get("zone/a")
    assert item is not None
    assert item.value == b"3"
    assert await metadata.get("zone/b") is None


async def test_a_conflict_of_another_item_does_not_lose_the_lease() -> None:
    metadata, clock = new_metadata(), Clock()
    lease = lease_of(metadata, "one", clock)
    await lease.keep()
    await metadata.transact([Put("zone/a", b"1", None)])

    with pytest.raises(MetadataConflict) as caught:
        await lease.transact([Put("zone/a", b"2", None)])

    assert not isinstance(caught.value, LeaseLost)
    assert await lease.keep()
    assert lease.epoch == 1


async def test_a_lease_that_was_never_taken_permits_no_write() -> None:
    lease = lease_of(new_metadata(), "one", Clock())

    with pytest.raises(LeaseLost):
        lease.fenced([])
    with pytest.raises(LeaseLost):
        await lease.transact([Put("zone/a", b"1", None)])


async def test_a_released_lease_is_free_at_once_and_its_epoch_continues() -> None:
    metadata, clock = new_metadata(), Clock()
    one, two = lease_of(metadata, "one", clock), lease_of(metadata, "two", clock)
    await one.keep()
    found = await leases.current(metadata, "controller")
    assert found is not None
    assert (found.holder, found.about) == ("one", "http://one")

    await one.release()
    await one.release()

    assert await leases.current(metadata, "controller") is None
    assert await two.keep()
    assert two.epoch == 2
    with pytest.raises(LeaseLost):
        await one.transact([Put("zone/a", b"1", None)])


async def test_a_renewal_is_due_after_a_third_of_the_lease() -> None:
    clock = Clock()
    lease = lease_of(new_metadata(), "one", clock)
    assert lease.is_due
    await lease.keep()
    assert not lease.is_due
    clock.now_s += LEASE_S / 3
    assert lease.is_due


@pytest.mark.parametrize("fault", ["reply lost", "request lost", "late", "refused"])
@pytest.mark.parametrize("first", [True, False])
async def test_a_lost_reply_costs_at_most_one_call(fault: Fault, first: bool) -> None:
    metadata, clock = FaultyMetadata(new_metadata()), Clock()
    lease = lease_of(metadata, "one", clock)
    if not first:
        await lease.keep()
    metadata.faults = [fault]

    kept = []
    for _ in range(8):
        try:
            kept.append(await lease.keep())
        except RiachoError:
            kept.append(False)

    assert kept[2:] == [True] * 6
    assert lease.epoch == 1
    await lease.transact([Put("zone/a", b"1", None)])


@pytest.mark.parametrize("seed", range(30))
async def test_of_racing_holders_only_one_writes_at_a_time(seed: int) -> None:
    """Each writes its epoch repeatedly, with random pauses; written epochs never decrease."""
    chance = random.Random(seed)
    numbers = itertools.count()
    inner = MemoryMetadata(lambda: f"v{next(numbers)}")
    clock = Clock()
    written: list[int] = []

    async def hold(name: str) -> None:
        metadata = FaultyMetadata(inner, random_faults(chance.randrange(10**6), 0.2))
        lease = lease_of(metadata, name, clock)
        for _ in range(60):
            for _ in range(chance.choice([0, 1, 1, 30])):
                await asyncio.sleep(0)
            clock.now_s += chance.choice([0.1, 1, 4])
            try:
                if not await lease.keep():
                    continue
                item = await metadata.get("zone/epochs")
                expected = None if item is None else item.version
                epoch = lease.epoch
                assert epoch is not None
                await lease.transact([Put("zone/epochs", str(epoch).encode(), expected)])
            except RiachoError:
                continue

    async def watch() -> None:
        while True:
            item = await inner.get("zone/epochs")
            if item is not None:
                written.append(int(item.value))
            await asyncio.sleep(0)

    watcher = asyncio.create_task(watch())
    await asyncio.gather(*(hold(name) for name in ("one", "two", "three")))
    watcher.cancel()

    assert written == sorted(written)
    assert len(set(written)) > 1


async def test_a_damaged_lease_is_corrupt() -> None:
    metadata, clock = new_metadata(), Clock()
    await metadata.transact([Put(keys.lease("controller"), b"rubbish", None)])

    with pytest.raises(Corrupt):
        await lease_of(metadata, "one", clock).keep()


async def test_who_bears_the_name_of_one_that_is_dead_has_an_epoch_of_its_own() -> None:
    metadata, clock = new_metadata(), Clock()
    dead, next_one = lease_of(metadata, "one", clock), lease_of(metadata, "one", clock)
    assert await dead.keep()

    assert await next_one.keep()

    assert next_one.epoch == 2
    assert not await dead.keep()
