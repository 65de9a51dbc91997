"""Sweeping a deployment: nothing that anybody can still use goes, and everything else does."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from service.jobs.runners.choice import How
from service.jobs.runners.runners import ThreadRunner
from service.jobs.stores import Stores
from service.jobs.sweep import sweep as jobs
from service.jobs.sweep import tasks
from service.jobs.sweep.sweep import Sweep, SweepOptions, SweepReport, Unsafe
from service.jobs.sweep.tasks import GROUPS, Removal
from service.jobs.work import begun
from service.log.gateway import Gateway
from service.settings import Settings
from storage import keys
from storage.errors import StoreUnavailable
from storage.head import head as heads
from storage.leases import LeaseLost
from storage.maintenance import sweep
from storage.stores.memory import MemoryObjects
from storage.stores.metadata import Put
from storage.stores.objects import ObjectInfo
from storage.zones.items import ZoneItem
from storage.zones.items import encode as encode_zone
from storage.zones.zones import Zones
from tests.service.helpers.deployments import Deployment
from tests.service.jobs.held import TestHeld
from tests.service.transactions.cluster import Cluster, Process, with_topic
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio

HOUR_S = 3600.0


def stores_of(cluster: Cluster) -> Stores:
    gateway = cluster.process().gateway
    return Stores(
        zones=Zones({"a": cluster.objects}), metadata=cluster.metadata, world=gateway.world
    )


async def keys_in(cluster: Cluster) -> set[str]:
    return {info.key async for batch in cluster.objects.list("") for info in batch}


async def swept(
    cluster: Cluster, *, spread: bool = False, dry_run: bool = False, **options: object
) -> SweepReport:
    """Sweep, in one process or with workers; both must come to the same."""
    stores = stores_of(cluster)
    held = None if dry_run else await TestHeld(stores).take()
    job = Sweep(stores, held, SweepOptions(**options))  # type: ignore[arg-type]
    if not spread:
        report = await job.run()
    else:
        with ThreadRunner(lambda: _opened(stores), 2) as runner:
            report = await job.run_with(runner)
    if held is not None:
        await held.lease.release()
    return report


@asynccontextmanager
async def _opened(stores: Stores) -> AsyncIterator[Stores]:
    yield stores


async def produce(process: Process, *values: str, partition: int = 0, topic: str = "t") -> None:
    batch = batch_of(*[value.encode() for value in values])
    await process.gateway.produce(topic, batch, batch.nbytes, partition)


def orphan(cluster: Cluster) -> str:
    """Return the key of an object that somebody wrote just now, and then crashed."""
    chance = random.Random(int(cluster.now_s))
    now_ms = int(cluster.now_s * 1000)
    return keys.hot_segment(now_ms.to_bytes(6) + chance.randbytes(10))


@pytest.fixture(params=[False, True], ids=["here", "spread"])
def spread(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_what_nothing_refers_to_goes_after_its_time(spread: bool) -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    await produce(process, "a", "b")
    key = orphan(cluster)
    await cluster.objects.put(key, [b"12345"])
    needed = await keys_in(cluster) - {key}

    assert (await swept(cluster, spread=spread)).removed.objects == 0
    cluster.now_s += HOUR_S
    dry = await swept(cluster, spread=spread, dry_run=True)
    assert dry.zones["a"].orphans["hot"].objects == 1
    assert dry.zones["a"].orphans["hot"].size_bytes == 5
    assert (dry.removed.objects, dry.is_complete) == (0, True)
    assert key in await keys_in(cluster)

    report = await swept(cluster, spread=spread)

    assert (report.removed.objects, report.removed.size_bytes) == (1, 5)
    assert report.is_complete
    assert report.zones["a"].seen.objects == len(needed) + 1
    assert await keys_in(cluster) == needed
    assert await process.read() == ["a", "b"]


async def test_what_a_transaction_has_staged_survives_and_can_be_committed(spread: bool) -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin(timeout_ms=900_000)
    await process.stage(view, "x", "y")
    aborted = await process.begin("other", timeout_ms=900_000)
    await process.stage(aborted, "never", partition=1)
    await process.transactions.abort(aborted.ref)
    cluster.now_s += 890  # Before it times out.

    report = await swept(cluster, spread=spread, min_age_ms=880_000, is_unsafe=True)

    assert report.removed.objects == 1
    await process.transactions.commit(view.ref, None)
    assert await process.read() == ["x", "y"]


async def test_what_was_committed_while_the_sweep_looked_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin(timeout_ms=900_000)
    await process.stage(view, "x")
    cluster.now_s += 890
    read = jobs.staged_keys

    async def committing(metadata: object) -> list[str]:
        # Between the look at the objects and the one at transactions.
        await process.transactions.commit(view.ref, None)
        return await read(metadata)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "staged_keys", committing)
    report = await swept(cluster, min_age_ms=880_000, is_unsafe=True)

    assert report.removed.objects == 0
    assert await process.read() == ["x"]


async def test_a_deleted_topic_goes_and_the_others_stay(spread: bool) -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    await process.gateway.topics.create("u", partitions=2)
    await produce(process, "kept")
    await produce(process, "gone", topic="u", partition=1)
    assert len(await keys_in(cluster)) == 2
    await process.gateway.topics.delete("u")
    cluster.now_s += HOUR_S

    assert (await swept(cluster, spread=spread)).removed.objects == 1
    assert await process.read() == ["kept"]


async def test_heads_that_a_crash_left_go_too() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    await process.gateway.topics.create("u", partitions=120, config={"lane.partitions": 1})
    topic = await process.gateway.topics.read("u")
    names = [keys.head(topic.topic_id, lane) for lane in range(120)]
    await produce(process, "gone", topic="u", partition=119)
    cluster.metadata.faults = ["none", "refused"]
    await process.gateway.topics.delete("u")
    assert len(await cluster.metadata.get_many(names)) == 120
    cluster.now_s += HOUR_S

    dry = await swept(cluster, dry_run=True)
    assert (dry.heads_removed, dry.zones["a"].orphan_count) == (0, 1)
    report = await swept(cluster)

    assert (report.heads_removed, report.removed.objects) == (120, 1)
    assert await cluster.metadata.get_many(names) == {}
    assert await cluster.metadata.list("gone/") == []


async def test_so_many_and_no_more_and_then_the_rest(spread: bool) -> None:
    cluster = Cluster()
    await with_topic(cluster)
    chance = random.Random(3)
    for _ in range(30):
        await cluster.objects.put(keys.hot_segment(bytes(6) + chance.randbytes(10)), [b"x"])
    cluster.now_s += HOUR_S

    if not spread:
        first = await swept(cluster, limit=10)
        assert (first.removed.objects, first.is_complete) == (10, False)
        assert first.zones["a"].orphan_count == 30
    else:
        first = await swept(cluster, limit=10, spread=True)
        assert first.removed.objects <= 10
        assert not first.is_complete
    rest = await swept(cluster, limit=30 * GROUPS, spread=spread)
    assert (rest.removed.objects, rest.is_complete) == (30 - first.removed.objects, True)
    assert await keys_in(cluster) == set()


def test_a_limit_is_shared_out_by_chance_and_exactly() -> None:
    for limit in (0, 1, 255, 256, 1000):
        for first in (0, 200):
            removal = Removal(holder="x", limit=limit, first_group=first)
            assert sum(removal.limit_of(group) or 0 for group in range(GROUPS)) == limit
    assert Removal(holder="x").limit_of(3) is None


async def test_who_lost_the_lease_stops_and_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep, "REMOVED_AT_ONCE", 4)
    cluster = Cluster()
    process = await with_topic(cluster)
    await produce(process, "a")
    chance = random.Random(3)
    for _ in range(10):
        await cluster.objects.put(keys.hot_segment(bytes(6) + chance.randbytes(10)), [b"x"])
    cluster.now_s += HOUR_S
    stores = stores_of(cluster)
    held = await TestHeld(stores).take()
    held.checks_left = 2

    with pytest.raises(LeaseLost):
        await Sweep(stores, held, SweepOptions()).run()

    assert len(await keys_in(cluster)) == 3
    await held.lease.release()
    assert (await swept(cluster)).removed.objects == 2
    assert await process.read() == ["a"]


async def test_workers_stop_without_the_lease() -> None:
    cluster = Cluster()
    await with_topic(cluster)
    await cluster.objects.put(keys.hot_segment(bytes(16)), [b"x"])
    cluster.now_s += HOUR_S
    stores = stores_of(cluster)
    held = await TestHeld(stores).take()
    await held.lease.release()
    await TestHeld(stores, "another").take()

    with ThreadRunner(lambda: _opened(stores), 1) as runner, pytest.raises(LeaseLost):
        await Sweep(stores, held, SweepOptions()).run_with(runner)
    assert len(await keys_in(cluster)) == 1


async def test_a_worker_that_finds_another_holder_removes_nothing() -> None:
    cluster = Cluster()
    await with_topic(cluster)
    key = keys.hot_segment(bytes(16))
    await cluster.objects.put(key, [b"x"])
    stores = stores_of(cluster)
    held = await TestHeld(stores).take()
    listing = next(iter(tasks.payloads(["a"], 10**15, [], [])))
    table = pa.Table.from_batches([each async for each in tasks.rows(stores, listing)])

    for holder, epoch in (("another", 1), ("tester", 2)):
        removal = Removal(holder=holder, epoch=epoch)
        with pytest.raises(LeaseLost):
            await tasks.remove(removal, stores, 0, table)
    assert await keys_in(cluster) == {key}
    removal = Removal(holder="tester", epoch=held.lease.epoch or 0)
    done = tasks.decode(await tasks.remove(removal, stores, 0, table))
    assert done["a"].removed.objects == 1
    # Once more, as after the loss of a machine: nothing is there any more, and that is fine.
    await tasks.remove(removal, stores, 0, table)
    assert await keys_in(cluster) == set()


@pytest.mark.slow
@pytest.mark.usefixtures("spark")  # It is used instead of a new one.
def test_sparks_workers_sweep_the_same(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")

    async def sweep_both() -> None:
        how = How(spark=True, master="local[2]")
        async with begun(settings, "sweep", how) as work:
            stores = work.stores
            await stores.topics().create("t")
            store = stores.zones.store("a")
            gateway = Gateway(settings, stores.zones, stores.metadata, stores.world)
            batch = batch_of(b"a", b"b")
            await gateway.produce("t", batch, batch.nbytes, 0)
            needed = {info.key async for batch in store.list("") for info in batch}
            chance = random.Random(1)
            for _ in range(50):
                await store.put(keys.hot_segment(bytes(6) + chance.randbytes(10)), [b"xy"])
            outcome = await jobs.sweep(work, min_age_ms=0, is_unsafe=True, spark=True)
            assert outcome.ok, outcome.lines
            assert outcome.document["objects_removed"] == 50
            assert outcome.document["bytes_removed"] == 100
            assert {info.key async for batch in store.list("") for info in batch} == needed

    asyncio.run(sweep_both())


async def test_too_many_objects_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "CANDIDATES_MAX", 20)
    cluster = Cluster()
    process = await with_topic(cluster)
    chance = random.Random(3)
    for number in range(12):
        await produce(process, str(number), partition=number % 4)
    for _ in range(150):
        await cluster.objects.put(keys.hot_segment(bytes(6) + chance.randbytes(10)), [b"x"])
    await cluster.objects.put("a/notes.txt", [b"x"])
    cluster.now_s += HOUR_S

    report = await swept(cluster)

    assert (report.removed.objects, report.is_complete) == (150, True)
    assert report.zones["a"].seen.objects == 163
    assert report.zones["a"].unknown.objects == 1
    assert await process.read() == ["0", "4", "8"]


async def test_a_clock_that_is_ahead_makes_nothing_old_enough(spread: bool) -> None:
    cluster = Cluster()
    await with_topic(cluster)
    zone = MemoryObjects(lambda: int(cluster.now_s * 1000))
    await zone.put(orphan(cluster), [b"x"])
    cluster.now_s += 2 * HOUR_S
    young = orphan(cluster)
    await zone.put(young, [b"x"])

    async def left(ahead_s: float) -> set[str]:
        world = stores_of(cluster).world
        wrong = replace(world, now_ms=lambda: world.now_ms() + int(ahead_s * 1000))
        stores = Stores(zones=Zones({"a": zone}), metadata=cluster.metadata, world=wrong)
        held = await TestHeld(stores).take()
        job = Sweep(stores, held, SweepOptions())
        if spread:
            with ThreadRunner(lambda: _opened(stores), 2) as runner:
                await job.run_with(runner)
        else:
            await job.run()
        await held.lease.release()
        return {info.key async for batch in zone.list("") for info in batch}

    assert await left(24 * HOUR_S) == {young}
    cluster.now_s += 2 * HOUR_S
    assert await left(24 * HOUR_S) == set()


async def test_what_is_not_safe_needs_an_option() -> None:
    cluster = Cluster()
    with pytest.raises(Unsafe, match="no topic"):
        await swept(cluster)
    await with_topic(cluster)
    with pytest.raises(Unsafe, match="15 minutes"):
        await swept(cluster, min_age_ms=899_999)
    assert (await swept(cluster, min_age_ms=0, is_unsafe=True)).is_complete


class Sweepable(Deployment):
    async def swept(self, *, spread: bool = False) -> SweepReport:
        stores = Stores(zones=self.zones, metadata=self.metadata, world=self.world())
        held = await TestHeld(stores).take()
        job = Sweep(stores, held, SweepOptions())
        if spread:
            with ThreadRunner(lambda: _opened(stores), 1) as runner:
                report = await job.run_with(runner)
        else:
            report = await job.run()
        await held.lease.release()
        return report


async def replicated(names: str = "abc", factor: int = 3) -> Sweepable:
    deployment = Sweepable(names)
    await deployment.topics.create("t", replication_factor=factor)
    gateway = deployment.gateway()
    await deployment.produce(gateway, b"a", b"b")
    await gateway.aclose()
    await turns()
    for name in names:
        await deployment.zones[name].put(keys.hot_segment(bytes(16)), [b"x"])
    deployment.clock.now_s += HOUR_S
    return deployment


async def test_a_zone_that_cannot_be_reached_is_reported_and_the_others_are_swept(
    spread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = await replicated()

    async def refuse(_: str) -> AsyncIterator[list[ObjectInfo]]:
        raise StoreUnavailable("no way")
        yield []

    monkeypatch.setattr(deployment.zones["b"], "list", refuse)
    report = await deployment.swept(spread=spread)

    assert report.problems == {"b": "no way"}
    assert not report.is_complete
    assert [zone.removed.objects for zone in report.zones.values()] == [1, 0, 1]


async def test_where_something_unknown_may_be_referred_to_nothing_goes(spread: bool) -> None:
    deployment = await replicated(factor=1)
    [topic] = await deployment.topics.all()
    item = await deployment.metadata.get(keys.head(topic.topic_id, 0))
    assert item is not None
    head = heads.decode(item.value)
    [owner] = head.zones
    lost = msgspec.structs.replace(head, root=b"r" * 16)
    await deployment.metadata.transact(
        [Put(keys.head(topic.topic_id, 0), heads.encode(lost), item.version)]
    )

    report = await deployment.swept(spread=spread)

    assert list(report.problems) == [owner]
    assert "cannot be read" in report.problems[owner]
    assert sorted(zone.removed.objects for zone in report.zones.values()) == [0, 1, 1]


async def test_a_zone_that_is_not_the_one_it_was_is_left_alone() -> None:
    deployment = await replicated("ab", 1)
    for name in "ab":
        item = ZoneItem(name=name, marker="1" * 32)
        await deployment.metadata.transact([Put(keys.zone(name), encode_zone(item), None)])
    await deployment.zones["a"].put(keys.zone_marker("1" * 32), [b"a"])

    report = await deployment.swept()

    assert list(report.problems) == ["b"]
    assert report.zones["a"].removed.objects == 1
    assert keys.zone_marker("1" * 32) in await deployment.zones["a"].keys()


async def test_sweeps_beside_writers_take_nothing_that_is_read() -> None:
    cluster = Cluster()
    process = await with_topic(cluster, 2)
    written: list[list[str]] = [[], []]
    chance = random.Random(1)
    done = asyncio.Event()

    async def write() -> None:
        for number in range(60):
            partition = chance.randrange(2)
            await produce(process, str(number), partition=partition)
            written[partition].append(str(number))
            cluster.now_s += chance.random() * 300
            if number % 10 == 9:
                await cluster.objects.put(orphan(cluster), [b"x"])
        done.set()

    writer = asyncio.create_task(write())
    removed = 0
    while not done.is_set():
        removed += (await swept(cluster)).removed.objects
        await asyncio.sleep(0)
    await writer
    cluster.now_s += HOUR_S
    removed += (await swept(cluster)).removed.objects

    assert removed >= 6
    for partition in range(2):
        assert await process.read(partition) == written[partition]
