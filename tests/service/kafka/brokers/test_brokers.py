"""Brokers: node ids that addresses keep, and the live ones as one gateway sees them."""

import asyncio
from collections.abc import Sequence

import pytest

from service.controller.live_gateways import MISSED_BEATS_MAX, LiveGateways
from service.kafka.brokers import membership
from service.kafka.brokers.brokers import LIVE_AGE_S, Brokers
from service.kafka.brokers.leaders import Broker
from service.settings import Settings
from service.world.clock import World, real_world
from storage import keys
from storage.errors import StoreUnavailable
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Versioned
from tests.storage.helpers.faults import Fault, FaultyMetadata

pytestmark = pytest.mark.anyio

SETTINGS = Settings(gateway_heartbeat_s=10)


class Table(FaultyMetadata):
    """A table whose lists may not be answered."""

    is_silent = False

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        if self.is_silent:
            raise StoreUnavailable("no connection to the table")
        return await super().list(prefix, after=after, limit=limit)


class Place:
    """A table, and gateways at it with a clock of their own."""

    def __init__(self) -> None:
        real = real_world()
        self.now_s = 0.0
        self.metadata = Table(MemoryMetadata(real.new_version))
        self.world = World(
            now_ms=lambda: int(self.now_s * 1000),
            monotonic_s=lambda: self.now_s,
            sleep=real.sleep,
            random=real.random,
            random_bytes=real.random_bytes,
        )

    def gateway(self) -> tuple[LiveGateways, Brokers]:
        registry = LiveGateways(SETTINGS, self.metadata, self.world)
        return registry, Brokers(registry, self.metadata, self.world)


def ids(brokers: Sequence[Broker]) -> list[int]:
    return [broker.node_id for broker in brokers]


async def test_a_gateway_that_returns_to_its_address_is_the_same_broker() -> None:
    place = Place()

    for _ in range(2):
        broker = await place.gateway()[1].join("127.0.0.1", 9092)
        assert broker.node_id == 1
    assert (await place.gateway()[1].join("127.0.0.1", 9093)).node_id == 2
    assert (await place.gateway()[1].join("127.0.0.1", 9092)).node_id == 1


async def test_an_address_that_was_forgotten_gets_a_new_id() -> None:
    item = membership.ClusterItem("c", 1)
    for port in range(membership.ADDRESSES_MAX + 1):
        item, node_id = membership.joined(item, "h", port)
        assert node_id == port + 1

    assert len(item.addresses) == membership.ADDRESSES_MAX
    assert membership.joined(item, "h", 0)[1] == membership.ADDRESSES_MAX + 2
    assert membership.joined(item, "h", 1)[1] == 2


async def test_gateways_that_join_at_once_are_different_brokers_of_one_cluster() -> None:
    place = Place()
    gateways = [place.gateway()[1] for _ in range(5)]

    joined = await asyncio.gather(*(g.join("h", n) for n, g in enumerate(gateways)))

    assert sorted(ids(joined)) == [1, 2, 3, 4, 5]
    [cluster_id] = {g.cluster_id for g in gateways}
    assert len(cluster_id) == 22


@pytest.mark.parametrize("fault", ["reply lost", "request lost"])
async def test_a_lost_reply_costs_no_second_id(fault: Fault) -> None:
    place = Place()
    place.metadata.faults.append(fault)

    assert (await place.gateway()[1].join("h", 1)).node_id == 1
    stored = await place.metadata.get(keys.kafka_cluster())
    assert stored is not None
    assert membership.decode(stored.value).next_node_id == 2


async def test_a_broker_is_live_at_once_and_others_see_it_after_its_beat() -> None:
    place = Place()
    (one, ones), (two, twos) = place.gateway(), place.gateway()
    await ones.join("h", 1)
    await twos.join("h", 2)
    assert ids(await ones.live()) == [1]

    await one.beat()
    await two.beat()
    place.now_s += LIVE_AGE_S + 0.1

    assert ids(await ones.live()) == ids(await twos.live()) == [1, 2]


async def test_a_broker_that_dies_or_leaves_is_not_named_any_more() -> None:
    place = Place()
    (one, ones), (two, twos) = place.gateway(), place.gateway()
    await ones.join("h", 1)
    await twos.join("h", 2)
    await one.beat()
    await two.beat()
    assert ids(await ones.live()) == [1, 2]

    twos.leave()
    await two.beat()
    place.now_s += LIVE_AGE_S + 0.1
    assert ids(await ones.live()) == ids(await twos.live()) == [1]

    place.now_s += MISSED_BEATS_MAX * 10 + 1
    # The last one that this gateway knows, though it leaves: clients need some address.
    assert ids(await twos.live()) == [2]


async def test_the_last_list_stands_while_the_table_does_not_answer() -> None:
    place = Place()
    (one, ones), (two, twos) = place.gateway(), place.gateway()
    await ones.join("h", 1)
    await twos.join("h", 2)
    await one.beat()
    await two.beat()
    assert ids(await ones.live()) == [1, 2]

    place.now_s += LIVE_AGE_S + 0.1
    place.metadata.is_silent = True

    assert ids(await ones.live()) == [1, 2]


async def test_a_gateway_without_kafka_is_no_broker() -> None:
    place = Place()
    (one, _), (_, twos) = place.gateway(), place.gateway()
    await twos.join("h", 2)
    await one.beat()

    assert ids(await twos.live()) == [1]
