"""Leases whose writes got no answer, or conflicted with another write."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from storage import keys, leases
from storage.errors import MetadataConflict
from storage.leases import Lease, LeaseItem, LeaseLost
from storage.stores.metadata import Delete, MetadataStore, Op, Put
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.worlds import Clock, new_metadata
from tests.storage.test_leases import LEASE_S, lease_of

pytestmark = pytest.mark.anyio

KEY = keys.lease("controller")
WORK: list[Op] = [Put("topic/t", b"", None)]


async def stored(metadata: MetadataStore) -> LeaseItem:
    item = await metadata.get(KEY)
    assert item is not None
    return leases.decode(item.value)


async def held() -> tuple[Lease, FaultyMetadata, Clock]:
    metadata, clock = FaultyMetadata(new_metadata()), Clock()
    lease = lease_of(metadata, "one", clock)
    assert await lease.keep()
    return lease, metadata, clock


async def test_a_lease_that_was_never_taken_has_no_holder() -> None:
    assert await leases.current(new_metadata(), "controller") is None


async def test_every_renewal_increments_the_beats() -> None:
    lease, metadata, _ = await held()
    beats = [(await stored(metadata)).beats]
    for _ in range(2):
        assert await lease.keep()
        beats.append((await stored(metadata)).beats)

    assert beats == [0, 1, 2]
    assert lease.epoch == 1


async def test_a_renewal_is_due_after_a_third_of_the_lease() -> None:
    lease, _, clock = await held()
    lease.lease_s = 9.0

    clock.now_s += 2.9
    assert not lease.is_due
    clock.now_s = 1003.0
    assert lease.is_due
    assert await lease.keep()
    assert not lease.is_due


@pytest.mark.parametrize("renewals", [0, 1])
async def test_a_lease_written_without_an_answer_is_held(renewals: int) -> None:
    metadata = FaultyMetadata(new_metadata())
    lease = lease_of(metadata, "one", Clock())
    for _ in range(renewals):
        await lease.keep()
    metadata.faults = ["reply lost"]

    assert await lease.keep()

    assert lease.epoch == 1
    assert await lease.transact(WORK)


async def test_a_renewal_whose_request_was_lost_is_not_relied_upon() -> None:
    lease, metadata, _ = await held()
    metadata.faults = ["request lost"]

    assert not await lease.keep()

    assert lease.epoch is None
    with pytest.raises(LeaseLost):
        await lease.transact(WORK)
    assert await lease.keep()
    assert lease.epoch == 1


class Twice(FaultyMetadata):
    """A table that receives the first request twice, and answers only the second."""

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        if not self.calls["transact"]:
            await self.inner.transact(ops)
        return await super().transact(ops)


async def test_a_conflict_with_our_own_write_keeps_the_lease() -> None:
    metadata = Twice(new_metadata())
    lease = lease_of(metadata, "one", Clock())

    assert await lease.keep()

    assert await lease.transact(WORK)


async def test_a_fenced_holder_has_lost_the_lease() -> None:
    lease, metadata, clock = await held()
    other = lease_of(metadata, "two", clock)
    await other.keep()
    clock.now_s += LEASE_S
    assert await other.keep()

    with pytest.raises(LeaseLost):
        await lease.transact(WORK)

    assert (lease.epoch, other.epoch) == (None, 2)


async def test_a_holder_whose_lease_item_was_removed_has_lost_it() -> None:
    lease, metadata, _ = await held()
    item = await metadata.get(KEY)
    assert item is not None
    await metadata.transact([Delete(KEY, item.version)])

    with pytest.raises(LeaseLost):
        await lease.transact(WORK)


class Meanwhile(FaultyMetadata):
    """A table that runs `meanwhile` between a request and its outcome."""

    meanwhile: Callable[[], Awaitable[object]] | None = None
    tells: bool = True

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        try:
            return await super().transact(ops)
        except MetadataConflict as conflict:
            if self.tells:
                raise
            raise MetadataConflict({"topic/t": conflict.current["topic/t"]}) from None


async def test_a_holder_that_lost_the_lease_during_its_write_gets_lease_lost() -> None:
    metadata, clock = Meanwhile(new_metadata()), Clock()
    lease, other = lease_of(metadata, "one", clock), lease_of(metadata, "two", clock)
    await lease.keep()
    await other.keep()
    clock.now_s += LEASE_S

    async def overtake() -> None:
        assert await other.keep()
        assert not await lease.keep()

    metadata.meanwhile = overtake
    with pytest.raises(LeaseLost):
        await lease.transact(WORK)


@pytest.mark.parametrize("tells", [True, False])
async def test_a_conflict_of_another_item_keeps_the_lease(tells: bool) -> None:
    metadata = Meanwhile(new_metadata())
    lease = lease_of(metadata, "one", Clock())
    await lease.keep()
    await lease.transact(WORK)
    metadata.tells = tells

    with pytest.raises(MetadataConflict):
        await lease.transact(WORK)

    assert lease.epoch == 1
