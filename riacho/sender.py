"""From batches to acknowledged records: one drain per partition, a few requests at a time.

A *drain* is the task that empties one partition's queue. It has at most one request in the
air, because without sequence numbers a retry could otherwise overtake its successor; what
gathers meanwhile is the next request. Up to `max_in_flight` drains send at the same time.

A request is tried again while its error is `retryable` and `delivery_timeout_s` have not
passed. When the error also says `may_have_applied`, the batch may be in the log already, and
trying again may write it twice: delivery is *at least once*. What a caller is told in the
end is true in any case: an `OutcomeUnknown` if any try may have been applied, else an error
that says that nothing was written.
"""

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from riacho import wire
from riacho.batches import Accumulator, Batch, Draft, Queue
from riacho.errors import DeliveryTimeout, new_error, retry_after_s_of
from riacho.gateway import Gateway, Reply, topic_path
from riacho.partitions import PartitionCounts
from riacho.records import RecordMetadata
from riacho.retries import Backoff
from storage.errors import (
    InvalidRecord,
    OutcomeUnknown,
    RecordTooLarge,
    RequestTooLarge,
    RiachoError,
    Unavailable,
    UnknownTopicOrPartition,
)

log = logging.getLogger("riacho")

_BLAMED_ON_A_RECORD: Final = (InvalidRecord, RecordTooLarge, RequestTooLarge)
"""Refusals of a whole batch that a smaller batch may not meet."""

_CANCELLED: Final = (asyncio.InvalidStateError, concurrent.futures.InvalidStateError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How records are sent, and for how long it is tried."""

    acks: str
    linger_s: float
    compression: wire.Compression
    retries: int
    backoff: Backoff
    delivery_timeout_s: float
    request_timeout_s: float
    max_in_flight: int


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
        self._slots = asyncio.Semaphore(delivery.max_in_flight)
        self._drains: set[asyncio.Task[None]] = set()
        self._flushes = 0
        self._settled = asyncio.Event()

    def begin(self, queue: Queue) -> None:
        """Start the drain of `queue`. Called on the loop, as everything here."""
        task = asyncio.create_task(self._drain(queue))
        self._drains.add(task)
        task.add_done_callback(self._drains.discard)

    async def flush(self) -> None:
        """Return when every record that is held now has its answer."""
        number = self._accumulator.last_number
        self._flushes += 1
        for queue in self._accumulator.queues():
            queue.ready.set()
        try:
            while self._accumulator.holds_up_to(number):
                self._settled.clear()
                await self._settled.wait()
        finally:
            self._flushes -= 1

    async def stop(self) -> None:
        """Give up what is not yet acknowledged; everyone who waits for it is told."""
        drains = list(self._drains)
        for drain in drains:
            drain.cancel()
        await asyncio.gather(*drains, return_exceptions=True)
        detail = "the producer was closed before the record was sent"
        for queue, batch in self._accumulator.abandon():
            self._settle(queue, batch, new_error(Unavailable, detail))

    async def _drain(self, queue: Queue) -> None:
        try:
            while await self._linger(queue):
                async with self._slots:
                    batch = self._accumulator.seal(queue)
                    outcome = await self._attempt(batch)
                while isinstance(outcome, RiachoError) and self._may_retry(batch, outcome):
                    await self._back_off(batch, outcome)
                    async with self._slots:
                        outcome = await self._attempt(batch)
                self._conclude(queue, batch, outcome)
        except asyncio.CancelledError:
            if queue.in_flight is not None:
                self._settle(queue, queue.in_flight, _closed(queue.in_flight))
            raise

    async def _linger(self, queue: Queue) -> bool:
        """Wait until the first batch of `queue` is due; return False if there is none."""
        batch = self._accumulator.first(queue)
        if batch is None:
            return False
        wait_s = batch.begun_s + self._delivery.linger_s - time.monotonic()
        if wait_s > 0 and not self._flushes:
            # `wait_for` would be a task more for every batch.
            timer = asyncio.get_running_loop().call_later(wait_s, queue.ready.set)
            await queue.ready.wait()
            timer.cancel()
        return True

    async def _attempt(self, batch: Batch) -> "list[int] | RiachoError":
        """Send `batch` once; return the offsets of its records, or what went wrong."""
        remaining_s = self._remaining_s(batch)
        if remaining_s <= 0:
            return new_error(Unavailable, "it waited behind others until its time was up")
        batch.attempts += 1
        try:
            return await self._post(batch, min(self._delivery.request_timeout_s, remaining_s))
        except RiachoError as error:
            batch.may_have_applied |= error.may_have_applied
            return error
        except asyncio.CancelledError:
            batch.may_have_applied = True
            raise
        except Exception as error:
            # Whoever waits for this batch must get an answer, even to a mistake of ours.
            log.exception("batch failed unexpectedly", extra={"partition": str(batch.partition)})
            return new_error(OutcomeUnknown, f"the client failed: {error!r}", retryable=False)

    async def _post(self, batch: Batch, timeout_s: float) -> list[int]:
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
            headers=headers,
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

    def _may_retry(self, batch: Batch, error: RiachoError) -> bool:
        return (
            error.retryable
            and batch.attempts <= self._delivery.retries
            and self._remaining_s(batch) > 0
        )

    def _remaining_s(self, batch: Batch) -> float:
        return batch.begun_s + self._delivery.delivery_timeout_s - time.monotonic()

    def _conclude(self, queue: Queue, batch: Batch, outcome: "list[int] | RiachoError") -> None:
        if not isinstance(outcome, RiachoError):
            self._settle(queue, batch, outcome)
            return
        if isinstance(outcome, UnknownTopicOrPartition):
            self._counts.forget(batch.partition.topic)
        if isinstance(outcome, _BLAMED_ON_A_RECORD) and len(batch.drafts) > 1:
            # One record must not take its neighbours with it. Halving finds it in a few
            # requests, and keeps the order, since both halves go before what waits.
            self._accumulator.split(queue, batch)
            return
        self._settle(queue, batch, self._verdict(batch, outcome))

    def _verdict(self, batch: Batch, last: RiachoError) -> RiachoError:
        """Return what the caller is told, which must be true of all tries together."""
        limit_s = self._delivery.delivery_timeout_s
        is_late = last.retryable and self._remaining_s(batch) <= 0
        if batch.may_have_applied and (is_late or not last.may_have_applied):
            detail = f"the record may or may not be written; the last of {batch.attempts} tries: "
            return new_error(OutcomeUnknown, detail + str(last), retryable=last.retryable)
        if is_late:
            return new_error(DeliveryTimeout, f"not written within {limit_s:g} s: {last}")
        return last

    def _settle(self, queue: Queue, batch: Batch, outcome: "list[int] | RiachoError") -> None:
        self._accumulator.settle(queue, batch)
        answer(batch, outcome)
        self._settled.set()


def offsets_of(reply: Reply, record_count: int) -> list[int]:
    """Return the offset of every record, -1 for each if the gateway did not wait to know."""
    if reply.status == 202:
        return [-1] * record_count
    try:
        offsets = [
            result["base_offset"] + row
            for result in reply.json()["results"]
            for row in range(result["count"])
        ]
    except (KeyError, TypeError):
        offsets = []
    if len(offsets) != record_count:
        detail = f"the reply gives {len(offsets)} offsets for {record_count} records"
        raise new_error(OutcomeUnknown, detail, retryable=False)
    return offsets


def answer(batch: Batch, outcome: "list[int] | RiachoError") -> None:
    """Tell everyone who waits for a record of `batch`."""
    if isinstance(outcome, RiachoError):
        for draft in batch.drafts:
            # Someone who cancelled has stopped waiting; that does not withdraw the record.
            with suppress(*_CANCELLED):
                draft.answer.set_exception(outcome)
            _call(draft, None, outcome)
        return
    topic, partition = batch.partition
    for draft, offset in zip(batch.drafts, outcome, strict=True):
        metadata = RecordMetadata(topic, partition, offset, draft.timestamp)
        with suppress(*_CANCELLED):
            draft.answer.set_result(metadata)
        if draft.callback is not None:
            _call(draft, metadata, None)


def _call(draft: Draft, metadata: RecordMetadata | None, error: RiachoError | None) -> None:
    if draft.callback is None:
        return
    if isinstance(draft.answer, asyncio.Future) and not draft.answer.cancelled():
        draft.answer.exception()  # Whoever has a callback need not also await the future.
    try:
        draft.callback(metadata, error)
    except Exception:
        log.exception("callback failed", extra={"metadata": metadata})


def _closed(batch: Batch) -> RiachoError:
    if batch.may_have_applied:
        return new_error(OutcomeUnknown, "the producer was closed while the record was sent")
    return new_error(Unavailable, "the producer was closed before the record was written")
