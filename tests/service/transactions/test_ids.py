"""Producer ids: nobody gets one that somebody else has."""

import asyncio

import pytest

from service.transactions.ids import BLOCK_IDS, is_transactional
from storage import keys
from storage.errors import Corrupt, UnknownProducer
from storage.stores.metadata import Put
from tests.service.transactions.cluster import TXN, Cluster
from tests.storage.helpers.faults import random_faults

pytestmark = pytest.mark.anyio


async def test_ids_of_many_gateways_are_unique_and_of_their_kind() -> None:
    cluster = Cluster()
    processes = [cluster.process() for _ in range(3)]
    plain = await asyncio.gather(*(p.ids.plain() for p in processes for _ in range(700)))
    odd = await asyncio.gather(*(p.ids.transactional() for p in processes for _ in range(700)))

    assert len({*plain, *odd}) == 6 * 700
    assert not any(is_transactional(each) for each in plain)
    assert all(is_transactional(each) for each in odd)
    assert min(*plain, *odd) > 0


async def test_a_block_is_one_write() -> None:
    cluster = Cluster()
    process = cluster.process()
    await asyncio.gather(*(process.ids.plain() for _ in range(BLOCK_IDS // 2)))
    assert cluster.metadata.calls["transact"] == 1
    await process.ids.plain()
    assert cluster.metadata.calls["transact"] == 2


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_goes_wrong_no_id_is_given_out_twice(seed: int) -> None:
    cluster = Cluster()
    processes = [cluster.process() for _ in range(2)]
    cluster.metadata.next_fault = random_faults(seed, 0.5)
    wanted = [p.ids.plain() for p in processes for _ in range(2 * BLOCK_IDS)]
    answers = await asyncio.gather(*wanted, return_exceptions=True)
    given = [answer for answer in answers if isinstance(answer, int)]
    assert len(set(given)) == len(given)


async def test_an_id_that_was_not_given_out_is_unknown() -> None:
    cluster = Cluster()
    process, other = cluster.process(), cluster.process()
    for producer_id in (0, 1, 2):
        with pytest.raises(UnknownProducer, match="get one with POST /v1/producers"):
            await process.ids.check_issued(producer_id)
    issued = await other.ids.plain()
    await process.ids.check_issued(issued)
    with pytest.raises(UnknownProducer):
        await process.ids.check_issued(issued + BLOCK_IDS)


async def test_an_odd_id_says_whose_it_is() -> None:
    cluster = Cluster()
    instance = await cluster.process().transactions.init(TXN)
    process = cluster.process()
    assert await process.ids.owner(instance.producer_id) == TXN
    with pytest.raises(UnknownProducer):
        await process.ids.owner(instance.producer_id + 2)


async def test_a_counter_that_is_no_number_is_damage() -> None:
    cluster = Cluster()
    await cluster.metadata.transact([Put(keys.producer_ids(), b"RPC1 something", None)])
    with pytest.raises(Corrupt):
        await cluster.process().ids.plain()
