"""Flushes with a fence: one that does not hold fails its own flush, and nothing else."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from storage.errors import (
    Contended,
    OutOfOrderSequence,
)
from storage.stores.metadata import Check, MetadataStore, Op, Put
from tests.storage.helpers.claims import claim
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.lanes.test_idempotence import Scene, new_scene, nobody

pytestmark = pytest.mark.anyio


class Fence:
    """An item whose version commits are conditional on."""

    KEY = "txn/copier"

    def __init__(self, scene: Scene) -> None:
        self._table = scene.table

    async def check(self) -> Check:
        item = await self._table.get(self.KEY)
        return Check(self.KEY, None if item is None else item.version)

    async def move(self) -> None:
        await self._table.transact([Put(self.KEY, b"newer", (await self.check()).expected)])


async def test_a_fence_that_does_not_hold_fails_its_own_flush_only() -> None:
    scene = await new_scene()
    fence = Fence(scene)
    await fence.move()
    fenced = scene.flush(claim(3, 0), checks=(await fence.check(),))
    flushes = [scene.flush(nobody(2)), fenced, scene.flush(claim(2, 0))]
    tickets = [scene.ours.enqueue() for _ in flushes]
    await scene.ours.view(0)
    await fence.move()
    for flush, ticket in zip(flushes, tickets, strict=True):
        flush.start(ticket)

    with pytest.raises(Contended, match="the producer changed"):
        await flushes[1].landing
    assert await flushes[0].landing == {nobody(2): 0}
    assert await flushes[2].landing == {claim(2, 0): 2}
    again = scene.flush(claim(3, 0), checks=(await fence.check(),))
    assert await again.commit(scene.ours) == {claim(3, 0): 3}


async def test_of_two_fences_on_one_item_the_older_one_counts_too() -> None:
    scene = await new_scene()
    fence = Fence(scene)
    await fence.move()
    await scene.send(scene.ours, claim(3, 0))
    older = scene.flush(claim(3, 1), checks=(await fence.check(),))
    await fence.move()
    newer = scene.flush(claim(3, 0, epoch=1), checks=(await fence.check(),))
    tickets = [scene.ours.enqueue() for _ in range(2)]
    for flush, ticket in zip((older, newer), tickets, strict=True):
        flush.start(ticket)

    with pytest.raises(Contended, match="the producer changed"):
        await older.landing
    assert await newer.landing == {claim(3, 0, epoch=1): 1}
    assert await scene.log() == [claim(3, 0), claim(3, 0, epoch=1)]


class MeetsOthers(FaultyMetadata):
    """A table where somebody else is faster, once."""

    def __init__(self, inner: MetadataStore, others: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._others: Callable[[], Awaitable[object]] | None = others

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        if self._others is not None:
            others, self._others = self._others, None
            await others()
        return await super().transact(ops)


async def test_what_was_reported_before_a_fence_failed_holds_after_it() -> None:
    scene = await new_scene()
    fence = Fence(scene)
    early, behind = claim(2, 1), nobody(2)
    flushes = [
        scene.flush(early, behind),
        scene.flush(claim(3, 0), checks=(await fence.check(),)),
    ]
    tickets = [scene.ours.enqueue() for _ in flushes]
    await scene.ours.view(0)
    await fence.move()

    # The gap is filled after the early one was refused, and before the rest is tried again.
    scene.ours._runtime.metadata = MeetsOthers(
        scene.table, lambda: scene.send(scene.theirs, claim(2, 0))
    )
    for flush, ticket in zip(flushes, tickets, strict=True):
        flush.start(ticket)
    with pytest.raises(Contended):
        await flushes[1].landing
    answers = await flushes[0].landing

    log = await scene.log()
    assert isinstance(answers[early], OutOfOrderSequence)
    assert early not in log
    assert log == [claim(2, 0), behind]
    assert answers[behind] == 1
