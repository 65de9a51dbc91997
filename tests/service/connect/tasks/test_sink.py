"""Sinks over a real log: what reaches the target, and what is committed when."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from service.connect.connectors.api import TopicPartition
from service.connect.data.errors import DataFault, RetriableFault, TaskFault
from service.connect.data.log_records import LogRecord
from service.connect.tasks.partitions import owned_partitions, owner_of
from service.connect.tasks.reading import SinkReader
from service.log.delete_records import delete_records
from storage.formats.partitions import PartitionNumber
from tests.service.connect.tasks.sinks import FillingSink, Rig, Target

pytestmark = pytest.mark.anyio

DEAD = {
    "errors__tolerance": "all",
    "errors__deadletterqueue__topic__name": "dead",
    "errors__deadletterqueue__context__headers__enable": "true",
}


@asynccontextmanager
async def rig_of(prefix: str = "", task_count: int = 1, **config: str) -> AsyncIterator[Rig]:
    rig = Rig(prefix, task_count, **config)
    try:
        await rig.create()
        yield rig
    finally:
        await rig.aclose()


def has(target: Target, count: int) -> Callable[[], bool]:
    return lambda: len(target.values) >= count


def numbers(count: int) -> list[str]:
    return [str(n) for n in range(count)]


class Killed(BaseException):
    """Ends a run at once, as a power cut would."""


async def test_all_records_reach_the_target_in_order_and_their_offsets_are_committed() -> None:
    async with rig_of(consumer__override__max__poll__records="100") as rig:
        await rig.produce(numbers(1050))
        target = Target()

        await rig.run(target, has(target, 1050))

        assert target.values == list(range(1050))
        assert await rig.committed() == {"t-0": 1050}
        assert (await rig.task()).records == 1050


async def test_a_later_run_goes_on_where_the_earlier_one_ended() -> None:
    async with rig_of() as rig:
        await rig.produce(numbers(3))
        target = Target()
        await rig.run(target, has(target, 3))
        await rig.produce(["3", "4"])

        await rig.run(target, has(target, 5))

        assert target.values == [0, 1, 2, 3, 4]


async def test_records_that_come_later_are_waited_for() -> None:
    async with rig_of() as rig:
        await rig.produce(["0"])
        target = Target()
        sent = False

        async def done() -> bool:
            nonlocal sent
            if target.values == [0] and not sent:
                sent = True
                await rig.produce(["1"])
            return len(target.values) == 2

        await rig.run(target, done)

        assert target.values == [0, 1]


async def test_seven_bad_records_of_a_thousand_are_dead_letters_with_the_offsets() -> None:
    async with rig_of(**DEAD) as rig:
        bad = range(7, 1000, 143)
        await rig.produce(["{" if n in bad else str(n) for n in range(1000)])
        target = Target()

        await rig.run(target, has(target, 993))

        assert target.values == [n for n in range(1000) if n not in bad]
        letters = await rig.stored("dead")
        assert [value for value, _ in letters] == [b"{"] * 7
        assert [headers["__connect.errors.offset"] for _, headers in letters] == [
            b"%d" % n for n in bad
        ]
        assert await rig.committed() == {"t-0": 1000}
        task = await rig.task()
        assert (task.records, task.errors) == (1000, 7)


async def test_what_the_sink_itself_gives_up_is_dead_lettered_as_it_was_read() -> None:
    async with rig_of(**DEAD) as rig:
        await rig.produce(numbers(5))
        target = Target(reported=lambda value: DataFault("odd") if value == 3 else None)

        await rig.run(target, has(target, 4))

        assert target.values == [0, 1, 2, 4]
        [(value, headers)] = await rig.stored("dead")
        assert value == b"3"
        assert headers["__connect.errors.stage"] == b"TASK_PUT"
        assert headers["__connect.errors.offset"] == b"3"


async def test_without_tolerance_it_fails_at_the_record_and_those_before_are_done() -> None:
    async with rig_of() as rig:
        await rig.produce(["0", "1", "{", "3"])
        target = Target()

        for _ in range(2):
            with pytest.raises(TaskFault, match="t-0 at offset 2"):
                await rig.run(target, lambda: False)

        assert target.values == [0, 1]
        assert await rig.committed() == {"t-0": 2}


@pytest.mark.parametrize("holds_offsets", [False, True])
async def test_killed_between_flush_and_commit_it_repeats_or_not(holds_offsets: bool) -> None:
    async with rig_of(consumer__override__max__poll__records="10") as rig:
        await rig.produce(numbers(30))

        def die() -> None:
            raise Killed

        target = Target(holds_offsets=holds_offsets, after_flush=die)
        with pytest.raises(Killed):
            await rig.run(target, lambda: False)
        assert target.values
        assert await rig.committed() == {}
        target.after_flush = lambda: None

        async def is_committed() -> bool:
            return await rig.committed() == {"t-0": 30}

        await rig.run(target, is_committed)

        if holds_offsets:
            assert target.values == list(range(30))
        else:
            assert target.values[-30:] == list(range(30))
            assert len(target.values) > 30


async def test_what_is_refused_for_now_is_put_again() -> None:
    async with rig_of() as rig:
        await rig.produce(numbers(3))
        failures = [RetriableFault("busy")]
        target = Target(bad=lambda value: failures.pop() if failures else None)

        await rig.run(target, has(target, 3))

        assert target.values == [0, 1, 2]


async def test_a_run_that_is_told_to_stop_while_the_target_is_away_commits_what_was_put() -> None:
    async with rig_of(consumer__override__max__poll__records="2") as rig:
        await rig.produce(numbers(4))
        refusals: list[int] = []

        def refuse(value: int) -> Exception | None:
            if value < 2:
                return None
            refusals.append(value)
            return RetriableFault("away")

        target = Target(bad=refuse)

        await rig.run(target, lambda: refusals, flush_s=1000)

        assert target.values == [0, 1]
        assert await rig.committed() == {"t-0": 2}


async def test_of_a_sink_that_fills_files_only_whole_files_are_committed() -> None:
    async with rig_of(**DEAD) as rig:
        await rig.produce(["{" if n in (4, 22) else str(n) for n in range(27)])
        target = Target()

        await rig.run(target, has(target, 2), make=FillingSink)

        assert await rig.committed() == {"t-0": 21}
        assert [headers["__connect.errors.offset"] for _, headers in await rig.stored("dead")] == [
            b"4"
        ]
        await rig.produce(numbers(10))

        await rig.run(target, has(target, 3), make=FillingSink)

        assert target.values[2] == [21, 23, 24, 25, 26, 0, 1, 2, 3, 4]
        assert len(await rig.stored("dead")) == 2


async def test_tasks_divide_the_partitions_and_new_ones_move_none() -> None:
    async with rig_of(task_count=3) as rig:
        await rig.produce(["1"], partition=4)
        before = [
            set(await owned_partitions(rig.parts, rig.connector, rig.config, n)) for n in range(3)
        ]
        config = {**rig.config, "topics": "t, u"}
        await rig.produce(["1"], topic="u", partition=7)
        await rig.gateway.topics.alter("t", partitions=9)
        rig.gateway.topics.forget("t")
        after = [set(await owned_partitions(rig.parts, rig.connector, config, n)) for n in range(3)]

        assert sum(map(len, before)) == 5
        assert sum(map(len, after)) == 9 + 8
        assert all(few <= many for few, many in zip(before, after, strict=True))
        assert max(map(len, after)) - min(map(len, after)) <= 2


def test_partitions_of_one_topic_are_spread_evenly() -> None:
    owners = [owner_of(TopicPartition("orders", n), 4) for n in range(12)]

    assert sorted(owners) == sorted(list(range(4)) * 3)


async def test_a_pattern_means_neither_internal_topics_nor_its_own_dead_letters() -> None:
    async with rig_of(topics="", topics__regex=".*e.*", **DEAD) as rig:
        for topic in ("one", "two", "three", "dead", "__ex"):
            await rig.produce(["1"], topic=topic)

        found = await owned_partitions(rig.parts, rig.connector, rig.config, 0)

        assert [place.topic for place in found] == ["one", "three"]


async def test_a_tenants_connector_names_topics_without_the_prefix() -> None:
    async with rig_of("acme.", **DEAD) as rig:
        await rig.produce(["0", "{"], topic="acme.t")
        target = Target(holds_offsets=True)

        await rig.run(target, has(target, 1))

        assert list(target.held) == [TopicPartition("t", 0)]
        assert await rig.committed("acme.connect-c") == {"acme.t-0": 2}
        [(_, headers)] = await rig.stored("acme.dead")
        assert headers["__connect.errors.topic"] == b"t"


async def test_latest_begins_at_the_end() -> None:
    async with rig_of(consumer__override__auto__offset__reset="latest") as rig:
        await rig.produce(numbers(3))
        target = Target()
        sent = False

        async def done() -> bool:
            nonlocal sent
            if not sent and await rig.committed() == {"t-0": 3}:
                sent = True
                await rig.produce(["3"])
            return bool(target.values)

        await rig.run(target, done)

        assert target.values == [3]


@pytest.mark.parametrize("offset", [2, 77])
async def test_an_offset_outside_the_log_begins_at_its_earliest_record(offset: int) -> None:
    async with rig_of() as rig:
        await rig.produce(numbers(10))
        await delete_records(rig.gateway, "t", {PartitionNumber(0): 4})
        reader = SinkReader(rig.parts, rig.connector)
        place = TopicPartition("t", 0)
        await reader.begin({place: offset})

        records: list[LogRecord] = []
        async with asyncio.timeout(60):
            while len(records) < 6:
                records += await reader.poll(4, 1.0, lambda: False)

        assert [record.offset for record in records] == list(range(4, 10))
        assert reader.positions == {place: 10}


async def test_a_busy_partition_does_not_starve_the_others() -> None:
    async with rig_of() as rig:
        await rig.produce(["x" * 1000] * 3000)
        await rig.gateway.topics.alter("t", partitions=2)
        rig.gateway.topics.forget("t")
        await rig.produce(["1"], partition=1)
        reader = SinkReader(rig.parts, rig.connector)
        await reader.begin({TopicPartition("t", 0): 0, TopicPartition("t", 1): 0})

        seen: list[int | None] = []
        async with asyncio.timeout(60):
            while 1 not in seen:
                seen += [r.partition for r in await reader.poll(500, 1.0, lambda: False)]

        assert len(seen) <= 3001


async def test_what_was_given_last_can_be_given_again() -> None:
    async with rig_of() as rig:
        await rig.produce(numbers(6))
        reader = SinkReader(rig.parts, rig.connector)
        await reader.begin({TopicPartition("t", 0): 0})
        first = await reader.poll(4, 1.0, lambda: False)

        reader.rewind(first[2:])

        again = await reader.poll(10, 1.0, lambda: False)
        assert [record.offset for record in again] == [2, 3, 4, 5]


async def test_killed_between_flush_and_commit_a_target_with_offsets_loses_no_dead_letter() -> None:
    async with rig_of(**DEAD) as rig:
        await rig.produce(["0", "{", "2"])

        def die() -> None:
            raise Killed

        target = Target(holds_offsets=True, after_flush=die)
        with pytest.raises(Killed):
            await rig.run(target, lambda: False)
        assert await rig.committed() == {"t-0": 0}
        target.after_flush = lambda: None

        async def is_committed() -> bool:
            return await rig.committed() == {"t-0": 3}

        await rig.run(target, is_committed)

        assert target.values == [0, 2]
        assert [value for value, _ in await rig.stored("dead")] == [b"{"]


async def test_the_last_records_before_a_commit_have_their_dead_letters_once() -> None:
    async with rig_of(**DEAD) as rig:
        await rig.produce(["0", "{", "["])
        target = Target(holds_offsets=True)

        async def is_committed() -> bool:
            return await rig.committed() == {"t-0": 3}

        await rig.run(target, is_committed)
        assert target.held == {TopicPartition("t", 0): 1}
        await rig.produce(["3", "]"])

        async def is_all_committed() -> bool:
            return await rig.committed() == {"t-0": 5}

        await rig.run(target, is_all_committed)

        assert target.values == [0, 3]
        assert [value for value, _ in await rig.stored("dead")] == [b"{", b"[", b"]"]


async def test_a_sink_ends_when_its_gateway_is_closed() -> None:
    """Its reader waits for nothing then, so it would never let anything else run."""
    async with rig_of() as rig:
        await rig.produce(["0"])
        target = Target()

        def close() -> bool:
            if target.values:
                rig.gateway.draining.set()
            return False

        await rig.run(target, close)

        assert await rig.committed() == {"t-0": 1}


async def test_a_sink_that_keeps_nothing_is_committed_up_to_what_was_given_up_last() -> None:
    async with rig_of(**DEAD) as rig:
        await rig.produce([*numbers(10), "{", "["])

        async def is_committed() -> bool:
            return await rig.committed() == {"t-0": 12}

        await rig.run(Target(), is_committed, make=FillingSink)

        assert [value for value, _ in await rig.stored("dead")] == [b"{", b"["]


async def test_a_partition_that_is_begun_again_is_read_once() -> None:
    """As by a refresh that is repeated, because another partition could not be begun."""
    async with rig_of() as rig:
        await rig.produce(numbers(6))
        reader, place = SinkReader(rig.parts, rig.connector), TopicPartition("t", 0)
        await reader.begin({place: None})
        await reader.begin({place: 0})

        records = await reader.poll(100, 1.0, lambda: False)
        more = await reader.poll(100, 0.1, lambda: False)

        assert [record.offset for record in records] == list(range(6))
        assert more == []
        reader.forget([place])
        assert await reader.poll(100, 0.1, lambda: False) == []
