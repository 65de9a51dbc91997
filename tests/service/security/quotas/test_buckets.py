"""Quotas at work: rates that hold over several gateways, on a clock that the test moves.

Clients are simulated one event at a time, so a minute of load takes a moment and no time is waited
for. What they do when they are refused is what the SDK does: wait as long as the answer says, in
whole seconds, and then some.
"""

import asyncio
import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from service.security.quotas.buckets import ACCOUNTS_MAX, Quotas
from service.security.quotas.limits import QuotaEntity, QuotaLimits, QuotaTable
from service.security.quotas.upkeep import UNUSED_MS, QuotaUpkeep
from service.settings import Settings
from service.world.clock import World
from storage import keys
from storage.errors import QuotaExceeded
from storage.stores.metadata import MetadataStore, Op
from tests.storage.helpers.faults import Fault, FaultyMetadata
from tests.storage.helpers.worlds import Clock, new_metadata

pytestmark = pytest.mark.anyio

MB = 1_000_000


@dataclass(frozen=True)
class Someone:
    principal: str = "User:ana"
    client_id: str = ""


ANA = Someone()


class CountedMetadata(FaultyMetadata):
    """A table that counts what is written."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner)
        self.writes = 0

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        self.writes += 1
        return await super().transact(ops)


class Gateways:
    """Gateways over one table, whose clocks are `apart_s`."""

    def __init__(self, count: int = 1, apart_s: float = 0.0, **limits: float) -> None:
        self.clock = Clock()
        self.metadata = CountedMetadata(new_metadata())
        self.table = QuotaTable({QuotaEntity("ana", None): QuotaLimits(**limits)})
        chance = random.Random(1)
        world = World(
            now_ms=self.clock.now_ms,
            monotonic_s=self.clock.monotonic_s,
            sleep=lambda _: asyncio.sleep(0),
            random=chance.random,
            random_bytes=chance.randbytes,
        )
        self.quotas = [
            Quotas(
                self.metadata,
                replace(world, now_ms=lambda n=n: self.clock.now_ms() + int(1000 * apart_s * n)),
                lambda: self.table,
            )
            for n in range(count)
        ]

    async def rate(
        self, clients: int, size: int, *, of: str = "admit_produce", gateways: int = 0
    ) -> float:
        """Return what `clients` got through in a minute, on average a second.

        The first three seconds do not count, since a bucket begins full. Each client goes to
        whichever gateway, or to the first of them.
        """
        chance = random.Random(2)
        begin_s = self.clock.now_s + 3
        end_s = begin_s + 60
        due = [(self.clock.now_s + chance.random(), n) for n in range(clients)]
        heapq.heapify(due)
        sent = 0
        while due[0][0] < end_s:
            self.clock.now_s, client = heapq.heappop(due)
            quotas = chance.choice(self.quotas[: gateways or len(self.quotas)])
            try:
                await getattr(quotas, of)(ANA, size)
            except QuotaExceeded as error:
                wait_s = math.ceil(error.throttle_ms / 1000) + 0.3 * chance.random()
            else:
                sent += size * (self.clock.now_s >= begin_s)
                wait_s = 0.005 + 0.01 * chance.random()
            heapq.heappush(due, (self.clock.now_s + wait_s, client))
        return sent / 60


@pytest.mark.parametrize("of", ["admit_produce", "admit_fetch"])
@pytest.mark.parametrize("size", [20_000, 900_000, 3 * MB])
@pytest.mark.parametrize(("gateways", "clients"), [(1, 1), (1, 8), (3, 1), (3, 8), (10, 20)])
async def test_the_average_of_a_minute_is_the_quota(
    of: str, size: int, gateways: int, clients: int
) -> None:
    many = Gateways(gateways, producer_byte_rate=MB, consumer_byte_rate=MB)

    assert await many.rate(clients, size, of=of) == pytest.approx(MB, rel=0.1)


async def test_a_client_that_knows_one_of_three_gateways_gets_all_of_its_quota() -> None:
    many = Gateways(3, producer_byte_rate=MB)

    assert await many.rate(2, 50_000, gateways=1) == pytest.approx(MB, rel=0.1)


async def test_clocks_may_differ_by_seconds() -> None:
    many = Gateways(3, apart_s=2.0, producer_byte_rate=MB)

    assert await many.rate(8, 50_000) == pytest.approx(MB, rel=0.1)


async def test_a_busy_gateway_takes_ahead_so_that_it_seldom_writes() -> None:
    one = Gateways(producer_byte_rate=MB)
    # 100 requests a second for 63 seconds.
    await one.rate(1, 10_000)

    assert one.metadata.writes < 63 * 8


async def test_a_function_without_memory_obeys_the_quota_with_a_write_for_each_request() -> None:
    many = Gateways(200, producer_byte_rate=MB)

    assert await many.rate(8, 50_000) == pytest.approx(MB, rel=0.1)


async def test_without_a_limit_nothing_is_written_or_remembered() -> None:
    one = Gateways(consumer_byte_rate=1)
    quotas = one.quotas[0]
    bob = Someone("User:bob")

    await quotas.admit_produce(ANA, 10**9)
    await quotas.admit_produce(bob, 10**9)
    await quotas.admit_fetch(bob, 10**9)
    await quotas.admit_mutations(bob, 10**9)
    await quotas.admit_time(bob)
    quotas.charge_time(bob, 10**9)

    assert quotas.fetch_bytes_max(bob) is None
    assert one.metadata.writes == 0
    assert quotas._accounts == {}


async def test_a_refusal_says_which_quota_and_when_to_come_back() -> None:
    one = Gateways(producer_byte_rate=1000)
    quotas = one.quotas[0]
    await quotas.admit_produce(ANA, 2000)

    with pytest.raises(QuotaExceeded, match="producer_byte_rate of user ana is 1000") as refused:
        await quotas.admit_produce(ANA, 500)
    writes = one.metadata.writes
    # The same is refused from memory until then; what is smaller is tried.
    one.clock.now_s += 0.2
    with pytest.raises(QuotaExceeded):
        await quotas.admit_produce(ANA, 500)
    assert one.metadata.writes == writes
    await quotas.admit_produce(ANA, 100)

    one.clock.now_s += refused.value.throttle_ms / 1000
    await quotas.admit_produce(ANA, 500)


async def test_a_reader_that_must_wait_reads_nothing_meanwhile() -> None:
    quotas = Gateways(consumer_byte_rate=1000).quotas[0]
    assert quotas.fetch_bytes_max(ANA) == 1000
    await quotas.admit_fetch(ANA, 2000)
    with pytest.raises(QuotaExceeded):
        await quotas.admit_fetch(ANA, 300)

    with pytest.raises(QuotaExceeded):
        quotas.fetch_bytes_max(ANA)


async def test_concurrent_requests_share_what_one_takes_ahead() -> None:
    one = Gateways(producer_byte_rate=1000)
    outcomes = await asyncio.gather(
        *(one.quotas[0].admit_produce(ANA, 100) for _ in range(50)), return_exceptions=True
    )

    assert sum(each is None for each in outcomes) == 20
    assert sum(isinstance(each, QuotaExceeded) for each in outcomes) == 30


async def test_processor_time_is_charged_afterwards_and_held_on_average() -> None:
    one = Gateways(2, request_percentage=50)
    spent = 0.0
    end_s = one.clock.now_s + 60
    while one.clock.now_s < end_s:
        for quotas in one.quotas:
            try:
                await quotas.admit_time(ANA)
            except QuotaExceeded as error:
                one.clock.now_s += error.throttle_ms / 1000
            else:
                one.clock.now_s += 0.1
                quotas.charge_time(ANA, 0.1)
                spent += 0.1

    assert spent == pytest.approx(0.5 * 60, rel=0.1)


async def test_mutations_may_come_in_bursts() -> None:
    one = Gateways(controller_mutation_rate=2)
    quotas = one.quotas[0]
    await quotas.admit_mutations(ANA, 20)

    with pytest.raises(QuotaExceeded):
        await quotas.admit_mutations(ANA, 1)
    one.clock.now_s += 5.01
    await quotas.admit_mutations(ANA, 100)
    with pytest.raises(QuotaExceeded) as refused:
        await quotas.admit_mutations(ANA, 1)
    assert refused.value.throttle_ms == pytest.approx(45_500, abs=50)


@pytest.mark.parametrize("fault", ["refused", "request lost", "reply lost"])
async def test_a_table_that_fails_refuses_nothing_here(fault: Fault) -> None:
    """The request needs the table anyway, and meets the same error."""
    one = Gateways(producer_byte_rate=1000)
    one.metadata.faults = [fault]

    await one.quotas[0].admit_produce(ANA, 1000)


async def test_the_number_of_accounts_is_bounded() -> None:
    one = Gateways()
    one.table = QuotaTable({QuotaEntity(None, "<default>"): QuotaLimits(producer_byte_rate=1e6)})
    for number in range(ACCOUNTS_MAX + 10):
        await one.quotas[0].admit_produce(Someone(client_id=str(number)), 1)

    assert len(one.quotas[0]._accounts) == ACCOUNTS_MAX


async def test_a_bucket_that_nobody_uses_is_deleted_after_a_day() -> None:
    one = Gateways(producer_byte_rate=1000)
    quotas = one.quotas[0]
    upkeep = QuotaUpkeep(one.metadata, Settings(), quotas._world)
    await quotas.admit_produce(ANA, 2000)
    one.clock.now_s += UNUSED_MS / 1000
    await upkeep.expire()
    assert len(await one.metadata.list(keys.QUOTA_USES)) == 1

    one.clock.now_s += 1
    await upkeep.expire()

    assert await one.metadata.list(keys.QUOTA_USES) == []
    await quotas.admit_produce(ANA, 2000)
    with pytest.raises(QuotaExceeded):
        await quotas.admit_produce(ANA, 1000)
