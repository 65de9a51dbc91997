"""Heads left behind by an interrupted create or delete are found, and no others."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from storage import keys
from storage.errors import Contended, MetadataConflict, StoreUnavailable
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Op
from storage.topics import deleted as gone_topics
from storage.topics.deleted import GoneTopic
from storage.topics.topics import Topics
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.worlds import Clock, new_ids, new_metadata

pytestmark = pytest.mark.anyio

LANES = 230
CONFIG = {"lane.partitions": 1}


class Breaking(FaultyMetadata):
    """A table that becomes unreachable after a number of transactions."""

    left = 1000

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        self.left -= 1
        if self.left < 0:
            raise StoreUnavailable("gone")
        return await super().transact(ops)


def topics_of(metadata: FaultyMetadata, seed: int = 0) -> Topics:
    clock = Clock()
    return Topics(metadata, ["a"], new_ids(seed), clock.now_ms, clock.monotonic_s)


async def heads_left(table: MemoryMetadata, gone: GoneTopic) -> int:
    names = [keys.head(gone.topic_id, lane) for lane in range(LANES)]
    return len(await table.get_many(names))


async def remove(table: MemoryMetadata, gone: GoneTopic, *, is_topic: bool = False) -> int:
    async def told() -> bool:
        return is_topic

    return await gone_topics.remove_heads(table, gone, told, table.transact)


@pytest.mark.parametrize("lanes", [98, 99, 100, 198, 199, 200, 201, LANES])
async def test_creating_and_deleting_a_topic_of_many_lanes_leaves_nothing_behind(
    lanes: int,
) -> None:
    table = new_metadata()
    topics = topics_of(FaultyMetadata(table))
    topic = await topics.create("t", partitions=lanes, config=CONFIG)
    names = [keys.head(topic.topic_id, lane) for lane in range(lanes)]
    assert len(await table.get_many(names)) == lanes
    assert await table.list("gone/") == []

    await topics.delete("t")

    assert await table.get_many(names) == {}
    assert await table.list("gone/") == []


@pytest.mark.parametrize("transactions", [1, 2, 3])
async def test_heads_of_an_interrupted_creation_are_found_and_removed(transactions: int) -> None:
    table = new_metadata()
    metadata = Breaking(table)
    metadata.left = transactions
    with pytest.raises(StoreUnavailable):
        await topics_of(metadata).create("t", partitions=LANES, config=CONFIG)

    assert await gone_topics.left_behind(table, 0) == []
    [gone] = await gone_topics.left_behind(table, 10**9)
    assert (gone.name, gone.lanes) == ("t", LANES)
    assert await remove(table, gone) == min(LANES, 100 * (transactions - 1))
    assert await heads_left(table, gone) == 0
    assert await table.list("gone/") == []


@pytest.mark.parametrize("transactions", [1, 2, 3])
async def test_heads_of_an_interrupted_deletion_are_found_and_removed(transactions: int) -> None:
    table = new_metadata()
    metadata = Breaking(table)
    topics = topics_of(metadata)
    await topics.create("t", partitions=LANES, config=CONFIG)
    metadata.left = transactions
    await topics.delete("t")

    [gone] = await gone_topics.left_behind(table, 10**9)
    left = await heads_left(table, gone)
    assert left == LANES - 100 * (transactions - 1)
    assert await remove(table, gone) == left
    assert await heads_left(table, gone) == 0
    assert await table.list("gone/") == []


async def test_a_slow_creation_fails_if_a_sweeper_removed_its_heads() -> None:
    table = new_metadata()
    swept: list[int] = []

    class Slow(FaultyMetadata):
        """A table on which the sweeper runs before the creator's last transaction."""

        async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
            if any(op.key == keys.topic("t") for op in ops):
                [gone] = await gone_topics.left_behind(table, 10**9)
                swept.append(await remove(table, gone))
            return await super().transact(ops)

    with pytest.raises(Contended):
        await topics_of(Slow(table)).create("t", partitions=LANES, config=CONFIG)

    assert set(swept) == {200}
    assert await table.get(keys.topic("t")) is None

    topic = await topics_of(FaultyMetadata(table), 1).create("t", partitions=LANES, config=CONFIG)
    assert topic.partition_count == LANES


async def test_a_slow_sweeper_removes_no_head_of_a_created_topic() -> None:
    table = new_metadata()
    about_to_remove, is_made = asyncio.Event(), asyncio.Event()
    sweeping: list[asyncio.Task[int]] = []

    async def no_topic() -> bool:
        return False

    async def slowly(ops: Sequence[Op]) -> Mapping[str, str]:
        if any(op.key.startswith("head/") for op in ops):
            about_to_remove.set()
            await is_made.wait()
        return await table.transact(ops)

    class Slow(FaultyMetadata):
        """A table on which a sweeper starts before the creator's last transaction."""

        async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
            if any(op.key == keys.topic("t") for op in ops) and not sweeping:
                [gone] = await gone_topics.left_behind(table, 10**9)
                removing = gone_topics.remove_heads(table, gone, no_topic, slowly)
                sweeping.append(asyncio.create_task(removing))
                await about_to_remove.wait()
            return await super().transact(ops)

    topic = await topics_of(Slow(table)).create("t", partitions=LANES, config=CONFIG)
    is_made.set()
    with pytest.raises(MetadataConflict):
        await sweeping[0]

    names = [keys.head(topic.topic_id, lane) for lane in range(LANES)]
    assert len(await table.get_many(names)) == LANES


async def test_heads_of_an_existing_topic_are_not_removed() -> None:
    table = new_metadata()
    metadata = Breaking(table)
    metadata.left = 3
    with pytest.raises(StoreUnavailable):
        await topics_of(metadata).create("t", partitions=LANES, config=CONFIG)
    [gone] = await gone_topics.left_behind(table, 10**9)

    assert await remove(table, gone, is_topic=True) == 0
    assert await heads_left(table, gone) == 200
    assert await remove(table, gone) == 0


async def test_two_sweepers_of_the_same_heads_conflict_and_remove_them_once() -> None:
    table = new_metadata()
    metadata = Breaking(table)
    metadata.left = 2
    with pytest.raises(StoreUnavailable):
        await topics_of(metadata).create("t", partitions=LANES, config=CONFIG)
    [gone] = await gone_topics.left_behind(table, 10**9)

    async def other_first() -> bool:
        assert await remove(table, gone) == 100
        return False

    with pytest.raises(MetadataConflict):
        await gone_topics.remove_heads(table, gone, other_first, table.transact)
    assert await heads_left(table, gone) == 0
