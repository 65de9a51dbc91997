"""Rolls that end beside commits, before them, or when there is nothing left to commit to."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from storage import keys
from storage.errors import UnknownTopicOrPartition
from storage.lanes import commits
from storage.lanes.lane import Lane, Lanes
from storage.reading.table_batches import mentioned
from storage.stores.metadata import Delete, Op
from storage.zones.zones import Zones
from tests.storage.helpers.faults import FaultyMetadata, TestObjects
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import (
    TOPIC_ID,
    commit_run,
    create_lane,
    new_metadata,
    new_runtime,
    turns,
)
from tests.storage.helpers.zoned import Zoned
from tests.storage.reading.test_table_batches import World as TableWorld

pytestmark = pytest.mark.anyio

SMALL = 150


async def test_a_roll_that_could_not_count_by_itself_counts_with_the_next_commit() -> None:
    world = TableWorld()
    lane = await world.lane(inline_bytes_max=SMALL)
    values = [b"%d" % number for number in range(4)]
    for value in values[:3]:
        await world.append(lane, value)
    run = await world.written(values[3])
    world.metadata.faults = ["none", "refused"]
    await commit_run(lane, run)
    await turns(200)
    assert (world.metadata.faults, (await world.head()).root) == ([], b"")

    await world.append(lane, b"next")
    await turns()

    head = await world.head()
    assert (bool(head.root), len(head.runs)) == (True, 1)
    assert await world.items() == mentioned(head), "what it moved is removed at once"
    assert await world.values() == [*values, b"next"]


class GatedMetadata(FaultyMetadata):
    """A table that does not answer while its gate is closed."""

    def __init__(self) -> None:
        super().__init__(new_metadata())
        self.gate = asyncio.Event()
        self.gate.set()

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        versions = await super().transact(ops)
        await self.gate.wait()
        return versions


async def rolling() -> tuple[GatedMetadata, TestObjects, Lane]:
    """Return a lane whose roll is on its way, until its objects are let through."""
    metadata, objects = GatedMetadata(), TestObjects()
    await create_lane(metadata)
    runtime = new_runtime(metadata, objects)
    runtime.inline_bytes_max = SMALL
    lane = Lanes(runtime).lane(TOPIC_ID, 0)
    objects.hold_puts = True
    for number in range(8):
        await commit(lane, number)
    await turns()
    metadata.calls.clear()
    return metadata, objects, lane


def let_through(objects: TestObjects) -> None:
    objects.hold_puts = False
    for gate in objects.held:
        gate.set()


async def commit(lane: Lane, number: int) -> int:
    ticket = lane.enqueue()
    ticket.ready(run_of(number.to_bytes(16), {0: 1}))
    return (await ticket.committed)[0]


async def test_a_roll_that_ends_beside_a_commit_does_not_race_with_it() -> None:
    metadata, objects, lane = await rolling()
    metadata.gate.clear()
    committing = asyncio.create_task(commit(lane, 8))
    await turns()

    let_through(objects)
    await turns(200)

    assert metadata.calls["transact"] == 1
    metadata.gate.set()
    assert await committing == 8
    assert await commit(lane, 9) == 9
    assert (await lane.view(0)).head.root


async def test_a_roll_that_ends_after_its_topic_is_of_no_use_and_hurts_nobody() -> None:
    metadata, objects, lane = await rolling()
    item = await metadata.get(keys.head(TOPIC_ID, 0))
    assert item is not None
    await metadata.transact([Delete(keys.head(TOPIC_ID, 0), item.version)])
    with pytest.raises(UnknownTopicOrPartition):
        await commit(lane, 8)
    metadata.calls.clear()
    beside = list(lane._runtime._tasks)

    let_through(objects)

    assert await asyncio.gather(*beside) == [None] * len(beside)
    assert metadata.calls["transact"] == 0


async def test_a_copy_that_nobody_waits_for_is_given_up_if_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits, "COPY_S_MAX", 0.01)
    zoned = await Zoned().written()
    zoned.runtime.zones = Zones(zoned.stores, left_behind_bytes_max=0)
    zoned.stores["c"].mode = "hanging"
    before = asyncio.all_tasks()

    await zoned.committed(msgspec.structs.replace(zoned.run, zones=0b011))
    await turns()

    assert asyncio.all_tasks() == before
