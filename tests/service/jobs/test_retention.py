"""Retention of a deployment: log starts move, roots shrink, and who lost the lease stops."""

import asyncio
import random
from collections.abc import Mapping, Sequence

import pytest

from service.jobs.retention import RetentionReport, retain
from service.jobs.stores import Stores
from storage.errors import MetadataConflict
from storage.head.head import Head
from storage.head.head import decode as decode_head
from storage.keys import head as head_key
from storage.leases import LeaseLost
from storage.maintenance.fsck import check_lane
from storage.stores.metadata import Op
from storage.topics.topics import Topic
from tests.service.jobs.held import TestHeld
from tests.service.transactions.cluster import Cluster, Process, with_topic
from tests.storage.helpers.logs import batch_of

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000


def stores_of(process: Process) -> Stores:
    gateway = process.gateway
    return Stores(zones=gateway.zones, metadata=gateway.metadata, world=gateway.world)


async def produce(process: Process, *values: str, topic: str = "t", partition: int = 0) -> None:
    now_ms = process.gateway.world.now_ms()
    encoded = [value.encode() for value in values]
    batch = batch_of(*encoded, stamps=[now_ms] * len(values))
    await process.gateway.produce(topic, batch, batch.nbytes, partition)


async def topics_of(process: Process) -> list[Topic]:
    return await process.gateway.topics.all()


async def retained(process: Process, *, dry_run: bool = False) -> RetentionReport:
    stores = stores_of(process)
    if dry_run:
        return await retain(stores, await topics_of(process), transact=None)
    held = await TestHeld(stores).take()
    report = await retain(stores, await topics_of(process), transact=held.transact)
    await held.lease.release()
    return report


async def head_of(process: Process, topic: Topic, lane: int = 0) -> Head:
    item = await process.gateway.metadata.get(head_key(topic.topic_id, lane))
    assert item is not None
    return decode_head(item.value)


async def test_each_topic_goes_by_its_own_configuration() -> None:
    cluster = Cluster()
    process = await with_topic(cluster, 2, **{"retention.ms": HOUR_MS, "lane.partitions": 1})
    await process.gateway.topics.create("kept", config={"cleanup.policy": "compact"})
    await process.gateway.topics.create("small", config={"retention.bytes": 1})
    for number in range(3):
        for topic, partition in (("t", 1), ("small", 0)):
            await produce(process, str(number), topic=topic, partition=partition)
        cluster.now_s += 1800
    cluster.now_s += 1

    dry = await retained(process, dry_run=True)
    assert (await process.gateway.partition("t", 1)).log_start_offset == 0
    report = await retained(process)

    moved = [(each.topic, each.partition, each.after) for each in report.partitions]
    assert moved == [("small", 0, 2), ("t", 1, 2)]
    assert dry.partitions == report.partitions
    assert (report.lanes, report.offsets, report.failures) == (4, 4, [])
    assert report.size_bytes > 0
    assert (await process.gateway.partition("t", 1)).log_start_offset == 2
    assert (await retained(process)).partitions == []


async def test_roots_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.head.head.INLINE_BYTES_MAX", 200)
    cluster = Cluster()
    process = await with_topic(cluster, 1, **{"retention.ms": HOUR_MS})
    [topic] = await topics_of(process)
    for number in range(60):
        await produce(process, str(number))
    while not (await head_of(process, topic)).root:
        await asyncio.sleep(0)
        await produce(process, "more")
    cluster.now_s += 3601
    await produce(process, "young")

    report = await retained(process)

    assert report.pruned_members > 0
    head = await head_of(process, topic)
    assert head.log_starts[0] == head.next_offsets[0] - 1
    assert (await check_lane(process.gateway.zones, head)).is_ok


async def test_one_lane_that_fails_does_not_keep_the_others_from_it() -> None:
    cluster = Cluster()
    process = await with_topic(cluster, 3, **{"retention.ms": 1, "lane.partitions": 1})
    for partition in range(3):
        await produce(process, "x", partition=partition)
    cluster.now_s += 60
    stores = stores_of(process)
    [topic] = await topics_of(process)
    held = await TestHeld(stores).take()
    unlucky = head_key(topic.topic_id, 1)

    async def transact(ops: Sequence[Op]) -> Mapping[str, str]:
        if any(op.key == unlucky for op in ops):
            raise MetadataConflict({unlucky: await stores.metadata.get(unlucky)})
        return await held.transact(ops)

    report = await retain(stores, [topic], transact=transact)

    assert [each.partition for each in report.partitions] == [0, 2]
    [failure] = report.failures
    assert "lane 1" in failure


async def test_who_lost_the_lease_changes_nothing() -> None:
    cluster = Cluster()
    process = await with_topic(cluster, 1, **{"retention.ms": 1})
    await produce(process, "x")
    cluster.now_s += 60
    stores = stores_of(process)
    held = await TestHeld(stores).take()
    other = TestHeld(stores, "another")
    assert not await other.lease.keep()
    cluster.now_s += 61
    await other.take()

    with pytest.raises(LeaseLost):
        await retain(stores, await topics_of(process), transact=held.transact)

    assert (await process.gateway.partition("t", 0)).log_start_offset == 0


async def test_appends_go_on_meanwhile() -> None:
    cluster = Cluster()
    process = await with_topic(cluster, 1, **{"retention.ms": 600_000})
    chance = random.Random(5)
    written = 0
    done = asyncio.Event()

    async def write() -> None:
        nonlocal written
        for number in range(80):
            await produce(process, str(number))
            written += 1
            cluster.now_s += chance.random() * 60
        done.set()

    writer = asyncio.create_task(write())
    dropped = 0
    while not done.is_set():
        dropped += (await retained(process)).offsets
        await asyncio.sleep(0)
    await writer
    dropped += (await retained(process)).offsets

    info = await process.gateway.partition("t", 0)
    assert (info.log_start_offset, info.high_watermark) == (dropped, 80)
    assert 40 < dropped < 80
    cluster.now_s += 601
    await retained(process)
    emptied = await process.gateway.partition("t", 0)
    assert (emptied.log_start_offset, emptied.size_bytes) == (80, 0)
