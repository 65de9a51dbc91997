"""Transactions over the table: one gateway or two, with every fault at every write."""

import asyncio
from typing import Any

import pytest

from service.groups.state import Member
from service.transactions import state
from service.transactions.guards import TransactionGuard
from service.transactions.room import LANES_MAX
from service.transactions.state import Outcome, Ref
from service.transactions.transactions import TIMEOUT_MS_MAX, Instance
from service.transactions.views import View
from storage import keys
from storage.errors import (
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    OutcomeUnknown,
    OutOfOrderSequence,
    RiachoError,
    StoreUnavailable,
    TransactionTooLarge,
    UnknownTopicOrPartition,
    UnknownTransaction,
)
from storage.head.producers import EPOCH_MAX
from storage.lanes.rolls import FLIGHT_MAX_S
from storage.stores.metadata import Put
from tests.service.transactions.cluster import TXN, Cluster, Process, by, offsets_of, with_topic
from tests.storage.helpers.faults import random_faults
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio

LOST = pytest.mark.parametrize("fault", ["request lost", "reply lost", "late"])


async def committed(process: Process, view: View) -> dict[str, Any]:
    ended = await process.transactions.commit(view.ref, None)
    assert ended.outcome is Outcome.COMMITTED
    return dict(ended.results or {})


# One after the other


async def test_what_is_staged_is_invisible_until_the_commit() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()
    assert await process.stage(view, "a", "b") == {0: 2}
    await other.stage(view, "c")
    await process.stage(view, "x", partition=2)
    assert await process.read() == []

    ended = await other.transactions.commit(view.ref, offsets_of("g", 7))
    assert ended.results == {"t": ((0, 0, 3), (2, 0, 1))}
    assert (ended.producer_id, ended.epoch) == (view.ref.producer_id, view.ref.epoch + 1)
    assert await process.read() == ["a", "b", "c"]
    assert await process.read(2) == ["x"]
    assert await process.offset("g") == 7


async def test_what_is_aborted_was_never_there() -> None:
    process = await with_topic(Cluster())
    view = await process.begin()
    await process.stage(view, "a")
    ended = await process.transactions.abort(view.ref)

    assert (ended.outcome, ended.results) == (Outcome.ABORTED, {})
    assert await process.read() == []
    with pytest.raises(InvalidTransactionState, match="was aborted already"):
        await process.transactions.commit(view.ref, None)
    with pytest.raises(InvalidTransactionState, match="was aborted already"):
        await process.stage(view, "b")


async def test_an_empty_transaction_commits_and_may_carry_offsets() -> None:
    process = await with_topic(Cluster())
    assert await committed(process, await process.begin()) == {}

    await process.transactions.commit((await process.begin()).ref, offsets_of("g", 3))
    assert await process.offset("g") == 3


async def test_repeats_get_the_first_answer_also_after_later_transactions() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    first = await process.begin()
    await process.stage(first, "a")
    answer = await process.transactions.commit(first.ref, None)
    assert await other.transactions.commit(first.ref, offsets_of("gone", 1, topic="gone")) == answer
    second = await process.transactions.begin(
        TXN, 1000, Instance(producer_id=answer.producer_id, epoch=answer.epoch)
    )
    assert await other.transactions.commit(first.ref, None) == answer
    aborted = await process.transactions.abort(second.ref)
    assert await other.transactions.abort(second.ref) == aborted
    assert await other.transactions.commit(first.ref, None) == answer
    with pytest.raises(InvalidTransactionState, match="was committed already"):
        await process.transactions.abort(first.ref)

    # With the next commit only where everything went is forgotten, and at last that it was.
    await committed(process, await process.begin())
    again = await process.transactions.commit(first.ref, None)
    assert (again.outcome, again.epoch, again.results) == (answer.outcome, answer.epoch, None)
    for _ in range(10):
        await committed(process, await process.begin())
    with pytest.raises(InvalidProducerEpoch, match="or the transaction ended"):
        await process.transactions.commit(first.ref, None)
    assert await process.read() == ["a"]


async def test_a_new_instance_fences_the_old_one() -> None:
    cluster = Cluster()
    old, new = await with_topic(cluster), cluster.process()
    view = await old.begin()
    await old.stage(view, "a")
    instance = await new.transactions.init(TXN)

    assert instance == Instance(producer_id=view.ref.producer_id, epoch=view.ref.epoch + 1)
    for call in (old.transactions.commit(view.ref, None), old.transactions.abort(view.ref)):
        with pytest.raises(InvalidProducerEpoch, match="a newer instance has taken over"):
            await call
    with pytest.raises(InvalidProducerEpoch, match="a newer instance has taken over"):
        await old.stage(view, "b")
    with pytest.raises(InvalidProducerEpoch):
        await old.transactions.begin(
            TXN, 1000, Instance(producer_id=view.ref.producer_id, epoch=view.ref.epoch)
        )
    assert await new.read() == []


async def test_a_begin_is_repeated_until_something_is_staged() -> None:
    process = await with_topic(Cluster())
    instance = await process.transactions.init(TXN)
    view = await process.transactions.begin(TXN, 1000, instance)
    assert await process.transactions.begin(TXN, 1000, instance) == view
    await process.stage(view, "a")
    with pytest.raises(InvalidTransactionState, match="is open and holds records already"):
        await process.transactions.begin(TXN, 1000, instance)

    # A copy of it that comes after the end begins nothing.
    await committed(process, view)
    with pytest.raises(InvalidProducerEpoch):
        await process.transactions.begin(TXN, 1000, instance)


async def test_who_begins_without_naming_an_instance_shares_an_epoch_with_nobody() -> None:
    process = Cluster().process()
    instance = await process.transactions.init(TXN)

    first = await process.transactions.begin(TXN, 60_000, None)
    second = await process.transactions.begin(TXN, 60_000, None)

    assert [first.ref.epoch, second.ref.epoch] == [instance.epoch + 1, instance.epoch + 2]
    with pytest.raises(InvalidProducerEpoch):
        await process.transactions.begin(TXN, 60_000, instance)
    with pytest.raises(InvalidProducerEpoch):
        await process.transactions.commit(first.ref, None)


async def test_a_begin_of_an_unknown_instance_is_refused() -> None:
    process = await with_topic(Cluster())
    with pytest.raises(InvalidProducerEpoch, match="there is no transactional id 'copier'"):
        await process.transactions.begin(TXN, 1000, Instance(producer_id=1, epoch=0))
    with pytest.raises(UnknownTransaction):
        await process.stage(View(ref=Ref(TXN, 1, 0), state="ongoing"), "a")
    for timeout_ms in (0, TIMEOUT_MS_MAX + 1):
        with pytest.raises(InvalidTransactionTimeout, match=r"must be from 1 to 900000"):
            await process.begin(timeout_ms=timeout_ms)
    with pytest.raises(InvalidRequest, match="transactional_id: 'a/b' is not a name: use 1 to 249"):
        await process.begin("a/b")


async def test_after_the_last_epoch_follows_a_new_producer_id() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    first = await process.transactions.init(TXN)
    key = keys.transaction(TXN)
    item = await cluster.metadata.get(key)
    assert item is not None
    last = state.Transaction(producer_id=first.producer_id, epoch=EPOCH_MAX, changed_ms=0)
    await cluster.metadata.transact([Put(key, state.encode(last), item.version)])
    view = await process.transactions.begin(
        TXN, 1000, Instance(producer_id=first.producer_id, epoch=EPOCH_MAX)
    )
    await process.stage(view, "a")
    ended = await process.transactions.commit(view.ref, None)

    assert ended.producer_id not in {first.producer_id, 0}
    assert ended.producer_id % 2 == 1
    assert ended.epoch == 0
    assert await cluster.process().transactions.commit(view.ref, None) == ended
    assert await cluster.process().ids.owner(ended.producer_id) == TXN
    assert (await process.begin()).ref.epoch == 1


# Time


async def test_an_overdue_transaction_is_aborted_by_any_call_that_meets_it() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    for meet in ("commit", "stage", "describe", "abort", "upkeep"):
        view = await process.begin(timeout_ms=1000)
        await process.stage(view, "a")
        cluster.now_s += 1.001
        if meet == "commit":
            with pytest.raises(InvalidTransactionState, match="timed out and was aborted"):
                await process.transactions.commit(view.ref, None)
        elif meet == "stage":
            with pytest.raises(InvalidTransactionState, match="timed out and was aborted"):
                await process.stage(view, "b")
        elif meet == "describe":
            assert (await cluster.process().transactions.describe(view.ref)).state == "aborted"
        elif meet == "abort":
            assert (await process.transactions.abort(view.ref)).outcome is Outcome.ABORTED
        else:
            await cluster.process().upkeep.tick()
        assert (await process.txn()).open is None
        assert (await process.txn()).ends[-1].outcome is Outcome.TIMED_OUT
    assert await process.read() == []


async def test_a_begin_that_comes_again_after_the_time_is_not_fenced() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    instance = await process.transactions.init(TXN)
    await process.transactions.begin(TXN, 1000, instance)
    cluster.now_s += 2
    ref = Ref(TXN, instance.producer_id, instance.epoch)
    atomic = TransactionGuard(process.items, ref, b"body")
    for _ in range(2):
        with pytest.raises(InvalidTransactionState, match="timed out and was aborted"):
            await process.transactions.begin(TXN, 1000, instance)
        with pytest.raises(InvalidTransactionState, match="timed out and was aborted"):
            await atomic.look()

    await process.transactions.init(TXN)
    with pytest.raises(InvalidProducerEpoch):
        await process.transactions.begin(TXN, 1000, instance)
    with pytest.raises(InvalidProducerEpoch):
        await atomic.look()


async def test_what_is_in_time_is_left_alone() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin(timeout_ms=1000)
    await process.stage(view, "a")
    cluster.now_s += 1
    await process.upkeep.tick()
    await process.upkeep.expire()
    assert await committed(process, view) == {"t": ((0, 0, 1),)}


# Sequences


async def test_a_copy_of_a_request_is_staged_once() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()
    for each in (process, other, process):
        assert await each.stage(view, "a", "b", sequence=0) == {0: 2}
    await other.stage(view, "c", sequence=2)
    assert await process.stage(view, "a", "b", sequence=0) == {0: 2}
    await committed(process, view)
    assert await process.read() == ["a", "b", "c"]


async def test_copies_that_race_are_staged_once() -> None:
    cluster = Cluster()
    processes = [await with_topic(cluster), cluster.process(), cluster.process()]
    view = await processes[0].begin()
    await asyncio.gather(*(each.stage(view, "a", sequence=0) for each in processes * 2))
    await committed(processes[0], view)
    assert await processes[0].read() == ["a"]


async def test_a_gap_is_refused_and_one_that_is_filled_is_not() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    with pytest.raises(OutOfOrderSequence, match="sequence 1 for t/0, and 0 comes next"):
        await process.stage(view, "b", sequence=1)

    # The second of three overtakes the first: it waits a moment.
    order = [process.stage(view, value, sequence=n) for n, value in ((1, "b"), (0, "a"), (2, "c"))]
    await asyncio.gather(*order)
    await committed(process, view)
    assert await process.read() == ["a", "b", "c"]


async def test_requests_of_one_gateway_take_their_places_in_the_order_of_arrival() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    cluster.objects.hold_puts = True
    tasks = [asyncio.create_task(process.stage(view, value)) for value in "abc"]
    await turns()
    # All are being written at the same time, and end in another order.
    assert len(cluster.objects.held) == 3
    for gate in reversed(cluster.objects.held):
        gate.set()
        await turns()
    await asyncio.gather(*tasks)
    await committed(process, view)
    assert await process.read() == ["a", "b", "c"]


async def test_a_request_that_fails_lets_the_next_one_go_on() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    cluster.objects.failing_puts = 1
    tasks = [process.stage(view, "a"), process.stage(view, "b")]
    first, second = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(first, StoreUnavailable)
    assert second == {0: 1}
    await committed(process, view)
    assert await process.read() == ["b"]


async def test_one_that_fails_early_does_not_let_the_next_overtake_those_before() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    cluster.objects.hold_puts = True
    first = asyncio.create_task(process.stage(view, "a"))
    await turns()
    cluster.objects.hold_puts = False
    with pytest.raises(UnknownTopicOrPartition):
        await process.stage(view, "b", topic="gone")
    third = asyncio.create_task(process.stage(view, "c"))
    await turns()
    cluster.objects.held[0].set()
    await asyncio.gather(first, third)
    await committed(process, view)
    assert await process.read() == ["a", "c"]


# Faults


@LOST
async def test_a_lost_answer_to_init_or_begin_is_no_error(fault: Any) -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    await process.ids.transactional()
    cluster.metadata.faults = [fault]
    instance = await process.transactions.init(TXN)
    cluster.metadata.faults = [fault]
    view = await process.transactions.begin(TXN, 1000, instance)
    cluster.metadata.faults = [fault]
    newer = await process.begin()

    assert view.ref.epoch == instance.epoch
    assert newer.ref.epoch > view.ref.epoch
    with pytest.raises(InvalidProducerEpoch):
        await process.stage(view, "a")
    await process.stage(newer, "a")


@LOST
@pytest.mark.parametrize("sequence", [None, 0])
async def test_a_lost_answer_stages_once(fault: Any, sequence: int | None) -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    cluster.metadata.faults = [fault, fault]
    assert await process.stage(view, "a", sequence=sequence) == {0: 1}
    await turns()
    await committed(process, view)
    assert await process.read() == ["a"]


@LOST
@pytest.mark.parametrize("is_empty", [True, False])
async def test_a_lost_answer_commits_once(fault: Any, is_empty: bool) -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    if not is_empty:
        await process.stage(view, "a")
    cluster.metadata.faults = [fault, fault]
    ended = await process.transactions.commit(view.ref, offsets_of("g", 1))
    await turns()

    assert ended.results == ({} if is_empty else {"t": ((0, 0, 1),)})
    assert await cluster.process().transactions.commit(view.ref, None) == ended
    assert await process.read() == ([] if is_empty else ["a"])
    assert await process.offset("g") == 1


@LOST
async def test_a_lost_answer_aborts_once(fault: Any) -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    cluster.metadata.faults = [fault]
    ended = await process.transactions.abort(view.ref)
    assert ended.epoch == view.ref.epoch + 1
    assert await process.transactions.abort(view.ref) == ended


async def test_when_the_table_refuses_nothing_has_happened() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    await process.stage(view, "a")
    for call in (
        lambda: process.stage(view, "b"),
        lambda: process.transactions.commit(view.ref, None),
        lambda: process.transactions.abort(view.ref),
        lambda: process.begin(),
        lambda: process.transactions.init(TXN),
    ):
        cluster.metadata.faults = ["refused"]
        with pytest.raises(StoreUnavailable):
            await call()
    assert await committed(process, view) == {"t": ((0, 0, 1),)}
    assert await process.read() == ["a"]


async def test_a_gateway_that_dies_before_the_item_is_written_leaves_nothing() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin()
    cluster.metadata.faults = ["request lost"]
    cluster.metadata.before_unknown = asyncio.Event().wait  # type: ignore[assignment]
    dying = asyncio.create_task(process.stage(view, "a", sequence=0))
    await turns()
    assert len(cluster.objects.names(".seg")) == 1
    dying.cancel()

    # The client sends it again, to another one.
    other = cluster.process()
    await other.stage(view, "a", sequence=0)
    await committed(other, view)
    assert await other.read() == ["a"]


async def test_what_was_written_long_ago_is_not_staged_any_more() -> None:
    cluster = Cluster()
    process = await with_topic(cluster)
    view = await process.begin(timeout_ms=TIMEOUT_MS_MAX)
    cluster.objects.hold_puts = True
    asleep = asyncio.create_task(process.stage(view, "a"))
    await turns()
    # A sweeper may have taken it for an orphan meanwhile.
    cluster.now_s += FLIGHT_MAX_S + 1
    cluster.objects.held[0].set()
    with pytest.raises(StoreUnavailable, match="took too long"):
        await asleep
    assert await committed(process, view) == {}


async def test_a_stage_without_an_answer_into_what_was_committed_meanwhile_is_unknown() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()

    async def commit() -> None:
        await other.transactions.commit(view.ref, None)

    cluster.metadata.faults = ["reply lost"]
    cluster.metadata.before_unknown = commit
    with pytest.raises(OutcomeUnknown):
        await process.stage(view, "a")
    assert await process.read() == ["a"]


async def test_a_stage_without_an_answer_into_what_was_aborted_meanwhile_is_refused() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()

    async def abort() -> None:
        await other.transactions.abort(view.ref)

    cluster.metadata.faults = ["reply lost"]
    cluster.metadata.before_unknown = abort
    with pytest.raises(InvalidTransactionState, match="was aborted already"):
        await process.stage(view, "a")


async def test_a_commit_without_an_answer_and_a_topic_deleted_after_it_is_a_commit() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    view = await process.begin()
    await process.stage(view, "a")

    async def delete() -> None:
        await other.gateway.topics.delete("t")

    cluster.metadata.faults = ["reply lost"]
    cluster.metadata.before_unknown = delete
    assert await committed(process, view) == {"t": ((0, 0, 1),)}


async def test_a_repeat_is_answered_though_its_offsets_could_not_be_committed_any_more() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    await process.gateway.topics.create("source")
    view = await process.begin()
    await process.stage(view, "a")
    offsets = offsets_of("g", 1, topic="source")
    ended = await other.transactions.commit(view.ref, offsets)
    await other.gateway.topics.delete("source")
    cluster.now_s += 10
    # This one still believes that the transaction is open.
    assert await process.transactions.commit(view.ref, offsets) == ended


async def test_a_commit_refused_after_one_without_an_answer_is_unknown() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    await process.gateway.topics.create("source")
    view = await process.begin()
    await process.stage(view, "a")

    async def interfere() -> None:
        await other.gateway.topics.delete("source")
        cluster.now_s += 10
        cluster.metadata.failing_gets = 1

    cluster.metadata.faults = ["request lost"]
    cluster.metadata.before_unknown = interfere
    with pytest.raises(OutcomeUnknown, match="may have changed: there is no topic 'source'"):
        await process.transactions.commit(view.ref, offsets_of("g", 1, topic="source"))
    with pytest.raises(UnknownTopicOrPartition):
        await process.transactions.commit(view.ref, offsets_of("g", 1, topic="source"))
    assert await committed(process, view) == {"t": ((0, 0, 1),)}


# Races


@pytest.mark.parametrize("seed", range(30))
async def test_of_commit_abort_and_a_new_instance_exactly_one_wins(seed: int) -> None:
    cluster = Cluster()
    processes = [await with_topic(cluster), cluster.process(), cluster.process()]
    view = await processes[0].begin()
    await processes[seed % 3].stage(view, "a")
    cluster.metadata.next_fault = random_faults(seed, 0.3)
    calls = [
        processes[seed % 3].transactions.commit(view.ref, offsets_of("g", 1)),
        processes[(seed + 1) % 3].transactions.abort(view.ref),
        processes[(seed + 2) % 3].transactions.init(TXN),
        processes[seed % 2].transactions.commit(view.ref, offsets_of("g", 1)),
    ]
    answers = await asyncio.gather(*calls[seed % 4 :], *calls[: seed % 4], return_exceptions=True)
    assert all(not isinstance(a, BaseException) or isinstance(a, RiachoError) for a in answers)
    cluster.metadata.next_fault = lambda: "none"
    await turns()

    last = (await processes[0].txn()).ends[-1]
    is_committed = last.outcome is Outcome.COMMITTED
    assert last.epoch == view.ref.epoch
    assert await processes[1].read() == (["a"] if is_committed else [])
    assert await processes[1].offset("g") == (1 if is_committed else None)
    for each in processes:
        for call, wanted in ((each.transactions.abort(view.ref), Outcome.ABORTED),):
            if last.outcome is wanted:
                assert (await call).epoch == last.next_epoch
            else:
                with pytest.raises((InvalidTransactionState, InvalidProducerEpoch)):
                    await call
        if is_committed:
            again = await each.transactions.commit(view.ref, None)
            assert again.results == {"t": ((0, 0, 1),)}
    wins = [a for a in answers if getattr(a, "outcome", None) is not None]
    assert all(win.outcome is last.outcome for win in wins)  # type: ignore[union-attr]


# Limits, topics, groups


async def test_more_lanes_than_fit_are_refused_before_anything_is_written() -> None:
    cluster = Cluster()
    process = await with_topic(cluster, 120, **{"lane.partitions": 1})
    view = await process.begin()
    for partition in range(LANES_MAX):
        await process.stage(view, "a", partition=partition)
    written = len(cluster.objects.names(".seg"))
    with pytest.raises(TransactionTooLarge, match="would write to 91 lanes, and can to 90: it is"):
        await process.stage(view, "a", partition=LANES_MAX)
    assert len(cluster.objects.names(".seg")) == written

    assert len((await committed(process, view))["t"]) == LANES_MAX


async def test_more_offsets_than_fit_are_refused_and_the_transaction_stays_open() -> None:
    cluster = Cluster()
    process = await with_topic(cluster, 120, **{"lane.partitions": 1})
    view = await process.begin()
    for partition in range(60):
        await process.stage(view, "a", partition=partition)
    wanted = offsets_of("g", 1)
    many = [offsets_of("g", 1, partition).commits[0] for partition in range(50)]
    wide = type(wanted)(group_id="g", commits=many, committer=None)
    with pytest.raises(TransactionTooLarge, match="60 lanes and 52 other items"):
        await process.transactions.commit(view.ref, wide)
    assert len((await committed(process, view))["t"]) == 60


async def test_an_item_that_grows_too_large_is_refused() -> None:
    process = await with_topic(Cluster())
    view = await process.begin()
    refused = None
    for number in range(5000):
        try:
            await process.stage(view, f"{number}")
        except TransactionTooLarge as error:
            refused = str(error)
            break
    assert refused is not None
    assert "bytes of metadata, and can take 131072: commit more often" in refused
    assert (await committed(process, view))["t"][0][2] == number


async def test_a_topic_deleted_meanwhile_can_only_be_aborted() -> None:
    cluster = Cluster()
    process, other = await with_topic(cluster), cluster.process()
    await process.gateway.topics.create("kept")
    view = await process.begin()
    await process.stage(view, "a")
    await process.stage(view, "b", topic="kept")
    await other.gateway.topics.delete("t")
    for each in (process, other):
        with pytest.raises(UnknownTopicOrPartition, match="deleted since, 't', and cannot be"):
            await each.transactions.commit(view.ref, None)
    await other.gateway.topics.create("t")
    with pytest.raises(UnknownTopicOrPartition, match="deleted since, 't', and cannot be"):
        await process.transactions.commit(view.ref, None)
    assert await process.read(topic="kept") == []
    assert (await process.transactions.abort(view.ref)).outcome is Outcome.ABORTED


async def test_offsets_are_fenced_by_generation_and_the_transaction_stays_open() -> None:
    process = await with_topic(Cluster())
    member = Member(topics=("t",), session_timeout_ms=10_000)
    beat = await process.coordinator.join("g", member, None)
    view = await process.begin()
    await process.stage(view, "a")
    offsets = offsets_of("g", 5)
    stale = type(offsets)(
        group_id="g",
        commits=offsets.commits,
        committer=by(beat.member_id, beat.generation + 1),
    )
    with pytest.raises(IllegalGeneration, match="send a heartbeat"):
        await process.transactions.commit(view.ref, stale)
    assert await process.read() == []

    right = type(offsets)(
        group_id="g", commits=offsets.commits, committer=by(beat.member_id, beat.generation)
    )
    await process.transactions.commit(view.ref, right)
    assert await process.offset("g") == 5
    assert await process.read() == ["a"]


async def test_headers_that_name_another_producer_are_refused() -> None:
    process = await with_topic(Cluster())
    view = await process.begin()
    with pytest.raises(InvalidRequest, match="are not those of transaction"):
        await process.staging.stage(str(view.ref), "t", None, 0, 0, (view.ref.producer_id, 5))


# Looking


async def test_lists_the_open_or_the_last_transaction_of_each_id() -> None:
    process = await with_topic(Cluster())
    await process.transactions.init("idle")
    view = await process.begin("open", 5000)
    await process.stage(view, "a", partition=3)
    await process.stage(view, "b")
    await committed(process, await process.begin("done"))
    await process.transactions.abort((await process.begin("undone")).ref)

    found = {view.ref.transactional_id: view for view in await process.transactions.all()}
    states = {name: view.state for name, view in found.items()}
    assert states == {
        "done": "committed",
        "idle": "empty",
        "open": "ongoing",
        "undone": "aborted",
    }
    assert found["open"] == await process.transactions.describe(view.ref)
    assert found["open"].partitions == [("t", 0), ("t", 3)]
    assert found["open"].timeout_ms == 5000
    for view in found.values():
        assert (await process.transactions.describe(view.ref)).state == view.state
    with pytest.raises(UnknownTransaction):
        await process.transactions.describe(type(view.ref)("nobody", 1, 1))
