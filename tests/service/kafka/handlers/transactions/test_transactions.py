"""Transactions of both generations of Kafka's clients: what they write, and what they are told."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from service.groups.assignors import TopicPartition
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from service.transactions import room, state
from service.transactions.state import Transaction
from storage import keys
from storage.formats.partitions import PartitionNumber
from storage.head.producers import EPOCH_MAX
from storage.stores.metadata import Put
from tests.service.kafka.callers import ALLOW, caller_with
from tests.service.kafka.cluster import KafkaGateway, kafka_gateway
from tests.service.kafka.handlers.transactions.client import (
    NEW,
    OLD,
    Client,
    Refused,
    values,
    world_of,
)
from tests.storage.helpers.faults import FaultyMetadata, TestObjects, random_faults
from tests.storage.helpers.worlds import Clock, new_metadata, turns

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("versions", [OLD, NEW], ids=["old", "new"])
FENCED = r"INVALID_PRODUCER_EPOCH|PRODUCER_FENCED"
OVERTAKEN = r"INVALID_PRODUCER_EPOCH|TRANSACTION_ABORTABLE"
ABORTABLE = r"TRANSACTION_ABORTABLE|UNKNOWN_PRODUCER_ID"
STRANGER = r"ILLEGAL_GENERATION|UNKNOWN_MEMBER_ID"

PLACE: TopicPartition = "in", PartitionNumber(0)


class Place:
    """Two gateways over one table that misbehaves on demand, and a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.table = FaultyMetadata(new_metadata())
        self.objects = TestObjects()
        self.gateways: list[KafkaGateway] = []

    @property
    def first(self) -> KafkaGateway:
        return self.gateways[0]

    def client(self, versions: dict[str, int], **given: Any) -> Client:
        return Client(*self.gateways, versions=versions, **given)

    async def offset(self, group: str = "g") -> int | None:
        return (await self.first.parts.offsets.read_some(group, [PLACE])).get(PLACE)

    async def item(self) -> Transaction:
        found = await self.table.get(keys.transaction("copier"))
        assert found is not None
        return state.decode(found.value)

    async def put(self, txn: Transaction) -> None:
        """Replace the item of the transactional id."""
        found = await self.table.get(keys.transaction("copier"))
        assert found is not None
        key = keys.transaction("copier")
        await self.table.transact([Put(key, state.encode(txn), found.version)])
        for gateway in self.gateways:
            gateway.parts.transaction_items.forget("copier")


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    here = Place()
    world = world_of(here.clock)
    async with (
        kafka_gateway(here.table, here.objects, port=1, world=world) as first,
        kafka_gateway(here.table, here.objects, port=2, world=world) as second,
    ):
        here.gateways = [first, second]
        await first.gateway.topics.create("t", partitions=3)
        await first.gateway.topics.create("in")
        yield here


@BOTH
async def test_records_and_offsets_appear_together_or_never(versions: dict[str, int]) -> None:
    async with place() as here:
        client = here.client(versions)
        await client.init()

        assert await client.send(b"a", b"b") == 0
        assert await client.send(b"c", partition=1) == 0
        assert await client.send(b"d") == 2
        await client.send_offset(7)
        assert await values(here.first) == await values(here.first, partition=1) == []
        assert await here.offset() is None
        await client.commit()
        assert await values(here.first) == [b"a", b"b", b"d"]
        assert await values(here.first, partition=1) == [b"c"]
        assert await here.offset() == 7

        assert await client.send(b"lost") == 3
        await client.send_offset(8)
        await client.abort()
        assert await client.send(b"e") == 3
        await client.commit()
        assert await values(here.first) == [b"a", b"b", b"d", b"e"]
        assert await here.offset() == 7

        [shown] = await here.first.parts.transactions.all()
        assert (shown.ref.transactional_id, shown.state) == ("copier", "committed")


@BOTH
async def test_a_repeated_end_gets_the_first_answer(versions: dict[str, int]) -> None:
    async with place() as here:
        client = here.client(versions)
        await client.init()
        for is_commit in (True, False):
            await client.send(b"%d" % is_commit)
            request, other = (client.end_request(is_commit=c) for c in (is_commit, not is_commit))
            await client.end(request)
            following = client.pair
            await client.end(request)
            assert client.pair == following
            with pytest.raises(Refused, match="INVALID_TXN_STATE"):
                await client.end(other)
        assert await values(here.first) == [b"1"]


@BOTH
async def test_a_newer_instance_fences_the_older_one(versions: dict[str, int]) -> None:
    async with place() as here:
        zombie, newer = here.client(versions), here.client(versions)
        await zombie.init()
        await zombie.send(b"zombie")
        await newer.init()
        await newer.send(b"newer")

        late = zombie.request(b"late")
        with pytest.raises(Refused, match="INVALID_PRODUCER_EPOCH"):
            await zombie.produce(late)
        for is_commit in (True, False):
            with pytest.raises(Refused, match=FENCED):
                await zombie.end(zombie.end_request(is_commit=is_commit))
        with pytest.raises(Refused, match=FENCED):
            await zombie.send_offset(3)
        with pytest.raises(Refused, match="PRODUCER_FENCED"):
            await zombie.init(again=True)
        zombie.pair = 999, 0
        with pytest.raises(Refused, match="INVALID_PRODUCER_ID_MAPPING"):
            await zombie.commit()
        await newer.commit()
        assert await values(here.first) == [b"newer"]


@BOTH
async def test_a_transaction_that_timed_out_is_not_half_committed(
    versions: dict[str, int],
) -> None:
    async with place() as here:
        client = here.client(versions)
        await client.init(timeout_ms=10_000)
        await client.send(b"too late")
        here.clock.now_s += 11

        with pytest.raises(Refused, match="INVALID_PRODUCER_EPOCH"):
            await client.produce(client.request(b"more"))
        with pytest.raises(Refused, match=OVERTAKEN):
            await client.commit()
        if client.is_new:
            await client.abort()
        else:
            with pytest.raises(Refused, match="INVALID_PRODUCER_EPOCH"):
                await client.add(1)
            await client.init(again=True)
        await client.send(b"in time")
        await client.commit()
        assert await values(here.first) == [b"in time"]

        # An abort through another door ends it in the same way.
        await client.send(b"dropped")
        ref = (await here.first.parts.transactions.all())[0].ref
        await here.first.parts.transactions.abort(ref)
        with pytest.raises(Refused, match=OVERTAKEN):
            await client.commit()
        assert await values(here.first) == [b"in time"]


@BOTH
async def test_the_next_epoch_is_given_once_to_who_asks_again(versions: dict[str, int]) -> None:
    async with place() as here:
        client, other = here.client(versions), here.client(versions)
        first = await client.init()
        await client.send(b"dropped")
        second = await client.init(again=True)
        client.pair = first  # As if the answer was lost.
        assert await client.init(again=True) == second > first
        await client.send(b"kept")
        await client.commit()
        await other.init()
        with pytest.raises(Refused, match="PRODUCER_FENCED"):
            await client.init(again=True)
        assert await values(here.first) == [b"kept"]


@BOTH
async def test_after_the_last_epoch_comes_another_producer_id(versions: dict[str, int]) -> None:
    async with place() as here:
        client = here.client(versions)
        producer_id, _ = await client.init()
        await here.put(replace(await here.item(), epoch=EPOCH_MAX - 1))
        assert await client.init() == (producer_id, EPOCH_MAX)
        for number in range(3):
            await client.send(b"%d" % number)
            await client.commit()

        assert await values(here.first) == [b"0", b"1", b"2"]
        item = await here.item()
        another = item.producer_id
        assert (another > producer_id, item.epoch) == (True, 2)
        assert client.pair == ((another, 2) if client.is_new else (producer_id, EPOCH_MAX))
        assert await client.init() == (another, 3)


@BOTH
async def test_a_copy_is_answered_only_once_the_batch_that_waits_with_it_is_staged(
    versions: dict[str, int],
) -> None:
    async with place() as here:
        client = here.client(versions)
        await client.init()
        await client.add(0)
        client.gateways = [here.first]
        here.objects.hold_puts = True
        first = asyncio.create_task(client.produce(client.request(b"a")))
        while len(here.objects.held) < 1:
            await asyncio.sleep(0)
        request = client.request(b"b")
        both = [asyncio.create_task(client.produce(request)) for _ in range(2)]
        await turns()
        here.objects.held[0].set()
        while len(here.objects.held) < 2:
            await asyncio.sleep(0)
        await turns()
        assert not any(each.done() for each in both)

        here.objects.held[1].set()
        assert [await each for each in (first, *both)] == [0, 1, -1]


@BOTH
async def test_batches_that_wait_together_share_an_object_and_a_write(
    versions: dict[str, int],
) -> None:
    async with place() as here:
        client = here.client(versions)
        await client.init()
        await client.add(0, 1, 2)
        client.gateways = [here.first]
        here.objects.hold_puts = True
        puts, writes = here.objects.calls["put"], here.table.calls["transact"]
        sent = [client.request(b"%d" % n, partition=n % 3) for n in range(60)]
        answers = [asyncio.create_task(client.produce(request)) for request in sent]
        while not here.objects.held:
            await asyncio.sleep(0)
        here.objects.hold_puts = False
        here.objects.held[0].set()
        assert [await answer for answer in answers] == [n // 3 for n in range(60)]

        assert here.objects.calls["put"] - puts <= 2
        assert here.table.calls["transact"] - writes <= 2
        copies = [await client.produce(request) for request in sent[:3]]
        assert copies == [-1, -1, -1]
        client.sequences["t", 0] += 1
        with pytest.raises(Refused, match="OUT_OF_ORDER"):
            await client.produce(client.request(b"gap"))
        await client.commit()
        for partition in range(3):
            of = [b"%d" % n for n in range(partition, 60, 3)]
            assert await values(here.first, partition=partition) == of


@BOTH
@pytest.mark.parametrize("seed", range(5))
async def test_nothing_is_lost_or_doubled_when_replies_and_requests_are(
    versions: dict[str, int], seed: int
) -> None:
    chance = random.Random(seed)
    async with place() as here:
        client = here.client(versions)
        await client.init()
        here.table.next_fault = random_faults(seed, share=0.25)
        kept: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        offset = None
        for number in range(15):
            sent = [(chance.randrange(3), b"%d.%d" % (number, n)) for n in range(4)]
            for partition, value in sent:
                await client.send(value, partition=partition)
            await client.send_offset(number)
            if chance.random() < 0.3:
                await client.abort()
                continue
            await client.commit()
            offset = number
            for partition, value in sent:
                kept[partition].append(value)

        here.table.next_fault = lambda: "none"
        for partition, of in kept.items():
            assert await values(here.first, partition=partition) == of
        assert await here.offset() == offset


@BOTH
async def test_a_zombie_of_a_group_commits_nothing(versions: dict[str, int]) -> None:
    async with place() as here:
        client = here.client(versions)
        await client.init()
        await client.send(b"of a stranger")
        with pytest.raises(Refused, match=STRANGER):
            await client.send_offset(5, member=("nobody", 1))
        await client.abort()
        assert await values(here.first) == []
        # A client that does not say which member it is may commit, as older ones cannot.
        await client.send_offset(5)
        await client.commit()
        assert await here.offset() == 5


@BOTH
async def test_a_member_that_left_before_the_commit_commits_nothing(
    versions: dict[str, int],
) -> None:
    async with place() as here:
        client = here.client(versions)
        await client.init()

        async def beat(epoch: int) -> int:
            request = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="reader",
                member_epoch=epoch,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=["in"],
                topic_partitions=[],
            )
            answer = await here.first.call(1, request)
            assert answer.error_code == 0
            return int(answer.member_epoch)

        epoch = await beat(0)
        await client.send(b"x")
        await client.send_offset(5, member=("reader", epoch))
        await beat(-1)
        with pytest.raises(Refused, match=ABORTABLE):
            await client.commit()
        await client.abort()
        assert (await values(here.first), await here.offset()) == ([], None)

        await client.send(b"y")
        await client.send_offset(6, member=("reader", await beat(0)))
        await client.commit()
        assert (await values(here.first), await here.offset()) == ([b"y"], 6)


@BOTH
async def test_what_a_caller_may_not_do(versions: dict[str, int]) -> None:
    transactional = ALLOW("WRITE", "TRANSACTIONAL_ID", "copier")
    rights = {
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": [],
        "TOPIC_AUTHORIZATION_FAILED": [transactional, ALLOW("READ", "GROUP", "g")],
        "GROUP_AUTHORIZATION_FAILED": [transactional, ALLOW("READ", "TOPIC", "in")],
    }
    async with place() as here:
        client = here.client(versions)
        await client.init()
        for code, acls in rights.items():
            client.caller = caller_with(*acls)
            with pytest.raises(Refused, match=code):
                await client.send_offset(1)
        client.caller = caller_with(transactional)
        with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
            await client.send(b"x")
        client.caller = caller_with(
            transactional,
            ALLOW("WRITE", "TOPIC", "t"),
            ALLOW("READ", "TOPIC", "in"),
            ALLOW("READ", "GROUP", "g"),
        )
        await client.init()
        await client.send(b"x")
        await client.send_offset(1)
        await client.commit()
        client.caller = caller_with()
        for call in (client.init, client.commit):
            with pytest.raises(Refused, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
                await call()
        assert await values(here.first) == [b"x"]


@BOTH
async def test_what_does_not_fit_can_be_aborted(
    versions: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place() as here:
        client = here.client(versions)
        await client.init()
        await client.send(b"fits")
        monkeypatch.setattr(room, "ITEM_BYTES_MAX", 200)
        with pytest.raises(Refused, match="TRANSACTION_ABORTABLE"):
            await client.send(b"does not")
        await client.abort()
        monkeypatch.undo()
        client.sequences.clear()
        await client.init()
        await client.send(b"next")
        await client.commit()
        assert await values(here.first) == [b"next"]


async def test_a_batch_without_what_a_transaction_needs_is_refused() -> None:
    async with place() as here:
        client = here.client(NEW)
        await client.init()
        request = client.request(b"x")
        request.transactional_id = None
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.name
        with pytest.raises(Refused, match=code):
            await client.produce(request)
        for timeout_ms in (0, 900_001):
            with pytest.raises(Refused, match="INVALID_TRANSACTION_TIMEOUT"):
                await client.init(timeout_ms)
        old = here.client(OLD)
        await old.init()
        with pytest.raises(Refused, match="INVALID_TXN_STATE"):
            await old.produce(old.request(b"not announced"))
        with pytest.raises(Refused, match="INVALID_TXN_STATE"):
            await old.commit()
        await old.abort()
