"""The age of a view counts from before its call, however late the answer is handled."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from storage.errors import MetadataConflict, NotEnoughReplicas, StoreUnavailable
from storage.head import head as heads
from storage.lanes.atomic import AtomicCommits, LaneRuns
from storage.lanes.commits import Offer
from storage.lanes.lane import Lane, Lanes
from storage.stores.metadata import Put
from storage.topics.topics import Topics
from tests.storage.helpers.logs import run_of
from tests.storage.helpers.standing_still import StandingStill
from tests.storage.helpers.together import nothing_else
from tests.storage.helpers.worlds import (
    TOPIC_ID,
    Clock,
    commit_run,
    create_lane,
    new_ids,
    new_metadata,
    new_runtime,
)

pytestmark = pytest.mark.anyio

STOOD_S = 10.0
FRESH_S = 1.0


class Scene:
    """A lane of one partition, used by our process and by another one."""

    def __init__(self) -> None:
        self.inner = new_metadata()
        self.table, self.clock = StandingStill(self.inner), Clock()
        runtime = new_runtime(self.table, clock=self.clock)
        self.lanes = Lanes(runtime)
        self.ours = self.lanes.lane(TOPIC_ID, 0)
        self.atomic = AtomicCommits(self.lanes, runtime)
        self.theirs = Lane(TOPIC_ID, 0, new_runtime(self.inner, seed=7))
        self._next_id = 0

    async def append(self, lane: Lane) -> None:
        self._next_id += 1
        await commit_run(lane, run_of(self._next_id.to_bytes(16), {0: 1}))

    async def stand_still(self) -> None:
        """Let time pass, while the other process appends a record and gets its answer."""
        self.clock.now_s += STOOD_S
        await self.append(self.theirs)

    async def end(self) -> int:
        """Return the end of the log in a view that is recent enough."""
        return (await self.ours.view(FRESH_S)).head.next_offsets[0]


async def new_scene() -> Scene:
    scene = Scene()
    await create_lane(scene.inner)
    await scene.ours.view(0)
    return scene


async def test_a_views_age_counts_from_before_the_read() -> None:
    scene = await new_scene()
    scene.table.meanwhile = scene.stand_still
    assert (await scene.ours.view(0)).head.next_offsets == (0,)

    assert await scene.end() == 1


async def test_a_views_age_counts_from_before_the_commit_that_made_it() -> None:
    scene = await new_scene()
    scene.table.meanwhile = scene.stand_still
    await scene.append(scene.ours)

    assert await scene.end() == 2


async def test_a_views_age_counts_from_before_the_commit_that_conflicted_with_it() -> None:
    scene = await new_scene()
    await scene.append(scene.theirs)
    scene.table.meanwhile = scene.stand_still
    # The first attempt gets a conflict and the second fails, so the view of the first stays.
    scene.table.faults = ["none", "refused"]
    with pytest.raises(StoreUnavailable):
        await scene.append(scene.ours)

    assert await scene.end() == 2


async def test_a_views_age_counts_from_before_the_write_that_reported_a_failed_zone() -> None:
    scene = Scene()
    head = heads.create(TOPIC_ID, 0, 1, ["a", "b"])
    await scene.inner.transact([Put(scene.ours.watched.key, heads.encode(head), None)])
    await scene.ours.view(0)
    run = msgspec.structs.replace(run_of(bytes(16), {0: 1}), zones=1)
    scene.table.meanwhile = scene.stand_still
    with pytest.raises(NotEnoughReplicas):
        await scene.ours.commits.commit([Offer(run, failed=2, in_sync_min=2)], scene.clock.now_s)
    assert scene.table.meanwhile is None

    assert await scene.end() == 1


@pytest.mark.parametrize("loses", [False, True])
async def test_the_age_of_views_counts_from_before_a_commit_to_many_lanes(loses: bool) -> None:
    scene = await new_scene()
    await create_lane(scene.inner, lane=1)
    await scene.lanes.lane(TOPIC_ID, 1).view(0)
    staged = [LaneRuns(TOPIC_ID, n, (run_of(bytes([n]) * 16, {0: 1}),)) for n in range(2)]
    if loses:
        await scene.append(scene.theirs)
        scene.table.faults = ["none", "refused"]
    scene.table.meanwhile = scene.stand_still
    with pytest.raises(StoreUnavailable) if loses else nullcontext():
        await scene.atomic.commit(staged, nothing_else)

    assert await scene.end() == 2


async def test_a_late_answer_does_not_change_the_age_of_a_newer_view() -> None:
    scene = await new_scene()

    async def overtaken() -> None:
        scene.clock.now_s += STOOD_S
        await scene.append(scene.ours)

    # A read that began before our commit is answered after it. The view stays that of the
    # commit, whose age counts from when the commit began.
    began_s = scene.clock.now_s
    scene.table.meanwhile = overtaken
    view = await scene.ours.view(0)

    assert view.head.next_offsets == (1,)
    assert view.read_began_s == began_s + STOOD_S


def new_topics(scene: Scene) -> Topics:
    return Topics(
        scene.table, ["a"], new_ids(0), scene.clock.now_ms, scene.clock.monotonic_s, age_max_s=1.0
    )


async def _read(topics: Topics) -> object:
    return await topics.read("t")


async def _alter(topics: Topics) -> object:
    return await topics.alter("t", config={"retention.ms": "60000"})


@pytest.mark.parametrize("call", [_read, _alter])
async def test_a_topics_age_counts_from_before_the_call_that_read_or_wrote_it(
    call: Callable[[Topics], Awaitable[object]],
) -> None:
    scene = Scene()
    ours, theirs = (
        new_topics(scene),
        Topics(scene.inner, ["a"], new_ids(1), scene.clock.now_ms, scene.clock.monotonic_s),
    )
    await theirs.create("t")

    async def widened() -> None:
        scene.clock.now_s += STOOD_S
        await theirs.alter("t", partitions=2)

    async def widened_after_the_write() -> None:
        # `alter` reads first; its write is what is answered late.
        scene.table.meanwhile = widened

    scene.table.meanwhile = widened if call is _read else widened_after_the_write
    await call(ours)
    assert scene.table.meanwhile is None

    assert (await ours.get("t")).partition_count == 2


async def test_a_conflict_is_dated_and_still_a_conflict() -> None:
    scene = await new_scene()
    began_s = scene.clock.now_s
    dated = new_runtime(scene.table, clock=scene.clock).dated
    scene.table.meanwhile = scene.stand_still
    with pytest.raises(MetadataConflict) as caught:
        await dated.transact([Put(scene.ours.watched.key, b"", "never")])

    assert caught.value.current[scene.ours.watched.key] is not None
    assert vars(caught.value)["began_s"] == began_s


def test_only_one_module_dates_calls() -> None:
    root = Path(__file__).parents[3]
    makers = {
        path.relative_to(root).as_posix()
        for folder in ("storage", "service")
        for path in (root / folder).rglob("*.py")
        if "CallBegan(" in path.read_text()
    }
    assert makers == {"storage/stores/dated.py"}
