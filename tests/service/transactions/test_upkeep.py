"""What nobody uses any more is forgotten, and nothing else."""

from typing import Any

import pytest

from service.process.upkeep import EXPIRY_EVERY_S
from service.transactions.guards import KeyGuard, SequenceGuard
from storage import keys
from storage.errors import UnknownProducer
from storage.stores.metadata import Put
from tests.service.transactions.cluster import TXN, Cluster, Process, with_topic
from tests.service.transactions.test_atomic import key_guard, records, sequence_guard, write

pytestmark = pytest.mark.anyio

DAY_S = 86_400.0


async def exists(process: Process, key: str) -> bool:
    return await process.gateway.metadata.get(key) is not None


async def test_a_transactional_id_is_forgotten_after_a_week_with_its_producer_id() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    instance = await process.transactions.init(TXN)
    cluster.now_s += 7 * DAY_S
    await process.upkeep.expire()
    assert await exists(process, keys.producer(instance.producer_id))
    cluster.now_s += 1
    await process.upkeep.expire()

    assert not await exists(process, keys.transaction(TXN))
    assert not await exists(process, keys.producer(instance.producer_id))
    with pytest.raises(UnknownProducer):
        await cluster.process().ids.owner(instance.producer_id)
    # What is made anew under the name is somebody else.
    again = await process.transactions.init(TXN)
    assert again.producer_id != instance.producer_id
    assert again.epoch == 0


async def test_one_that_is_used_stays_and_an_open_one_is_ended_first() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    cluster.now_s += 8 * DAY_S
    await cluster.process().upkeep.expire()
    assert (await process.txn()).open is not None
    await cluster.process().upkeep.tick()
    await cluster.process().upkeep.expire()
    assert (await process.txn()).epoch == view.ref.epoch + 1


async def test_a_former_producer_id_goes_when_its_transactional_id_has_forgotten_it() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    instance = await process.transactions.init(TXN)
    former = await process.transactions.init("other")
    item = await cluster.metadata.get(keys.producer(former.producer_id))
    owner = await cluster.metadata.get(keys.producer(instance.producer_id))
    assert item is not None
    assert owner is not None
    # As if both had been ids of the same transactional id.
    await cluster.metadata.transact(
        [Put(keys.producer(former.producer_id), owner.value, item.version)]
    )
    await process.upkeep.expire()
    assert not await exists(process, keys.producer(former.producer_id))
    assert await exists(process, keys.producer(instance.producer_id))


async def test_keys_and_windows_are_forgotten_after_a_day() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    guards: list[KeyGuard | SequenceGuard] = [key_guard(process), sequence_guard(process, 0)]
    for guard in guards:
        await write(process, guard, records("a"))
    found = [keys.idempotency_key("k"), keys.atomic_producer(2)]
    cluster.now_s += DAY_S
    await process.upkeep.expire()
    assert [await exists(process, key) for key in found] == [True, True]
    cluster.now_s += 1
    await process.upkeep.expire()
    assert [await exists(process, key) for key in found] == [False, False]


async def test_what_is_used_while_it_is_being_forgotten_stays() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    await process.transactions.init(TXN)
    cluster.now_s += 8 * DAY_S

    # Between the list and the deletion it is taken up again.
    inner = cluster.metadata.inner
    listed = inner.list

    async def list_then_use(prefix: str, **given: Any) -> Any:
        page = await listed(prefix, **given)
        if prefix == "txn/":
            await other.transactions.init(TXN)
        return page

    inner.list = list_then_use  # type: ignore[method-assign]
    await process.upkeep.expire()
    assert (await process.txn()).epoch == 1


async def test_once_an_hour_is_enough() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    await process.transactions.init(TXN)
    process.upkeep._expired_s = cluster.now_s = cluster.now_s + 8 * DAY_S
    await process.upkeep.tick()
    assert await exists(process, keys.transaction(TXN))
    cluster.now_s += EXPIRY_EVERY_S
    await process.upkeep.tick()
    assert not await exists(process, keys.transaction(TXN))
