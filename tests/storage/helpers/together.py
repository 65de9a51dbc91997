"""Processes that commit to one lane, or to several lanes at once, over one table."""

from collections.abc import Sequence

from storage.errors import (
    InvalidTransactionState,
)
from storage.lanes.atomic import AtomicCommits, Bases, LaneRuns, Plan
from storage.lanes.lane import Lanes
from storage.stores.metadata import MetadataStore, Op, Put
from tests.storage.helpers.faults import FaultyMetadata, TestObjects
from tests.storage.helpers.worlds import TOPIC_ID, create_lane, new_metadata, new_runtime
from tests.storage.lanes.test_lanes import objects_in_order, run

LANES = 4


def runs_of(lane: int, *numbers: int) -> LaneRuns:
    return LaneRuns(TOPIC_ID, lane, tuple(run(number) for number in numbers))


def staged_in(lanes: Sequence[int], number: int) -> list[LaneRuns]:
    return [runs_of(lane, number) for lane in lanes]


async def nothing_else(bases: Bases) -> Sequence[Op]:
    return []


def first_offsets(bases: Bases) -> dict[int, int]:
    return {lane: of_runs[0][0] for (_, lane), of_runs in bases.items()}


class Process:
    """A process that commits to any of the lanes."""

    def __init__(self, metadata: MetadataStore, objects: TestObjects, seed: int) -> None:
        self.metadata = metadata
        self.runtime = new_runtime(metadata, objects, seed=seed)
        self.lanes = Lanes(self.runtime)
        self.atomic = AtomicCommits(self.lanes, self.runtime)

    def puts(self, key: str) -> Plan:
        """Return a plan that creates an item, which must not exist yet."""

        async def plan(bases: Bases) -> Sequence[Op]:
            if await self.metadata.get(key) is not None:
                raise InvalidTransactionState("it was done already")
            return [Put(key, b"done", None)]

        return plan

    async def append(self, lane: int, number: int) -> int:
        """Append a run to one lane with an ordinary commit."""
        ticket = self.lanes.lane(TOPIC_ID, lane).enqueue()
        ticket.ready(run(number))
        return (await ticket.committed)[0]


class Scene:
    """Lanes that our process uses through a faulty table, and others through a good one."""

    def __init__(self) -> None:
        self.table = new_metadata()
        self.faulty = FaultyMetadata(self.table)
        self.objects = TestObjects()
        self.ours = Process(self.faulty, self.objects, 0)
        self.theirs = Process(self.table, self.objects, 1)

    async def order(self, lane: int) -> list[int]:
        reader = Lanes(new_runtime(self.table, self.objects, seed=9)).lane(TOPIC_ID, lane)
        return [int.from_bytes(each) for each in await objects_in_order(reader)]

    async def orders(self) -> list[list[int]]:
        return [await self.order(lane) for lane in range(LANES)]


async def new_scene(lanes: int = LANES) -> Scene:
    scene = Scene()
    for lane in range(lanes):
        await create_lane(scene.table, lane=lane)
    return scene
