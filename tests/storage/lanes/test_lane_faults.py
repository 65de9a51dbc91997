"""Commits to a table that fails before, fails after, and answers nobody: each lands at most once.

What a committer is told is true: an offset is where the run is, an error that says nothing was
written means that, and only `OutcomeUnknown` may be either.
"""

import asyncio
import random
from collections import Counter

import msgspec
import pytest

from storage import keys
from storage.errors import OutcomeUnknown, RiachoError, StoreUnavailable, UnknownTopicOrPartition
from storage.head import head as heads
from storage.lanes.lane import Lane
from storage.stores.metadata import Delete, Put
from tests.storage.helpers.faults import Fault, FaultyMetadata, TestObjects, random_faults
from tests.storage.helpers.worlds import TOPIC_ID, create_lane, new_metadata, new_runtime, turns
from tests.storage.lanes.test_lanes import objects_in_order, run

pytestmark = pytest.mark.anyio

HEAD_KEY = keys.head(TOPIC_ID, 0)


class Scene:
    """One lane, seen by us through a table with faults and by another process without."""

    def __init__(self) -> None:
        self.table = new_metadata()
        self.faulty = FaultyMetadata(self.table)
        self.objects = TestObjects()
        self.ours = Lane(TOPIC_ID, 0, new_runtime(self.faulty, self.objects))
        self.theirs = Lane(TOPIC_ID, 0, new_runtime(self.table, self.objects, seed=1))

    async def commit(self, lane: Lane, number: int) -> int:
        ticket = lane.enqueue()
        ticket.ready(run(number))
        return (await ticket.committed)[0]

    async def order(self) -> list[int]:
        reader = Lane(TOPIC_ID, 0, new_runtime(self.table, self.objects, seed=2))
        return [int.from_bytes(each) for each in await objects_in_order(reader)]


async def new_scene() -> Scene:
    scene = Scene()
    await create_lane(scene.table)
    await scene.commit(scene.ours, 0)
    return scene


@pytest.mark.parametrize("fault", ["request lost", "reply lost", "late"])
@pytest.mark.parametrize("times", [1, 3])
async def test_an_unanswered_commit_lands_once_and_knows_its_offset(
    fault: Fault, times: int
) -> None:
    scene = await new_scene()
    scene.faulty.faults = [fault] * times

    assert await scene.commit(scene.ours, 1) == 1

    await turns()
    assert await scene.order() == [0, 1]
    assert await scene.commit(scene.ours, 2) == 2


@pytest.mark.parametrize("fault", ["request lost", "reply lost", "late"])
async def test_also_when_another_process_commits_in_between(fault: Fault) -> None:
    scene = await new_scene()
    scene.faulty.faults = [fault]

    async def interfere() -> None:
        for number in range(100, 103):
            await scene.commit(scene.theirs, number)

    scene.faulty.before_unknown = interfere
    offset = await scene.commit(scene.ours, 1)

    await turns()
    order = await scene.order()
    assert sorted(order) == [0, 1, 100, 101, 102]
    assert order[offset] == 1


async def test_a_run_is_not_mistaken_for_another_run_of_the_same_object() -> None:
    """Requests with acks=1 and acks=all share an object, and each kind has a run of its own."""
    scene = await new_scene()
    first = run(1)
    second = msgspec.structs.replace(first, position=first.position + first.slices[0].length)

    async def arrive_late() -> None:
        await scene.table.transact(scene.faulty.lost[0])

    # The first run is given up: it was not answered, and the table cannot be asked.
    scene.faulty.faults, scene.faulty.failing_gets = ["request lost"], 100
    ticket = scene.ours.enqueue()
    ticket.ready(first)
    with pytest.raises(OutcomeUnknown):
        await ticket.committed

    # It arrives while the second run of that object waits for its answer, which is lost, too.
    scene.faulty.faults, scene.faulty.failing_gets = ["request lost"], 0
    scene.faulty.before_unknown = arrive_late
    ticket = scene.ours.enqueue()
    ticket.ready(second)

    assert (await ticket.committed)[0] == 2
    assert await scene.order() == [0, 1, 1]


@pytest.mark.parametrize("fault", ["request lost", "reply lost"])
async def test_also_when_the_index_was_rolled_in_between(fault: Fault) -> None:
    scene = await new_scene()
    scene.faulty.faults = [fault]

    async def interfere() -> None:
        for number in range(100, 300):
            await scene.commit(scene.theirs, number)
            await turns(3)

    scene.faulty.before_unknown = interfere
    offset = await scene.commit(scene.ours, 1)

    head = (await scene.theirs.view(0)).head
    assert heads.inline_start(head, 0) > 2  # It is the index that knows.
    order = await scene.order()
    assert sorted(order) == [0, 1, *range(100, 300)]
    assert order[offset] == 1


async def test_an_unanswered_roll_counts_once() -> None:
    scene = await new_scene()
    for number in range(1, 400):
        scene.faulty.faults = ["reply lost"] if number % 3 == 0 else []
        assert await scene.commit(scene.ours, number) == number
        await turns()

    assert (await scene.ours.view(0)).head.root
    assert await scene.order() == list(range(400))


async def test_a_refused_commit_is_reported_as_not_written() -> None:
    scene = await new_scene()
    scene.faulty.faults = ["refused"]

    with pytest.raises(StoreUnavailable):
        await scene.commit(scene.ours, 1)

    assert await scene.order() == [0]
    assert await scene.commit(scene.ours, 2) == 1


@pytest.mark.parametrize("fault", ["request lost", "reply lost", "late"])
async def test_if_it_cannot_be_read_back_the_outcome_is_unknown(fault: Fault) -> None:
    scene = await new_scene()
    scene.faulty.faults = [fault]

    async def go_away() -> None:
        scene.faulty.failing_gets = 1

    scene.faulty.before_unknown = go_away
    with pytest.raises(OutcomeUnknown):
        await scene.commit(scene.ours, 1)

    await turns()
    assert await scene.order() == ([0] if fault == "request lost" else [0, 1])


async def test_a_refusal_after_an_unanswered_attempt_is_not_a_promise_that_nothing_happened() -> (
    None
):
    scene = await new_scene()
    # The first attempt may still arrive, so the refusal of the second proves nothing.
    scene.faulty.faults = ["request lost", "refused"]

    with pytest.raises(OutcomeUnknown, match="throttled"):
        await scene.commit(scene.ours, 1)


async def test_a_refusal_after_a_doubt_was_settled_says_that_nothing_happened() -> None:
    scene = await new_scene()
    scene.faulty.faults = ["request lost", "refused"]

    async def interfere() -> None:
        await scene.commit(scene.theirs, 100)

    scene.faulty.before_unknown = interfere
    with pytest.raises(StoreUnavailable):
        await scene.commit(scene.ours, 1)

    assert await scene.order() == [0, 100]


async def test_an_index_that_cannot_be_read_leaves_the_outcome_unknown() -> None:
    scene = await new_scene()
    scene.faulty.faults = ["reply lost"]

    async def interfere() -> None:
        for number in range(100, 300):
            await scene.commit(scene.theirs, number)
            await turns(3)
        scene.objects.failing_reads = 1

    scene.faulty.before_unknown = interfere
    with pytest.raises(OutcomeUnknown, match="bucket"):
        await scene.commit(scene.ours, 1)


async def test_a_topic_that_is_deleted_during_a_commit_is_unknown() -> None:
    scene = await new_scene()
    scene.faulty.faults = ["reply lost"]

    async def delete() -> None:
        item = await scene.table.get(HEAD_KEY)
        assert item is not None
        await scene.table.transact([Delete(HEAD_KEY, item.version)])

    scene.faulty.before_unknown = delete
    with pytest.raises(UnknownTopicOrPartition):
        await scene.commit(scene.ours, 1)


async def test_a_log_that_was_rewritten_meanwhile_leaves_the_outcome_unknown() -> None:
    scene = await new_scene()
    scene.faulty.faults = ["reply lost"]

    async def rewrite() -> None:
        # As if a compaction had merged what was just committed with what was before it.
        item = await scene.table.get(HEAD_KEY)
        assert item is not None
        head = heads.decode(item.value)
        merged = msgspec.structs.replace(
            head, commits=head.commits + 1, run_count=head.run_count, runs=(run(7, {0: 2}),)
        )
        await scene.table.transact([Put(HEAD_KEY, heads.encode(merged), item.version)])

    scene.faulty.before_unknown = rewrite
    with pytest.raises(OutcomeUnknown, match="rewritten"):
        await scene.commit(scene.ours, 1)


@pytest.mark.parametrize("seed", range(40))
async def test_under_random_faults_every_outcome_is_reported_truly(seed: int) -> None:
    table, objects = new_metadata(), TestObjects()
    await create_lane(table, partitions=2)
    stores = [FaultyMetadata(table, random_faults(seed * 10 + n)) for n in range(3)]
    processes = [
        Lane(TOPIC_ID, 0, new_runtime(store, objects, seed=n)) for n, store in enumerate(stores)
    ]
    told: dict[int, dict[int, int] | RiachoError] = {}

    async def produce(process: int) -> None:
        chance = random.Random(seed * 10 + process)
        for burst in range(15):
            stores[process].failing_gets = chance.choice([0, 0, 0, 1])
            numbers = [process * 1000 + burst * 10 + n for n in range(chance.randint(1, 3))]
            tickets = [processes[process].enqueue() for _ in numbers]
            for number, ticket in zip(numbers, tickets, strict=True):
                ticket.ready(run(number, {0: 1, 1: chance.randint(1, 20)}))
            for number, ticket in zip(numbers, tickets, strict=True):
                try:
                    told[number] = await ticket.committed
                except RiachoError as error:
                    told[number] = error

    await asyncio.gather(*(produce(process) for process in range(3)))
    await turns(200)  # For the late ones.

    reader = Lane(TOPIC_ID, 0, new_runtime(table, objects, seed=9))
    order = [int.from_bytes(each) for each in await objects_in_order(reader)]
    await objects_in_order(reader, 1)
    assert not [number for number, times in Counter(order).items() if times > 1]
    for number, outcome in told.items():
        if isinstance(outcome, dict):
            assert order[outcome[0]] == number
        elif not outcome.may_have_applied:
            assert number not in order
    for process in range(3):
        own = [number for number in order if number // 1000 == process]
        assert own == sorted(own)
    kinds = Counter(type(outcome).__name__ for outcome in told.values())
    assert kinds["dict"] > 10, kinds
