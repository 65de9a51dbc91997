"""The batcher with claims: copies share, what overtook is put in order, each is told its own."""

import asyncio
import random

import msgspec
import pytest

from service.log import sequences
from storage import keys
from storage.errors import (
    Contended,
    OutcomeUnknown,
    OutOfOrderSequence,
    RiachoError,
    StoreUnavailable,
)
from storage.head import head as heads
from storage.head.producers import SEQUENCES
from storage.lanes.lane import CLAIMS_PER_COMMIT_MAX
from storage.stores.metadata import Check, Put
from storage.topics.topics import Topic
from tests.service.helpers.gateways import Cluster, Gateway
from tests.storage.helpers.faults import random_faults
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio

FENCE_KEY = "txn/copier"


async def move_fence(cluster: Cluster) -> Check:
    """Change the item that fences are conditional on; return the check that holds from now on."""
    item = await cluster.table.get(FENCE_KEY)
    await cluster.table.transact([Put(FENCE_KEY, b"", None if item is None else item.version)])
    item = await cluster.table.get(FENCE_KEY)
    assert item is not None
    return Check(FENCE_KEY, item.version)


async def test_copies_in_one_buffer_are_written_once() -> None:
    cluster = Cluster()
    topic, gateway = await cluster.topic(), cluster.gateway()

    appends = [gateway.start(topic, 2, {0: (0, [b"a", b"b"])}) for _ in range(5)]
    appends.append(gateway.start(topic, 4, {0: (0, [b"c"])}))

    assert await asyncio.gather(*appends) == [{0: 0}] * 5 + [{0: 2}]
    assert await gateway.values(topic) == [b"a", b"b", b"c"]
    assert gateway.batcher.flush_count == 1


async def test_copies_in_later_flights_get_the_offset_of_the_first() -> None:
    cluster = Cluster()
    topic, gateway = await cluster.topic(), cluster.gateway(batch_bytes_max=1)
    cluster.objects.hold_puts = True

    appends = [gateway.start(topic, 2, {0: (0, [b"a"])}) for _ in range(3)]
    await turns()
    for gate in reversed(cluster.objects.held):
        gate.set()

    assert await asyncio.gather(*appends) == [{0: 0}] * 3
    assert await gateway.values(topic) == [b"a"]


async def test_a_copy_of_what_a_known_head_holds_costs_nothing() -> None:
    cluster = Cluster()
    topic, gateway = await cluster.topic(), cluster.gateway()
    await gateway.append(topic, 2, {0: (0, [b"a"])})
    gateway.metadata.calls.clear()

    assert await gateway.append(topic, 2, {0: (0, [b"a"])}) == {0: 0}

    assert gateway.batcher.flush_count == 1
    assert gateway.metadata.calls["transact"] == 0


async def test_a_copy_that_comes_to_another_gateway_gets_the_same_offset() -> None:
    cluster = Cluster()
    topic = await cluster.topic(partitions=3, lane_partitions=3)
    first, second = cluster.gateway(), cluster.gateway()
    await second.append(topic, 6, {0: (0, [b"z"])})
    await first.append(topic, 2, {0: (0, [b"a"]), 1: (0, [b"b", b"c"])})

    again = second.start(topic, 2, {0: (0, [b"a"]), 1: (0, [b"b", b"c"])})
    other = second.start(topic, 4, {0: (0, [b"d"]), 2: (0, [b"e"])})

    assert await again == {0: 1, 1: 0}
    assert await other == {0: 2, 2: 0}
    assert [await first.values(topic, p) for p in range(3)] == [
        [b"z", b"a", b"d"],
        [b"b", b"c"],
        [b"e"],
    ]


async def test_what_overtook_in_one_flush_is_put_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequences, "GAP_WAIT_S", 0.0)  # It was given up that the others come.
    cluster = Cluster()
    topic, gateway = await cluster.topic(), cluster.gateway()
    cluster.objects.hold_puts = True
    blocking = gateway.start(topic, 0, {0: (0, [b"0"])})
    await turns()
    parts = [(0, [b"a", b"b"]), (2, [b"c"]), (3, [b"d", b"e"])]
    appends = {}
    for number in (2, 0, 1):
        appends[number] = gateway.start(topic, 2, {0: parts[number]})
        await turns()
    cluster.objects.hold_puts = False
    cluster.objects.held[0].set()

    assert await blocking == {0: 0}
    assert [await appends[n] for n in range(3)] == [{0: 1}, {0: 3}, {0: 4}]
    assert await gateway.values(topic) == [b"0", b"a", b"b", b"c", b"d", b"e"]


async def test_also_where_the_numbers_return_to_0() -> None:
    cluster = Cluster()
    topic, gateway = await cluster.topic(), cluster.gateway()
    await set_sequence(cluster, gateway, topic, SEQUENCES - 2)
    cluster.objects.hold_puts = True
    blocking = gateway.start(topic, 0, {0: (0, [b"0"])})
    await turns()
    parts = [(SEQUENCES - 2, [b"a"]), (SEQUENCES - 1, [b"b", b"c"]), (1, [b"d"])]
    appends = []
    for each in parts:
        appends.append(gateway.start(topic, 2, {0: each}))
        await turns()
    cluster.objects.hold_puts = False
    cluster.objects.held[0].set()

    assert await blocking == {0: 1}
    assert await asyncio.gather(*appends) == [{0: 2}, {0: 3}, {0: 5}]


async def set_sequence(
    cluster: Cluster, gateway: Gateway, topic: Topic, next_sequence: int
) -> None:
    """Let producer 2 have come this far, as it would after two thousand million records."""
    await gateway.append(topic, 2, {0: (0, [b"first"])})
    key = keys.head(topic.topic_id, 0)
    item = await cluster.table.get(key)
    assert item is not None
    head = heads.decode(item.value)
    [window] = head.producers
    moved = msgspec.structs.replace(window, next_sequence=next_sequence)
    head = msgspec.structs.replace(head, commits=head.commits + 1, producers=(moved,))
    await cluster.table.transact([Put(key, heads.encode(head), item.version)])
    await gateway.lanes.lane(topic.topic_id, 0).view(0)


async def test_requests_that_come_in_any_order_are_all_written_in_theirs() -> None:
    cluster = Cluster()
    topic, gateway = await cluster.topic(), cluster.gateway(batch_bytes_max=2)
    order = random.Random(4).sample(range(5), 5)

    appends = {n: gateway.start(topic, 2, {0: (n, [b"%d" % n])}) for n in order}

    assert [await appends[n] for n in range(5)] == [{0: n} for n in range(5)]
    assert await gateway.values(topic) == [b"%d" % n for n in range(5)]


async def test_a_gap_is_refused_and_filled_later() -> None:
    cluster = Cluster()
    topic = await cluster.topic()
    gateway, other = cluster.gateway(), cluster.gateway()

    with pytest.raises(OutOfOrderSequence):
        await gateway.append(topic, 2, {0: (1, [b"b"])})
    await other.append(topic, 2, {0: (0, [b"a"])})

    assert await gateway.append(topic, 2, {0: (1, [b"b"])}) == {0: 1}


async def test_a_refused_batch_fails_its_own_request_only() -> None:
    cluster = Cluster()
    topic = await cluster.topic(partitions=2, lane_partitions=2)
    gateway, other = cluster.gateway(), cluster.gateway()
    await gateway.append(topic, 2, {0: (0, [b"a"])})
    await other.append(topic, 2, {0: (1, [b"b"])})
    await other.append(topic, 2, {0: (0, [b"new"])}, epoch=1)

    results = await asyncio.gather(
        gateway.append(topic, 0, {0: (0, [b"x"])}),
        gateway.append(topic, 2, {0: (1, [b"b"]), 1: (0, [b"c"])}),
        gateway.append(topic, 4, {0: (0, [b"y"]), 1: (0, [b"z"])}),
        return_exceptions=True,
    )

    assert results[0] == {0: 3}
    assert results[2] == {0: 4, 1: 1}
    assert "other partitions of this request were written" in str(results[1])
    assert getattr(results[1], "code", None) == "INVALID_PRODUCER_EPOCH"
    assert await gateway.values(topic, 0) == [b"a", b"b", b"new", b"x", b"y"]
    assert await gateway.values(topic, 1) == [b"c", b"z"]


async def test_a_fence_that_does_not_hold_fails_its_own_requests_only() -> None:
    cluster = Cluster()
    topic = await cluster.topic(partitions=2)
    gateway = cluster.gateway()
    stale = await move_fence(cluster)
    cluster.objects.hold_puts = True
    appends = [
        gateway.start(topic, 3, {0: (0, [b"a"]), 1: (0, [b"a"])}, fence=stale),
        gateway.start(topic, 2, {0: (0, [b"b"])}),
        gateway.start(topic, 0, {0: (0, [b"c"]), 1: (0, [b"c"])}),
    ]
    await turns()
    fence = await move_fence(cluster)
    cluster.objects.hold_puts = False
    cluster.objects.held[0].set()
    results = await asyncio.gather(*appends, return_exceptions=True)

    assert isinstance(results[0], Contended)
    assert results[1:] == [{0: 0}, {0: 1, 1: 0}]
    assert await gateway.append(
        topic, 3, {0: (0, [b"d"]), 1: (0, [b"d"])}, epoch=1, fence=fence
    ) == {0: 2, 1: 1}


async def test_if_one_lane_fails_a_repeat_finds_what_the_other_wrote() -> None:
    cluster = Cluster()
    topic = await cluster.topic(partitions=3)
    gateway = cluster.gateway()
    parts = {0: (0, [b"a"]), 1: (0, [b"b", b"c"]), 2: (0, [b"d"])}
    gateway.metadata.refused = {"00001"}

    with pytest.raises(OutcomeUnknown, match="some partitions were written"):
        await gateway.append(topic, 2, parts)
    gateway.metadata.refused = set()
    gateway.metadata.calls.clear()

    assert await gateway.append(topic, 2, parts) == {0: 0, 1: 0, 2: 0}
    assert gateway.metadata.calls["transact"] == 1
    assert [await gateway.values(topic, p) for p in range(3)] == [[b"a"], [b"b", b"c"], [b"d"]]


async def test_if_writing_again_fails_nothing_is_written_and_a_repeat_works() -> None:
    cluster = Cluster()
    topic = await cluster.topic()
    gateway, other = cluster.gateway(), cluster.gateway()
    await gateway.append(topic, 6, {0: (0, [b"z"])})
    await other.append(topic, 2, {0: (0, [b"a"])})
    gateway.metadata.gate = asyncio.Event()
    appends = [
        gateway.start(topic, 2, {0: (0, [b"a"])}),
        gateway.start(topic, 4, {0: (0, [b"b"])}),
    ]
    await turns()
    cluster.objects.failing_puts = 1  # The first object is there; the one without the copy fails.
    gateway.metadata.gate.set()

    results = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(each) for each in results] == [StoreUnavailable] * 2
    assert await gateway.append(topic, 4, {0: (0, [b"b"])}) == {0: 2}
    assert await gateway.append(topic, 2, {0: (0, [b"a"])}) == {0: 1}


async def test_a_buffer_with_very_many_claims_leaves_at_once() -> None:
    cluster = Cluster()
    topic, gateway = await cluster.topic(), cluster.gateway()
    cluster.objects.hold_puts = True
    producers = range(2, 2 * CLAIMS_PER_COMMIT_MAX + 2)

    appends = [gateway.start(topic, n, {0: (0, [b"a"])}) for n in producers]
    await turns()
    in_the_air = len(cluster.objects.held)
    cluster.objects.hold_puts = False
    for gate in cluster.objects.held:
        gate.set()
    bases = await asyncio.gather(*appends)

    assert in_the_air == 2
    assert sorted(base[0] for base in bases) == list(range(len(producers)))


class Client:
    """A producer with up to five batches in the air to one partition, which sends them until
    told, through any gateway."""

    def __init__(self, producer_id: int, partition: int, batches: int) -> None:
        self.producer_id, self.partition = producer_id, partition
        self.values = [b"%d-%d" % (producer_id, n) for n in range(2 * batches)]
        self.offsets: dict[int, int] = {}

    def in_the_air(self) -> list[int]:
        missing = [n for n in range(0, len(self.values), 2) if n not in self.offsets]
        return [n for n in missing if n < missing[0] + 10]

    def part(self, sequence: int) -> tuple[int, list[bytes]]:
        return sequence, self.values[sequence : sequence + 2]


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_fails_and_repeats_each_batch_is_there_once_in_order(seed: int) -> None:
    storm = Storm(seed)
    await storm.start()

    await storm.blow(times=120)
    await storm.calm_down()

    await storm.check()


class Storm:
    """Clients, gateways that fail, and requests on their way to them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = Cluster()
        self.gateways = [self.cluster.gateway(batch_bytes_max=30) for _ in range(2)]
        self.clients = [Client(2 * n + 2, n % 3, batches=8) for n in range(4)]

    async def start(self) -> None:
        self.topic = await self.cluster.topic(partitions=3, lane_partitions=2)
        for number, gateway in enumerate(self.gateways):
            gateway.metadata.next_fault = random_faults(self.chance.randrange(10**6) + number, 0.3)

    async def send(self, gateway: Gateway, client: Client, sequence: int) -> None:
        try:
            part = {client.partition: client.part(sequence)}
            bases = await gateway.append(self.topic, client.producer_id, part)
        except RiachoError:
            return
        offset = bases[client.partition]
        assert client.offsets.setdefault(sequence, offset) == offset

    async def blow(self, times: int) -> None:
        sending = []
        for _ in range(times):
            self.cluster.objects.failing_puts = self.chance.choice([0, 0, 0, 1])
            for client in self.chance.sample(self.clients, 2):
                if client.in_the_air():
                    sequence = self.chance.choice(client.in_the_air())
                    gateway = self.chance.choice(self.gateways)
                    sending.append(asyncio.create_task(self.send(gateway, client, sequence)))
            await turns(self.chance.choice([0, 2, 10]))
        await asyncio.gather(*sending)

    async def calm_down(self) -> None:
        self.cluster.objects.failing_puts = 0
        for gateway in self.gateways:
            gateway.metadata.next_fault = lambda: "none"
        await turns(200)
        for client in self.clients:
            while client.in_the_air():
                await self.send(self.gateways[0], client, client.in_the_air()[0])

    async def check(self) -> None:
        logs = [await self.gateways[1].values(self.topic, p) for p in range(3)]
        for client in self.clients:
            log = logs[client.partition]
            prefix = b"%d-" % client.producer_id
            assert [value for value in log if value.startswith(prefix)] == client.values
            for sequence, offset in client.offsets.items():
                assert log[offset : offset + 2] == client.part(sequence)[1]
