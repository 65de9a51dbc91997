"""Which windows leave a head, when, and what becomes of a move that came too late."""

import asyncio
from collections.abc import Iterable

import msgspec
import pytest

from storage.head import head as heads
from storage.head.head import Head
from storage.head.producers import Window
from storage.lanes.rolls import FLIGHT_MAX_S, HARD, OVERDUE, TRUSTED_S
from storage.lanes.windows import Spills, WindowPages
from storage.zones.zones import Zones
from tests.storage.helpers.faults import TestObjects
from tests.storage.helpers.worlds import TOPIC_ID, Clock, new_ids, new_metadata, new_runtime, turns

pytestmark = pytest.mark.anyio

MINUTE, DAY_MS = 5, 86_400_000
WINDOW_BYTES = 28
"""Of one batch each."""


def window(producer_id: int) -> Window:
    return Window(producer_id, 0, 0, MINUTE, 1, (1, producer_id))


def head_with(ids: Iterable[int], zones: str = "a") -> Head:
    head = heads.create(TOPIC_ID, 0, 1, list(zones))
    return heads.with_windows(head, {(n, 0): window(n) for n in ids})


def pages_in(objects: TestObjects, cache_bytes_max: int = 1 << 20) -> WindowPages:
    return WindowPages(Zones({"a": objects}), new_ids(), cache_bytes_max)


# Pages


@pytest.mark.parametrize("kept", [0, 1, 3, 9])
async def test_those_used_last_stay_as_long_as_there_is_room(kept: int) -> None:
    head = head_with(range(1, 11))

    spill = await pages_in(TestObjects()).spill(head, MINUTE, DAY_MS, kept * WINDOW_BYTES)

    assert [key[0] for key in spill.windows] == list(range(1, 11 - kept))
    [page] = spill.new_pages
    assert (page.first_producer_id, page.last_producer_id) == (1, 10 - kept)


async def test_where_there_is_room_for_all_nothing_is_written() -> None:
    objects = TestObjects()

    spill = await pages_in(objects).spill(head_with(range(10)), MINUTE, DAY_MS, 10 * WINDOW_BYTES)

    assert (spill.windows, spill.new_pages, objects.names()) == ({}, (), [])


async def test_eight_pages_become_one_of_the_next_level() -> None:
    pages = pages_in(TestObjects())
    head = head_with([])
    for number in range(1, 8 * 8 + 10):
        full = heads.with_windows(head, {(number, 0): window(number)})
        spill = await pages.spill(full, MINUTE, DAY_MS, 0)
        head = msgspec.structs.replace(head, producer_pages=spill.new_pages)

        eights, ones = divmod(number, 8)
        levels = [2] * (eights // 8) + [1] * (eights % 8) + [0] * ones
        assert [page.level for page in head.producer_pages] == levels

    wanted = [(number, 0) for number in range(1, 8 * 8 + 10)]
    assert await pages.find(head, wanted) == {key: window(key[0]) for key in wanted}


async def spilled(objects: TestObjects, count: int = 100) -> tuple[Head, WindowPages]:
    pages = pages_in(objects)
    head = head_with(range(1, count + 1))
    spill = await pages.spill(head, MINUTE, DAY_MS, 0)
    return msgspec.structs.replace(head, producers=(), producer_pages=spill.new_pages), pages


async def test_who_wrote_a_page_need_not_read_it() -> None:
    objects = TestObjects()
    head, pages = await spilled(objects)

    found = await pages.find(head, [(1, 0), (100, 0), (101, 0)])

    assert found == {(1, 0): window(1), (100, 0): window(100)}
    assert objects.calls["get"] == 0


@pytest.mark.parametrize(("cache_bytes", "reads"), [(200 * 101, 1), (200 * 101 - 1, 2)])
async def test_pages_are_kept_as_far_as_there_is_room(cache_bytes: int, reads: int) -> None:
    objects = TestObjects()
    head, _ = await spilled(objects)
    pages = pages_in(objects, cache_bytes)

    for _ in range(2):
        assert await pages.find(head, [(100, 0)]) == {(100, 0): window(100)}

    assert objects.calls["get"] == reads


# Moves beside commits


class Scene:
    """The moves of one process, whose head has room for so many windows."""

    def __init__(self, room: int = 4, zones: str = "a") -> None:
        self.clock = Clock()
        self.stores = {name: TestObjects() for name in zones}
        self.objects = self.stores["a"]
        self.runtime = new_runtime(new_metadata(), clock=self.clock)
        self.runtime.inline_bytes_max = room * WINDOW_BYTES
        self.zones = zones
        self.failed: list[tuple[int, int]] = []
        pages = WindowPages(Zones(self.stores), new_ids(), 1 << 20)
        self.spills = Spills(self.runtime, pages, turns, lambda *told: self.failed.append(told))

    def head(self, count: int) -> Head:
        return head_with(range(1, count + 1), self.zones)

    async def moved(self, before: int, new: int) -> int:
        """Return how many pages were written when a commit made so many of so many windows."""
        puts = self.objects.calls["put"]
        self.spills.begin_if_large(self.head(before), self.head(new))
        await turns()
        return self.objects.calls["put"] - puts


@pytest.mark.parametrize(
    ("before", "new", "puts"),
    [(3, 4, 0), (4, 5, 1), (3, 5, 1), (5, 6, 0), (7, 4 * OVERDUE, 0), (8, 4 * OVERDUE + 1, 1)],
)
async def test_who_crosses_the_limit_moves_them_or_anybody_if_that_is_long_ago(
    before: int, new: int, puts: int
) -> None:
    assert await Scene().moved(before, new) == puts


async def test_one_move_at_a_time_and_none_while_one_waits_to_count() -> None:
    scene = Scene()
    scene.objects.hold_puts = True
    assert await scene.moved(4, 5) == 1
    assert await scene.moved(8, 9) == 0

    scene.objects.held[0].set()
    await turns()

    assert await scene.moved(8, 9) == 0
    head = scene.head(9)
    applied = scene.spills.applied(head)
    assert [each.producer_id for each in applied.producers] == [4, 5, 6, 7, 8, 9]
    assert len(applied.producer_pages) == 1


async def test_a_commit_waits_only_if_there_are_far_too_many() -> None:
    scene = Scene()
    most = scene.head(4 * HARD)
    assert await scene.spills.ready(most) is most

    ready = await scene.spills.ready(scene.head(4 * HARD + 1))

    assert (len(ready.producers), len(ready.producer_pages)) == (2, 1)


async def test_a_commit_waits_for_the_move_that_is_on_its_way() -> None:
    scene = Scene()
    scene.objects.hold_puts = True
    head = scene.head(4 * HARD + 1)
    assert await scene.moved(0, 4 * HARD + 1) == 1
    waiting = asyncio.create_task(scene.spills.ready(head))
    await turns()

    scene.objects.hold_puts = False
    scene.objects.held[0].set()

    assert len((await waiting).producers) == 2
    assert scene.objects.calls["put"] == 1


@pytest.mark.parametrize(("later_s", "counts"), [(FLIGHT_MAX_S, True), (FLIGHT_MAX_S + 1, False)])
async def test_a_move_counts_unless_it_is_too_old(later_s: float, counts: bool) -> None:
    scene = Scene()
    await scene.moved(4, 5)
    scene.clock.now_s += later_s

    assert bool(scene.spills.applied(scene.head(5)).producer_pages) is counts


@pytest.mark.parametrize(("later_s", "counts"), [(TRUSTED_S, True), (TRUSTED_S + 1, False)])
async def test_an_older_move_counts_only_if_no_zone_left_the_isr_since(
    later_s: float, counts: bool
) -> None:
    scene = Scene()
    await scene.moved(4, 5)
    scene.clock.now_s += later_s
    head = scene.head(5)

    later = msgspec.structs.replace(head, leader_epoch=head.leader_epoch + 1)

    assert bool(scene.spills.applied(later).producer_pages) is counts


async def test_a_move_that_was_overtaken_never_counts() -> None:
    scene = Scene()
    await scene.moved(4, 5)
    head = scene.head(5)
    [page] = scene.spills.applied(head).producer_pages
    other = msgspec.structs.replace(page, object_id=bytes(16))
    overtaken = msgspec.structs.replace(head, producer_pages=(other,))

    assert scene.spills.applied(overtaken) is overtaken
    assert scene.spills.applied(head) is head


@pytest.mark.parametrize("refusing", ["", "c"])
async def test_zones_that_do_not_take_a_page_are_reported(refusing: str) -> None:
    scene = Scene(zones="abc")
    for name in refusing:
        scene.stores[name].failing_puts = 1

    await scene.moved(4, 5)

    epoch = scene.head(5).leader_epoch
    assert scene.failed == ([(0b100, epoch)] if refusing else [])
