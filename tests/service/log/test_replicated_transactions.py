"""Staged records and atomic calls over zones that fail, hang and come back."""

import asyncio

import pytest

from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.transactions.atomic import Atomic, TopicRecords
from service.transactions.guards import Unguarded
from service.transactions.ids import ProducerIds
from service.transactions.items import TransactionItems
from service.transactions.staging import Staging
from service.transactions.transactions import Transactions
from service.transactions.views import Ended, View
from storage.errors import NotEnoughReplicas
from tests.service.helpers.replicated import Replicated, append
from tests.storage.helpers.failing_zones import Mode
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio


class Process:
    """A gateway and what it knows of transactions."""

    def __init__(self, deployment: Replicated) -> None:
        self.gateway = gateway = deployment.modest()
        metadata, world = gateway.metadata, gateway.world
        coordinator = Coordinator(metadata, gateway.topics, world)
        offsets = Offsets(metadata, gateway.topics, coordinator, world)
        ids = ProducerIds(metadata, world)
        items = TransactionItems(metadata, ids, world)
        self._staging = Staging(gateway, items)
        self._transactions = Transactions(gateway, offsets, ids, items)
        self._atomic = Atomic(gateway, offsets)

    async def begin(self) -> View:
        return await self._transactions.begin("copier", 60_000, None)

    async def stage(self, view: View, value: bytes, partition: int = 0, topic: str = "t") -> None:
        batch = batch_of(value)
        await self._staging.stage(str(view.ref), topic, batch, batch.nbytes, partition)

    async def commit(self, view: View) -> Ended:
        return await self._transactions.commit(view.ref, None)

    async def write(self, *values: bytes) -> None:
        """Do an atomic call."""
        batch = batch_of(*values)
        rows = list(range(len(values)))
        records = TopicRecords(topic="t", batch=batch, wanted=[0] * len(values), rows=rows)
        await self._atomic.write([records], batch.nbytes, None, Unguarded())


@pytest.mark.parametrize("mode", ["denied", "full", "hanging"])
@pytest.mark.parametrize("name", ["a", "c"])
async def test_a_transaction_goes_on_without_a_zone_that_fails(name: str, mode: Mode) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    process = Process(deployment)
    view = await process.begin()
    await process.stage(view, b"0")

    deployment.gated[name].mode = mode
    await process.stage(view, b"1")
    await process.commit(view)

    assert await deployment.isr(topic) == "abc".replace(name, "")
    assert await deployment.read() == [b"0", b"1"]
    await process.gateway.aclose()


@pytest.mark.parametrize("mode", ["denied", "hanging"])
async def test_an_atomic_call_goes_on_without_a_zone_that_fails(mode: Mode) -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    process = Process(deployment)

    deployment.gated["c"].mode = mode
    await process.write(b"0", b"1")

    head = await deployment.head(topic)
    assert (await deployment.isr(topic), head.leader_epoch) == ("ab", 1)
    assert await deployment.read() == [b"0", b"1"]
    await process.gateway.aclose()


async def test_a_zone_that_hangs_is_waited_for_once_and_not_by_every_lane() -> None:
    deployment = Replicated()
    await deployment.topic(partitions=6, lane_partitions=1)
    process = Process(deployment)
    deployment.gated["c"].hold()
    view = await process.begin()
    batch = batch_of(*(b"%d" % n for n in range(6)))

    async with asyncio.timeout(120):
        await process._staging.stage(str(view.ref), "t", batch, batch.nbytes, list(range(6)))
    await turns()
    await deployment.topics.alter("t", config={"replica.lag.time.max.ms": "600000"})
    await process.gateway.topics.read("t")
    async with asyncio.timeout(120):
        for partition in range(6):
            await process.stage(view, b"more", partition)
        await process.commit(view)

    assert set(await deployment.in_sync()) == {"ab"}
    await process.gateway.aclose()


async def test_a_zone_that_fails_only_at_the_commit_leaves_with_it() -> None:
    """It came in sync after the records were staged, and does not take them."""
    deployment = Replicated()
    topic = await deployment.topic()
    process = Process(deployment)
    deployment.gated["c"].mode = "denied"
    await append(process.gateway, topic, b"0")
    view = await process.begin()
    await process.stage(view, b"1")
    for run in (await deployment.head(topic)).runs:
        await deployment.copy(run.object_id, "a", "c")
    await deployment.let_in(topic, "c")
    assert await deployment.isr(topic) == "abc"

    await process.commit(view)

    assert await deployment.isr(topic) == "ab"
    assert await deployment.read() == [b"0", b"1"]


async def test_below_the_minimum_nothing_is_staged_or_committed_and_it_can_be_later() -> None:
    deployment = Replicated()
    topic = await deployment.topic()
    process = Process(deployment)
    view = await process.begin()
    await process.stage(view, b"0")
    for name in "bc":
        deployment.gated[name].mode = "denied"

    with pytest.raises(NotEnoughReplicas):
        await process.stage(view, b"refused")
    with pytest.raises(NotEnoughReplicas):
        await process.write(b"refused")
    with pytest.raises(NotEnoughReplicas):
        await process.commit(view)
    assert await deployment.read() == []
    await turns()
    assert await deployment.isr(topic) == "a"
    deployment.gated["b"].mode = "ok"
    await deployment.let_in(topic, "b")

    await process.commit(view)
    assert await deployment.read() == [b"0"]
    await process.gateway.aclose()


async def test_two_topics_are_committed_together_though_one_lost_a_zone() -> None:
    deployment = Replicated()
    first, second = await deployment.topic(), await deployment.topic(name="other")
    process = Process(deployment)
    view = await process.begin()
    await process.stage(view, b"0")
    deployment.gated["b"].mode = "denied"
    await process.stage(view, b"1", topic="other")
    deployment.gated["b"].mode = "ok"

    await process.commit(view)

    assert await deployment.isr(first) == "abc"
    assert await deployment.isr(second) == "ac"
    assert await deployment.read() == [b"0"]


async def test_what_was_staged_before_its_zone_was_emptied_is_written_again() -> None:
    """The zone is in sync again when it is committed, and what it held is long forgotten."""
    deployment = Replicated()
    topic = await deployment.topic()
    process = Process(deployment)
    controller = deployment.controller(controller_scan_s=1)
    await deployment.tick(controller, times=2)
    view = await process.begin()
    await process.stage(view, b"0")

    await deployment.gated["c"].wipe()
    await deployment.tick(controller, times=10)
    assert await deployment.isr(topic) == "abc"
    await process.commit(view)

    assert (await deployment.fsck()).findings == []
    assert await deployment.isr(topic) == "abc"
    assert await deployment.read() == [b"0"]
