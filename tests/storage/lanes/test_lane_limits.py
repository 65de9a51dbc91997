"""How many share a commit, who is too late for one, and whom a shutdown leaves waiting."""

import asyncio
import gc

import msgspec
import pytest

from storage.errors import OutcomeUnknown, ShuttingDown, StoreUnavailable
from storage.formats.entries import Kind
from storage.lanes import lane as lanes
from storage.lanes.lane import RUNS_PER_COMMIT_MAX, Lane, Lanes
from storage.lanes.rolls import FLIGHT_MAX_S, TRUSTED_S
from tests.storage.helpers.claims import claim
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import (
    TOPIC_ID,
    Clock,
    create_lane,
    new_metadata,
    new_runtime,
    turns,
)
from tests.storage.helpers.zoned import Zoned
from tests.storage.lanes.test_commit_rolls import GatedMetadata
from tests.storage.lanes.test_idempotence import new_scene, nobody

pytestmark = pytest.mark.anyio


async def new_lane(clock: Clock | None = None) -> tuple[Lane, FaultyMetadata]:
    metadata = FaultyMetadata(new_metadata())
    await create_lane(metadata)
    metadata.calls.clear()
    return Lanes(new_runtime(metadata, clock=clock)).lane(TOPIC_ID, 0), metadata


@pytest.mark.parametrize(
    ("count", "commits"), [(RUNS_PER_COMMIT_MAX, 1), (RUNS_PER_COMMIT_MAX + 1, 2)]
)
async def test_so_many_flushes_share_a_commit(count: int, commits: int) -> None:
    lane, metadata = await new_lane()
    tickets = [lane.enqueue() for _ in range(count)]
    for number, ticket in enumerate(tickets):
        ticket.ready(run_of(number.to_bytes(16), {0: 1}))

    assert [(await ticket.committed)[0] for ticket in tickets] == list(range(count))
    assert metadata.calls["transact"] == commits


async def test_one_that_was_withdrawn_does_not_part_those_around_it() -> None:
    lane, metadata = await new_lane()
    first, withdrawn, last = [lane.enqueue() for _ in range(3)]
    for number, ticket in enumerate((first, last)):
        ticket.ready(run_of(number.to_bytes(16), {0: 1}))
    withdrawn.withdraw()

    assert [await first.committed, await last.committed] == [{0: 0}, {0: 1}]
    assert metadata.calls["transact"] == 1


@pytest.mark.parametrize(("sizes", "commits"), [((2, 1), 1), ((2, 2), 2), ((4,), 1), ((4, 1), 2)])
async def test_so_many_batches_share_a_commit(
    sizes: tuple[int, ...], commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "CLAIMS_PER_COMMIT_MAX", 3)
    scene = await new_scene()
    producers = iter(range(1, 100))
    flushes = [scene.flush(*(claim(next(producers), 0) for _ in range(size))) for size in sizes]
    tickets = [scene.ours.enqueue() for _ in flushes]
    before = scene.faulty.calls["transact"]
    for flush, ticket in zip(flushes, tickets, strict=True):
        flush.start(ticket)

    await asyncio.gather(*(flush.landing for flush in flushes))

    assert scene.faulty.calls["transact"] - before == commits
    assert len(await scene.log()) == sum(sizes)


async def test_what_took_as_long_as_it_may_is_committed_and_what_took_longer_is_not() -> None:
    clock = Clock()
    lane, _ = await new_lane(clock)
    late = lane.enqueue()
    clock.now_s += 1
    ticket = lane.enqueue()
    clock.now_s += FLIGHT_MAX_S
    for number, each in enumerate((late, ticket)):
        each.ready(run_of(number.to_bytes(16), {0: 1}))

    with pytest.raises(StoreUnavailable, match="took too long"):
        await late.committed
    assert await ticket.committed == {0: 0}


async def test_the_oldest_of_those_that_share_a_commit_says_whether_zones_are_asked() -> None:
    zoned = await Zoned().written()
    old = zoned.lane.enqueue()
    zoned.clock.now_s += TRUSTED_S + 1
    young = zoned.lane.enqueue()

    old.ready(zoned.run)
    young.ready(msgspec.structs.replace(zoned.run, object_id=b"t" * 16, kind=int(Kind.TABLE)))

    assert [await old.committed, await young.committed] == [{0: 0}, {0: 1}]
    assert zoned.looks() == "abc"


async def test_copies_of_a_batch_get_the_same_offset_though_others_commit_first() -> None:
    scene = await new_scene()
    await scene.send(scene.ours, claim(2, 0))
    await scene.send(scene.theirs, nobody(1))
    flushes = [scene.flush(claim(4, 0)) for _ in range(2)]
    tickets = [scene.ours.enqueue() for _ in flushes]
    for flush, ticket in zip(flushes, tickets, strict=True):
        flush.start(ticket)

    told = [await flush.landing for flush in flushes]

    assert told == [{claim(4, 0): 2}] * 2
    assert await scene.log() == [claim(2, 0), nobody(1), claim(4, 0)]


async def test_a_commit_that_is_interrupted_ends_with_all_behind_it() -> None:
    metadata = GatedMetadata()
    await create_lane(metadata)
    lane = Lanes(new_runtime(metadata)).lane(TOPIC_ID, 0)
    metadata.gate.clear()
    first = lane.enqueue()
    first.ready(run_of(bytes(16), {0: 1}))
    await turns()
    behind = lane.enqueue()
    [committer] = lane._runtime._tasks

    committer.cancel()
    await asyncio.wait([committer], timeout=120)

    assert committer.cancelled()
    with pytest.raises(OutcomeUnknown):
        await first.committed
    with pytest.raises(ShuttingDown):
        await behind.committed


async def test_callers_that_wait_when_the_process_ends_get_an_error_unless_they_hung_up() -> None:
    unseen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: unseen.append(str(what)))
    lane, _ = await new_lane()
    first, waiting, hung_up = lane.take_turn(), lane.take_turn(), lane.take_turn()
    ticket, withdrawn = lane.enqueue(), lane.enqueue()
    withdrawn.withdraw()
    await first.reached
    [committer] = lane._runtime._tasks

    committer.cancel()
    await asyncio.wait([committer])

    assert not lane.is_committing
    for told in (waiting.reached, ticket.committed):
        with pytest.raises(ShuttingDown):
            await told
    for turn in (first, waiting, hung_up):
        turn.give_back()
    del turn, hung_up
    gc.collect()
    assert unseen == []


async def test_a_turn_that_was_given_back_before_it_came_holds_nobody_up() -> None:
    lane, _ = await new_lane()
    first, second = lane.take_turn(), lane.take_turn()
    ticket = lane.enqueue()
    ticket.ready(run_of(bytes(16), {0: 1}))
    await first.reached

    second.give_back()
    await turns()
    assert (second.reached.cancelled(), ticket.committed.done()) == (True, False)
    first.give_back()

    assert await ticket.committed == {0: 0}


async def test_lanes_in_use_are_the_same_for_everyone_and_others_are_forgotten() -> None:
    metadata = new_metadata()
    known = Lanes(new_runtime(metadata), kept_max=2)
    used = known.lane(TOPIC_ID, 0)
    numbers = [id(known.lane(TOPIC_ID, number)) for number in (1, 2)]
    gc.collect()

    assert known.lane(TOPIC_ID, 0) is used
    assert id(known.lane(TOPIC_ID, 2)) == numbers[1]
    assert list(known._kept) == [(TOPIC_ID, 0), (TOPIC_ID, 2)]
    known.forget(TOPIC_ID)
    assert list(known._kept) == []


async def test_a_flush_that_is_written_again_keeps_its_place_in_the_queue() -> None:
    scene = await new_scene()
    await scene.send(scene.theirs, claim(2, 0))
    ticket, behind = scene.ours.enqueue(), scene.ours.enqueue()
    flush = scene.flush(claim(2, 0), nobody(3))

    answer = ticket.ready(offer := flush.offer())
    behind.ready(run_of(bytes(16), {0: 1}))
    rejected = await answer
    await turns()
    assert not behind.committed.done()

    rest = await flush.rest(rejected, offer.claims)
    assert rest is not None
    assert await ticket.ready(rest) == {0: 1}
    assert await behind.committed == {0: 4}


async def test_a_rewrite_that_fails_ends_its_own_flush_only() -> None:
    scene = await new_scene()
    await scene.send(scene.theirs, claim(2, 0))
    flushes = [scene.flush(claim(2, 0), nobody(3)), scene.flush(nobody(5))]
    tickets = [scene.ours.enqueue() for _ in flushes]
    scene.ledger.failing_writes = 1
    for flush, ticket in zip(flushes, tickets, strict=True):
        flush.start(ticket)

    with pytest.raises(StoreUnavailable, match="rocks"):
        await flushes[0].landing
    assert await flushes[1].landing == {nobody(5): 1}


async def test_a_writer_that_hung_up_before_its_run_was_rejected_holds_nobody_up() -> None:
    scene = await new_scene()
    await scene.send(scene.theirs, claim(2, 0))
    ticket, behind = scene.ours.enqueue(), scene.ours.enqueue()
    ticket.ready(scene.flush(claim(2, 0), nobody(3)).offer()).cancel()
    behind.ready(run_of(bytes(16), {0: 1}))

    assert await behind.committed == {0: 1}


async def test_a_shutdown_is_reported_to_a_writer_that_writes_its_run_again() -> None:
    scene = await new_scene()
    await scene.send(scene.theirs, claim(2, 0))
    flush = scene.flush(claim(2, 0), nobody(3))
    ticket = scene.ours.enqueue()
    rejected = await ticket.ready(offer := flush.offer())

    await scene.ours._runtime.aclose()

    rest = await flush.rest(rejected, offer.claims)
    assert rest is not None
    with pytest.raises(OutcomeUnknown):
        await ticket.ready(rest)
