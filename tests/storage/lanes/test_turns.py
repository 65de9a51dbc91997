"""Many processes commit to one head, in virtual time: each its turn, nothing lost or doubled."""

import asyncio
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any

import pytest

from storage.errors import Contended, OutcomeUnknown, RiachoError
from storage.lanes import turns as contention
from storage.lanes.lane import Lane
from storage.stores.memory import MemoryObjects
from storage.stores.metadata import Op, Versioned
from tests.simulation.virtual_loop import VirtualLoop
from tests.storage.helpers.faults import Fault, FaultyMetadata
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import TOPIC_ID, Clock, create_lane, new_metadata, new_runtime
from tests.storage.lanes.test_lanes import objects_in_order

TABLE_S = 0.005
WRITERS = 128


class LoopClock(Clock):
    """The clock of the loop."""

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class FarTable(FaultyMetadata):
    """Calls take a while, each way."""

    latency_s = TABLE_S

    def __init__(self, inner: Any, chance: random.Random, unanswered: float = 0.0) -> None:
        super().__init__(inner, self._fault)
        self._chance = chance
        self._unanswered = unanswered

    def _fault(self) -> Fault:
        if self._chance.random() >= self._unanswered:
            return "none"
        return self._chance.choice(["request lost", "reply lost"])

    async def _pause(self) -> None:
        await asyncio.sleep(self.latency_s * (0.5 + self._chance.random()) / 2)

    async def get(self, key: str) -> Versioned | None:
        await self._pause()
        found = await super().get(key)
        await self._pause()
        return found

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        await self._pause()
        try:
            return await super().transact(ops)
        finally:
            await self._pause()


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        yield runner


class Writers:
    """Processes that share a table, and no memory."""

    def __init__(self, unanswered: float = 0.0, latency_s: float = TABLE_S) -> None:
        self.table = FarTable(new_metadata(), random.Random(1), unanswered)
        self.table.latency_s = latency_s
        self.objects = MemoryObjects()
        self.committed: dict[bytes, int] = {}
        self.errors: list[tuple[bytes, RiachoError]] = []

    def lane(self, number: int) -> Lane:
        runtime = new_runtime(self.table, self.objects, clock=LoopClock(), seed=number)
        return Lane(TOPIC_ID, 0, runtime)

    async def write(self, number: int, runs: int) -> None:
        lane = self.lane(number)
        for each in range(runs):
            object_id = (number * 1000 + each).to_bytes(16)
            ticket = lane.enqueue()
            ticket.ready(run_of(object_id, {0: 1}))
            try:
                self.committed[object_id] = (await ticket.committed)[0]
            except RiachoError as error:
                self.errors.append((object_id, error))

    async def all(self, writers: int, runs: int) -> list[bytes]:
        """Let them write; return the objects that are in the log, in its order."""
        await create_lane(self.table)
        await asyncio.gather(*(self.write(number, runs) for number in range(writers)))
        log = await objects_in_order(self.lane(0))
        for object_id, offset in self.committed.items():
            assert log[offset] == object_id
        assert len(set(log)) == len(log)
        return log


def test_all_of_many_writers_get_their_turn(loop: asyncio.Runner) -> None:
    writers = Writers()
    log = loop.run(writers.all(WRITERS, 1))
    assert not writers.errors
    assert len(log) == len(writers.committed) == WRITERS
    # If all tried again at once, it would be four times as many.
    assert writers.table.calls["transact"] <= 16 * len(log)


def test_answers_that_are_lost_lose_and_double_nothing(loop: asyncio.Runner) -> None:
    writers = Writers(unanswered=0.1)
    log = loop.run(writers.all(WRITERS, 1))
    assert all(isinstance(error, OutcomeUnknown) for _, error in writers.errors)
    unsure = {object_id for object_id, _ in writers.errors}
    assert writers.committed.keys() <= set(log) <= writers.committed.keys() | unsure


def test_a_writer_that_never_gets_a_turn_learns_that_nothing_was_written(
    loop: asyncio.Runner,
) -> None:
    # Half a second for a call: a hundred of them take longer than anybody waits.
    writers = Writers(latency_s=0.5)
    log = loop.run(writers.all(WRITERS, 1))
    assert writers.errors
    assert {type(error) for _, error in writers.errors} == {Contended}
    assert all(error.retryable and not error.may_have_applied for _, error in writers.errors)
    assert sorted(log) == sorted(writers.committed)
    assert len(log) + len(writers.errors) == WRITERS


async def _paces(losses: int, wins: int) -> list[float]:
    crowd = contention.Turns(new_runtime(new_metadata(), clock=LoopClock()))
    found = []
    for attempt in range(losses):
        await crowd.lost(attempt, asyncio.get_running_loop().time())
        found.append(crowd.pace_s)
    for _ in range(wins):
        crowd.won()
        found.append(crowd.pace_s)
    return found


def test_the_pace_is_learned_and_forgotten(loop: asyncio.Runner) -> None:
    paces: Coroutine[Any, Any, list[float]] = _paces(losses=40, wins=40)
    found = loop.run(paces)
    # Two who meet by chance need no order.
    assert found[0] == 0.0
    assert found[1] == contention.PACE_S_MIN
    assert max(found) == contention.PACE_S_MAX
    assert found[-1] == 0.0
