"""Readers who wait for the same records: one read, one answer, and nobody is forgotten."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from service.log.gateway import FetchResult, Gateway, Position, Wait
from storage import keys
from storage.errors import OffsetOutOfRange, UnknownTopicOrPartition
from storage.head.changes import change_head
from storage.head.head import Head
from storage.lanes.releases import PER_TURN
from storage.reading.forms import KafkaForm
from storage.reading.reader import Budget, Fetched, LogReader
from tests.service.log.test_gateway import ALL, Cloud, produce
from tests.storage.helpers.worlds import HandClock, turns

pytestmark = pytest.mark.anyio

LONG = Wait(max_wait_s=3600)
CROWD = 10 * PER_TURN


class Reads:
    """Counts what a gateway reads of partitions."""

    def __init__(self, reader: LogReader) -> None:
        self.partitions: list[int] = []
        self._fetch = reader.fetch
        reader.fetch = self.fetch  # type: ignore[method-assign]

    async def fetch(
        self, head: Head, partition: int, offset: int, budget: Budget, form: KafkaForm | None
    ) -> Fetched:
        self.partitions.append(partition)
        return await self._fetch(head, partition, offset, budget, form)


class Scene:
    def __init__(self) -> None:
        self.cloud, self.clock = Cloud(), HandClock()
        self.gateway = self.cloud.gateway(self.clock)
        self.reads = Reads(self.gateway.reader)

    def waits(
        self, offset: int = 0, partition: int = 0, wait: Wait = LONG
    ) -> "asyncio.Task[FetchResult]":
        return asyncio.create_task(
            self.gateway.fetch("t", partition, Position(offset=offset), ALL, wait)
        )

    def head_key(self) -> str:
        [topic_id] = {key[0] for key in self.gateway.lanes._kept}
        return keys.head(topic_id, 0)

    async def settle(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(2 * CROWD):
            await turns()


async def new_scene(partitions: int = 8) -> Scene:
    scene = Scene()
    await scene.gateway.topics.create("t", partitions=partitions)
    return scene


def replace_head(head: Head, log_starts: tuple[int, ...]) -> Head:
    return msgspec.structs.replace(head, commits=head.commits + 1, log_starts=log_starts)


def ends(tasks: "Sequence[asyncio.Task[FetchResult]]") -> list[int]:
    return [task.result().fetched.end_offset for task in tasks]


async def elsewhere(scene: Scene) -> Gateway:
    return scene.cloud.gateway(scene.clock)


async def test_a_commit_wakes_nobody_who_waits_at_another_partition() -> None:
    scene = await new_scene()
    here, there = scene.waits(partition=3), scene.waits(partition=5)
    await scene.settle()
    scene.reads.partitions.clear()

    await produce(scene.gateway, b"a", partition=3)
    await scene.settle()

    assert here.done()
    assert not there.done()
    assert set(scene.reads.partitions) == {3}
    there.cancel()


async def test_all_who_ask_the_same_get_one_answer_that_was_read_once() -> None:
    scene = await new_scene()
    waiting = [scene.waits() for _ in range(CROWD)]
    await scene.settle()
    scene.reads.partitions.clear()

    await produce(scene.gateway, b"a")
    await scene.settle()

    assert ends(waiting) == [1] * CROWD
    assert scene.reads.partitions == [0]
    assert len({id(task.result().fetched) for task in waiting}) == 1
    assert len({id(task.result().share) for task in waiting}) == CROWD


async def test_those_who_ask_for_something_else_get_their_own_answer() -> None:
    scene = await new_scene()
    await produce(scene.gateway, b"a")
    enough = Wait(min_bytes=10**9, max_wait_s=3600)
    one, other, patient = scene.waits(1), scene.waits(1), scene.waits(0, wait=enough)
    await scene.settle()

    await produce(scene.gateway, b"b")
    await scene.settle()

    assert ends([one, other]) == [2, 2]
    assert not patient.done()
    await scene.clock.advance(0)
    patient.cancel()


async def test_one_who_hangs_up_takes_nothing_from_the_others() -> None:
    scene = await new_scene()
    first, *others = [scene.waits() for _ in range(3)]
    await scene.settle()
    first.cancel()
    await scene.settle()
    assert not any(task.done() for task in others)

    await produce(scene.gateway, b"a")
    await scene.settle()

    assert ends(others) == [1, 1]


async def test_who_hangs_up_while_the_answer_is_read_takes_nothing_from_the_others() -> None:
    scene = await new_scene()
    waiting = [scene.waits() for _ in range(CROWD)]
    await scene.settle()
    await produce(scene.gateway, b"a")
    for task in waiting[::2]:
        task.cancel()
    await scene.settle()

    assert ends(waiting[1::2]) == [1] * (CROWD // 2)


async def test_when_all_have_hung_up_nothing_is_watched_any_more() -> None:
    scene = await new_scene()
    waiting = [scene.waits() for _ in range(3)]
    await scene.settle()
    for task in waiting:
        task.cancel()
    await scene.settle()
    scene.reads.partitions.clear()

    await produce(scene.gateway, b"a")
    await scene.settle()

    assert scene.reads.partitions == []
    assert scene.gateway._questions._asked == {}


async def test_those_who_come_back_while_others_are_answered_share_the_next_answer() -> None:
    scene = await new_scene()
    waiting = [scene.waits() for _ in range(CROWD)]
    await scene.settle()
    await produce(scene.gateway, b"a")
    while not waiting[0].done():
        await asyncio.sleep(0)
    assert not waiting[-1].done()
    await produce(scene.gateway, b"b")
    scene.reads.partitions.clear()
    back = [scene.waits(1) for _ in range(CROWD)]
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting, *back)

    assert ends(back) == [2] * CROWD
    assert scene.reads.partitions == [0]


@pytest.mark.parametrize("count", [1, CROWD])
async def test_a_commit_of_another_gateway_is_found_by_the_poll_of_heads(count: int) -> None:
    scene = await new_scene()
    theirs = await elsewhere(scene)
    waiting = [scene.waits() for _ in range(count)]
    await scene.settle()

    await produce(theirs, b"a")
    await scene.settle()
    assert not any(task.done() for task in waiting)
    await scene.clock.advance(1.0)
    await scene.settle()

    assert ends(waiting) == [1] * count


async def test_a_commit_between_the_look_and_the_wait_is_not_missed() -> None:
    scene = await new_scene()
    topic = await scene.gateway.topics.get("t")
    lane = scene.gateway.lanes.lane(topic.topic_id, 0)
    seen = await lane.view(0)
    await produce(scene.gateway, b"a", partition=2)

    # It was seen before the commit, and is asked for after it.
    await lane.watched.changed(seen, None, 2)
    unmoved = asyncio.create_task(lane.watched.changed(seen, None, 3))
    await scene.settle()
    assert not unmoved.done()
    unmoved.cancel()


async def test_a_log_start_that_moves_past_a_waiting_reader_is_reported() -> None:
    scene = await new_scene()
    await produce(scene.gateway, b"a", b"b")
    waiting = [scene.waits(0, wait=Wait(min_bytes=10**9, max_wait_s=3600)) for _ in range(CROWD)]
    await scene.settle()

    def trimmed(head: Head) -> Head:
        starts = (1, *head.log_starts[1:])
        return head if head.log_starts == starts else replace_head(head, starts)

    await change_head(scene.cloud.metadata, scene.head_key(), trimmed)
    await scene.clock.advance(1.0)
    await scene.settle()

    for task in waiting:
        with pytest.raises(OffsetOutOfRange):
            await task


async def test_readers_of_a_deleted_topic_get_an_error() -> None:
    scene = await new_scene()
    waiting = [scene.waits(partition=p % 4) for p in range(CROWD)]
    await scene.settle()
    theirs = await elsewhere(scene)
    await theirs.topics.delete("t")
    await scene.clock.advance(1.0)
    await scene.settle()

    for task in waiting:
        with pytest.raises(UnknownTopicOrPartition):
            await task


async def test_partitions_that_are_added_disturb_nobody_and_can_be_waited_for() -> None:
    scene = await new_scene(partitions=2)
    old = scene.waits(partition=1)
    await scene.settle()
    theirs = await elsewhere(scene)
    await theirs.topics.alter("t", partitions=4)
    await scene.clock.advance(2.0)
    await scene.settle()
    assert not old.done()

    new = scene.waits(partition=3)
    await scene.settle()
    await produce(theirs, b"a", partition=3)
    await produce(theirs, b"b", partition=1)
    await scene.clock.advance(1.0)
    await scene.settle()

    assert ends([old, new]) == [1, 1]


async def test_who_waits_is_answered_at_the_end_of_a_gateway() -> None:
    scene = await new_scene()
    waiting = [scene.waits() for _ in range(CROWD)]
    await scene.settle()

    scene.gateway.drain()
    await scene.settle()

    assert ends(waiting) == [0] * CROWD


async def test_an_append_is_acknowledged_before_those_who_wait_are_answered() -> None:
    scene = await new_scene()
    waiting = [scene.waits() for _ in range(1000)]
    for _ in range(2000):
        await asyncio.sleep(0)

    await produce(scene.gateway, b"a")

    assert sum(task.done() for task in waiting) < len(waiting) / 2
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)
