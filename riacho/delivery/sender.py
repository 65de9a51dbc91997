"""Sends batches until they are answered: one drain per partition, one flight per batch.

A *drain* is the task that empties one partition's queue, a *flight* the one that sends a batch
until it is answered. At most `max_in_flight_per_partition` flights per partition, and at most
`max_in_flight` requests in total, are in flight; records that arrive meanwhile form the next
request.

With *idempotence* every batch is numbered when it is sealed (see numbering.py). A batch may be
repeated or overtake another, and is still written once and in order:

- A batch that the gateway refuses, because its predecessors are missing, is *parked* until they
  are answered, and then sent again.
- A batch that is given up leaves a gap. When all others of its partition are answered or parked,
  the parked ones get new numbers in a new epoch. If the gap may still be filled, they fail with
  `OutcomeUnknown` instead.
- The same happens when the gateway has forgotten the producer's numbers.

Without idempotence a retry could overtake its successor, so only one batch of a partition is in
flight; and after a lost reply a retry may write the batch twice.

A request is retried while its error is `retryable` and `delivery_timeout_s` have not passed. The
final error covers all attempts: an `OutcomeUnknown` if any of them may have been applied, else
an error that says that nothing was written.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from riacho.delivery.answers import NO_OFFSET, answer, closed, offsets_of
from riacho.delivery.batches import Accumulator, Batch, Queue
from riacho.delivery.numbering import Numbering, ProducerIds, number_headers
from riacho.errors import DeliveryTimeout, new_error, retry_after_s_of
from riacho.http import wire
from riacho.http.gateway import Gateway, topic_path
from riacho.http.partitions import PartitionCounts
from riacho.http.retries import Backoff
from storage.errors import (
    DuplicateSequence,
    InvalidProducerEpoch,
    InvalidRecord,
    OutcomeUnknown,
    OutOfOrderSequence,
    RecordTooLarge,
    Rejected,
    RequestTooLarge,
    RiachoError,
    Unavailable,
    UnknownProducer,
    UnknownTopicOrPartition,
)

log = logging.getLogger("riacho")

_BLAMED_ON_A_RECORD: Final = (InvalidRecord, RecordTooLarge, RequestTooLarge)
"""Errors for a whole batch that a smaller batch may avoid."""

_NUMBER_REFUSED: Final = (OutOfOrderSequence, UnknownProducer, InvalidProducerEpoch)
"""Errors that refuse a batch's number: this copy of the batch was not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How records are sent, and for how long they are retried."""

    acks: str
    linger_s: float
    compression: wire.Compression
    retries: int
    backoff: Backoff
    delivery_timeout_s: float
    request_timeout_s: float
    max_in_flight: int
    max_in_flight_per_partition: int = 1
    is_idempotent: bool = False


class Sender:
    def __init__(
        self,
        gateway: Gateway,
        accumulator: Accumulator,
        counts: PartitionCounts,
        delivery: Delivery,
        random: Callable[[], float],
    ) -> None:
        self._gateway = gateway
        self._accumulator = accumulator
        self._counts = counts
        self._delivery = delivery
        self._random = random
        self._ids = ProducerIds(gateway)
        self._slots = asyncio.Semaphore(delivery.max_in_flight)
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushes = 0
        self._settled = asyncio.Event()

    def begin(self, queue: Queue) -> None:
        """Start the drain of `queue`. Called on the loop, like everything here."""
        self._keep(asyncio.create_task(self._drain(queue)))

    async def flush(self) -> None:
        """Return when every record that is held now has been answered."""
        number = self._accumulator.last_number
        self._flushes += 1
        for queue in self._accumulator.queues():
            queue.hurry()
        try:
            while self._accumulator.holds_up_to(number):
                self._settled.clear()
                await self._settled.wait()
        finally:
            self._flushes -= 1

    async def stop(self) -> None:
        """Give up all records that are not yet acknowledged; their futures get an error."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._ids.close()
        for queue in self._accumulator.queues():
            for batch in list(queue.flying):
                self._settle(queue, batch, closed(batch))
        detail = "the producer was closed before the record was sent"
        for batch in self._accumulator.abandon():
            answer(batch, new_error(Unavailable, detail))

    async def _drain(self, queue: Queue) -> None:
        limit = self._delivery.max_in_flight_per_partition
        while await self._linger(queue):
            while not queue.may_seal(limit):
                await queue.wait()
            await self._slots.acquire()
            self._launch(queue, self._accumulator.seal(queue))

    async def _linger(self, queue: Queue) -> bool:
        """Wait until the first batch of `queue` is due; return False if there is none.

        The more batches are in flight, the longer it waits for more records: where replies come
        quickly, many small requests would cost more than they save.
        """
        batch = self._accumulator.first(queue)
        if batch is None:
            return False
        while not (self._flushes or queue.is_due):
            linger_s = self._delivery.linger_s * (1 + len(queue.flying))
            wait_s = batch.begun_s + linger_s - time.monotonic()
            if wait_s <= 0:
                break
            await queue.wait(wait_s)
        return True

    def _launch(self, queue: Queue, batch: Batch) -> None:
        self._keep(asyncio.create_task(self._fly(queue, batch)))

    async def _fly(self, queue: Queue, batch: Batch) -> None:
        """Send `batch` until it is answered. The caller acquired a slot, unless it is parked."""
        outcome: list[int] | RiachoError = new_error(Unavailable, "those before it took all time")
        if batch.is_parked:
            if not await self._turn(queue, batch):
                self._conclude(queue, batch, outcome)
                return
            await self._slots.acquire()
        while True:
            try:
                outcome = await self._attempt(queue, batch)
            finally:
                self._slots.release()
            if not isinstance(outcome, RiachoError):
                break
            if not await self._again(queue, batch, outcome):
                break
            await self._slots.acquire()
        self._conclude(queue, batch, outcome)

    async def _again(self, queue: Queue, batch: Batch, error: RiachoError) -> bool:
        """Wait until `batch` may be retried and return True; return False if it never may."""
        if self._delivery.is_idempotent and isinstance(error, _NUMBER_REFUSED):
            batch.was_early |= isinstance(error, OutOfOrderSequence)
            if batch.was_first:
                # It had no predecessors: the gateway has forgotten our numbers, or our id.
                is_unknown = not isinstance(error, OutOfOrderSequence)
                queue.numbering.break_off(is_doubtful=batch.may_have_applied, is_unknown=is_unknown)
                await self._back_off(batch, error)
            return await self._turn(queue, batch)
        if (
            not error.retryable
            or batch.attempts > self._delivery.retries
            or self._remaining_s(batch) <= 0
        ):
            return False
        await self._back_off(batch, error)
        # Else this error is the last, and says why the time was not enough.
        return self._remaining_s(batch) > 0

    async def _turn(self, queue: Queue, batch: Batch) -> bool:
        """Wait until `batch` has no predecessors; return False if it is to be given up.

        That is so when its time is up, or when a predecessor that was given up may still be
        written: then a copy of this batch, duplicated or delayed by the network, may be too.
        """
        numbering = queue.numbering
        batch.is_parked = True
        queue.news.set()
        while queue.flying[0] is not batch or numbering.is_broken:
            remaining_s = self._remaining_s(batch)
            if numbering.is_doubtful and batch.attempts:
                batch.may_have_applied = True
                return False
            if remaining_s <= 0:
                return False
            if all(one.is_parked for one in queue.flying) and numbering.is_broken:
                self._restart(queue)
                continue
            await queue.wait(remaining_s)
        batch.is_parked = False
        return True

    def _restart(self, queue: Queue) -> None:
        """Give new numbers to all unanswered batches, none of which is in flight."""
        numbering = queue.numbering
        log.info("numbering restarted", extra={"partition": str(queue.partition)})
        if numbering.is_unknown and numbering.producer_id is not None:
            self._ids.forget(numbering.producer_id)
        numbering.restart()
        for batch in queue.flying:
            batch.epoch, batch.sequence = numbering.take(len(batch.drafts))
        queue.news.set()

    async def _attempt(self, queue: Queue, batch: Batch) -> "list[int] | RiachoError":
        """Send `batch` once; return the offsets of its records, or the error."""
        remaining_s = self._remaining_s(batch)
        if remaining_s <= 0:
            return new_error(Unavailable, "it waited behind others until its time was up")
        batch.attempts += 1
        batch.was_first = queue.flying[0] is batch
        try:
            number = await self._number(queue.numbering, batch, remaining_s)
        except RiachoError as error:
            return error
        try:
            timeout_s = min(self._delivery.request_timeout_s, remaining_s)
            return await self._post(batch, number, timeout_s)
        except RiachoError as error:
            batch.may_have_applied |= error.may_have_applied
            return error
        except asyncio.CancelledError:
            batch.may_have_applied = True
            raise
        except Exception as error:
            # Senders of this batch must get an answer even if the client has a bug.
            log.exception("batch failed unexpectedly", extra={"partition": str(batch.partition)})
            batch.may_have_applied = True
            return new_error(OutcomeUnknown, f"the client failed: {error!r}", retryable=False)

    async def _number(self, numbering: Numbering, batch: Batch, timeout_s: float) -> dict[str, str]:
        """Return the headers that number `batch`; requests a producer id if there is none yet."""
        if not self._delivery.is_idempotent:
            return {}
        if numbering.producer_id is None:
            try:
                async with asyncio.timeout(timeout_s):
                    producer_id = await self._ids.get()
            except TimeoutError:
                raise new_error(Unavailable, "the gateway gave no producer id") from None
            if numbering.producer_id is None:
                numbering.producer_id = producer_id
        return number_headers(numbering.producer_id, batch.epoch, batch.sequence)

    async def _post(self, batch: Batch, number: dict[str, str], timeout_s: float) -> list[int]:
        drafts = batch.drafts
        columns = wire.Columns(
            [draft.timestamp for draft in drafts],
            [draft.key for draft in drafts],
            [draft.value for draft in drafts],
            [draft.headers for draft in drafts],
        )
        body, headers = wire.encode_records(columns, self._delivery.compression)
        topic, partition = batch.partition
        reply = await self._gateway.request(
            "POST",
            topic_path(topic, "partitions", partition, "records"),
            params={"acks": self._delivery.acks},
            content=body,
            headers=headers | number,
            timeout_s=timeout_s,
        )
        return offsets_of(reply, len(drafts))

    async def _back_off(self, batch: Batch, error: RiachoError) -> None:
        wait_s = self._delivery.backoff.wait_s(
            batch.attempts, self._random(), retry_after_s_of(error)
        )
        log.debug(
            "batch to be sent again",
            extra={"partition": str(batch.partition), "code": error.code, "wait_s": wait_s},
        )
        await asyncio.sleep(min(wait_s, max(self._remaining_s(batch), 0)))

    def _remaining_s(self, batch: Batch) -> float:
        return batch.begun_s + self._delivery.delivery_timeout_s - time.monotonic()

    def _conclude(self, queue: Queue, batch: Batch, outcome: "list[int] | RiachoError") -> None:
        if not isinstance(outcome, RiachoError):
            self._settle(queue, batch, outcome)
            return
        if isinstance(outcome, DuplicateSequence) and (batch.may_have_applied or batch.is_half):
            self._settle(queue, batch, [NO_OFFSET] * len(batch.drafts))
            return
        if isinstance(outcome, UnknownTopicOrPartition):
            self._counts.forget(batch.partition.topic)
        if isinstance(outcome, _BLAMED_ON_A_RECORD) and len(batch.drafts) > 1:
            # One bad record must not fail its neighbours. Halving finds it in a few requests, and
            # keeps the order: the halves keep the batch's place and its numbers.
            for half in self._accumulator.split(queue, batch):
                half.is_parked = True
                self._launch(queue, half)
            return
        # A rejected request is rejected every time; otherwise a late copy may be accepted.
        may_come_late = batch.attempts > 0 and not isinstance(outcome, Rejected)
        is_doubtful = self._delivery.is_idempotent and (batch.may_have_applied or may_come_late)
        queue.numbering.break_off(is_doubtful=is_doubtful)
        self._settle(queue, batch, self._verdict(batch, outcome))

    def _verdict(self, batch: Batch, last: RiachoError) -> RiachoError:
        """Return the caller's error, which must be true for all attempts together."""
        limit_s = self._delivery.delivery_timeout_s
        is_late = self._remaining_s(batch) <= 0 and (
            last.retryable or isinstance(last, _NUMBER_REFUSED)
        )
        may_have_applied = batch.may_have_applied or (is_late and batch.was_early)
        if may_have_applied and (is_late or not last.may_have_applied):
            detail = f"the record may or may not be written; the last of {batch.attempts} tries: "
            return new_error(OutcomeUnknown, detail + str(last), retryable=last.retryable)
        if is_late:
            return new_error(DeliveryTimeout, f"not written within {limit_s:g} s: {last}")
        return last

    def _settle(self, queue: Queue, batch: Batch, outcome: "list[int] | RiachoError") -> None:
        self._accumulator.settle(queue, batch)
        if queue.numbering.is_broken and not queue.flying:
            self._restart(queue)
        queue.news.set()
        answer(batch, outcome)
        self._settled.set()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
