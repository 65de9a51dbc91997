"""Windows leave the head and come back: whoever asks, a duplicate is known by its first offset."""

import asyncio
import random
from collections import Counter

import msgspec
import pytest

from storage import keys
from storage.errors import OutOfOrderSequence, StoreUnavailable
from storage.head import head as heads
from storage.head import producers
from storage.head.head import INLINE_BYTES_MAX, Head
from storage.head.producers import REMEMBERED_MAX, Claim, Window
from storage.lanes import windows
from storage.lanes.lane import Lane, LaneRuntime
from storage.lanes.rolls import FLIGHT_MAX_S, HARD
from storage.lanes.windows import FANOUT
from storage.stores.metadata import Put
from tests.storage.helpers.claims import Flush, Ledger, claim
from tests.storage.helpers.faults import FaultyMetadata, TestObjects
from tests.storage.helpers.worlds import (
    TOPIC_ID,
    Clock,
    create_lane,
    new_ids,
    new_metadata,
    new_runtime,
    turns,
)

pytestmark = pytest.mark.anyio

HEAD_KEY = keys.head(TOPIC_ID, 0)


HEAD_BYTES_MAX = 16 * 1024


class Scene:
    """One lane that several processes write to, and everything that was ever sent."""

    def __init__(self) -> None:
        self.metadata = FaultyMetadata(new_metadata())
        self.objects = TestObjects()
        self.ledger = Ledger(new_ids(5))
        self.clock = Clock()
        self._processes = 0
        self.sent: dict[int, list[Claim]] = {}
        self.offsets: dict[Claim, int] = {}

    def runtime(self) -> LaneRuntime:
        self._processes += 1
        return new_runtime(
            self.metadata,
            self.objects,
            clock=self.clock,
            seed=self._processes,
            index_cache_bytes=8 << 20,
        )

    def process(self) -> Lane:
        """Return the lane as a process sees it that has just begun."""
        return Lane(TOPIC_ID, 0, self.runtime())

    def next_of(self, producer_id: int, count: int = 1) -> Claim:
        own = self.sent.setdefault(producer_id, [])
        own.append(claim(producer_id, sum(each.record_count for each in own), count))
        return own[-1]

    async def send(self, lane: Lane, *batches: Claim) -> None:
        """Send batches, new ones and copies, and check that each is where it was at first."""
        answers = await Flush(self.ledger, batches).commit(lane)
        for batch, answer in answers.items():
            assert isinstance(answer, int), answer
            assert self.offsets.setdefault(batch, answer) == answer

    async def fill(self, lane: Lane, first: int, count: int = 400) -> None:
        """Send one batch each of so many new producers: more than stay in the head."""
        for start in range(first, first + count, 10):
            await self.send(lane, *(self.next_of(n) for n in range(start, start + 10)))
            await turns(5)

    async def fill_until_a_page_is_held(self, *lanes: Lane) -> int:
        """Send until as many lanes have begun to write a page; return the next new producer."""
        self.objects.hold_puts = True
        producer_id = 2
        while len(self.objects.held) < len(lanes):
            for lane in lanes:
                await self.send(lane, *(self.next_of(producer_id + n) for n in range(10)))
                await turns()
                producer_id += 10
        self.objects.hold_puts = False
        return producer_id

    async def head(self) -> Head:
        item = await self.metadata.get(HEAD_KEY)
        assert item is not None
        return heads.decode(item.value)

    async def check_everything(self) -> None:
        """Check, as a process that has just begun, that all of the last batches are known."""
        lane = self.process()
        copies = [each for own in self.sent.values() for each in own[-REMEMBERED_MAX:]]
        before = await self.head()
        for start in range(0, len(copies), 500):
            await self.send(lane, *copies[start : start + 500])
        assert await self.head() == before  # Nothing was written.
        log = await self.ledger.log(lane)
        assert len(log) == sum(each.record_count for own in self.sent.values() for each in own)
        for batch, offset in self.offsets.items():
            assert log[offset] == (batch, 0)


async def new_scene() -> Scene:
    scene = Scene()
    await create_lane(scene.metadata)
    return scene


async def test_ten_thousand_producers_in_any_order_with_repeats() -> None:
    scene, chance = await new_scene(), random.Random(1)
    lanes = [scene.process() for _ in range(3)]
    order = list(range(2, 10_002)) + [chance.randint(2, 10_001) for _ in range(8_000)]
    chance.shuffle(order)
    scene.metadata.calls.clear()
    largest = pages_max = levels = commits = 0

    for start in range(0, len(order), 12):
        batches = dict.fromkeys(
            chance.choice(scene.sent[n][-REMEMBERED_MAX:])
            if n in scene.sent and chance.random() < 0.2
            else scene.next_of(n, chance.randint(1, 9))
            for n in dict.fromkeys(order[start : start + 12])
        )
        await scene.send(chance.choice(lanes), *batches)
        await turns(4)
        commits += 1
        item = await scene.metadata.inner.get(HEAD_KEY)
        assert item is not None
        largest = max(largest, len(item.value))
        found = heads.decode(item.value).producer_pages
        pages_max = max(pages_max, len(found))
        levels = max([levels, *(page.level + 1 for page in found)])
        assert max(Counter(page.level for page in found).values(), default=0) < FANOUT

    assert largest < HEAD_BYTES_MAX
    assert 2 <= levels <= 4
    assert pages_max <= (FANOUT - 1) * levels
    assert (await scene.head()).root  # The index was rolled in between.
    # Spills are few beside the commits, and none is made to be thrown away by the hundred.
    assert len(scene.objects.names(".producers")) < commits / 2
    await scene.check_everything()


async def test_windows_that_are_used_again_return_to_the_head_and_stay_true() -> None:
    scene = await new_scene()
    lane = scene.process()
    for number in range(8):
        await scene.send(lane, scene.next_of(2, number + 1))
        await scene.fill(lane, 1000 * (number + 1), 150)

    assert len((await scene.head()).producer_pages) > 1
    known = [window.next_sequence for window in await windows_of(scene, 2)]
    assert len(known) > 2
    assert known == sorted(known)
    assert known[-1] == sum(range(1, 9))
    await scene.check_everything()
    # Those before the last five are not remembered, but known to be there.
    answers = await Flush(scene.ledger, [scene.sent[2][0]]).commit(scene.process())
    assert "in the log once" in str(answers[scene.sent[2][0]])


async def windows_of(scene: Scene, producer_id: int) -> list[Window]:
    """Return every window of the producer, oldest page first."""
    head = await scene.head()
    found = []
    for page in head.producer_pages:
        key = keys.index_object(TOPIC_ID, 0, page.object_id, "producers")
        held = windows.decode(await scene.objects.get(key))
        found += [window for window in held.values() if window.producer_id == producer_id]
    return found + [window for window in head.producers if window.producer_id == producer_id]


async def test_a_window_that_is_used_while_it_leaves_stays_in_the_head() -> None:
    scene = await new_scene()
    lane = scene.process()
    await scene.fill_until_a_page_is_held(lane)

    await scene.send(lane, scene.next_of(2), scene.next_of(3))
    scene.objects.held[0].set()
    await turns()
    head = await scene.head()

    assert len(head.producer_pages) == 1
    assert [w.producer_id for w in head.producers][-2:] == [2, 3]
    await scene.check_everything()


async def test_expired_windows_are_dropped_and_their_producers_begin_again() -> None:
    scene = await new_scene()
    lane = scene.process()
    await scene.fill(lane, 1000, 400)
    old = await scene.head()
    assert old.producers
    assert old.producer_pages

    scene.clock.now_s += 86_400 + 120
    scene.sent.clear()
    await scene.fill(lane, 5000, 1000)

    head = await scene.head()
    assert not await windows_of(scene, 1000)  # In the oldest page, which was merged since.
    assert not {w.producer_id for w in head.producers} & set(range(1000, 1400))
    assert sum(page.count for page in head.producer_pages) <= 1000
    again = Flush(scene.ledger, [claim(1000, 0)])
    assert isinstance((await again.commit(scene.process()))[claim(1000, 0)], int)
    gap = Flush(scene.ledger, [claim(1001, 1)])
    answer = (await gap.commit(scene.process()))[claim(1001, 1)]
    assert isinstance(answer, OutOfOrderSequence)


async def test_a_page_of_which_all_has_expired_is_not_written() -> None:
    scene = await new_scene()
    lane = scene.process()
    for producer_id in range(2, 100):
        await scene.send(lane, scene.next_of(producer_id))
    before = len((await scene.head()).producers)

    scene.clock.now_s += 86_400 + 120
    for producer_id in range(100, 200):
        await scene.send(lane, scene.next_of(producer_id))
        await turns()

    head = await scene.head()
    assert before == 98
    assert not scene.objects.names(".producers")
    assert {w.producer_id for w in head.producers} >= set(range(100, 200))
    assert len(head.producers) < 198


async def test_while_spills_fail_everything_stays_in_the_head_up_to_the_hard_limit() -> None:
    scene = await new_scene()
    lane = scene.process()
    # Rolls are few here, because a flush has ten producers.
    scene.objects.failing_puts = 10**9

    with pytest.raises(StoreUnavailable, match="rocks"):
        await scene.fill(lane, 1000, 10_000)

    held = producers.inline_bytes((await scene.head()).producers)
    assert 1 < held / (HARD * INLINE_BYTES_MAX) < 1.1
    scene.objects.failing_puts = 0
    missing = [own[-1] for own in scene.sent.values() if own[-1] not in scene.offsets]
    await scene.send(lane, *missing)
    await turns()
    assert producers.inline_bytes((await scene.head()).producers) < INLINE_BYTES_MAX
    await scene.check_everything()


async def test_a_page_that_cannot_be_read_fails_the_commit_and_guesses_nothing() -> None:
    scene = await new_scene()
    await scene.fill(scene.process(), 1000)
    scene.objects.failing_reads = 1

    with pytest.raises(StoreUnavailable, match="does not answer"):
        await Flush(scene.ledger, [scene.sent[1000][0]]).commit(scene.process())

    await scene.check_everything()


async def test_two_processes_that_spill_at_once_lose_nothing() -> None:
    scene = await new_scene()
    lanes = [scene.process() for _ in range(2)]
    # Beyond twice the limit, any process begins.
    producer_id = await scene.fill_until_a_page_is_held(*lanes)

    for gate in reversed(scene.objects.held):
        gate.set()
        await scene.send(lanes[producer_id % 2], scene.next_of(producer_id), scene.next_of(2))
        await turns()
        producer_id += 1
    assert len(scene.objects.names(".producers")) == 2
    assert len((await scene.head()).producer_pages) == 1
    await scene.fill(lanes[0], 10_000)
    await scene.check_everything()


@pytest.mark.parametrize("seed", range(6))
async def test_processes_that_come_and_go_amid_faults_lose_nothing(seed: int) -> None:
    scene, chance = await new_scene(), random.Random(seed)
    lanes = [scene.process() for _ in range(3)]

    for _ in range(250):
        if chance.random() < 0.05:  # It is gone, with what it had written and not committed.
            gone = chance.randrange(3)
            await lanes[gone]._runtime.aclose()
            lanes[gone] = scene.process()
        scene.objects.failing_puts = chance.choice([0, 0, 0, 1])
        if chance.random() < 0.2:
            scene.metadata.faults = [chance.choice(["request lost", "reply lost", "late"])]
        batches: dict[Claim, None] = {}
        for producer_id in {chance.randint(2, 600) for _ in range(6)}:
            own = scene.sent.get(producer_id, [])
            if own and chance.random() < 0.3:
                batches[chance.choice(own[-REMEMBERED_MAX:])] = None
            else:
                batches[scene.next_of(producer_id)] = None
        await scene.send(chance.choice(lanes), *batches)
        await turns(chance.choice([0, 3, 30]))

    scene.objects.failing_puts = 0
    await turns(200)
    assert (await scene.head()).producer_pages
    await scene.check_everything()


async def test_a_spill_counts_though_nobody_appends_any_more() -> None:
    scene = await new_scene()
    lane = scene.process()
    await scene.send(lane, *(scene.next_of(n) for n in range(2, 202)))
    await turns()

    head = await scene.head()
    assert head.producer_pages
    assert producers.inline_bytes(head.producers) <= INLINE_BYTES_MAX
    await scene.check_everything()


async def test_one_commit_of_very_many_producers_leaves_a_small_head() -> None:
    scene = await new_scene()
    lane = scene.process()
    await scene.send(lane, *(scene.next_of(n) for n in range(2, 5002)))
    await turns()

    item = await scene.metadata.get(HEAD_KEY)
    assert item is not None
    assert len(item.value) < HEAD_BYTES_MAX
    await scene.check_everything()


async def test_a_spill_that_took_too_long_is_an_orphan() -> None:
    scene = await new_scene()
    lane = scene.process()
    producer_id = await scene.fill_until_a_page_is_held(lane)

    scene.clock.now_s += FLIGHT_MAX_S + 1
    scene.objects.held[0].set()
    await turns()

    assert not (await scene.head()).producer_pages
    await scene.send(lane, scene.next_of(producer_id))
    await scene.check_everything()


async def test_a_zone_that_came_in_sync_while_a_page_was_written_must_hold_it() -> None:
    scene = await new_scene()
    lane = scene.process()
    await scene.fill_until_a_page_is_held(lane)
    item = await scene.metadata.get(HEAD_KEY)
    assert item is not None
    head = heads.decode(item.value)
    wider = msgspec.structs.replace(
        head, commits=head.commits + 1, zones=("a", "b"), replicas=(0, 1), isr=3
    )
    await scene.metadata.transact([Put(HEAD_KEY, heads.encode(wider), item.version)])
    await lane.view(0)

    scene.objects.held[0].set()
    await turns()

    assert (await scene.head()).producer_pages == ()


async def test_a_page_is_asked_only_if_it_may_hold_the_producer() -> None:
    scene = await new_scene()
    await scene.fill(scene.process(), 1000)
    fresh = scene.process()
    await fresh.view(0)
    scene.objects.calls.clear()

    await scene.send(fresh, scene.next_of(2))
    assert scene.objects.calls["get"] == 0
    await asyncio.gather(
        *(scene.send(fresh, scene.sent[producer_id][0]) for producer_id in (1000, 1001, 1002))
    )
    # Each page once, however many ask.
    assert 1 <= scene.objects.calls["get"] <= len((await scene.head()).producer_pages)
