"""Staging: gaps that are filled or not, places that are taken in turn, and room for more."""

import asyncio

import pytest

from service.log.sequences import GAP_WAIT_S
from service.transactions import room, staging
from service.transactions.staging import Receipt
from service.transactions.state import ENDS_KEPT
from service.transactions.transactions import TIMEOUT_MS_MAX
from service.transactions.views import View
from storage.errors import (
    InvalidTransactionState,
    OutcomeUnknown,
    OutOfOrderSequence,
    TransactionTooLarge,
)
from storage.lanes.rolls import FLIGHT_MAX_S
from tests.service.transactions.cluster import Cluster, Process, with_topic
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio

SLICED_AT_BYTES = room._SLICED_AT_BYTES


async def stage_anywhere(process: Process, view: View, producer: tuple[int, int]) -> Receipt:
    """Stage one record that has no key and names no partition."""
    batch = batch_of(b"a")
    return await process.staging.stage(
        str(view.ref), "t", batch, batch.nbytes, None, producer, sequences=0
    )


async def test_copies_without_a_key_go_to_one_partition_by_any_gateway() -> None:
    cluster = Cluster()
    processes = [await with_topic(cluster), *(cluster.process() for _ in range(5))]
    view = await processes[0].begin()
    producer = (view.ref.producer_id, view.ref.epoch)

    receipts = [await stage_anywhere(process, view, producer) for process in processes]
    await processes[0].transactions.commit(view.ref, None)

    assert receipts == [receipts[0]] * 6
    written = [value for partition in range(4) for value in await processes[0].read(partition)]
    assert written == ["a"]


# Gaps


async def test_a_gap_is_waited_for_as_long_as_promised() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    began_s = cluster.now_s

    with pytest.raises(OutOfOrderSequence):
        await process.stage(view, "b", sequence=1)

    assert cluster.now_s - began_s == pytest.approx(GAP_WAIT_S)


async def test_a_gap_may_be_filled_at_another_gateway() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()

    await asyncio.gather(process.stage(view, "b", sequence=1), other.stage(view, "a", sequence=0))

    await process.transactions.commit(view.ref, None)
    assert await process.read() == ["a", "b"]


async def test_nothing_is_kept_of_turns_that_are_over() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()

    await asyncio.gather(*(process.stage(view, value) for value in "abc"))
    await turns()

    assert not process.staging._arrivals._last


# What has changed meanwhile


@pytest.mark.parametrize(("age_s", "is_staged"), [(FLIGHT_MAX_S, True), (FLIGHT_MAX_S + 1, False)])
async def test_what_was_written_is_staged_as_long_as_it_is_safe(
    age_s: float, is_staged: bool
) -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin(timeout_ms=TIMEOUT_MS_MAX)
    cluster.objects.hold_puts = True
    asleep = asyncio.create_task(process.stage(view, "a"))
    await turns()
    cluster.now_s += age_s
    cluster.objects.held[0].set()

    await asyncio.wait([asleep])

    assert (asleep.exception() is None) == is_staged


async def test_what_comes_after_the_commit_for_certain_is_refused() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()
    cluster.objects.hold_puts = True
    late = asyncio.create_task(process.stage(view, "a"))
    await turns()
    await other.transactions.commit(view.ref, None)
    cluster.objects.held[0].set()

    with pytest.raises(InvalidTransactionState, match="was committed already"):
        await late

    assert await process.read() == []


async def test_without_an_answer_into_what_ended_long_ago_is_unknown() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()

    async def go_on() -> None:
        await other.transactions.commit(view.ref, None)
        for _ in range(ENDS_KEPT):
            await other.transactions.abort((await other.begin()).ref)

    cluster.metadata.faults = ["reply lost"]
    cluster.metadata.before_unknown = go_on
    with pytest.raises(OutcomeUnknown):
        await process.stage(view, "a")

    assert await process.read() == ["a"]


# Room


@pytest.mark.parametrize(
    ("partitions", "size_bytes", "run_count", "slice_count"),
    [
        ([0], SLICED_AT_BYTES - 1, 1, 1),
        ([0], SLICED_AT_BYTES, 1, 2),
        ([0], 3 * SLICED_AT_BYTES, 1, 4),
        ([0, 1], 10, 1, 2),
        ([0, 1, 2], 10, 2, 3),
    ],
)
async def test_there_is_room_for_so_many_runs_and_slices_and_not_for_one_byte_more(
    partitions: list[int],
    size_bytes: int,
    run_count: int,
    slice_count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = await with_topic(Cluster(), **{"lane.partitions": 2})
    topic = await process.gateway.topics.get("t")
    view = await process.begin()
    known = await process.items.hopeful(view.ref)
    parts = dict.fromkeys(partitions, batch_of(b"a"))
    needed = known.size_bytes + 64 * run_count + 32 * slice_count

    monkeypatch.setattr(room, "ITEM_BYTES_MAX", needed)
    staging._check_room(known, topic, parts, size_bytes)

    monkeypatch.setattr(room, "ITEM_BYTES_MAX", needed - 1)
    with pytest.raises(TransactionTooLarge, match=f"would take {needed} bytes"):
        staging._check_room(known, topic, parts, size_bytes)
