"""Sweeping the table: what a head mentions stays, and what was left behind goes after its time."""

import pytest

from service.jobs.sweep.batches import CLOCKS_DIFFER_MS
from service.jobs.sweep.sweep import SweepOptions
from service.log.delete_records import delete_records
from storage import keys
from storage.errors import StoreUnavailable
from storage.head import head as heads
from storage.leases import LeaseLost
from storage.reading.table_batches import TableBatches, encode, mentioned, old
from tests.service.jobs.held import TestHeld
from tests.service.jobs.sweep.test_sweep import HOUR_S, Sweep, produce, stores_of, swept
from tests.service.transactions.cluster import Cluster, Process
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio

TOO_OLD_S = HOUR_S + CLOCKS_DIFFER_MS / 1000


async def small_process(cluster: Cluster, name: str = "t") -> Process:
    """Return a process that writes to the table, and whose heads roll often."""
    process = cluster.process(table_batch_bytes_max=65_536)
    process.gateway._lane_runtime.inline_bytes_max = 150
    await process.gateway.topics.create(name, partitions=1)
    return process


async def items(cluster: Cluster) -> set[bytes]:
    return {batch.object_id async for some in old(cluster.metadata, 2**48) for batch in some}


async def needed(cluster: Cluster, process: Process, name: str = "t") -> set[bytes]:
    topic = await process.gateway.topics.read(name)
    item = await cluster.metadata.get(keys.head(topic.topic_id, 0))
    assert item is not None
    return mentioned(heads.decode(item.value))


async def orphan(cluster: Cluster, digit: int = 3) -> bytes:
    """Write a batch as a process does that dies before it commits it."""
    object_id = int(cluster.now_s * 1000).to_bytes(6) + bytes(9) + bytes([digit])
    await TableBatches(cluster.metadata).write(object_id, b"never read")
    return object_id


@pytest.fixture(params=[False, True], ids=["here", "spread"])
def spread(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_what_no_head_mentions_goes_after_its_time(spread: bool) -> None:
    cluster = Cluster()
    process = await small_process(cluster)
    await produce(process, "a")
    lost = await orphan(cluster)
    kept = await needed(cluster, process)
    assert await items(cluster) == kept | {lost}

    cluster.now_s += TOO_OLD_S - 1
    assert (await swept(cluster, spread=spread)).batches.objects == 0
    cluster.now_s += 1
    dry = await swept(cluster, spread=spread, dry_run=True)
    assert (dry.batches.objects, dry.batches_removed.objects) == (1, 0)
    assert lost in await items(cluster)

    report = await swept(cluster, spread=spread)

    assert (report.batches_removed.objects, report.is_complete) == (1, True)
    assert report.batches_removed.size_bytes == len(encode(b"never read"))
    assert await items(cluster) == kept
    assert await process.read() == ["a"]


async def test_what_was_moved_and_not_removed_goes() -> None:
    cluster = Cluster()
    process = await small_process(cluster)

    class Forgetful(TableBatches):
        async def remove(self, *_: object) -> None:
            """Die before it."""

    process.gateway.catalog.batches = Forgetful(cluster.metadata)
    for number in range(20):
        await produce(process, str(number))
        await turns()
    kept = await needed(cluster, process)
    assert len(await items(cluster)) == 20 > len(kept)

    cluster.now_s += TOO_OLD_S
    report = await swept(cluster)

    assert report.batches_removed.objects == 20 - len(kept)
    assert await items(cluster) == kept
    other = cluster.process()
    assert await other.read() == [str(number) for number in range(20)]


async def test_what_is_before_the_log_start_stays_as_long_as_the_head_has_it() -> None:
    cluster = Cluster()
    process = await small_process(cluster)
    process.gateway._lane_runtime.inline_bytes_max = 10**6
    for number in range(4):
        await produce(process, str(number))
    topic = await process.gateway.topics.read("t")
    await delete_records(process.gateway, "t", {0: 2})
    cluster.now_s += TOO_OLD_S
    assert (await swept(cluster)).batches.objects == 0
    process.gateway._lane_runtime.inline_bytes_max = 1
    await produce(process, "4")
    await turns(200)

    head = (await process.gateway.lanes.lane(topic.topic_id, 0).view(0)).head
    assert head.root
    assert await items(cluster) == mentioned(head)


async def test_batches_of_a_topic_that_is_deleted_go() -> None:
    cluster = Cluster()
    process = await small_process(cluster)
    await small_process(cluster, "other")
    await produce(process, "a")
    await produce(process, "b", topic="other")

    await process.gateway.topics.delete("t")
    cluster.now_s += TOO_OLD_S
    report = await swept(cluster)

    assert report.batches_removed.objects == 1
    assert await items(cluster) == await needed(cluster, process, "other")


async def test_a_limit_counts_batches_too(spread: bool) -> None:
    cluster = Cluster()
    await small_process(cluster)
    for digit in range(5):
        await orphan(cluster, digit)
    cluster.now_s += TOO_OLD_S

    report = await swept(cluster, limit=2, spread=spread)

    assert (report.batches.objects, report.batches_removed.objects) == (5, 2)
    assert not report.is_complete
    assert len(await items(cluster)) == 3


async def test_who_lost_the_lease_removes_nothing() -> None:
    cluster = Cluster()
    await small_process(cluster)
    lost = await orphan(cluster)
    cluster.now_s += TOO_OLD_S
    stores = stores_of(cluster)
    held = await TestHeld(stores).take()
    held.checks_left = 0

    with pytest.raises(LeaseLost):
        await Sweep(stores, held, SweepOptions()).run()

    assert await items(cluster) == {lost}


async def test_a_table_that_refuses_is_tried_again_the_next_time() -> None:
    cluster = Cluster()
    await small_process(cluster)
    await orphan(cluster)
    cluster.now_s += TOO_OLD_S
    stores = stores_of(cluster)
    held = await TestHeld(stores).take()
    cluster.metadata.next_fault = lambda: "refused"

    with pytest.raises(StoreUnavailable):
        await Sweep(stores, held, SweepOptions()).run()

    cluster.metadata.next_fault = lambda: "none"
    await held.lease.release()
    assert (await swept(cluster)).batches_removed.objects == 1
