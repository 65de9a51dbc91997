"""Compaction next to appends, other compactors, failing stores and crashes.

In every case a reader finds the log either as before or as after a complete compaction; no object
that is referred to is missing; and the next compaction finishes the work of one that failed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from storage.head.replication import VerifiedObjects, with_zone, without_zones, zones_named
from storage.leases import Lease, LeaseLost
from storage.maintenance.compaction import job
from storage.maintenance.fsck import check_lane
from storage.reading.catalog import Catalog
from storage.stores.metadata import Op
from storage.topics.items import Topic
from tests.storage.helpers.faults import Fault, FaultyMetadata, random_faults
from tests.storage.maintenance.compaction.laboratory import (
    Laboratory,
    LocalWork,
    Read,
    keyed_records,
    last_of_each_key,
)

pytestmark = pytest.mark.anyio


class Crashed(BaseException):
    """The process has crashed; no product code may catch this."""


class Fuse:
    """Allows `calls` calls to stores, then crashes the process."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.is_blown = False

    def burn(self) -> None:
        if self.left <= 0:
            self.is_blown = True
            raise Crashed
        self.left -= 1


class Fused:
    """A store behind a fuse, which may blow before or after each call."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name == "list" or not asyncio.iscoroutinefunction(method):
            return method

        async def call(*args: Any) -> Any:
            self._fuse.burn()
            result = await method(*args)
            self._fuse.burn()
            return result

        return call


async def scene(policy: str, *, zones: str = "a", seed: int = 0) -> tuple[Laboratory, Topic]:
    """Return a lane with compacted, rolled and inline entries."""
    lab = Laboratory(zones=zones, seed=seed)
    topic = await lab.create(partitions=2, cleanup_policy=policy, delete_retention_ms=1)
    for _ in range(3):
        await append(lab, topic)
        await lab.roll(topic)
    await lab.compact(topic)
    for _ in range(3):
        await append(lab, topic)
        await lab.roll(topic)
    await append(lab, topic)
    lab.world.now += 1
    return lab, topic


async def append(lab: Laboratory, topic: Topic) -> None:
    await lab.append_all(topic, {p: keyed_records(lab.chance, 5, 4) for p in range(2)})


async def logs(lab: Laboratory, topic: Topic) -> list[list[Read]]:
    return [await lab.read(topic, partition) for partition in range(topic.partition_count)]


async def is_whole(lab: Laboratory, topic: Topic) -> None:
    """Check that everything a head refers to exists, and that sizes are right."""
    head = await lab.head(topic)
    report = await check_lane(lab.zones, head)
    assert not report.problems, report.findings
    for partition in range(topic.partition_count):
        assert head.sizes[partition] == await lab.size(topic, partition)


@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_a_crash_at_any_call_leaves_the_log_as_before_or_as_after_a_compaction(
    policy: str,
) -> None:
    lab, topic = await scene(policy)
    before = await logs(lab, topic)
    await lab.compact(topic)
    after = await logs(lab, topic)
    assert (before == after) == (policy == "delete")

    seen: list[bool] = []
    for calls in range(1000):
        lab, topic = await scene(policy)
        fuse = Fuse(calls)
        failing, table = lab.zones._stores, lab.metadata
        lab.zones._stores = {name: Fused(store, fuse) for name, store in failing.items()}
        lab.metadata = Fused(table, fuse)
        catalog = Catalog(lab.zones, lab.world.new_id, 1 << 20)
        with suppress(Crashed):
            await lab.compact(topic, swapper=lab.swapper(catalog=catalog))
        lab.zones._stores, lab.metadata = failing, table
        found = await logs(lab, topic)
        assert found in (before, after)
        seen.append(found == after)
        await is_whole(lab, topic)
        # The next compaction finishes it.
        assert not (await lab.compact(topic)).failed
        assert await logs(lab, topic) == after
        await is_whole(lab, topic)
        if not fuse.is_blown:
            break
    else:
        raise AssertionError("it never came to an end")
    assert len(seen) > 20


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("seed", range(4))
async def test_appends_rolls_and_reads_go_on_during_a_compaction(policy: str, seed: int) -> None:
    lab, topic = await scene(policy, seed=seed)
    stop = asyncio.Event()

    async def produce() -> None:
        while not stop.is_set():
            await append(lab, topic)
            if lab.chance.random() < 0.3:
                await lab.roll(topic)
            await asyncio.sleep(0)

    async def read() -> None:
        while not stop.is_set():
            for partition in range(2):
                sent = len(lab.appended[topic.name, partition])
                found = await lab.read(topic, partition)
                log = lab.log(topic, partition)
                assert set(found) <= set(log)
                # A read after an append sees that record, or a later one of the same key.
                last = {key: offset for offset, key, _ in found}
                assert all(
                    last.get(key, -1) >= offset or value is None
                    for offset, key, value in log[:sent]
                )

    others = [asyncio.create_task(each()) for each in (produce, produce, read)]
    try:
        for _ in range(5):
            summary = await lab.compact(topic)
            assert not summary.failed
            assert len(summary.compacted) == 2
    finally:
        stop.set()
        await asyncio.gather(*others)
    await is_whole(lab, topic)
    for partition in range(2):
        if policy == "delete":
            assert await lab.read(topic, partition) == lab.log(topic, partition)


@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_the_slower_of_two_compactors_skips_what_the_other_compacted(policy: str) -> None:
    lab, topic = await scene(policy)
    other = LocalWork(lab.work.stores)

    async def overtake() -> None:
        lab.work.before_result = None
        summary = await job.compact(
            lab.swapper(), [topic], other, lab.options(), monotonic_s=lambda: 0.0
        )
        assert len(summary.compacted) == 2

    lab.work.before_result = overtake
    summary = await lab.compact(topic)

    assert not summary.compacted
    assert not summary.failed
    assert [each.reason for each in summary.skipped] == [
        "overtaken: another process compacted it meanwhile"
    ] * 2
    await is_whole(lab, topic)


@pytest.mark.parametrize("seed", range(6))
async def test_concurrent_compactors_lose_no_record(seed: int) -> None:
    lab, topic = await scene("compact", seed=seed)
    ends = (await lab.head(topic)).next_offsets
    before = zip(await logs(lab, topic), ends, strict=True)
    expected = [last_of_each_key(log, end) for log, end in before]
    works = [LocalWork(lab.work.stores) for _ in range(4)]
    options = lab.options()
    summaries = await asyncio.gather(
        *(
            job.compact(lab.swapper(), [topic], work, options, monotonic_s=lambda: 0.0)
            for work in works
        )
    )
    assert not any(summary.failed for summary in summaries)
    assert sum(len(summary.compacted) for summary in summaries) >= 2
    found = await logs(lab, topic)
    for partition in range(2):
        values = {(o, k) for o, k, v in expected[partition] if v is not None}
        assert values <= {(o, k) for o, k, _ in found[partition]}
    await is_whole(lab, topic)


@pytest.mark.parametrize("fault", ["request lost", "reply lost", "late", "refused"])
@pytest.mark.parametrize("position", [0, 1])
async def test_a_swap_whose_reply_is_lost_is_recognised(fault: Fault, position: int) -> None:
    lab, topic = await scene("compact")
    faulty = FaultyMetadata(lab.metadata)
    faulty.faults = ["none"] * position + [fault]  # type: ignore[list-item]

    async def interfere() -> None:
        await append(lab, topic)

    faulty.before_unknown = interfere
    summary = await lab.compact(topic, swapper=lab.swapper(metadata=faulty))

    for _ in range(50):
        await asyncio.sleep(0)
    if fault == "refused":
        assert len(summary.failed) == 2
        summary = await lab.compact(topic)
    assert len(summary.compacted) == 2
    await is_whole(lab, topic)


@pytest.mark.parametrize("fault", ["request lost", "reply lost"])
async def test_a_swap_whose_reply_is_lost_is_recognised_after_a_roll(fault: Fault) -> None:
    lab, topic = await scene("delete")
    faulty = FaultyMetadata(lab.metadata)
    faulty.faults = ["none", fault]

    async def interfere() -> None:
        await append(lab, topic)
        await lab.roll(topic)

    faulty.before_unknown = interfere
    summary = await lab.compact(topic, swapper=lab.swapper(metadata=faulty))

    assert len(summary.compacted) == 2
    assert await logs(lab, topic) == [lab.log(topic, partition) for partition in range(2)]
    await is_whole(lab, topic)


@pytest.mark.parametrize("seed", range(15))
async def test_random_faults_lose_no_record(seed: int) -> None:
    lab, topic = await scene("compact", seed=seed)
    faulty = FaultyMetadata(lab.metadata, random_faults(seed, 0.4))
    for _ in range(6):
        await lab.compact(topic, swapper=lab.swapper(metadata=faulty))
        await append(lab, topic)
        await is_whole(lab, topic)
    ends = (await lab.head(topic)).next_offsets
    assert not (await lab.compact(topic)).failed
    for partition in range(2):
        log = last_of_each_key(lab.log(topic, partition), ends[partition])
        found = await lab.read(topic, partition)
        assert [each for each in found if each[2] is not None] == [
            each for each in log if each[2] is not None
        ]
    await is_whole(lab, topic)


async def test_a_zone_that_returns_to_the_isr_gets_the_segments_before_the_swap() -> None:
    lab, topic = await scene("delete", zones="ab")
    await lab.change(topic, lambda head: without_zones(head, zones_named(head, "b")))

    async def back_in_sync() -> None:
        lab.work.before_result = None
        await brought_in_sync(lab, topic, "b")

    lab.work.before_result = back_in_sync
    summary = await lab.compact(topic)

    assert len(summary.compacted) == 2
    head = await lab.head(topic)
    assert head.isr == 0b11
    segments = (await lab.catalog.segment_list(head, 0)).segments
    assert all(segment.zones == 0b11 for segment in segments)
    lab.zones["a"].mode = "denied"
    assert await lab.read(topic, 0) == lab.log(topic, 0)
    lab.zones["a"].mode = "ok"
    await is_whole(lab, topic)


@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_a_zone_that_enters_the_isr_between_two_attempts_gets_the_segments(
    policy: str,
) -> None:
    lab, topic = await scene(policy, zones="ab")
    await lab.change(topic, lambda head: without_zones(head, zones_named(head, "b")))
    attempts = 0

    async def lose_the_first(ops: Sequence[Op]) -> Mapping[str, str]:
        """Let b into the ISR once the new root is written, also to b, but not yet committed."""
        nonlocal attempts
        lists = await lab.stored(".segments", "b")
        if len(lists) > before and not attempts:
            attempts += 1
            await brought_in_sync(lab, topic, "b")
        return await lab.metadata.transact(ops)

    before = len(await lab.stored(".segments", "b"))
    summary = await lab.compact(topic, swapper=lab.swapper(transact=lose_the_first))

    assert attempts == 1
    assert len(summary.compacted) == 2
    assert (await lab.head(topic)).isr == 0b11
    await is_whole(lab, topic)


async def test_a_zone_that_was_wiped_before_the_swap_gets_the_segments_again() -> None:
    """It was wiped, left the ISR, got what the head refers to, and is in sync again."""
    lab, topic = await scene("delete", zones="abc")

    async def wiped_and_filled() -> None:
        lab.work.before_result = None
        head = await lab.head(topic)
        named = {
            segment.key(topic.topic_id)
            for partition in range(2)
            for segment in (await lab.catalog.segment_list(head, partition)).segments
        }
        written = {key for key in await lab.zones["b"].keys() if key.endswith(".parquet")}
        assert written - named
        await lab.zones["b"].inner.delete(sorted(written - named))

    lab.work.before_result = wiped_and_filled
    summary = await lab.compact(topic)

    assert len(summary.compacted) == 2
    await is_whole(lab, topic)


async def brought_in_sync(lab: Laboratory, topic: Topic, name: str) -> None:
    head = await lab.head(topic)
    for key in sorted(await lab.zones["a"].keys()):
        if not key.endswith(".parquet") or key not in await lab.zones[name].keys():
            body = await lab.zones["a"].inner.get(key)
            await lab.zones[name].inner.put(key, [body])
    # New files of the compaction are not part of the lane yet, so re-sync would not copy them.
    mine = {
        segment.key(topic.topic_id)
        for partition in range(2)
        for segment in (await lab.catalog.segment_list(head, partition)).segments
    }
    written = {key for key in await lab.zones[name].keys() if key.endswith(".parquet")} - mine
    await lab.zones[name].inner.delete(sorted(written))

    class Everything:
        def __contains__(self, _: object) -> bool:
            return True

    held = VerifiedObjects(indexes=Everything(), objects=Everything())
    await lab.change(topic, lambda head: with_zone(head, head.zones.index(name), held))


async def test_a_failing_zone_in_sync_is_named_and_nothing_is_swapped() -> None:
    lab, topic = await scene("delete", zones="ab")
    before = await logs(lab, topic)
    await lab.roll(topic)
    lab.zones["b"].mode = "full"
    summary = await lab.compact(topic)
    assert not summary.compacted
    assert all("zone b" in each.reason for each in summary.failed)
    assert len(summary.failed) == 2
    assert await logs(lab, topic) == before

    await lab.change(topic, lambda head: without_zones(head, zones_named(head, "b")))
    assert len((await lab.compact(topic)).compacted) == 2
    assert await logs(lab, topic) == before


async def test_objects_lost_in_one_zone_are_read_from_another() -> None:
    lab, topic = await scene("delete", zones="ab")
    before = await logs(lab, topic)
    hot = sorted(await lab.stored(".seg")) + sorted(await lab.stored(".parquet"))
    for number, key in enumerate(hot):
        zone = lab.zones["ab"[number % 2]]
        if number % 3:
            await zone.damage(key, 100)
        else:
            await zone.inner.delete([key])
    assert not (await lab.compact(topic)).failed
    assert await logs(lab, topic) == before


async def test_a_compactor_that_lost_the_lease_stops_and_changes_nothing() -> None:
    lab, topic = await scene("delete")
    leases = [
        Lease(
            lab.metadata,
            "maintenance",
            holder=name,
            lease_s=0.0,
            monotonic_s=lambda: 0.0,
            now_ms=lambda: 0,
        )
        for name in ("first", "second")
    ]
    assert await leases[0].keep()

    async def take_over() -> None:
        while not await leases[1].keep():
            pass

    lab.work.before_result = take_over
    before = await lab.head(topic)
    with pytest.raises(LeaseLost):
        await lab.compact(topic, swapper=lab.swapper(transact=leases[0].transact))
    after = await lab.head(topic)
    assert (await lab.catalog.root(after)).covers == (await lab.catalog.root(before)).covers


async def test_runs_not_yet_copied_to_every_zone_in_sync_are_left_for_later() -> None:
    lab, topic = await scene("delete", zones="ab")
    await lab.append(topic, [(b"a", b"1")], zones="a")
    await append(lab, topic)
    summary = await lab.compact(topic)
    assert len(summary.compacted) == 2
    head = await lab.head(topic)
    assert len(head.runs) == 2
    assert await logs(lab, topic) == [lab.log(topic, partition) for partition in range(2)]
    await is_read_by_all(lab, topic)


async def is_read_by_all(lab: Laboratory, topic: Topic) -> None:
    head = await lab.head(topic)
    for partition in range(2):
        assert head.sizes[partition] == await lab.size(topic, partition)
