"""Records that wait to be sent: batches per partition, with a limit on their total size.

    send ──▶ open batch of the partition ──▶ sealed, in flight ──▶ settled
             (the last of its queue)         (the first ones, in order)

Threads put records in, the sender takes batches out on its event loop; one lock guards both,
and nothing here waits. If the buffer is full, `offer` returns False and calls back later.

A record without a key goes to the *sticky* partition of its topic, which changes with every
batch: few large requests instead of many small ones, and still an even spread.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from riacho.delivery.numbering import SEQUENCES, Numbering
from riacho.records import HeaderPairs, RecordMetadata, TopicPartition
from storage.errors import RiachoError

Answer: TypeAlias = Future[RecordMetadata] | asyncio.Future[RecordMetadata]
Callback: TypeAlias = Callable[[RecordMetadata | None, RiachoError | None], None]

RECORD_OVERHEAD_BYTES: Final = 64
"""Added to each record's own bytes, so that empty records are limited too."""


class Draft:
    """A record to be sent, with the future and the callback that get its outcome."""

    # Not a dataclass, which takes three times as long to create, for every record sent.
    __slots__ = ("answer", "callback", "headers", "key", "size_bytes", "timestamp", "value")

    def __init__(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        answer: Answer,
        callback: Callback | None = None,
    ) -> None:
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.answer = answer
        self.callback = callback
        self.size_bytes = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for name, text in headers:
            self.size_bytes += len(name) + len(text or b"")


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition that are sent together."""

    partition: TopicPartition
    number: int
    begun_s: float
    drafts: list[Draft] = field(default_factory=list)
    size_bytes: int = 0
    attempts: int = 0
    may_have_applied: bool = False
    was_early: bool = False
    """Whether it was refused because its predecessors were missing: a copy duplicated by the
    network may be accepted once they are written."""
    flight: int = 0
    """Number of the batch within its partition, in the order of sealing."""
    epoch: int = 0
    sequence: int = 0
    """Number of its first record, counted per partition and epoch."""
    was_first: bool = False
    """Whether all batches before it had been answered when it was last sent."""
    is_parked: bool = False
    """Whether it waits for those batches now, with no request of its own in flight."""
    is_half: bool = False

    def halves(self) -> "tuple[Batch, Batch]":
        """Return the two halves of this batch, in order, with its numbers.

        `may_have_applied` starts as False: a batch that is refused because of its records was
        refused by every earlier attempt too.
        """
        middle = len(self.drafts) // 2
        first, second = (
            Batch(
                partition=self.partition,
                number=self.number,
                begun_s=self.begun_s,
                drafts=drafts,
                size_bytes=sum(draft.size_bytes for draft in drafts),
                flight=self.flight,
                epoch=self.epoch,
                is_half=True,
            )
            for drafts in (self.drafts[:middle], self.drafts[middle:])
        )
        first.sequence = self.sequence
        second.sequence = (self.sequence + middle) % SEQUENCES
        return first, second

    def forget_payloads(self) -> None:
        """Keep only what is needed to answer the senders of the records."""
        for draft in self.drafts:
            draft.key = draft.value = None
            draft.headers = ()


@dataclass(slots=True, eq=False)
class Queue:
    """The batches of one partition. Only the last waiting batch takes records."""

    partition: TopicPartition
    waiting: deque[Batch] = field(default_factory=deque)
    flying: list[Batch] = field(default_factory=list)
    """Sealed batches without an answer, oldest first; all older than the waiting ones."""
    is_drained: bool = True
    is_due: bool = False
    """Whether the first batch need not linger. Used on the sender's loop only."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when any of this has changed. Used on the sender's loop only."""
    numbering: Numbering = field(default_factory=Numbering)
    flights: int = 0

    def hurry(self) -> None:
        """Let the first batch linger no longer."""
        self.is_due = True
        self.news.set()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return when something has changed, or after `timeout_s`."""
        self.news.clear()
        timer = None
        if timeout_s is not None:
            # `wait_for` would create one more task for every batch.
            timer = asyncio.get_running_loop().call_later(timeout_s, self.news.set)
        await self.news.wait()
        if timer is not None:
            timer.cancel()

    def may_seal(self, in_flight_max: int) -> bool:
        """Whether one more batch may be sent.

        Counts all batches since the oldest unanswered one, including answered ones: the gateway
        remembers only the last few, and must still know the oldest when it is sent again.
        """
        if self.numbering.is_broken:
            return False  # A new batch would get a number that can never be used.
        return not self.flying or self.flights - self.flying[0].flight + 1 < in_flight_max


class Accumulator:
    def __init__(
        self,
        *,
        batch_bytes_max: int,
        buffer_bytes_max: int,
        begin: Callable[[Queue], None],
        hurry: Callable[[Queue], None],
    ) -> None:
        """Call `begin` for a queue that needs a drain, `hurry` for one that need not linger.

        Both are called in the thread that offers a record, with the lock held.
        """
        self._batch_bytes_max = batch_bytes_max
        self._buffer_bytes_max = buffer_bytes_max
        self._begin = begin
        self._hurry = hurry
        self._lock = threading.Lock()
        self._queues: dict[TopicPartition, Queue] = {}
        self._sticky: dict[str, int] = {}
        self._held_bytes = 0
        self._held_records = 0
        self._last_number = 0
        self._waiters: list[Callable[[], None]] = []
        self._is_closed = False

    def offer(
        self,
        topic: str,
        partition: int | None,
        partition_count: int,
        draft: Draft,
        *,
        now_s: float,
        on_room: Callable[[], None] | None = None,
    ) -> bool:
        """Take `draft` and return True, or call `on_room` once there is room to try again.

        Raises `RuntimeError` if the producer was closed.
        """
        size_bytes = draft.size_bytes
        with self._lock:
            if self._is_closed:
                raise RuntimeError("this producer is closed")
            if self._held_bytes + size_bytes > self._buffer_bytes_max:
                if on_room is not None:
                    self._waiters.append(on_room)
                return False
            if partition is None:
                partition = self._sticky_partition(topic, partition_count, size_bytes)
            self._append(TopicPartition(topic, partition), draft, size_bytes, now_s)
            return True

    def first(self, queue: Queue) -> Batch | None:
        """Return the batch to send next; None ends the drain of `queue`."""
        with self._lock:
            if queue.waiting:
                return queue.waiting[0]
            queue.is_drained = True
            return None

    def seal(self, queue: Queue) -> Batch:
        """Take the first batch of `queue` for sending: number it, and add no more records to it."""
        with self._lock:
            batch = queue.waiting.popleft()
            batch.epoch, batch.sequence = queue.numbering.take(len(batch.drafts))
            queue.flights += 1
            batch.flight = queue.flights
            queue.flying.append(batch)
            queue.is_due = self._is_full(queue)
            return batch

    def settle(self, queue: Queue, batch: Batch) -> None:
        """Remove `batch`, which has been answered, and make room for others."""
        with self._lock:
            queue.flying.remove(batch)
            self._held_bytes -= batch.size_bytes
            self._held_records -= len(batch.drafts)
            waiters, self._waiters = self._waiters, []
        for on_room in waiters:
            on_room()

    def split(self, queue: Queue, batch: Batch) -> tuple[Batch, Batch]:
        """Put the halves of `batch` in its place, to be sent one after the other."""
        halves = batch.halves()
        with self._lock:
            place = queue.flying.index(batch)
            queue.flying[place : place + 1] = halves
        return halves

    def close(self) -> None:
        """Take no more records. Wakes callers that wait for room; their next `offer` raises."""
        with self._lock:
            self._is_closed = True
            waiters, self._waiters = self._waiters, []
        for on_room in waiters:
            on_room()

    def abandon(self) -> list[Batch]:
        """Take out everything that was not sent."""
        with self._lock:
            batches = [batch for queue in self._queues.values() for batch in queue.waiting]
            for queue in self._queues.values():
                queue.waiting.clear()
            self._held_bytes -= sum(batch.size_bytes for batch in batches)
            self._held_records -= sum(len(batch.drafts) for batch in batches)
            return batches

    @property
    def last_number(self) -> int:
        """The number of the newest batch."""
        return self._last_number

    @property
    def held_records(self) -> int:
        """How many records have no answer yet."""
        return self._held_records

    def holds_up_to(self, number: int) -> bool:
        """Whether a batch with this number, or an older one, has no answer yet."""
        with self._lock:
            return any(
                batch.number <= number
                for queue in self._queues.values()
                for batch in (*queue.flying, *queue.waiting)
            )

    def queues(self) -> list[Queue]:
        with self._lock:
            return list(self._queues.values())

    def _append(
        self, partition: TopicPartition, draft: Draft, size_bytes: int, now_s: float
    ) -> None:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = Queue(partition)
        if not self._has_room(queue, size_bytes):
            self._last_number += 1
            queue.waiting.append(Batch(partition, self._last_number, now_s))
        batch = queue.waiting[-1]
        batch.drafts.append(draft)
        batch.size_bytes += size_bytes
        self._held_bytes += size_bytes
        self._held_records += 1
        if queue.is_drained:
            queue.is_drained = False
            self._begin(queue)
        elif len(queue.waiting) <= 2 and self._is_full(queue):
            self._hurry(queue)

    def _is_full(self, queue: Queue) -> bool:
        """Whether the first batch is full, which it is if there is a second one."""
        if len(queue.waiting) == 1:
            return queue.waiting[0].size_bytes >= self._batch_bytes_max
        return bool(queue.waiting)

    def _has_room(self, queue: Queue, size_bytes: int) -> bool:
        """Whether the open batch of `queue` has room; an empty batch takes a record of any size."""
        if not queue.waiting:
            return False
        return queue.waiting[-1].size_bytes + size_bytes <= self._batch_bytes_max

    def _sticky_partition(self, topic: str, partition_count: int, size_bytes: int) -> int:
        partition = self._sticky.get(topic, -1)
        if 0 <= partition < partition_count:
            queue = self._queues.get(TopicPartition(topic, partition))
            if queue is not None and self._has_room(queue, size_bytes):
                return partition
        self._sticky[topic] = partition = (partition + 1) % partition_count
        return partition
