"""Lanes: commits in the order of the queue, each once, whoever else commits."""

import asyncio
import gc
import random
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from storage import keys
from storage.errors import (
    OutcomeUnknown,
    ShuttingDown,
    StoreUnavailable,
    UnknownTopicOrPartition,
)
from storage.formats import segments
from storage.head import head as heads
from storage.head.head import Run
from storage.lanes import lane as lanes
from storage.lanes import rolls
from storage.lanes.lane import Lane, Lanes
from storage.lanes.rolls import FLIGHT_MAX_S
from storage.stores.metadata import Delete, Op, Put
from tests.storage.helpers.faults import FaultyMetadata, TestObjects
from tests.storage.helpers.logs import numbered_ids, run_of
from tests.storage.helpers.worlds import (
    TOPIC_ID,
    Clock,
    commit_run,
    create_lane,
    new_metadata,
    new_runtime,
    turns,
)

pytestmark = pytest.mark.anyio

HEAD_KEY = keys.head(TOPIC_ID, 0)


def run(number: int, counts: dict[int, int] | None = None) -> Run:
    return run_of(number.to_bytes(16), counts or {0: 1})


async def objects_in_order(lane: Lane, partition: int = 0) -> list[bytes]:
    """Return the objects of the whole partition, after checking that offsets are dense."""
    head = (await lane.view(0)).head
    offset, found = 0, []
    while offset < head.next_offsets[partition]:
        for entry in await lane._runtime.catalog.after(head, partition, offset):
            assert entry.base_offset == offset
            offset = entry.end_offset
            found.append(entry.object_id)
    assert offset == head.next_offsets[partition]
    return found


async def new_lane(partitions: int = 1) -> Lane:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata, partitions)
    return Lane(TOPIC_ID, 0, new_runtime(metadata))


async def test_gives_every_partition_of_a_run_its_next_offsets() -> None:
    lane = await new_lane(partitions=3)

    tickets = [lane.enqueue() for _ in range(3)]
    tickets[0].ready(run(1, {0: 5, 2: 1}))
    tickets[1].ready(run(2, {2: 4}))
    tickets[2].ready(run(3, {2: 1, 0: 1, 1: 1}))

    assert await tickets[0].committed == {0: 0, 2: 0}
    assert await tickets[1].committed == {2: 1}
    assert await tickets[2].committed == {2: 5, 0: 5, 1: 0}


async def test_what_is_ready_together_shares_one_compare_and_set() -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata))
    metadata.calls.clear()

    tickets = [lane.enqueue() for _ in range(10)]
    for number, ticket in enumerate(tickets):
        ticket.ready(run(number))
    await asyncio.gather(*(ticket.committed for ticket in tickets))

    assert metadata.calls["transact"] == 1


async def test_what_is_ready_out_of_order_is_committed_in_the_order_of_the_queue() -> None:
    lane = await new_lane()
    tickets = [lane.enqueue() for _ in range(20)]

    order = random.Random(3).sample(range(20), 20)
    for number in order:
        tickets[number].ready(run(number))
        await turns(3)
    bases = [(await ticket.committed)[0] for ticket in tickets]

    assert bases == list(range(20))
    assert await objects_in_order(lane) == [number.to_bytes(16) for number in range(20)]


async def test_a_zone_that_came_in_sync_meanwhile_must_hold_what_is_committed() -> None:
    metadata, objects = new_metadata(), TestObjects()
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata, objects))
    elsewhere = msgspec.structs.replace(run(1), zones=0)
    key = keys.hot_segment(elsewhere.object_id)
    await objects.put(key, segments.encode([]))

    ticket = lane.enqueue()
    ticket.ready(elsewhere)
    await ticket.committed

    [committed] = (await lane.view(0)).head.runs
    assert committed.zones == 1


async def test_a_withdrawn_place_lets_those_behind_go_on() -> None:
    lane = await new_lane()
    first, second, third = (lane.enqueue() for _ in range(3))

    third.ready(run(3))
    second.withdraw()
    await turns()
    assert not third.committed.done()
    first.withdraw()

    assert await third.committed == {0: 0}
    assert first.committed.cancelled()
    assert second.committed.cancelled()


async def test_a_queue_of_withdrawn_places_commits_nothing() -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata))
    metadata.calls.clear()

    lane.enqueue().withdraw()
    await turns()
    ticket = lane.enqueue()
    ticket.ready(run(1))

    assert await ticket.committed == {0: 0}
    assert metadata.calls["transact"] == 1


async def test_several_processes_share_a_head_and_each_keeps_its_order() -> None:
    metadata, objects = FaultyMetadata(new_metadata()), TestObjects()
    await create_lane(metadata, partitions=4)
    mine = [Lane(TOPIC_ID, 0, new_runtime(metadata, objects, seed=n)) for n in range(5)]
    bases: dict[int, list[dict[int, int]]] = {n: [] for n in range(5)}

    async def produce(process: int) -> None:
        chance = random.Random(process)
        for burst in range(12):
            tickets = [mine[process].enqueue() for _ in range(chance.randint(1, 4))]
            for place, ticket in enumerate(tickets):
                number = process * 10_000 + burst * 100 + place
                ticket.ready(run(number, {p: chance.randint(1, 3) for p in range(4)}))
            bases[process] += [await ticket.committed for ticket in tickets]

    await asyncio.gather(*(produce(process) for process in range(5)))

    reader = Lane(TOPIC_ID, 0, new_runtime(metadata, objects, seed=9))
    for partition in range(4):
        order = [int.from_bytes(each) for each in await objects_in_order(reader, partition)]
        assert len(set(order)) == len(order) == sum(map(len, bases.values()))
        for process in range(5):
            own = [number for number in order if number // 10_000 == process]
            assert own == sorted(own)
            offsets = [base[partition] for base in bases[process]]
            assert offsets == sorted(offsets)


async def test_nothing_is_committed_to_a_deleted_topic() -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata))
    view = await lane.view(0)
    await metadata.transact([Delete(HEAD_KEY, view.version)])

    first, second = lane.enqueue(), lane.enqueue()
    first.ready(run(1))
    with pytest.raises(UnknownTopicOrPartition):
        await first.committed
    second.ready(run(2))
    with pytest.raises(UnknownTopicOrPartition):
        await second.committed


async def test_an_object_that_was_too_long_in_flight_is_given_up() -> None:
    metadata, clock = FaultyMetadata(new_metadata()), Clock()
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata, clock=clock))
    slow = lane.enqueue()
    clock.now_s += FLIGHT_MAX_S / 2
    young = lane.enqueue()
    clock.now_s += FLIGHT_MAX_S / 2 + 1

    slow.ready(run(1))
    young.ready(run(2))

    with pytest.raises(StoreUnavailable, match="too long"):
        await slow.committed
    assert await young.committed == {0: 0}


async def test_a_process_that_fell_asleep_before_its_commit_gives_it_up() -> None:
    metadata, clock = FaultyMetadata(new_metadata()), Clock()
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata, clock=clock))
    ticket = lane.enqueue()
    ticket.ready(run(1))
    await turns(1)

    clock.now_s += FLIGHT_MAX_S + 1  # While it reads the head for the first time.

    with pytest.raises(StoreUnavailable, match="too long"):
        await ticket.committed
    assert await objects_in_order(lane) == []


async def test_a_mistake_of_ours_fails_its_commit_and_not_those_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lane = await new_lane(partitions=1)
    wrong, right = lane.enqueue(), lane.enqueue()

    wrong.ready(run(1, {7: 1}))  # There is no such partition.
    with pytest.raises(OutcomeUnknown, match="IndexError"):
        await wrong.committed
    right.ready(run(2))

    assert await right.committed == {0: 0}
    assert "failed" in caplog.text


async def test_callers_that_wait_when_the_process_stops_get_an_error() -> None:
    lane = await new_lane()
    waiting = [lane.enqueue() for _ in range(3)]
    await turns()

    await lane._runtime.aclose()

    for ticket in waiting:
        with pytest.raises(ShuttingDown):
            await ticket.committed


async def test_a_long_head_is_rolled_beside_the_commits() -> None:
    metadata, objects = FaultyMetadata(new_metadata()), TestObjects()
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata, objects))
    largest = 0

    for number in range(1000):
        ticket = lane.enqueue()
        ticket.ready(run(number))
        await ticket.committed
        largest = max(largest, heads.inline_bytes((await lane.view(60)).head))
        await turns(2)

    assert await objects_in_order(lane) == [number.to_bytes(16) for number in range(1000)]
    assert largest < 1.5 * heads.INLINE_BYTES_MAX
    # 87 runs fill a head; each roll is a page and a root, and none is made to be thrown away.
    assert objects.calls["put"] <= 2 * (1000 // 87 + 1)


async def test_a_roll_counts_though_nobody_appends_any_more() -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata))

    for number in range(lanes.RUNS_PER_COMMIT_MAX + 50):
        lane.enqueue().ready(run(number))
    await turns()

    assert (await lane.view(0)).head.root
    assert len(await objects_in_order(lane)) == lanes.RUNS_PER_COMMIT_MAX + 50


async def test_while_rolls_fail_commits_go_on_up_to_the_hard_limit() -> None:
    metadata, objects = FaultyMetadata(new_metadata()), TestObjects()
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata, objects))
    objects.failing_puts = 10**9
    committed = 0

    async def fill() -> None:
        nonlocal committed
        for _ in range(2000):
            ticket = lane.enqueue()
            ticket.ready(run(committed))
            await ticket.committed
            committed += 1

    with pytest.raises(StoreUnavailable, match="rocks"):
        await fill()

    inline = heads.inline_bytes((await lane.view(0)).head)
    assert 1 < inline / (rolls.HARD * heads.INLINE_BYTES_MAX) < 1.1
    objects.failing_puts = 0
    ticket = lane.enqueue()
    ticket.ready(run(committed))
    assert await ticket.committed == {0: committed}
    assert await objects_in_order(lane) == [n.to_bytes(16) for n in range(committed + 1)]


async def test_a_roll_of_another_process_makes_ours_an_orphan_and_nothing_worse() -> None:
    metadata, objects = FaultyMetadata(new_metadata()), TestObjects()
    await create_lane(metadata)
    mine = [Lane(TOPIC_ID, 0, new_runtime(metadata, objects, seed=n)) for n in range(2)]

    for number in range(600):
        ticket = mine[number % 2].enqueue()
        ticket.ready(run(number))
        await ticket.committed
        await turns(number % 5)

    for lane in mine:
        assert await objects_in_order(lane) == [number.to_bytes(16) for number in range(600)]


async def test_of_many_processes_one_rolls_and_the_others_let_it() -> None:
    metadata, objects = FaultyMetadata(new_metadata()), TestObjects()
    await create_lane(metadata)
    mine = [Lane(TOPIC_ID, 0, new_runtime(metadata, objects, seed=n)) for n in range(8)]

    for number in range(1000):
        ticket = mine[number % 8].enqueue()
        ticket.ready(run(number))
        await ticket.committed
        await turns(10)

    assert await objects_in_order(mine[0]) == [number.to_bytes(16) for number in range(1000)]
    assert objects.calls["put"] <= 2 * (1000 // 87 + 1)


async def test_a_roll_that_its_process_failed_to_make_is_made_by_another() -> None:
    metadata, objects = FaultyMetadata(new_metadata()), TestObjects()
    await create_lane(metadata)
    ours, theirs = (Lane(TOPIC_ID, 0, new_runtime(metadata, objects, seed=n)) for n in range(2))
    objects.failing_puts = 2
    number = 0
    while objects.failing_puts:
        await commit_run(ours, run(number))
        await turns()
        number += 1

    for more in range(number, number + 200):
        await commit_run(theirs, run(more))
        await turns()

    head = (await ours.view(0)).head
    assert head.root
    assert heads.inline_bytes(head) < 1.1 * rolls.OVERDUE * heads.INLINE_BYTES_MAX


async def test_a_roll_onto_an_index_that_was_rewritten_meanwhile_is_dropped() -> None:
    metadata, objects = FaultyMetadata(new_metadata()), TestObjects()
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata, objects))
    objects.hold_puts = True
    number = 0
    while not objects.held:
        await commit_run(lane, run(number))
        await turns()
        number += 1
    view = await lane.view(0)
    # As a compaction would: another root, and the runs that came since.
    rewritten = msgspec.structs.replace(
        view.head, root=b"theirs".ljust(16), commits=view.head.commits + 1
    )
    await metadata.transact([Put(HEAD_KEY, heads.encode(rewritten), view.version)])
    await lane.view(0)

    for gate in objects.held:
        gate.set()
    await turns()
    await commit_run(lane, run(number))

    assert (await lane.view(0)).head.root == b"theirs".ljust(16)


async def test_a_roll_that_is_done_while_a_commit_is_in_the_air_is_enough() -> None:
    class SlowMetadata(FaultyMetadata):
        async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
            versions = await super().transact(ops)
            await turns(20)
            return versions

    metadata, objects = SlowMetadata(new_metadata()), TestObjects()
    await create_lane(metadata)
    lane = Lane(TOPIC_ID, 0, new_runtime(metadata, objects))
    objects.hold_puts = True
    for number in range(200):  # Twice of what fits, so that anybody may roll.
        await commit_run(lane, run(number))
    assert len(objects.held) == 2

    ticket = lane.enqueue()
    ticket.ready(run(200))
    await turns(3)
    for gate in objects.held:
        gate.set()
    await ticket.committed
    await commit_run(lane, run(201))
    await turns()

    assert objects.calls["put"] == 2
    assert (await lane.view(0)).head.root


async def test_one_lane_for_all_who_ask_as_long_as_anyone_holds_it() -> None:
    metadata = new_metadata()
    known = Lanes(new_runtime(metadata), kept_max=3)
    held = known.lane(TOPIC_ID, 0)

    known.forget(TOPIC_ID)
    assert known.lane(TOPIC_ID, 0) is held
    for number in range(1, 100):
        known.lane(TOPIC_ID, number)
    assert known.lane(TOPIC_ID, 0) is held


async def test_unused_lanes_are_forgotten() -> None:
    metadata, ids = FaultyMetadata(new_metadata()), numbered_ids()
    known = Lanes(new_runtime(metadata), kept_max=3)
    for number in range(100):
        await create_lane(metadata, lane=number)
        ticket = known.lane(TOPIC_ID, number).enqueue()
        ticket.ready(run_of(next(ids), {0: 1}))
        await ticket.committed
    del ticket
    await turns()
    gc.collect()

    assert len(known._kept) == 3
    assert len(known._alive) <= 4


async def test_wake_all_reaches_lanes_that_are_forgotten_but_still_watched() -> None:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata)
    known = Lanes(new_runtime(metadata))
    lane = known.lane(TOPIC_ID, 0)
    view = await lane.view(0)
    waiting = asyncio.create_task(lane.watched.changed(view, 60))
    await turns()
    known.forget(TOPIC_ID)

    known.wake_all()
    await turns()

    assert waiting.done()
