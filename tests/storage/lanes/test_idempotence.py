"""Lanes with claims: each batch once, in the order of its producer, whatever fails and repeats."""

from collections.abc import Mapping, Sequence

import pytest

from storage import keys
from storage.errors import (
    InvalidProducerEpoch,
    OutOfOrderSequence,
    StoreUnavailable,
)
from storage.head import head as heads
from storage.head.producers import Claim, Verdict
from storage.lanes.lane import Lane
from storage.stores.metadata import VALUE_BYTES_MAX, Check, MetadataStore, Op, Versioned
from tests.storage.helpers.claims import Flush, Ledger, claim
from tests.storage.helpers.faults import Fault, FaultyMetadata, TestObjects
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


class Scene:
    """One lane, seen by us through a table with faults and by another process without."""

    def __init__(self) -> None:
        self.table = new_metadata()
        self.faulty = FaultyMetadata(self.table)
        self.objects = TestObjects()
        self.clock = Clock()
        self.ledger = Ledger(new_ids(5))
        self.ours = Lane(TOPIC_ID, 0, new_runtime(self.faulty, self.objects, clock=self.clock))
        self.theirs = self.process(1)

    def process(self, seed: int) -> Lane:
        return Lane(TOPIC_ID, 0, new_runtime(self.table, self.objects, clock=self.clock, seed=seed))

    def flush(self, *batches: Claim, checks: tuple[Check, ...] = ()) -> Flush:
        return Flush(self.ledger, batches, checks)

    async def send(self, lane: Lane, *batches: Claim) -> list[Verdict]:
        answers = await self.flush(*batches).commit(lane)
        return [answers[batch] for batch in batches]

    async def log(self, partition: int = 0) -> list[Claim]:
        """Return the batches in the log, each of which must be there whole."""
        records = await self.ledger.log(self.process(9), partition)
        firsts = [number for number, (_, row) in enumerate(records) if row == 0]
        for first in firsts:
            batch = records[first][0]
            end = first + batch.record_count
            assert records[first:end] == [(batch, row) for row in range(batch.record_count)]
        return [records[first][0] for first in firsts]


async def new_scene(partitions: int = 2) -> Scene:
    scene = Scene()
    await create_lane(scene.table, partitions)
    return scene


def nobody(count: int = 1, *, partition: int = 0) -> Claim:
    return claim(0, 0, count, partition=partition)


async def test_a_batch_is_appended_once_and_its_copies_get_its_offset() -> None:
    scene = await new_scene()
    first, second = claim(2, 0, 3), claim(2, 3, 2)

    assert await scene.send(scene.ours, first, second) == [0, 3]
    assert await scene.send(scene.ours, second) == [3]
    assert await scene.send(scene.theirs, first, second) == [0, 3]

    assert await scene.log() == [first, second]


async def test_copies_that_wait_in_one_queue_get_the_offset_of_the_first() -> None:
    scene = await new_scene()
    before, batch = claim(4, 0, 7), claim(2, 0, 3)
    flushes = [scene.flush(*batches) for batches in [(before, batch), (batch,), (batch, before)]]
    tickets = [scene.ours.enqueue() for _ in flushes]
    for flush, ticket in zip(flushes, tickets, strict=True):
        flush.start(ticket)

    told = [await flush.landing for flush in flushes]

    assert [answers[batch] for answers in told] == [7, 7, 7]
    assert await scene.log() == [before, batch]


async def test_a_gap_is_refused_only_after_a_look_at_the_table() -> None:
    scene = await new_scene()
    await scene.send(scene.ours, claim(2, 0))
    await scene.send(scene.theirs, claim(2, 1))

    assert await scene.send(scene.ours, claim(2, 2)) == [2]
    [refused] = await scene.send(scene.ours, claim(2, 4))
    assert isinstance(refused, OutOfOrderSequence)


@pytest.mark.parametrize(
    "dropped", [{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}, {0, 1, 2, 3, 4}]
)
async def test_what_is_rejected_leaves_the_flush_and_the_rest_stays_in_order(
    dropped: set[int],
) -> None:
    scene = await new_scene()
    flushed = [
        claim(2, 0, 3, partition=0),
        claim(4, 0, 2, partition=1),
        claim(6, 0, 1, partition=0),
        nobody(4, partition=0),
        nobody(2, partition=1),
    ]
    known: dict[Claim, Verdict] = {}
    for number in sorted(dropped & {0, 1, 2}):
        [known[flushed[number]]] = await scene.send(scene.theirs, flushed[number])
    batches = [b for n, b in enumerate(flushed) if len(dropped) < 5 or n < 3]
    flush = scene.flush(*batches)

    answers = await flush.commit(scene.ours)

    assert flush.writes == (1 if len(dropped) == 5 else 2)
    logs = [await scene.log(partition) for partition in range(2)]
    assert sorted(logs[0] + logs[1]) == sorted(batches)
    for batch, answer in answers.items():
        records = await scene.ledger.log(scene.process(8), batch.partition)
        assert isinstance(answer, int)
        assert answer == known.get(batch, answer)
        assert records[answer] == (batch, 0)
    for log in logs:
        new = [batch for batch in log if batch not in known]
        assert new == [b for b in batches if b not in known and b.partition == log[0].partition]


async def test_of_one_commit_some_flushes_are_rewritten_and_others_not() -> None:
    scene = await new_scene()
    await scene.send(scene.theirs, claim(2, 0, 3))
    flushes = [
        scene.flush(nobody(2)),
        scene.flush(claim(2, 0, 3), claim(4, 0, 5)),
        scene.flush(claim(6, 0, 1)),
        scene.flush(claim(8, 7, 1)),
    ]
    tickets = [scene.ours.enqueue() for _ in flushes]
    for flush, ticket in zip(flushes, tickets, strict=True):
        flush.start(ticket)

    told = [await flush.landing for flush in flushes]

    assert [flush.writes for flush in flushes] == [1, 2, 1, 1]
    assert told[0] == {nobody(2): 3}
    assert told[1] == {claim(2, 0, 3): 0, claim(4, 0, 5): 5}
    assert told[2] == {claim(6, 0, 1): 10}
    assert isinstance(told[3][claim(8, 7, 1)], OutOfOrderSequence)
    assert await scene.log() == [claim(2, 0, 3), nobody(2), claim(4, 0, 5), claim(6, 0, 1)]


async def test_a_rewrite_that_fails_writes_nothing_and_says_so() -> None:
    scene = await new_scene()
    await scene.send(scene.theirs, claim(2, 0, 3))
    scene.ledger.failing_writes = 1

    with pytest.raises(StoreUnavailable, match="rocks"):
        await scene.send(scene.ours, claim(2, 0, 3), claim(4, 0))

    assert await scene.log() == [claim(2, 0, 3)]
    assert await scene.send(scene.ours, claim(2, 0, 3), claim(4, 0)) == [0, 3]


async def test_an_epoch_that_is_newer_begins_at_0_and_fences_the_older() -> None:
    scene = await new_scene()
    await scene.send(scene.ours, claim(2, 0, 3))

    [gap] = await scene.send(scene.theirs, claim(2, 3, 1, epoch=1))
    [begun] = await scene.send(scene.theirs, claim(2, 0, 1, epoch=1))
    old, late = await scene.send(scene.process(2), claim(2, 0, 3), claim(2, 3, 1))

    assert isinstance(gap, OutOfOrderSequence)
    assert begun == 3
    assert isinstance(old, InvalidProducerEpoch)
    assert isinstance(late, InvalidProducerEpoch)


@pytest.mark.parametrize("fault", ["request lost", "reply lost", "late"])
@pytest.mark.parametrize("times", [1, 3])
async def test_an_unanswered_commit_is_not_repeated(fault: Fault, times: int) -> None:
    scene = await new_scene()
    await scene.send(scene.ours, claim(2, 0))
    scene.faulty.faults = [fault] * times

    assert await scene.send(scene.ours, nobody(3), claim(2, 1)) == [1, 4]

    await turns()
    assert await scene.send(scene.ours, claim(2, 1)) == [4]
    assert await scene.log() == [claim(2, 0), nobody(3), claim(2, 1)]


@pytest.mark.parametrize("fault", ["request lost", "reply lost", "late"])
async def test_nor_if_another_process_sends_a_copy_meanwhile(fault: Fault) -> None:
    scene = await new_scene()
    await scene.send(scene.ours, claim(2, 0))
    scene.faulty.faults = [fault]
    theirs: list[Verdict] = []

    async def interfere() -> None:
        theirs.extend(await scene.send(scene.theirs, nobody(2), claim(2, 1)))

    scene.faulty.before_unknown = interfere
    ours = await scene.send(scene.ours, nobody(3), claim(2, 1))

    await turns()
    log = await scene.log()
    assert sorted(log) == sorted([claim(2, 0), nobody(2), nobody(3), claim(2, 1)])
    assert ours[1] == theirs[1]


class LandsLater(FaultyMetadata):
    """A table that does the first transaction after the head was read once more."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner)
        self.faults = ["request lost"]
        self.held: list[Sequence[Op]] = []

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        if self.faults:
            self.held.append(ops)
        return await super().transact(ops)

    async def get(self, key: str) -> Versioned | None:
        found = await super().get(key)
        if self.held:
            await self.inner.transact(self.held.pop())
        return found


async def test_what_expires_while_a_commit_is_in_doubt_is_judged_as_before() -> None:
    scene = await new_scene()
    scene.ours._runtime.producer_expiration_ms = 60_000
    scene.clock.now_s = 1000 * 60.0
    await scene.send(scene.ours, claim(2, 0))
    # Known until the next minute begins, which it does while nobody answers.
    scene.clock.now_s += 118
    table = LandsLater(scene.table)
    scene.ours._runtime.metadata = table

    async def wait() -> None:
        scene.clock.now_s += 5

    table.before_unknown = wait
    answers = await scene.send(scene.ours, nobody(3), claim(2, 1))

    assert table.held == []
    assert answers == [1, 4]
    assert await scene.log() == [claim(2, 0), nobody(3), claim(2, 1)]


async def test_flushes_of_very_many_producers_do_not_share_a_commit() -> None:
    scene = await new_scene()
    flushes = [scene.flush(*(claim(1000 * n + m, 0) for m in range(900))) for n in range(1, 25)]
    tickets = [scene.ours.enqueue() for _ in flushes]
    largest = 0

    for flush, ticket in zip(flushes, tickets, strict=True):
        flush.start(ticket)
    for ticket in tickets:
        await ticket.committed
        item = await scene.table.get(HEAD_KEY)
        assert item is not None
        largest = max(largest, len(item.value))

    assert largest < VALUE_BYTES_MAX / 4
    assert len(await scene.log()) == 24 * 900


async def test_a_plain_commit_costs_no_more_than_before() -> None:
    scene = await new_scene()
    await scene.send(scene.ours, nobody())
    scene.faulty.calls.clear()

    await scene.send(scene.ours, nobody())
    await scene.send(scene.ours, claim(2, 0))
    await scene.send(scene.ours, claim(2, 1))

    assert scene.faulty.calls == {"transact": 3}
    assert scene.objects.calls["put"] == scene.objects.calls["get"] == 0


async def test_an_offer_of_which_nothing_is_left_costs_no_commit() -> None:
    scene = await new_scene()
    await scene.send(scene.ours, claim(2, 0))
    scene.faulty.calls.clear()

    await scene.send(scene.ours, claim(2, 0))

    assert scene.faulty.calls["transact"] == 0


async def test_windows_of_all_partitions_of_a_wide_lane_fit_into_one_commit() -> None:
    scene = await new_scene(partitions=64)
    flush = scene.flush(*(claim(n, 0, partition=p) for n in range(1, 11) for p in range(64)))

    answers = await flush.commit(scene.ours)

    assert all(isinstance(answer, int) for answer in answers.values())
    head = (await scene.theirs.view(0)).head
    assert len(head.producers) + sum(page.count for page in head.producer_pages) == 640
    assert len(heads.encode(head)) < 40_000
