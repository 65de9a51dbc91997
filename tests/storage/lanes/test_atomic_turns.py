"""Commits to many lanes and plain ones at once: in turn, nobody for ever, all told the truth."""

import asyncio
import gc
import random

import pytest

from storage.errors import (
    RiachoError,
    ShuttingDown,
)
from storage.head import head as heads
from tests.storage.helpers.faults import FaultyMetadata, random_faults
from tests.storage.helpers.together import (
    LANES,
    Process,
    Scene,
    first_offsets,
    new_scene,
    nothing_else,
    staged_in,
)
from tests.storage.helpers.worlds import TOPIC_ID, turns
from tests.storage.lanes.test_lanes import run

pytestmark = pytest.mark.anyio


async def test_an_atomic_commit_waits_for_those_who_came_before_and_goes_before_the_rest() -> None:
    scene = await new_scene()
    lanes = [scene.ours.lanes.lane(TOPIC_ID, n) for n in range(2)]
    before = lanes[1].enqueue()
    commit = asyncio.create_task(scene.ours.atomic.commit(staged_in([0, 1], 1), nothing_else))
    await turns()
    behind = [lane.enqueue() for lane in lanes]
    for ticket in behind:
        ticket.ready(run(2))
    await turns()
    assert not commit.done()
    assert not behind[0].committed.done()

    before.ready(run(3))
    await commit

    assert [(await ticket.committed)[0] for ticket in behind] == [1, 2]
    assert await scene.orders() == [[1, 2], [3, 1, 2], [], []]


async def test_who_hangs_up_gives_the_turns_back() -> None:
    scene = await new_scene()
    blocking = scene.ours.lanes.lane(TOPIC_ID, 1).enqueue()
    waiting = asyncio.create_task(scene.ours.atomic.commit(staged_in([0, 1], 1), nothing_else))
    await turns()

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert await scene.ours.append(0, 2) == 0
    blocking.withdraw()
    assert await scene.ours.append(1, 2) == 0


async def test_a_caller_that_waits_when_the_process_stops_gets_an_error() -> None:
    scene = await new_scene()
    tickets = [scene.ours.lanes.lane(TOPIC_ID, lane).enqueue() for lane in (0, 1)]
    waiting = asyncio.create_task(scene.ours.atomic.commit(staged_in([0, 1], 1), nothing_else))
    await turns()

    await scene.ours.runtime.aclose()

    with pytest.raises(ShuttingDown):
        await waiting
    for ticket in tickets:
        with pytest.raises(ShuttingDown):
            await ticket.committed
    del waiting, tickets, ticket
    gc.collect()  # An error that nobody took would be reported now.


async def test_heads_are_rolled_by_atomic_commits_too() -> None:
    scene = await new_scene()
    for number in range(300):
        await scene.ours.atomic.commit(staged_in([0, 1], number), nothing_else)
        await turns(3)

    for lane in (0, 1):
        head = (await scene.theirs.lanes.lane(TOPIC_ID, lane).view(0)).head
        assert head.root
        assert heads.inline_bytes(head) < 1.5 * heads.INLINE_BYTES_MAX
        assert await scene.order(lane) == list(range(300))


@pytest.mark.parametrize("seed", range(20))
async def test_amid_faults_and_each_other_every_outcome_is_reported_truly(seed: int) -> None:
    crowd = Turns(await new_scene(), seed)

    await crowd.work(times=60)

    await crowd.check()


class Turns:
    """Processes with atomic and plain commits to overlapping lanes, and callers who hang up."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene, self.chance = scene, random.Random(seed)
        self.stores = [
            FaultyMetadata(scene.table, random_faults(seed * 10 + n, 0.3)) for n in range(3)
        ]
        self.processes = [
            Process(store, scene.objects, 10 + n) for n, store in enumerate(self.stores)
        ]
        self.lanes_of: dict[int, list[int]] = {}
        self.told: dict[int, dict[int, int] | RiachoError] = {}

    async def work(self, times: int) -> None:
        working = []
        for number in range(times):
            process = self.chance.choice(self.processes)
            chosen = self.chance.sample(range(LANES), self.chance.randint(1, LANES))
            plain = self.chance.random() < 0.3
            self.lanes_of[number] = chosen[:1] if plain else chosen
            task = asyncio.create_task(self._one(process, number, is_plain=plain))
            working.append(task)
            await turns(self.chance.choice([0, 1, 3]))
            if self.chance.random() < 0.1:
                self.chance.choice(working).cancel()
            self.chance.choice(self.stores).failing_gets = self.chance.choice([0, 0, 0, 1])
        # Nobody waits for ever.
        await asyncio.wait_for(asyncio.gather(*working, return_exceptions=True), 60)
        await turns(200)  # For the late ones.

    async def _one(self, process: Process, number: int, *, is_plain: bool) -> None:
        lanes = self.lanes_of[number]
        try:
            if is_plain:
                self.told[number] = {lanes[0]: await process.append(lanes[0], number)}
            else:
                bases = await process.atomic.commit(
                    staged_in(lanes, number), process.puts(f"txn/{number}")
                )
                self.told[number] = first_offsets(bases)
        except RiachoError as error:
            self.told[number] = error

    async def check(self) -> None:
        orders = await self.scene.orders()
        for order in orders:
            assert len(set(order)) == len(order)
        for number, lanes in self.lanes_of.items():
            present = {lane for lane, order in enumerate(orders) if number in order}
            assert present in (set(), set(lanes))
            item = await self.scene.table.get(f"txn/{number}")
            assert item is None or present
            outcome = self.told.get(number)
            if isinstance(outcome, dict):
                assert {lane: orders[lane][offset] for lane, offset in outcome.items()} == (
                    dict.fromkeys(lanes, number)
                )
            elif outcome is not None and not outcome.may_have_applied:
                assert not present
        assert sum(isinstance(outcome, dict) for outcome in self.told.values()) > 15
