"""When a head is rolled, who waits for it, and what becomes of a roll that came too late."""

import asyncio

import msgspec
import pytest

from storage.head import head as heads
from storage.head.head import Head
from storage.lanes.rolls import FLIGHT_MAX_S, HARD, OVERDUE, TRUSTED_S, Rolls
from tests.storage.helpers.faults import TestObjects
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.worlds import TOPIC_ID, Clock, new_metadata, new_runtime, turns

pytestmark = pytest.mark.anyio


def head_of(runs: int) -> Head:
    head = heads.create(TOPIC_ID, 0, 1, ["a"])
    return heads.append(head, [run_of(n.to_bytes(16), {0: 1}) for n in range(runs)])


RUN_BYTES = heads.inline_bytes(head_of(1))


class Scene:
    """The rolls of one process, whose head has room for four runs."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = Clock()
        self.objects = TestObjects()
        runtime = new_runtime(new_metadata(), self.objects, clock=self.clock, seed=seed)
        runtime.inline_bytes_max = 4 * RUN_BYTES
        self.rolls = Rolls(runtime, turns, lambda *_: None)

    async def rolled(self, before: int, new: int) -> bool:
        """Return whether a roll began when a commit made so many of so many runs."""
        puts = self.objects.calls["put"]
        self.rolls.begin_if_large(head_of(before), head_of(new))
        await turns()
        return self.objects.calls["put"] > puts


def test_every_run_takes_as_much() -> None:
    assert heads.inline_bytes(head_of(9)) == 9 * RUN_BYTES


@pytest.mark.parametrize(
    ("before", "new", "begins"),
    [
        (3, 4, False),
        (4, 5, True),
        (3, 5, True),
        (5, 6, False),
        (7, 4 * OVERDUE, False),
        (8, 4 * OVERDUE + 1, True),
    ],
)
async def test_who_crosses_the_limit_rolls_or_anybody_if_that_is_long_ago(
    before: int, new: int, begins: bool
) -> None:
    assert await Scene().rolled(before, new) is begins


async def test_a_commit_waits_only_if_the_head_is_far_too_large() -> None:
    scene = Scene()
    largest = head_of(4 * HARD)
    assert await scene.rolls.ready(largest) is largest

    ready = await scene.rolls.ready(head_of(4 * HARD + 1))

    assert (ready.runs, bool(ready.root)) == ((), True)


async def test_a_commit_waits_for_the_roll_that_is_on_its_way() -> None:
    scene = Scene()
    scene.objects.hold_puts = True
    assert await scene.rolled(0, 4 * HARD + 1)
    waiting = asyncio.create_task(scene.rolls.ready(head_of(4 * HARD + 1)))
    await turns()

    scene.objects.hold_puts = False
    for gate in scene.objects.held:
        gate.set()

    assert (await waiting).runs == ()
    assert len(scene.objects.names(".root")) == 1


@pytest.mark.parametrize(("later_s", "counts"), [(FLIGHT_MAX_S, True), (FLIGHT_MAX_S + 1, False)])
async def test_a_roll_counts_unless_it_is_too_old(later_s: float, counts: bool) -> None:
    scene = Scene()
    await scene.rolled(4, 5)
    scene.clock.now_s += later_s

    assert bool(scene.rolls.applied(head_of(5)).root) is counts


@pytest.mark.parametrize(("later_s", "counts"), [(TRUSTED_S, True), (TRUSTED_S + 1, False)])
async def test_an_older_roll_counts_only_if_no_zone_left_the_isr_since(
    later_s: float, counts: bool
) -> None:
    scene = Scene()
    await scene.rolled(4, 5)
    scene.clock.now_s += later_s
    head = head_of(5)

    later = msgspec.structs.replace(head, leader_epoch=head.leader_epoch + 1)

    assert bool(scene.rolls.applied(later).root) is counts


async def test_a_roll_that_was_overtaken_never_counts() -> None:
    scene, other = Scene(), Scene(seed=1)
    await scene.rolled(4, 5)
    await other.rolled(0, 6)
    overtaken = other.rolls.applied(head_of(6))
    assert overtaken.root

    assert scene.rolls.applied(overtaken) is overtaken
    head = head_of(5)
    assert scene.rolls.applied(head) is head
