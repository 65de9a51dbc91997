"""Whole compactions: the log that a reader finds afterwards, and the summary of the run."""

import asyncio
import itertools
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage import keys
from storage.maintenance.compaction import job
from storage.maintenance.compaction.plan import MIB
from storage.maintenance.compaction.summary import CompactionProgress
from storage.maintenance.fsck import check_lane
from storage.stores.sqlite.table import SqliteMetadata
from storage.topics.config import TopicConfig
from storage.topics.items import Topic
from tests.storage.maintenance.compaction.laboratory import (
    DAY_MS,
    Laboratory,
    keyed_records,
    last_of_each_key,
    numbered_records,
)

pytestmark = pytest.mark.anyio


async def filled(lab: Laboratory, topic: Topic, appends: int = 30, rolls: float = 0.3) -> None:
    for _ in range(appends):
        partition = lab.chance.randrange(topic.partition_count)
        await lab.append(topic, keyed_records(lab.chance, lab.chance.randint(1, 8)), partition)
        if lab.chance.random() < rolls:
            await lab.roll(topic, topic.lane_of(partition)[0])


async def test_a_merge_keeps_every_record_that_a_reader_sees() -> None:
    lab = Laboratory()
    topic = await lab.create(partitions=3)
    await filled(lab, topic)

    summary = await lab.compact(topic)

    assert not summary.failed
    assert {each.partition for each in summary.compacted} == {0, 1, 2}
    assert summary.records_in == summary.records_out == sum(map(len, lab.appended.values()))
    head = await lab.head(topic)
    for partition in range(3):
        assert await lab.read(topic, partition) == lab.log(topic, partition)
        assert head.sizes[partition] == await lab.size(topic, partition)
    root = await lab.catalog.root(head)
    assert root.in_order() == []  # No hot entry is live.
    assert root.covers == head.next_offsets


async def test_appends_after_a_merge_are_read_and_merged_later() -> None:
    lab = Laboratory()
    topic = await lab.create(partitions=2)
    for _ in range(12):
        await filled(lab, topic, 5)
        await lab.compact(topic)
        for partition in range(2):
            assert await lab.read(topic, partition) == lab.log(topic, partition)
    listed = await lab.catalog.segment_list(await lab.head(topic), 0)
    assert 1 <= len(listed.segments) <= 6


async def test_compaction_keeps_only_the_last_record_of_each_key() -> None:
    lab = Laboratory()
    topic = await lab.create(partitions=2, cleanup_policy="compact")
    await filled(lab, topic)
    ends = (await lab.head(topic)).next_offsets

    summary = await lab.compact(topic)

    assert not summary.failed
    assert summary.records_out < summary.records_in
    head = await lab.head(topic)
    for partition in range(2):
        log = last_of_each_key(lab.log(topic, partition), ends[partition])
        assert await lab.read(topic, partition) == log
        assert head.sizes[partition] == await lab.size(topic, partition)
    again = await lab.compact(topic)
    assert not again.compacted
    assert "nothing is new" in again.skipped[0].reason


async def test_tombstones_are_removed_after_delete_retention_ms() -> None:
    lab = Laboratory()
    topic = await lab.create(cleanup_policy="compact", delete_retention_ms=DAY_MS)
    await lab.append(topic, [(b"a", b"1"), (b"b", b"1"), (b"a", None)])
    await lab.compact(topic)
    assert await lab.read(topic) == [(1, b"b", b"1"), (2, b"a", None)]

    lab.world.now += DAY_MS - 1
    assert not (await lab.compact(topic)).compacted
    lab.world.now += 1
    assert (await lab.compact(topic, force=0)).compacted
    assert await lab.read(topic) == [(1, b"b", b"1")]
    assert not (await lab.compact(topic)).compacted


async def test_a_log_of_tombstones_becomes_empty() -> None:
    lab = Laboratory()
    topic = await lab.create(cleanup_policy="compact", delete_retention_ms=0)
    await lab.append(topic, [(b"a", b"1"), (b"a", None)])
    await lab.compact(topic)
    lab.world.now += 1
    await lab.compact(topic)
    assert await lab.read(topic) == []
    head = await lab.head(topic)
    assert (head.sizes, head.next_offsets) == ((0,), (2,))
    await lab.append(topic, [(b"a", b"2")])
    assert await lab.read(topic) == [(2, b"a", b"2")]


async def test_records_without_a_key_are_kept() -> None:
    lab = Laboratory()
    before = await lab.create("t")
    await lab.append(before, [(None, b"1"), (b"a", b"2"), (None, None), (b"a", b"3")])
    topic = with_config(before, {"cleanup.policy": "compact", "delete.retention.ms": "0"})
    for _ in range(2):
        await lab.compact(topic)
        lab.world.now += 1
        assert await lab.read(topic) == [(0, None, b"1"), (2, None, None), (3, b"a", b"3")]


def with_config(topic: Topic, config: dict[str, str]) -> Topic:
    return msgspec.structs.replace(topic, config=TopicConfig(config))


async def test_records_before_the_log_start_are_not_rewritten_and_dead_segments_are_unlisted() -> (
    None
):
    lab = Laboratory()
    topic = await lab.create()
    numbers = itertools.count()
    for _ in range(4):
        await lab.append(topic, numbered_records(numbers, 10))
        await lab.append(topic, numbered_records(numbers, 10))
    await lab.hide(topic, 25)
    await lab.compact(topic)
    assert await lab.read(topic) == lab.log(topic, start=25)
    [segment] = (await lab.catalog.segment_list(await lab.head(topic), 0)).segments
    assert (segment.start_offset, segment.first_offset, segment.record_count) == (25, 25, 55)

    await lab.append(topic, numbered_records(numbers, 10))
    await lab.hide(topic, 80)
    summary = await lab.compact(topic, force=0)
    assert [each.kind for each in summary.compacted] == ["trim"]
    head = await lab.head(topic)
    assert (await lab.catalog.segment_list(head, 0)).segments == ()
    assert head.sizes[0] == await lab.size(topic)
    assert await lab.read(topic) == lab.log(topic, start=80)


async def test_segments_end_at_segment_bytes() -> None:
    lab = Laboratory()
    topic = await lab.create(segment_bytes=MIB)
    for _ in range(6):
        records = [(b"%d" % n, lab.chance.randbytes(60_000)) for n in range(10)]
        await lab.append(topic, records)
    await lab.compact(topic)
    listed = await lab.catalog.segment_list(await lab.head(topic), 0)
    assert len(listed.segments) > 3
    assert all(segment.size_bytes < 1.3 * MIB for segment in listed.segments)
    assert await lab.read(topic) == lab.log(topic)


@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_a_large_partition_is_split_into_ranges(policy: str) -> None:
    lab = Laboratory()
    topic = await lab.create(cleanup_policy=policy, segment_bytes=MIB)
    for _ in range(8):
        records = [(b"%d" % n, lab.chance.randbytes(30_000)) for n in range(15)]
        await lab.append(topic, records)
    for round_number in range(2):
        end = (await lab.head(topic)).next_offsets[0]
        summary = await lab.compact(topic, range_bytes_max=MIB)
        assert not summary.failed
        log = lab.log(topic)
        assert await lab.read(topic) == (log if policy == "delete" else last_of_each_key(log, end))
        assert (await lab.head(topic)).sizes[0] == await lab.size(topic)
        assert lab.work.shuffles == (0 if policy == "delete" else 1)
        if round_number == 0:
            await lab.append(topic, [(b"%d" % n, b"new") for n in range(5, 20)])


async def test_a_segment_that_loses_no_record_is_not_rewritten() -> None:
    lab = Laboratory()
    topic = await lab.create(cleanup_policy="compact", segment_bytes=MIB)
    await lab.append(topic, [(b"old-%d" % n, lab.chance.randbytes(9000)) for n in range(90)])
    await lab.compact(topic)
    [kept] = (await lab.catalog.segment_list(await lab.head(topic), 0)).segments
    await lab.append(topic, [(b"new", b"1")])
    summary = await lab.compact(topic)
    assert (summary.records_in, summary.records_out) == (1, 1)
    segments = (await lab.catalog.segment_list(await lab.head(topic), 0)).segments
    assert segments[0] == kept
    assert await lab.read(topic) == lab.log(topic)
    assert (await lab.head(topic)).sizes[0] == await lab.size(topic)


async def test_tiny_partitions_share_tasks_and_reads() -> None:
    lab = Laboratory()
    topic = await lab.create(partitions=100, lane_partitions=64)
    for lane in range(2):
        width = min(64, 100 - 64 * lane)
        for _ in range(3):
            await lab.append_all(
                topic, {64 * lane + n: [(b"a", b"%d" % n)] * 2 for n in range(width)}
            )
    lab.zones["a"].reads.clear()
    summary = await lab.compact(topic)
    assert len(summary.compacted) == 100
    assert len(lab.work.payloads) == 1
    hot = [key for key in lab.zones["a"].reads if key.endswith(".seg")]
    assert len(hot) == 6  # Each object is read once, although it holds 64 partitions.
    for partition in (0, 63, 64, 99):
        assert await lab.read(topic, partition) == lab.log(topic, partition)


async def test_a_partition_that_cannot_be_read_does_not_stop_the_others() -> None:
    lab = Laboratory()
    topic = await lab.create(partitions=3, lane_partitions=3)
    for partition in range(3):
        await lab.append(topic, [(b"a", b"1")] * 5, partition)
    head = await lab.head(topic)
    await lab.zones["a"].damage(keys.hot_segment(head.runs[1].object_id), 60)

    summary = await lab.compact(topic)

    assert [each.partition for each in summary.compacted] == [0, 2]
    [failure] = summary.failed
    assert failure.partition == 1
    assert "damaged" in failure.reason
    for partition in (0, 2):
        assert await lab.read(topic, partition) == lab.log(topic, partition)


async def test_a_dry_run_lists_the_rewrites_and_changes_nothing() -> None:
    lab = Laboratory()
    topic = await lab.create(partitions=2)
    await filled(lab, topic)
    await lab.append(topic, [(b"a", b"1")])
    before = await lab.head(topic)
    assert before.runs
    lanes, summary = await job.look(lab.swapper(), [topic], lab.options())
    assert [each.kind for lane in lanes for each in lane.rewrites] == ["merge", "merge"]
    assert not summary.failed
    assert sum(lane.size_bytes for lane in lanes) == sum(before.sizes)
    assert await lab.head(topic) == before
    _, summary = await job.look(lab.swapper(), [topic], lab.options(force=0))
    assert len(summary.skipped) == 2


async def test_progress_is_reported() -> None:
    told: list[tuple[str, int, int]] = []

    class RecordedProgress(CompactionProgress):
        def planned(self, partitions: int, size_bytes: int) -> None:
            told.append(("planned", partitions, size_bytes))

        def done(self, records: int, size_bytes: int) -> None:
            told.append(("done", records, size_bytes))

        def swapped(self, partitions: int) -> None:
            told.append(("swapped", partitions, 0))

    lab = Laboratory()
    topic = await lab.create(partitions=2)
    await filled(lab, topic)
    times = iter([10.0, 12.5])
    summary = await job.compact(
        lab.swapper(),
        [topic],
        lab.work,
        lab.options(),
        monotonic_s=lambda: next(times),
        progress=RecordedProgress(),
    )
    assert summary.seconds == 2.5
    assert summary.ratio == summary.bytes_in / summary.bytes_out
    [(_, partitions, planned)] = [each for each in told if each[0] == "planned"]
    done = [each for each in told if each[0] == "done"]
    assert partitions == 2
    assert sum(each[2] for each in done) == planned == summary.bytes_in
    assert sum(each[1] for each in done) == summary.records_in
    assert told[-1] == ("swapped", 2, 0)


@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_compaction_works_on_real_files_and_a_real_table(tmp_path: Path, policy: str) -> None:
    versions = itertools.count()
    metadata = SqliteMetadata(tmp_path / "table", lambda: f"v{next(versions)}")
    lab = Laboratory(zones="ab", root=tmp_path / "zones", metadata=metadata)
    try:
        topic = await lab.create(partitions=3, cleanup_policy=policy)
        for _ in range(3):
            await filled(lab, topic)
            ends = (await lab.head(topic)).next_offsets
            assert not (await lab.compact(topic)).failed
            for partition in range(3):
                log = lab.log(topic, partition)
                if policy == "compact":
                    log = last_of_each_key(log, ends[partition])
                assert await lab.read(topic, partition) == log
        assert await lab.stored(".parquet", "a") == await lab.stored(".parquet", "b")
    finally:
        await metadata.close()
        await lab.zones.close()


HISTORY = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("roll"), st.just(0)),
        st.tuples(st.just("compact"), st.integers(0, 2000)),
        st.tuples(st.just("merge"), st.just(0)),
        st.tuples(st.just("hide"), st.integers(0, 100)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(HISTORY, st.integers(0, 2**32))
@example([("append", 3), ("roll", 0), ("append", 3), ("hide", 100)], 0)
def test_a_log_after_any_history_agrees_with_a_dictionary(
    history: list[tuple[str, int]], seed: int
) -> None:
    asyncio.run(against_a_dictionary(history, seed))


async def against_a_dictionary(history: list[tuple[str, int]], seed: int) -> None:
    lab = Laboratory(seed=seed)
    policy = {"cleanup.policy": "compact", "delete.retention.ms": "1000"}
    topic = await lab.create()
    compacted = with_config(topic, policy)
    chance = random.Random(seed)
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    start = 0
    for verb, number in history:
        match verb:
            case "append":
                first = len(lab.appended[topic.name, 0])
                records = keyed_records(chance, number, 4)
                await lab.append(topic, records)
                for offset, (key, value) in enumerate(records, first):
                    assert key is not None
                    latest[key] = offset, value
            case "roll":
                await lab.roll(topic)
            case "compact":
                lab.world.now += number
                assert not (await lab.compact(compacted)).failed
            case "merge":
                assert not (await lab.compact(topic)).failed
            case "hide":
                start = max(start, len(lab.appended[topic.name, 0]) * number // 100)
                await lab.hide(topic, start)
        await agrees(lab, topic, latest, start)


async def agrees(
    lab: Laboratory,
    topic: Topic,
    latest: dict[bytes, tuple[int, bytes | None]],
    start: int,
) -> None:
    found = await lab.read(topic)
    # An offset keeps its value for ever, and offsets are in order.
    assert set(found) <= set(lab.log(topic, start=start))
    assert found == sorted(found, key=lambda each: each[0])
    # The last value of each key is found, unless it is a tombstone or before the log start.
    last = {key: (offset, value) for offset, key, value in found}
    for key, (offset, value) in latest.items():
        if offset < start or (value is None and key not in last):
            continue
        assert last[key] == (offset, value)
    head = await lab.head(topic)
    assert head.sizes[0] == await lab.size(topic)
    report = await check_lane(lab.zones, head)
    assert not report.problems
