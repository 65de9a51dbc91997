"""What a sweep leaves alone: more than it may remove, zones it cannot trust, what is still used."""

import random
from collections.abc import Mapping, Sequence

import pytest

from service.jobs.runners.runners import ThreadRunner
from service.jobs.stores import Stores
from service.jobs.sweep import sweep as jobs
from service.jobs.sweep.batches import CLOCKS_DIFFER_MS
from service.jobs.sweep.report import SweepReport
from service.jobs.sweep.sweep import SAFE_AGE_MS_MIN, Sweep, SweepOptions
from storage import keys
from storage.leases import LeaseLost
from storage.maintenance import sweep
from storage.reading.table_batches import TableBatches
from storage.stores.metadata import Op, Put
from storage.topics import all_heads
from storage.topics import deleted as gone_topics
from storage.topics.deleted import GoneTopic
from storage.zones.items import ZoneItem
from storage.zones.items import encode as encode_zone
from tests.service.jobs.held import TestHeld
from tests.service.jobs.sweep.test_sweep import (
    HOUR_S,
    _opened,
    keys_in,
    replicated,
    stores_of,
    swept,
)
from tests.service.transactions.cluster import Cluster, with_topic

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["here", "spread"])
def spread(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def littered(count: int) -> Cluster:
    """Return a deployment with so many objects, of an hour ago, that nothing refers to."""
    cluster = Cluster()
    await with_topic(cluster)
    chance = random.Random(3)
    for _ in range(count):
        await cluster.objects.put(keys.hot_segment(bytes(6) + chance.randbytes(10)), [b"xyz"])
    cluster.now_s += HOUR_S
    return cluster


@pytest.mark.parametrize("limit", range(1, 16))
async def test_a_limit_holds_for_all_parts_together(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "CANDIDATES_MAX", 10)
    cluster = await littered(60)

    report = await swept(cluster, limit=limit)

    assert (report.removed.objects, report.is_complete) == (limit, False)
    assert len(await keys_in(cluster)) == 60 - limit
    # Who may remove no more does not look any further.
    assert report.zones["a"].seen.objects < 60


async def test_a_dry_run_looks_at_everything_whatever_the_limit() -> None:
    report = await swept(await littered(9), limit=0, dry_run=True)

    assert report.zones["a"].orphan_count == 9


async def test_a_limit_holds_for_all_zones_together() -> None:
    deployment = await replicated("ab", 1)
    stores = Stores(zones=deployment.zones, metadata=deployment.metadata, world=deployment.world())

    report = await Sweep(stores, await TestHeld(stores).take(), SweepOptions(limit=1)).run()

    assert sorted(zone.removed.objects for zone in report.zones.values()) == [0, 1]
    assert not report.is_complete


async def batch_in_table(cluster: Cluster) -> None:
    """Write a batch that no head mentions, and let it become old."""
    object_id = int(cluster.now_s * 1000).to_bytes(6) + bytes(10)
    await TableBatches(cluster.metadata).write(object_id, b"never read")
    cluster.now_s += HOUR_S + CLOCKS_DIFFER_MS / 1000


async def test_what_went_from_the_table_counts_too(spread: bool) -> None:
    cluster = await littered(300)
    await batch_in_table(cluster)

    report = await swept(cluster, limit=1, spread=spread)

    assert (report.batches_removed.objects, report.removed.objects) == (1, 0)


async def test_it_tells_what_it_removes(spread: bool) -> None:
    cluster = await littered(30)
    await batch_in_table(cluster)
    told: list[tuple[int, int]] = []

    report = await swept(cluster, spread=spread, removed=lambda *each: told.append(each))

    assert told[0] == (1, report.batches_removed.size_bytes)
    assert [sum(each) for each in zip(*told[1:], strict=True)] == [30, 90]


async def test_whatever_the_limit_every_group_has_its_turn() -> None:
    cluster = Cluster()
    await with_topic(cluster)
    for last in (0, 127, 128, 255):
        await cluster.objects.put(keys.hot_segment(bytes(15) + bytes([last])), [b"x"])
    cluster.now_s += HOUR_S

    sweeps = 0
    while await keys_in(cluster):
        await swept(cluster, limit=128, spread=True)
        sweeps += 1
        assert sweeps < 40


class Unheld(TestHeld):
    """A lease that its holder believes to have."""

    async def check(self) -> None: ...


async def test_workers_do_not_begin_without_a_holder() -> None:
    cluster = await littered(1)
    stores = stores_of(cluster)

    with (
        ThreadRunner(lambda: _opened(stores), 1) as runner,
        pytest.raises(LeaseLost, match="no process holds the lease"),
    ):
        await Sweep(stores, Unheld(stores), SweepOptions()).run_with(runner)


async def test_the_youngest_that_is_safe_needs_no_word() -> None:
    assert (await swept(await littered(1), min_age_ms=SAFE_AGE_MS_MIN)).removed.objects == 1


async def test_an_empty_table_is_swept_if_that_is_asked_for() -> None:
    assert (await swept(Cluster(), is_unsafe=True)).is_complete


# Zones


async def zone_items(*items: ZoneItem, denied: str = "") -> SweepReport:
    deployment = await replicated("ab", 1)
    for item in items:
        await deployment.metadata.transact([Put(keys.zone(item.name), encode_zone(item), None)])
    for name in denied:
        deployment.zones[name].mode = "denied"
    return await deployment.swept()


async def test_a_zone_that_was_never_marked_is_believed_and_others_are_none_of_ours() -> None:
    report = await zone_items(ZoneItem(name="a"), ZoneItem(name="z", marker="1" * 32))

    assert (report.problems, list(report.zones)) == ({}, ["a", "b"])
    assert report.removed.objects == 2


async def test_a_zone_whose_marker_cannot_be_looked_for_is_left_alone() -> None:
    report = await zone_items(ZoneItem(name="b", marker="1" * 32), denied="b")

    assert report.problems == {"b": "permission denied"}
    assert [zone.seen.objects > 0 for zone in report.zones.values()] == [True, False]


async def test_where_no_zone_can_be_swept_no_head_is_read() -> None:
    deployment = await replicated("ab", 1)
    for name in "ab":
        item = ZoneItem(name=name, marker="1" * 32)
        await deployment.metadata.transact([Put(keys.zone(name), encode_zone(item), None)])
    deployment.metadata.calls.clear()

    report = await deployment.swept()

    assert (list(report.problems), report.is_complete) == (["a", "b"], False)
    assert deployment.metadata.calls["get_many"] == 0


# What is still used


async def gone(cluster: Cluster, topic_id: bytes, name: str) -> None:
    item = gone_topics.encode(GoneTopic(topic_id, name, 1, 0))
    await cluster.metadata.transact([Put(keys.gone_topic(topic_id), item, None)])


async def test_heads_of_a_topic_that_is_there_after_all_stay() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    await process.gateway.topics.create("u")
    topics = await process.gateway.topics.all()
    for topic in topics:
        await gone(cluster, topic.topic_id, topic.name)

    report = await swept(cluster)

    assert report.heads_removed == 0
    names = [keys.head(topic.topic_id, 0) for topic in topics]
    assert len(await cluster.metadata.get_many(names)) == 2
    assert await cluster.metadata.list("gone/") == []


class Overtaken(TestHeld):
    """A lease whose holder meets somebody else at the first thing it does."""

    is_overtaken = False

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        if not self.is_overtaken:
            self.is_overtaken = True
            [put] = ops
            assert isinstance(put, Put)
            await self.lease._metadata.transact([put])
        return await super().transact(ops)


async def test_a_job_that_meets_another_at_one_topic_goes_on_with_the_next() -> None:
    cluster = Cluster()
    await with_topic(cluster)
    for digit in (b"1", b"2"):
        await gone(cluster, 16 * digit, "gone")
    stores = stores_of(cluster)

    report = await Sweep(stores, await Overtaken(stores).take(), SweepOptions()).run()

    assert report.is_complete
    assert [key for key, _ in await cluster.metadata.list("gone/")] == [keys.gone_topic(16 * b"1")]


async def test_all_that_is_staged_is_found_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    for number in range(4):
        view = await process.begin(f"copier-{number}", timeout_ms=900_000)
        await process.stage(view, "x")
    everything = sorted(await keys_in(cluster))
    assert len(everything) == 4

    for listed in (1, 2, 3, 4, 5):
        monkeypatch.setattr("storage.stores.metadata.LISTED_AT_ONCE", listed)
        assert sorted(await jobs.staged_keys(cluster.metadata)) == everything


async def test_every_head_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_heads, "HEADS_AT_ONCE", 2)
    cluster = Cluster()
    process = cluster.process()
    await process.gateway.topics.create("t", partitions=5, config={"lane.partitions": 1})

    lanes = [head.lane async for head in all_heads.every_head(stores_of(cluster).metadata)]

    assert sorted(lanes) == [0, 1, 2, 3, 4]
