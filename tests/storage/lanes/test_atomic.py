"""Commits to many lanes at once: all or nothing, each once, whatever fails."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from storage import keys
from storage.errors import (
    InvalidTransactionState,
    NotEnoughReplicas,
    OutcomeUnknown,
    StoreUnavailable,
    TransactionTooLarge,
    UnknownTopicOrPartition,
)
from storage.formats import segments
from storage.head import head as heads
from storage.lanes.atomic import AtomicCommits, Bases, LaneRuns
from storage.lanes.lane import Lanes
from storage.stores.metadata import TRANSACT_OPS_MAX, Delete, MetadataStore, Op, Put, Versioned
from storage.zones.zones import Zones
from tests.storage.helpers.faults import Fault, FaultyMetadata, TestObjects
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.together import (
    LANES,
    Process,
    Scene,
    first_offsets,
    new_scene,
    nothing_else,
    runs_of,
    staged_in,
)
from tests.storage.helpers.worlds import TOPIC_ID, new_metadata, new_runtime, turns
from tests.storage.lanes.test_lanes import run

pytestmark = pytest.mark.anyio

FAULTS: Sequence[Fault] = ("request lost", "reply lost", "late")


async def test_all_lanes_and_all_else_change_in_one_transaction() -> None:
    scene = await new_scene()
    await scene.ours.append(1, 7)
    scene.faulty.calls.clear()

    bases = await scene.ours.atomic.commit(
        [runs_of(1, 1, 2), runs_of(3, 3)], scene.ours.puts("txn/a")
    )

    assert bases == {(TOPIC_ID, 1): [{0: 1}, {0: 2}], (TOPIC_ID, 3): [{0: 0}]}
    assert await scene.orders() == [[], [7, 1, 2], [], [3]]
    assert await scene.table.get("txn/a") is not None
    assert scene.faulty.calls["transact"] == 1


async def test_what_is_staged_for_a_lane_in_parts_is_appended_in_that_order() -> None:
    scene = await new_scene()

    bases = await scene.ours.atomic.commit(
        [runs_of(1, 1), runs_of(0, 2), runs_of(1, 3), runs_of(1, 4, 5)], nothing_else
    )

    assert await scene.orders() == [[2], [1, 3, 4, 5], [], []]
    assert bases[TOPIC_ID, 1] == [{0: n} for n in range(4)]


async def test_nothing_staged_is_what_the_plan_says() -> None:
    scene = await new_scene()

    assert await scene.ours.atomic.commit([], scene.ours.puts("txn/a")) == {}
    assert await scene.ours.atomic.commit([], nothing_else) == {}

    assert await scene.table.get("txn/a") is not None


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("times", [1, 3])
async def test_an_unanswered_commit_lands_once_and_knows_its_offsets(
    fault: Fault, times: int
) -> None:
    scene = await new_scene()
    await scene.ours.append(2, 7)
    scene.faulty.faults = [fault] * times

    bases = await scene.ours.atomic.commit(staged_in([0, 2, 3], 1), nothing_else)

    await turns()
    assert first_offsets(bases) == {0: 0, 2: 1, 3: 0}
    assert await scene.orders() == [[1], [], [7, 1], [1]]
    assert await scene.ours.append(2, 8) == 2


@pytest.mark.parametrize("fault", [*FAULTS, "none"])
@pytest.mark.parametrize("lane", [0, 2, 3, 1])
async def test_also_if_others_append_to_one_of_the_lanes_meanwhile(fault: Fault, lane: int) -> None:
    scene = await new_scene()
    await scene.ours.atomic.commit(staged_in(range(LANES), 7), nothing_else)
    scene.faulty.faults = [fault]

    async def interfere() -> None:
        for number in range(100, 103):
            await scene.theirs.append(lane, number)

    if fault == "none":
        await interfere()  # We do not know of it yet.
    scene.faulty.before_unknown = interfere
    bases = await scene.ours.atomic.commit(staged_in([0, 2, 3], 1), scene.ours.puts("txn/a"))

    await turns()
    for number, order in enumerate(await scene.orders()):
        others = [100, 101, 102] if number == lane else []
        assert sorted(order) == sorted([7, *others] + ([1] if number != 1 else []))
        if number != 1:
            assert order[first_offsets(bases)[number]] == 1


async def test_a_refused_commit_changed_nothing_and_says_so() -> None:
    scene = await new_scene()
    scene.faulty.faults = ["refused"]

    with pytest.raises(StoreUnavailable):
        await scene.ours.atomic.commit(staged_in([0, 2], 1), scene.ours.puts("txn/a"))

    assert await scene.orders() == [[], [], [], []]
    assert await scene.table.get("txn/a") is None


async def test_a_refusal_after_an_unanswered_attempt_proves_nothing() -> None:
    scene = await new_scene()
    scene.faulty.faults = ["request lost", "refused"]

    with pytest.raises(OutcomeUnknown, match="throttled"):
        await scene.ours.atomic.commit(staged_in([0, 2], 1), nothing_else)


@pytest.mark.parametrize("fault", FAULTS)
async def test_if_it_cannot_be_read_back_the_outcome_is_unknown(fault: Fault) -> None:
    scene = await new_scene()
    scene.faulty.faults = [fault]

    async def go_away() -> None:
        scene.faulty.failing_gets = 1

    scene.faulty.before_unknown = go_away
    with pytest.raises(OutcomeUnknown):
        await scene.ours.atomic.commit(staged_in([0, 2], 1), nothing_else)

    await turns()
    expected = [] if fault == "request lost" else [1]
    assert await scene.orders() == [expected, [], expected, []]


class LandsBetweenReads(FaultyMetadata):
    """A table that does an unanswered transaction when the last lane is read, not before."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner)
        self.held: list[Sequence[Op]] = []

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        if self.faults and self.calls["transact"] == 0:
            self.held.append(ops)
        return await super().transact(ops)

    async def get(self, key: str) -> Versioned | None:
        if self.held and key == keys.head(TOPIC_ID, LANES - 1):
            await self.inner.transact(self.held.pop())
        return await super().get(key)


async def test_a_commit_that_lands_while_the_heads_are_read_knows_its_offsets() -> None:
    scene = await new_scene()
    table = LandsBetweenReads(scene.table)
    ours = Process(table, scene.objects, 2)
    for lane in range(LANES):
        await ours.lanes.lane(TOPIC_ID, lane).view(0)
    table.faults = ["request lost", "request lost"]

    bases = await ours.atomic.commit(staged_in(range(LANES), 1), nothing_else)

    assert await scene.orders() == [[1]] * LANES
    assert first_offsets(bases) == dict.fromkeys(range(LANES), 0)


async def test_too_many_lanes_are_refused_before_anything() -> None:
    scene = await new_scene()
    called = []

    async def plan(bases: Bases) -> Sequence[Op]:
        called.append(bases)
        return []

    with pytest.raises(TransactionTooLarge, match="101 lanes and 0 other items"):
        await scene.ours.atomic.commit(staged_in(range(TRANSACT_OPS_MAX + 1), 1), plan)

    assert not called
    assert not scene.faulty.calls


async def test_too_many_items_are_refused_with_their_number() -> None:
    scene = await new_scene()

    async def plan(bases: Bases) -> Sequence[Op]:
        return [Put(f"offset/g/t/{n}", b"", None) for n in range(98)]

    with pytest.raises(TransactionTooLarge, match="3 lanes and 98 other items"):
        await scene.ours.atomic.commit(staged_in([0, 1, 2], 1), plan)
    await scene.ours.atomic.commit(staged_in([0, 1], 2), plan)

    assert await scene.orders() == [[2], [2], [], []]


async def test_more_runs_than_a_head_can_hold_are_refused() -> None:
    scene = await new_scene()
    many = LaneRuns(TOPIC_ID, 0, tuple(run(n) for n in range(14_000)))

    with pytest.raises(TransactionTooLarge, match="14000 writes to one lane"):
        await scene.ours.atomic.commit([many, runs_of(1, 1)], nothing_else)

    assert await scene.ours.append(0, 1) == 0


async def test_a_plan_that_raises_ends_it_and_gives_the_turns_back() -> None:
    scene = await new_scene()
    await scene.theirs.atomic.commit([], scene.theirs.puts("txn/a"))

    with pytest.raises(InvalidTransactionState, match="done already"):
        await scene.ours.atomic.commit(staged_in([0, 1], 1), scene.ours.puts("txn/a"))

    assert await scene.ours.append(0, 2) == 0
    assert await scene.orders() == [[2], [], [], []]


async def test_a_plan_sees_the_offsets_of_every_attempt() -> None:
    scene = await new_scene()
    seen = []

    async def plan(bases: Bases) -> Sequence[Op]:
        seen.append(first_offsets(bases))
        if len(seen) < 4:
            await scene.theirs.append(len(seen) % 2, 100 + len(seen))
        return []

    bases = await scene.ours.atomic.commit(staged_in([0, 1], 1), plan)

    assert seen == [{0: 0, 1: 0}, {0: 0, 1: 1}, {0: 1, 1: 1}, {0: 1, 1: 2}]
    assert first_offsets(bases) == seen[-1]


async def test_a_plan_whose_item_others_change_is_asked_again() -> None:
    scene = await new_scene()
    rounds: list[str | None] = []

    async def plan(bases: Bases) -> Sequence[Op]:
        item = await scene.table.get("txn/a")
        expected = None if item is None else item.version
        if len(rounds) < 2:
            rounds.append(expected)
            await scene.table.transact([Put("txn/a", b"theirs", expected)])
        return [Put("txn/a", b"ours", expected)]

    await scene.ours.atomic.commit(staged_in([0, 1], 1), plan)

    item = await scene.table.get("txn/a")
    assert item is not None
    assert item.value == b"ours"
    assert await scene.orders() == [[1], [1], [], []]


async def test_a_plan_that_finds_its_own_unanswered_work_does_not_say_that_it_failed() -> None:
    scene = await new_scene()
    scene.faulty.faults = ["reply lost"]

    async def go_away() -> None:
        # The heads as they were; only its item tells the plan.
        scene.faulty.failing_gets = 1

    scene.faulty.before_unknown = go_away
    with pytest.raises(OutcomeUnknown):
        await scene.ours.atomic.commit(staged_in([0], 1), scene.ours.puts("txn/a"))
    with pytest.raises(InvalidTransactionState):
        await scene.ours.atomic.commit(staged_in([0], 1), scene.ours.puts("txn/a"))

    assert await scene.order(0) == [1]


async def delete_lane(scene: Scene, lane: int) -> None:
    key = keys.head(TOPIC_ID, lane)
    item = await scene.table.get(key)
    assert item is not None
    await scene.table.transact([Delete(key, item.version)])


@pytest.mark.parametrize("lane", [0, 2])
async def test_nothing_is_committed_if_one_of_the_topics_is_gone(lane: int) -> None:
    scene = await new_scene()
    await scene.ours.atomic.commit(staged_in([0, 2], 7), nothing_else)
    await delete_lane(scene, lane)

    with pytest.raises(UnknownTopicOrPartition):
        await scene.ours.atomic.commit(staged_in([0, 2], 1), scene.ours.puts("txn/a"))

    assert await scene.order(2 - lane) == [7]
    assert await scene.table.get("txn/a") is None
    assert await scene.ours.append(2 - lane, 8) == 1


@pytest.mark.parametrize("lane", [0, 2])
async def test_a_topic_deleted_after_an_unanswered_commit_leaves_the_rest_in_doubt(
    lane: int,
) -> None:
    scene = await new_scene()
    scene.faulty.faults = ["reply lost"]
    scene.faulty.before_unknown = lambda: delete_lane(scene, lane)

    with pytest.raises(OutcomeUnknown):
        await scene.ours.atomic.commit(staged_in([0, 2], 1), nothing_else)

    assert await scene.order(2 - lane) == [1]


class TwoZones:
    """A lane in zone a, into whose ISR zone b came after something was staged."""

    def __init__(self) -> None:
        self.table = new_metadata()
        self.stores = {"a": TestObjects(), "b": TestObjects()}
        runtime = new_runtime(self.table, self.stores["a"])
        runtime.zones = Zones(self.stores)
        self.lanes = Lanes(runtime)
        self.atomic = AtomicCommits(self.lanes, runtime)
        self.staged = run_of(bytes(16), {0: 1})

    async def start(self) -> None:
        await self.stores["a"].put(keys.hot_segment(self.staged.object_id), segments.encode([]))
        head = heads.create(TOPIC_ID, 0, 1, ["a", "b"])
        head = msgspec.structs.replace(head, isr=0b11)
        await self.table.transact([Put(keys.head(TOPIC_ID, 0), heads.encode(head), None)])


async def test_what_was_staged_before_a_zone_came_in_sync_is_copied_to_it() -> None:
    world = TwoZones()
    await world.start()

    await world.atomic.commit([LaneRuns(TOPIC_ID, 0, (world.staged,))], nothing_else)

    [committed] = (await world.lanes.lane(TOPIC_ID, 0).view(0)).head.runs
    assert committed.zones == 0b11
    copied = await world.stores["b"].get(keys.hot_segment(committed.object_id))
    assert copied == b"".join(segments.encode([]))


async def test_if_that_zone_does_not_take_it_it_leaves_unless_it_is_needed() -> None:
    world = TwoZones()
    await world.start()
    world.stores["b"].failing_puts = 10**9

    with pytest.raises(NotEnoughReplicas):
        await world.atomic.commit([LaneRuns(TOPIC_ID, 0, (world.staged,), 2)], nothing_else)
    assert (await world.lanes.lane(TOPIC_ID, 0).view(0)).head.next_offsets == (0,)

    await world.atomic.commit([LaneRuns(TOPIC_ID, 0, (world.staged,), 1)], nothing_else)
    head = (await world.lanes.lane(TOPIC_ID, 0).view(0)).head
    assert (head.next_offsets, head.isr, head.leader_epoch) == ((1,), 0b01, 1)
