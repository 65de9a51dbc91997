"""The items that recognise a repeated atomic call: read once, written once, never too large."""

import random
from dataclasses import dataclass, field

import pytest

from service.log.sequences import GAP_LOOKS, GAP_WAIT_S
from service.transactions import guards
from service.transactions.guards import (
    REMEMBERED_MAX,
    GuardedAnswer,
    KeyGuard,
    SequenceGuard,
    TransactionGuard,
    decode_window,
)
from service.transactions.state import Ref, Results, Transaction
from service.world.clock import World
from storage.errors import (
    DuplicateSequence,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    TransactionTooLarge,
)
from storage.head.producers import EPOCH_MAX, SEQUENCES
from storage.stores.metadata import VALUE_BYTES_MAX, Versioned
from tests.service.transactions.cluster import TXN, Cluster, Process
from tests.storage.helpers.faults import FaultyMetadata
from tests.storage.helpers.worlds import Clock, new_metadata

pytestmark = pytest.mark.anyio

RESULTS: Results = {"t": ((0, 7, 2),)}


class CountingClock(Clock):
    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep(seconds)


@dataclass
class Table:
    metadata: FaultyMetadata = field(default_factory=lambda: FaultyMetadata(new_metadata()))
    clock: CountingClock = field(default_factory=CountingClock)

    @property
    def world(self) -> World:
        return World(
            now_ms=self.clock.now_ms,
            monotonic_s=self.clock.monotonic_s,
            sleep=self.clock.sleep,
            random=random.Random(1).random,
            random_bytes=random.Random(2).randbytes,
        )

    def calls(self, sequence: int, count: int = 2, epoch: int = 0) -> SequenceGuard:
        return SequenceGuard(self.metadata, self.world, (3, epoch), sequence, count)

    def key(self) -> KeyGuard:
        return KeyGuard(self.metadata, self.world, "k", b"body")

    async def do(self, guard: SequenceGuard | KeyGuard, results: Results = RESULTS) -> None:
        await self.metadata.transact(await guard.ops(results))

    async def remembered(self) -> list[int]:
        """Return the sequences of the calls that are remembered."""
        [(_, item)] = await self.metadata.list("atomic/")
        window = decode_window(item)
        assert window is not None
        return [sequence for sequence, _, _ in window.calls]


async def test_what_was_looked_at_is_not_read_again_for_the_first_attempt_only() -> None:
    table = Table()
    for guard in (table.calls(0), table.key()):
        table.metadata.calls.clear()
        await guard.look()
        await guard.ops(RESULTS)
        assert table.metadata.calls["get"] == 1
        await guard.ops(RESULTS)
        assert table.metadata.calls["get"] == 2


async def test_an_attempt_without_a_look_looks() -> None:
    table = Table()
    for first, again in ((table.calls(0), table.calls(0)), (table.key(), table.key())):
        await table.do(first)

        assert isinstance(await again.ops(RESULTS), GuardedAnswer)


async def test_a_gap_is_waited_for_as_long_as_promised() -> None:
    table = Table()

    with pytest.raises(OutOfOrderSequence):
        await table.calls(2).look()

    assert table.metadata.calls["get"] == GAP_LOOKS + 1
    assert sum(table.clock.slept) == pytest.approx(GAP_WAIT_S)


async def test_a_repetition_from_before_what_is_remembered_is_a_duplicate() -> None:
    table = Table()
    for number in range(REMEMBERED_MAX + 2):
        await table.do(table.calls(2 * number))
    oldest = (await table.remembered())[0]
    assert oldest == 4

    assert await table.calls(oldest).look() is not None
    with pytest.raises(DuplicateSequence):
        await table.calls(oldest - 2).look()
    # One that ends where the last one did.
    with pytest.raises(DuplicateSequence):
        await table.calls(oldest - 2, count=2 * REMEMBERED_MAX + 2).look()
    # One that begins where a remembered one does, and is another.
    with pytest.raises(OutOfOrderSequence):
        await table.calls(oldest, count=1).look()
    with pytest.raises(OutOfOrderSequence):
        await table.calls(oldest + 1, count=1).look()


async def test_half_of_all_numbers_are_behind() -> None:
    table = Table()
    await table.do(table.calls(0, count=SEQUENCES // 2))
    await table.do(table.calls(SEQUENCES // 2, count=2))
    ends = SEQUENCES // 2 + 2
    for number in range(REMEMBERED_MAX):
        await table.do(table.calls(ends + number, count=1))
    ends += REMEMBERED_MAX

    with pytest.raises(DuplicateSequence):
        await table.calls(ends - SEQUENCES // 2, count=1).look()
    with pytest.raises(OutOfOrderSequence):
        await table.calls(ends - SEQUENCES // 2 - 1, count=1).look()


async def test_a_newer_epoch_remembers_nothing_of_the_older() -> None:
    table = Table()
    await table.do(table.calls(0))

    await table.do(table.calls(0, epoch=1))

    assert await table.remembered() == [0]


async def test_large_answers_are_remembered_as_far_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large: Results = {"t": tuple((partition, 0, 1) for partition in range(400))}
    table = Table()
    for number in range(3):
        await table.do(table.calls(2 * number))
    [(_, item)] = await table.metadata.list("atomic/")
    monkeypatch.setattr(guards, "WINDOW_BYTES_MAX", len(item.value))

    await table.do(table.calls(6))
    assert await table.remembered() == [2, 4, 6], "three fill it to the last byte"

    await table.do(table.calls(8), large)
    assert await table.remembered() == [8], "the last one is, however large"


def test_what_the_table_does_not_take_is_refused() -> None:
    assert guards._put("k/k", bytes(VALUE_BYTES_MAX), None).expected is None
    assert guards._put("k/k", b"", Versioned(b"", "v1")).expected == "v1"
    with pytest.raises(TransactionTooLarge):
        guards._put("k/k", bytes(VALUE_BYTES_MAX + 1), None)


# Whole transactions


async def instance(epoch: int) -> tuple[Process, Ref]:
    """Return a transactional id that is at this epoch, with the process that made it."""
    process = Cluster().process()
    made = await process.transactions.init(TXN)
    txn = Transaction(producer_id=made.producer_id, epoch=epoch, changed_ms=0)
    await process.items.write(TXN, await process.items.read(TXN), txn)
    return process, Ref(TXN, made.producer_id, epoch)


@pytest.mark.parametrize(("epoch", "op_count"), [(0, 1), (EPOCH_MAX - 1, 1), (EPOCH_MAX, 2)])
async def test_a_transaction_takes_as_many_items_as_it_says(epoch: int, op_count: int) -> None:
    process, ref = await instance(epoch)
    guard = TransactionGuard(process.items, ref, b"body")

    ops = await guard.ops(RESULTS)

    assert len(ops) == guard.op_count == op_count


async def test_the_last_of_several_transactions_is_answered_with_its_offsets() -> None:
    process, ref = await instance(0)
    other: Results = {"t": ((0, 9, 1),)}
    following = Ref(TXN, ref.producer_id, 1)
    for each, results in ((ref, RESULTS), (following, other)):
        ops = await TransactionGuard(process.items, each, b"body").ops(results)
        await process.gateway.metadata.transact(ops)

    answer = await TransactionGuard(process.items, following, b"body").look()

    assert answer is not None
    assert answer.results == other
    assert answer.epoch == 2


async def test_what_was_aborted_was_not_done() -> None:
    process, _ = await instance(0)
    view = await process.begin()
    await process.transactions.abort(view.ref)

    # Without a digest it looks like any other end, which has none.
    with pytest.raises(InvalidProducerEpoch):
        await TransactionGuard(process.items, view.ref, b"").look()
