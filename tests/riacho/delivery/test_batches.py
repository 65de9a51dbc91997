"""Which records share a batch, and what happens when the buffer is full."""

from concurrent.futures import Future

import pytest

from riacho.delivery.batches import RECORD_OVERHEAD_BYTES, Accumulator, Draft, Queue


def draft(size_bytes: int = 0) -> Draft:
    return Draft(0, None, b"x" * size_bytes, (), Future())


class Recorded:
    """An accumulator for three records per batch that records its calls."""

    def __init__(self, *, buffer_records: int = 100) -> None:
        self.begun: list[Queue] = []
        self.hurried: list[Queue] = []
        self.accumulator = Accumulator(
            batch_bytes_max=3 * RECORD_OVERHEAD_BYTES,
            buffer_bytes_max=buffer_records * RECORD_OVERHEAD_BYTES,
            begin=self.begun.append,
            hurry=self.hurried.append,
        )

    def offer(self, partition: int | None = 0, partitions: int = 3, size_bytes: int = 0) -> bool:
        return self.accumulator.offer("t", partition, partitions, draft(size_bytes), now_s=0.0)

    def counts(self) -> dict[int, list[int]]:
        return {
            queue.partition.partition: [len(batch.drafts) for batch in queue.waiting]
            for queue in self.accumulator.queues()
        }


def test_records_of_a_partition_share_a_batch_until_it_is_full() -> None:
    held = Recorded()

    for _ in range(7):
        held.offer(partition=1)

    assert held.counts() == {1: [3, 3, 1]}
    assert len(held.begun) == 1
    assert held.hurried


def test_a_record_larger_than_a_batch_is_sent_alone() -> None:
    held = Recorded()

    held.offer()
    held.offer(size_bytes=1000)
    held.offer()

    assert held.counts() == {0: [1, 1, 1]}


def test_records_without_a_key_fill_a_batch_and_then_switch_partition() -> None:
    held = Recorded()

    for _ in range(12):
        held.offer(partition=None)

    assert held.counts() == {0: [3], 1: [3], 2: [3]} | {0: [3, 3]}


def test_a_sealed_batch_accepts_no_more_records() -> None:
    held = Recorded()
    held.offer()
    [queue] = held.begun

    sealed = held.accumulator.seal(queue)
    held.offer()

    assert len(sealed.drafts) == 1
    assert held.counts() == {0: [1]}
    assert len(held.begun) == 1, "one drain at a time"


def test_a_drain_that_ended_is_started_again_by_the_next_record() -> None:
    held = Recorded()
    held.offer()
    [queue] = held.begun
    held.accumulator.settle(queue, held.accumulator.seal(queue))

    assert held.accumulator.first(queue) is None
    held.offer()

    assert held.begun == [queue, queue]


def test_a_full_buffer_refuses_and_calls_back_when_it_has_room() -> None:
    held = Recorded(buffer_records=2)
    called: list[str] = []
    held.offer()
    held.offer()

    taken = held.accumulator.offer(
        "t", 0, 3, draft(), now_s=0.0, on_room=lambda: called.append("room")
    )
    assert (taken, called) == (False, [])
    [queue] = held.begun
    held.accumulator.settle(queue, held.accumulator.seal(queue))

    assert called == ["room"]
    assert held.offer()


def test_halves_are_sent_in_order_before_later_batches() -> None:
    held = Recorded()
    for _ in range(4):
        held.offer()
    [queue] = held.begun
    batch = held.accumulator.seal(queue)

    after = held.accumulator.seal(queue)
    halves = held.accumulator.split(queue, batch)

    assert queue.flying == [*halves, after]
    assert [d for half in halves for d in half.drafts] == batch.drafts
    assert [len(half.drafts) for half in halves] == [1, 2]
    assert [one.sequence for one in queue.flying] == [0, 1, 3], "no number is used twice"
    assert held.accumulator.held_records == 4


def test_a_flush_waits_for_both_halves_of_a_split_batch() -> None:
    held = Recorded()
    held.offer()
    held.offer()
    [queue] = held.begun
    number = held.accumulator.last_number

    first, second = held.accumulator.split(queue, held.accumulator.seal(queue))
    held.accumulator.settle(queue, first)
    assert held.accumulator.holds_up_to(number)
    held.accumulator.settle(queue, second)

    assert not held.accumulator.holds_up_to(number)


def test_no_record_is_accepted_after_closing() -> None:
    held = Recorded()
    held.accumulator.close()

    with pytest.raises(RuntimeError, match="closed"):
        held.offer()
