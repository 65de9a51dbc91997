"""Members of HTTP, of KIP-848 and of the classic protocol in one group."""

import random

import pytest

from service.groups.classic.rounds import Claimant, Joining
from service.groups.offsets import Commit, Committer
from storage.errors import IllegalGeneration, InconsistentGroup, RebalanceInProgress, UnknownMember
from storage.formats.partitions import PartitionNumber
from tests.service.groups.cluster import (
    GROUP,
    SESSION_MS,
    TOPIC,
    Cluster,
    Gateway,
    group_of,
    with_topic,
)
from tests.service.groups.consumers.clients import (
    ClassicClient,
    Client,
    ConsumerClient,
    HttpClient,
)

pytestmark = pytest.mark.anyio

PARTITIONS = 6


async def settled(gateway: Gateway, *clients: Client) -> None:
    """Let the clients go on until the group is at rest, and each reads its share."""
    for _ in range(12):
        for client in clients:
            await client.step(gateway)
            check_reads(clients)


def check_reads(clients: tuple[Client, ...] | list[Client]) -> None:
    read = [place for client in clients for place in client.reads]
    assert len(read) == len(set(read)), [client.reads for client in clients]


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
async def test_all_kinds_of_members_share_a_group(protocol: str) -> None:
    gateway = await with_topic(Cluster(), PARTITIONS)
    clients = HttpClient(), ConsumerClient("new"), ClassicClient(protocol)

    await settled(gateway, *clients)

    assert [len(client.reads) for client in clients] == [2, 2, 2]
    await clients[0].leave(gateway)
    await settled(gateway, *clients[1:])
    assert [len(client.reads) for client in clients[1:]] == [3, 3]
    await clients[1].leave(gateway)
    await settled(gateway, clients[2])
    assert len(clients[2].reads) == PARTITIONS


@pytest.mark.parametrize("seed", range(30))
async def test_no_partition_is_read_twice(seed: int) -> None:
    chance = random.Random(seed)
    cluster = Cluster()
    gateways = [await with_topic(cluster, PARTITIONS), cluster.gateway(300_000)]
    clients: list[Client] = [HttpClient()]
    names = iter(range(1000))
    await clients[0].step(gateways[0])
    for _ in range(150):
        gateway = chance.choice(gateways)
        match chance.randrange(20):
            case 0 if len(clients) < 6:
                clients.append(ConsumerClient(f"m{next(names)}"))
            case 1 if len(clients) < 6:
                clients.append(ClassicClient(chance.choice(["range", "cooperative-sticky"])))
            case 2 if len(clients) < 6:
                clients.append(HttpClient())
            case 3 if len(clients) > 2:
                # The first of HTTP stays, so that the group stays a native one.
                leaver = clients.pop(chance.randrange(1, len(clients)))
                await leaver.leave(gateway)
            case 4:
                cluster.now_s += chance.random()
            case _:
                await chance.choice(clients).step(gateway)
        check_reads(clients)
    await settled(gateways[0], *clients)
    group = await group_of(gateways[0])
    assert group.state == "Stable"
    assert sum(len(client.reads) for client in clients) == PARTITIONS


async def test_a_classic_member_commits_what_it_reads() -> None:
    gateway = await with_topic(Cluster(), PARTITIONS)
    http, classic = HttpClient(), ClassicClient("range")
    await settled(gateway, http, classic)

    async def commit(partition: int, generation: int) -> None:
        one = Commit(topic=TOPIC, partition=PartitionNumber(partition), offset=1)
        by = Committer(member_id=classic.member_id, generation=generation, is_kafka=True)
        await gateway.offsets.commit(GROUP, [one], by)

    mine = min(partition for _, partition in classic.reads)
    theirs = min(partition for _, partition in http.reads)
    await commit(mine, classic.generation)
    with pytest.raises(RebalanceInProgress):
        await commit(theirs, classic.generation)
    with pytest.raises(IllegalGeneration):
        await commit(mine, classic.generation - 1)
    await ConsumerClient("new").step(gateway)
    await commit(mine, classic.generation)  # It has had this ever since.


async def test_the_group_assigns_only_for_assignors_it_knows() -> None:
    gateway = await with_topic(Cluster(), PARTITIONS)
    await HttpClient().step(gateway)

    for kind, name in [("consumer", "stream"), ("connect", "range")]:
        joining = Joining(
            member_id="",
            is_new=True,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=1000,
            protocol_type=kind,
            protocols=((name, b""),),
        )
        with pytest.raises(InconsistentGroup):
            await gateway.coordinator.classic_calls.join(GROUP, joining)


async def test_who_is_not_there_must_join() -> None:
    gateway = await with_topic(Cluster(), PARTITIONS)
    await HttpClient().step(gateway)

    claimant = Claimant(member_id="none", generation=1)
    with pytest.raises(UnknownMember):
        await gateway.coordinator.classic_calls.heartbeat(GROUP, claimant)
