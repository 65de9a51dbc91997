"""Whole transactions in one call: all or nothing, and once if anything can tell."""

import asyncio
from typing import Any

import msgspec
import pytest

from service.groups.state import Member
from service.transactions.atomic import Atomic, TopicRecords
from service.transactions.guards import (
    Guard,
    GuardedAnswer,
    KeyGuard,
    SequenceGuard,
    TransactionGuard,
    Unguarded,
    Window,
)
from service.transactions.state import Outcome, Ref
from storage import keys
from storage.errors import (
    Corrupt,
    DuplicateSequence,
    IdempotencyKeyReused,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTransactionState,
    OutcomeUnknown,
    OutOfOrderSequence,
    RecordTooLarge,
    RiachoError,
    StoreUnavailable,
    TransactionTooLarge,
    UnknownTopicOrPartition,
)
from storage.formats import frames
from storage.head.producers import SEQUENCES
from storage.lanes.rolls import FLIGHT_MAX_S
from storage.stores.metadata import Put
from tests.service.transactions.cluster import TXN, Cluster, Process, by, offsets_of, with_topic
from tests.storage.helpers.faults import random_faults
from tests.storage.helpers.logs import batch_of
from tests.storage.helpers.worlds import turns

pytestmark = pytest.mark.anyio

LOST = pytest.mark.parametrize("fault", ["request lost", "reply lost", "late"])
KINDS = pytest.mark.parametrize("kind", ["transaction", "sequence", "key"])
PRODUCER = (2, 0)


def records(*values: str, partition: int = 0, topic: str = "t") -> TopicRecords:
    batch = batch_of(*[value.encode() for value in values])
    rows = list(range(len(values)))
    return TopicRecords(topic=topic, batch=batch, wanted=[partition] * len(values), rows=rows)


def key_guard(process: Process, key: str = "k", body: bytes = b"body") -> KeyGuard:
    return KeyGuard(process.gateway.metadata, process.gateway.world, key, body)


def sequence_guard(
    process: Process, sequence: int, count: int = 1, producer: tuple[int, int] = PRODUCER
) -> SequenceGuard:
    gateway = process.gateway
    return SequenceGuard(gateway.metadata, gateway.world, producer, sequence, count)


async def guard_of(kind: str, process: Process) -> Guard:
    """Return what guards the first call of somebody."""
    match kind:
        case "transaction":
            txn = await process.txn()
            return TransactionGuard(process.items, Ref(TXN, txn.producer_id, 0), b"body")
        case "sequence":
            return sequence_guard(process, 0)
        case _:
            return key_guard(process)


async def write(
    process: Process, guard: Guard, *appends: TopicRecords, offset: int | None = None
) -> GuardedAnswer:
    offsets = None if offset is None else offsets_of("g", offset)
    size_bytes = sum(each.batch.nbytes for each in appends)
    return await Atomic(process.gateway, process.offsets).write(appends, size_bytes, offsets, guard)


async def started(cluster: Cluster, partitions: int = 4) -> Process:
    process = await with_topic(cluster, partitions)
    await process.transactions.init(TXN)
    return process


async def test_records_of_many_topics_and_offsets_are_one_object_and_one_transaction() -> None:
    cluster = Cluster()
    process = await started(cluster)
    await process.gateway.topics.create("u")
    cluster.metadata.calls.clear()
    answer = await write(
        process, Unguarded(), records("a", "b", partition=3), records("c", topic="u"), offset=9
    )

    assert answer == GuardedAnswer(results={"t": ((3, 0, 2),), "u": ((0, 0, 1),)})
    assert cluster.objects.calls["put"] == 1
    assert cluster.metadata.calls["transact"] == 1
    assert await process.read(3) == ["a", "b"]
    assert await process.read(topic="u") == ["c"]
    assert await process.offset("g") == 9


async def test_offsets_alone_are_committed() -> None:
    process = await started(Cluster())
    assert await write(process, Unguarded(), offset=4) == GuardedAnswer(results={})
    assert await write(process, key_guard(process), offset=5) == GuardedAnswer(results={})
    assert await process.offset("g") == 5
    replayed = await write(process, key_guard(process), offset=5)
    assert replayed == GuardedAnswer(results={}, is_replayed=True)


async def test_nothing_is_written_if_the_offsets_may_not_be() -> None:
    process = await started(Cluster())
    offsets = offsets_of("g", 5)
    stranger = type(offsets)(group_id="g", commits=offsets.commits, committer=by("nobody", 1))
    with pytest.raises(RiachoError, match="has no member 'nobody'"):
        await Atomic(process.gateway, process.offsets).write(
            [records("a")], 10, stranger, Unguarded()
        )
    assert await process.read() == []


@KINDS
@pytest.mark.parametrize("same", [True, False])
async def test_a_repeat_gets_the_same_answer_at_any_gateway(kind: str, same: bool) -> None:
    cluster = Cluster()
    process = await started(cluster)
    first = await write(process, await guard_of(kind, process), records("a"), offset=1)
    other = process if same else cluster.process()
    await other.offsets.commit("g", offsets_of("g", 7).commits, None)
    again = await write(other, await guard_of(kind, other), records("a"), offset=1)

    assert again.is_replayed == (kind == "key")
    assert (again.results, again.producer_id, again.epoch) == (
        first.results,
        first.producer_id,
        first.epoch,
    )
    assert first.epoch == (1 if kind == "transaction" else None)
    assert await process.read() == ["a"]
    assert await process.offset("g") == 7


@KINDS
@LOST
async def test_a_lost_answer_is_found_again(kind: str, fault: Any) -> None:
    cluster = Cluster()
    process = await started(cluster)
    guard = await guard_of(kind, process)
    cluster.metadata.faults = [fault, fault]
    answer = await write(process, guard, records("a"), offset=1)
    await turns()

    assert answer.results == {"t": ((0, 0, 1),)}
    assert await process.read() == ["a"]
    assert await process.offset("g") == 1
    assert cluster.objects.calls["put"] == 1


@KINDS
@LOST
async def test_a_lost_answer_without_records_is_found_again(kind: str, fault: Any) -> None:
    cluster = Cluster()
    process = await started(cluster)
    guard = await guard_of(kind, process)
    cluster.metadata.faults = [fault]
    assert (await write(process, guard, offset=1)).results == {}
    await turns()
    assert await process.offset("g") == 1


@LOST
async def test_without_a_guard_a_lost_answer_writes_once(fault: Any) -> None:
    cluster = Cluster()
    process = await started(cluster)
    cluster.metadata.faults = [fault]
    answer = await write(process, Unguarded(), records("a"), offset=1)
    await turns()
    assert answer.results == {"t": ((0, 0, 1),)}
    assert await process.read() == ["a"]


@KINDS
async def test_when_the_stores_refuse_nothing_has_happened(kind: str) -> None:
    cluster = Cluster()
    process = await started(cluster)
    cluster.metadata.faults = ["refused"]
    with pytest.raises(StoreUnavailable):
        await write(process, await guard_of(kind, process), records("a"))
    cluster.objects.failing_puts = 1
    with pytest.raises(StoreUnavailable):
        await write(process, await guard_of(kind, process), records("a"))
    assert await process.read() == []
    await write(process, await guard_of(kind, process), records("a"))
    assert await process.read() == ["a"]


@KINDS
@pytest.mark.parametrize("seed", range(10))
async def test_copies_that_race_write_once(kind: str, seed: int) -> None:
    cluster = Cluster()
    processes = [await started(cluster), cluster.process(), cluster.process()]
    guards = [await guard_of(kind, each) for each in processes]
    cluster.metadata.next_fault = random_faults(seed, 0.3)
    calls = [write(p, g, records("a"), offset=1) for p, g in zip(processes, guards, strict=True)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    cluster.metadata.next_fault = lambda: "none"
    await turns()

    given = [answer for answer in answers if isinstance(answer, GuardedAnswer)]
    assert all(isinstance(answer, GuardedAnswer | RiachoError) for answer in answers), answers
    assert {str(answer.results) for answer in given} <= {"{'t': ((0, 0, 1),)}"}
    again = await write(processes[0], await guard_of(kind, processes[0]), records("a"), offset=1)
    assert again.results == {"t": ((0, 0, 1),)}
    assert await processes[0].read() == ["a"]


async def test_what_was_written_long_ago_is_not_committed_any_more() -> None:
    cluster = Cluster()
    process = await started(cluster)
    cluster.objects.hold_puts = True
    asleep = asyncio.create_task(write(process, key_guard(process), records("a")))
    await turns()
    cluster.now_s += FLIGHT_MAX_S + 1
    cluster.objects.held[0].set()
    with pytest.raises(StoreUnavailable, match="took too long"):
        await asleep
    assert await process.read() == []


# Each kind


async def test_a_transaction_in_one_call_is_fenced_by_its_epoch() -> None:
    cluster = Cluster()
    process = await started(cluster)
    pid = (await process.txn()).producer_id

    def guard(epoch: int, body: bytes = b"body") -> TransactionGuard:
        return TransactionGuard(process.items, Ref(TXN, pid, epoch), body)

    assert (await write(process, guard(0), records("a"))).epoch == 1
    assert (await write(process, guard(1), records("b"))).epoch == 2
    # The first one is known to have happened, though no longer where.
    assert await write(process, guard(0), records("a")) == GuardedAnswer(
        results=None, producer_id=pid, epoch=1
    )
    with pytest.raises(InvalidProducerEpoch):
        await write(process, guard(1, b"another body"), records("c"))
    with pytest.raises(InvalidProducerEpoch):
        await write(process, guard(3), records("c"))

    view = await process.begin()
    with pytest.raises(InvalidTransactionState, match="is open; commit or abort it before"):
        await write(process, guard(view.ref.epoch), records("c"))
    await process.transactions.abort(view.ref)
    with pytest.raises(InvalidProducerEpoch):
        await write(process, guard(view.ref.epoch), records("c"))
    await cluster.process().transactions.init(TXN)
    with pytest.raises(InvalidProducerEpoch, match="a newer instance has taken over"):
        await write(process, guard(view.ref.epoch + 1), records("c"))
    assert await process.read() == ["a", "b"]
    with pytest.raises(InvalidProducerEpoch, match="was not used for long and is forgotten"):
        await write(process, TransactionGuard(process.items, Ref("gone", 5, 0), b""), records("c"))


async def test_a_transaction_in_one_call_is_a_commit_like_any_other() -> None:
    process = await started(Cluster())
    await write(process, await guard_of("transaction", process), records("a"))
    ended = await process.transactions.commit(Ref(TXN, (await process.txn()).producer_id, 0), None)
    assert (ended.outcome, ended.results) == (Outcome.COMMITTED, {"t": ((0, 0, 1),)})


async def test_five_calls_of_a_producer_are_remembered() -> None:
    process = await started(Cluster())
    for number in range(7):
        pair = records(f"{number}a", f"{number}b")
        await write(process, sequence_guard(process, 2 * number, 2), pair)

    for number in range(2, 7):
        answer = await write(process, sequence_guard(process, 2 * number, 2), records("x", "x"))
        assert answer.results == {"t": ((0, 2 * number, 2),)}
    with pytest.raises(DuplicateSequence, match="it is in the log once"):
        await write(process, sequence_guard(process, 2, 2), records("x", "x"))
    with pytest.raises(OutOfOrderSequence, match="sequence 15, and 14 comes next"):
        await write(process, sequence_guard(process, 15), records("x"))
    with pytest.raises(OutOfOrderSequence, match="sequence 13, and 14 comes next"):
        await write(process, sequence_guard(process, 13, 2), records("x", "x"))
    assert len(await process.read()) == 14


async def test_a_new_epoch_of_a_producer_begins_again_and_fences() -> None:
    process = await started(Cluster())
    with pytest.raises(OutOfOrderSequence, match="sequence 4, and 0 comes next"):
        await write(process, sequence_guard(process, 4), records("x"))
    await write(process, sequence_guard(process, 0), records("a"))
    with pytest.raises(OutOfOrderSequence):
        await write(process, sequence_guard(process, 1, producer=(2, 1)), records("x"))
    await write(process, sequence_guard(process, 0, producer=(2, 1)), records("b"))
    with pytest.raises(InvalidProducerEpoch, match="but epoch 1 has been seen"):
        await write(process, sequence_guard(process, 1), records("x"))
    await write(process, sequence_guard(process, 0, producer=(4, 0)), records("c"))
    assert await process.read() == ["a", "b", "c"]


async def test_numbers_of_a_producer_begin_again_after_the_last() -> None:
    process = await started(Cluster())
    window = Window(0, SEQUENCES - 1, 0, ((SEQUENCES - 2, 1, {}),))
    value = frames.seal(b"RAW1", msgspec.msgpack.encode(window))
    await process.gateway.metadata.transact([Put(keys.atomic_producer(2), value, None)])
    await write(process, sequence_guard(process, SEQUENCES - 1, 2), records("a", "b"))
    await write(process, sequence_guard(process, 1), records("c"))
    again = await write(process, sequence_guard(process, SEQUENCES - 1, 2), records("a", "b"))
    assert again.results == {"t": ((0, 0, 2),)}
    assert await process.read() == ["a", "b", "c"]


async def test_a_call_that_overtook_another_waits_for_it() -> None:
    process = await started(Cluster())
    late = [sequence_guard(process, number) for number in (1, 0)]
    await asyncio.gather(*(write(process, guard, records("x")) for guard in late))
    assert len(await process.read()) == 2


async def test_a_key_is_for_one_body() -> None:
    process = await started(Cluster())
    await write(process, key_guard(process), records("a"))
    with pytest.raises(IdempotencyKeyReused, match="use a new key for each"):
        await write(process, key_guard(process, body=b"another"), records("b"))
    await write(process, key_guard(process, "k2", b"another"), records("b"))
    assert await process.read() == ["a", "b"]


async def test_damaged_items_are_reported() -> None:
    process = await started(Cluster())
    broken = [Put(keys.idempotency_key("k"), b"?", None), Put(keys.atomic_producer(2), b"?", None)]
    await process.gateway.metadata.transact(broken)
    for guard in (key_guard(process), sequence_guard(process, 0)):
        with pytest.raises(Corrupt):
            await write(process, guard, records("a"))


# What is wrong with records


async def test_more_lanes_than_fit_are_refused_before_anything_is_written() -> None:
    cluster = Cluster()
    process = await with_topic(cluster, 120, **{"lane.partitions": 1})
    many = [records("a", partition=number) for number in range(99)]
    wide = TopicRecords(
        topic="t",
        batch=batch_of(*[b"a"] * 99),
        wanted=[each.wanted[0] for each in many if each.wanted],
        rows=list(range(99)),
    )
    with pytest.raises(TransactionTooLarge, match="99 lanes and 3 other items"):
        await write(process, key_guard(process), wide, offset=1)
    assert cluster.objects.calls["put"] == 0
    assert len((await write(process, key_guard(process), wide)).results or ()) == 1


async def test_errors_name_the_record_in_the_request() -> None:
    process = await started(Cluster())
    await process.gateway.topics.create("compacted", config={"cleanup.policy": "compact"})
    await process.gateway.topics.create("small", config={"max.message.bytes": 5})

    def of(topic: str, *values: bytes, wanted: list[int | None] | None = None) -> TopicRecords:
        rows = [2 * row + 1 for row in range(len(values))]
        return TopicRecords(topic=topic, batch=batch_of(*values), wanted=wanted, rows=rows)

    with pytest.raises(InvalidRecord, match=r"records\[1\]: topic 'compacted' is compacted"):
        await write(process, Unguarded(), of("compacted", b"a"))
    with pytest.raises(RecordTooLarge, match=r"records\[3\] has 6 bytes .* may have 5"):
        await write(process, Unguarded(), of("small", b"12345", b"123456"))
    with pytest.raises(UnknownTopicOrPartition, match=r"records\[3\]\.partition is 9, but topic"):
        await write(process, Unguarded(), of("t", b"a", b"b", wanted=[None, 9]))
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'gone'"):
        await write(process, Unguarded(), of("gone", b"a"))


async def test_a_topic_recreated_or_widened_elsewhere_is_written_at_once() -> None:
    cluster = Cluster()
    process, other = await started(cluster), cluster.process()
    await write(process, key_guard(process, "1"), records("a"))
    await other.gateway.topics.alter("t", partitions=9)
    await write(process, key_guard(process, "2"), records("b", partition=8))
    await other.gateway.topics.delete("t")
    await other.gateway.topics.create("t")
    await write(process, key_guard(process, "3"), records("c"))
    assert await other.read() == ["c"]


async def test_a_topic_deleted_under_an_unguarded_write_is_reported() -> None:
    cluster = Cluster()
    process, other = await started(cluster), cluster.process()
    await write(process, Unguarded(), records("a"))
    await other.gateway.topics.delete("t")
    with pytest.raises((UnknownTopicOrPartition, OutcomeUnknown)):
        await write(process, Unguarded(), records("b"))


async def test_the_group_may_change_between_attempts() -> None:
    cluster = Cluster()
    process, other = await started(cluster), cluster.process()
    beat = await process.coordinator.join("g", Member(topics=("t",), session_timeout_ms=9999), None)
    offsets = offsets_of("g", 5)
    mine = type(offsets)(
        group_id="g", commits=offsets.commits, committer=by(beat.member_id, beat.generation)
    )

    async def join() -> None:
        await other.coordinator.join("g", Member(topics=("t",), session_timeout_ms=9999), None)

    cluster.metadata.faults = ["request lost"]
    cluster.metadata.before_unknown = join
    with pytest.raises((IllegalGeneration, OutcomeUnknown)):
        await Atomic(process.gateway, process.offsets).write(
            [records("a")], 10, mine, key_guard(process)
        )
    assert await process.read() == []


@KINDS
async def test_a_copy_is_not_refused_by_what_happened_after_the_first(kind: str) -> None:
    cluster = Cluster()
    process, other = await started(cluster), cluster.process()
    beat = await process.coordinator.join("g", Member(topics=("t",), session_timeout_ms=9999), None)
    offsets = offsets_of("g", 5)
    mine = type(offsets)(
        group_id="g", commits=offsets.commits, committer=by(beat.member_id, beat.generation)
    )

    async def call(at: Process) -> GuardedAnswer:
        guard = await guard_of(kind, at)
        return await Atomic(at.gateway, at.offsets).write([records("a")], 10, mine, guard)

    cluster.objects.hold_puts = True
    copy = asyncio.create_task(call(process))
    await turns(100)
    [gate] = cluster.objects.held
    cluster.objects.hold_puts = False
    first = await call(other)
    await other.coordinator.join("g", Member(topics=("t",), session_timeout_ms=9999), None)
    gate.set()
    assert (await copy).results == first.results
    assert await process.read() == ["a"]
