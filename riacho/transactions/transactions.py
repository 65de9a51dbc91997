"""Transactions of a producer: all records and offsets are written, or none.

    begin ──▶ send … ──▶ commit                    one call, if all fits into it
    begin ──▶ send … ──▶ stage … ──▶ commit        else: begun at the gateway, staged in parts

Readers see nothing of it before the commit. Aborting what was never sent costs nothing. Each
transaction has its own epoch, so that a late call can only end the transaction it was meant for,
and every call may be repeated.

A commit without an answer leaves a transaction *in doubt*. Before the next one begins, the
producer tries to abort it. If that succeeds, it never happened. If it fails because the
transaction was committed, `AlreadyCommitted` is raised, so that the program does not repeat the
work. The producer never initialises again to find out, since that would fence a newer instance
that has taken its place.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from riacho.consumer.group_offsets import GroupOffsets
from riacho.delivery.batches import Batch, Draft
from riacho.errors import (
    AlreadyCommitted,
    CommitFailed,
    DeliveryTimeout,
    TransactionAborted,
    new_error,
)
from riacho.http.retries import Backoff, patiently
from riacho.records import TopicPartition
from riacho.transactions.calls import End, Identity, TransactionClient, atomic_body
from riacho.transactions.held import HeldRecords
from storage.errors import (
    DuplicateSequence,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutcomeUnknown,
    RiachoError,
    UnknownMember,
    UnknownTransaction,
)

log = logging.getLogger("riacho")

T = TypeVar("T")

ABORT_S_MAX: Final = 5.0
"""Maximum time an abort is tried before it returns; the next `begin` completes it."""

GENERATIONS_MAX: Final = 5
"""Maximum number of new group generations that a commit follows before it gives up."""


class Transactions:
    def __init__(
        self,
        client: TransactionClient,
        *,
        backoff: Backoff,
        delivery_timeout_s: float,
        block_s: float,
    ) -> None:
        self._client = client
        self._backoff = backoff
        self._delivery_timeout_s = delivery_timeout_s
        self._block_s = block_s
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._identity: Identity | None = None
        self._open: HeldRecords | None = None
        self._doubtful: HeldRecords | None = None
        self._fenced: RiachoError | None = None
        self._waiters: list[Callable[[], None]] = []
        self._number = 0
        self._is_beginning = False

    async def begin(self) -> None:
        """Begin a transaction; nothing is sent for it yet.

        Raises `InvalidProducerEpoch` if a newer instance has fenced this one, and
        `AlreadyCommitted` if the last transaction, in doubt until now, was committed.
        """
        if self._open is not None or self._is_beginning:
            raise RuntimeError("a transaction is open; commit or abort it before you begin another")
        if self._fenced is not None:
            raise self._fenced
        self._loop = asyncio.get_running_loop()
        self._is_beginning = True
        try:
            if self._doubtful is not None and await self._settle_doubt() is not None:
                detail = (
                    "the last transaction, in doubt until now, was committed; look what is left"
                )
                raise new_error(AlreadyCommitted, detail)
            if self._identity is None:
                self._identity = await self._ask(self._client.initialise, self._block_s)
            self._number += 1
            self._open = HeldRecords(self._identity, self._number)
        finally:
            self._is_beginning = False

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def check_open(self) -> None:
        """Raise `RuntimeError` outside a transaction. Callable from any thread."""
        if self._open is None:
            raise RuntimeError(
                "this producer has a transactional_id, so it sends inside a transaction only:"
                " with producer.transaction(): …"
            )

    def offer(
        self,
        topic: str,
        partition: int | None,
        partition_count: int,
        draft: Draft,
        on_room: Callable[[], None] | None,
    ) -> bool:
        """Take `draft` and return True, or call `on_room` once there is room. From any thread.

        Raises the error that made it impossible to commit the transaction.
        """
        with self._lock:
            self.check_open()
            held = self._open
            assert held is not None
            assert self._loop is not None
            if held.failure is not None:
                raise held.failure
            if not held.has_room(draft.size_bytes):
                if held.is_staging:
                    if on_room is not None:
                        self._waiters.append(on_room)
                    return False
                held.is_staging = True
                batches = held.take_loose()
                self._loop.call_soon_threadsafe(self._begin_staging, held, batches)
            if partition is None:
                partition = held.number % partition_count
            held.add(TopicPartition(topic, partition), draft)
            return True

    def send_offsets(self, offsets: GroupOffsets) -> None:
        """Commit `offsets` with the transaction. Callable from any thread."""
        with self._lock:
            self.check_open()
            assert self._open is not None
            self._open.offsets = offsets.after(self._open.offsets)

    async def commit(self) -> None:
        """Commit all of the transaction; if this raises, nothing of it was written.

        Except for `OutcomeUnknown`: then the next `begin` finds out.
        """
        held = self._leave()
        try:
            await held.rest()
            end = await self._commit(held)
        except RiachoError as error:
            raise await self._failed(held, error) from error
        except BaseException:
            self._doubtful = held
            held.fail(new_error(OutcomeUnknown, "the commit was interrupted"))
            raise
        if end is not None:
            self._identity = end.identity
            held.succeed(end)

    async def abort(self) -> None:
        """End the transaction without writing anything of it.

        Does not raise: if the gateway cannot be reached now, the next `begin` aborts it there.
        """
        held = self._leave()
        held.is_over = True
        if held.staging is not None:
            held.staging.cancel()
        await held.rest()
        held.fail(held.failure or new_error(TransactionAborted, "the transaction was aborted"))
        await self._abort_quietly(held)

    async def close(self) -> None:
        """Abort the open transaction, if any."""
        if self._open is not None:
            await self.abort()

    def _leave(self) -> HeldRecords:
        with self._lock:
            self.check_open()
            held, self._open = self._open, None
            assert held is not None
            return held

    # Commit

    async def _commit(self, held: HeldRecords) -> End | None:
        if held.failure is not None:
            raise held.failure
        if held.is_empty:
            return None
        for _ in range(GENERATIONS_MAX):
            try:
                return await self._end(held)
            except (IllegalGeneration, UnknownMember) as error:
                if held.offsets is None:
                    raise
                await self._ask(partial(held.offsets.follow, error), self._delivery_timeout_s)
        raise new_error(CommitFailed, "the group changes all the time; poll, then try again")

    async def _end(self, held: HeldRecords) -> End:
        offsets = held.offsets.document() if held.offsets else None
        if held.is_begun:
            await self._write(held, held.take_loose())
            assert held.transaction_id is not None
            held.end = partial(self._client.commit, held.transaction_id, offsets)
        else:
            body = atomic_body(held.loose.values(), offsets)
            held.end = partial(self._client.atomic, held.identity, body)

        async def ask(end: Callable[[], Awaitable[End]] = held.end) -> End:
            try:
                return await end()
            except RiachoError as error:
                held.is_doubtful |= error.may_have_applied
                raise

        return await self._ask(ask, self._delivery_timeout_s)

    async def _failed(self, held: HeldRecords, error: RiachoError) -> RiachoError:
        """Clean up after a failed commit; return the error to raise."""
        reported = error
        if isinstance(error, InvalidProducerEpoch):
            self._fenced = error
        elif held.is_doubtful or isinstance(error, InvalidTransactionState):
            self._doubtful = held
            if error.retryable or error.may_have_applied:
                detail = f"the transaction may or may not be committed: {error}"
                reported = new_error(OutcomeUnknown, detail, retryable=False)
        elif error.retryable:
            limit = f"not committed within {self._delivery_timeout_s:g} s"
            reported = new_error(DeliveryTimeout, f"{limit}: {error}")
        held.fail(reported)
        if self._fenced is None and self._doubtful is None:
            await self._abort_quietly(held)
        return reported

    # Stage

    def _begin_staging(self, held: HeldRecords, batches: list[Batch]) -> None:
        held.staging = asyncio.create_task(self._stage(held, batches))

    async def _stage(self, held: HeldRecords, batches: list[Batch]) -> None:
        try:
            if not held.is_over:
                await self._write(held, batches)
        except RiachoError as error:
            held.failure = error
        except Exception as error:
            log.exception("staging failed unexpectedly")
            held.failure = new_error(OutcomeUnknown, f"the client failed: {error!r}")
        finally:
            with self._lock:
                held.is_staging = False
                waiters, self._waiters = self._waiters, []
            held.rested.set()
            for on_room in waiters:
                on_room()

    async def _write(self, held: HeldRecords, batches: Sequence[Batch]) -> None:
        """Stage `batches`, in one request for each topic."""
        if held.transaction_id is None:
            held.is_begun = True
            begin = partial(self._client.begin, held.identity)
            held.transaction_id = await self._ask(begin, self._delivery_timeout_s)
        by_topic: dict[str, list[Batch]] = {}
        for batch in batches:
            by_topic.setdefault(batch.partition.topic, []).append(batch)
        outcomes = await asyncio.gather(
            *(self._write_topic(held, *item) for item in by_topic.items()), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, OutcomeUnknown):
                # Whether staged or not, it is not written without a commit.
                raise new_error(DeliveryTimeout, f"not staged: {outcome}") from outcome
            if outcome is not None:
                raise outcome
        for batch in batches:
            batch.forget_payloads()

    async def _write_topic(self, held: HeldRecords, topic: str, batches: Sequence[Batch]) -> None:
        assert held.transaction_id is not None
        stage = partial(self._client.stage, held.transaction_id, held.identity, topic, batches)
        with suppress(DuplicateSequence):  # An earlier attempt was staged; its reply was lost.
            await self._ask(stage, self._delivery_timeout_s)

    # Doubt

    async def _abort_quietly(self, held: HeldRecords) -> None:
        if not held.is_begun:
            return
        self._doubtful = held
        try:
            async with asyncio.timeout(ABORT_S_MAX):
                await self._settle_doubt()
        except (TimeoutError, RiachoError) as error:
            log.warning("an abort did not reach the gateway", extra={"detail": str(error)})

    async def _settle_doubt(self) -> End | None:
        """Make sure that the doubtful transaction has ended; return its end if it is committed."""
        held = self._doubtful
        assert held is not None
        end: End | None = None
        try:
            if held.transaction_id is None:
                # Opening a transaction of its epoch keeps a delayed commit from succeeding.
                begin = partial(self._client.begin, held.identity)
                held.transaction_id = await self._ask(begin, self._block_s)
            abort = partial(self._client.abort, held.transaction_id)
            self._identity = (await self._ask(abort, self._block_s)).identity
        except UnknownTransaction:
            self._identity = None
        except (InvalidTransactionState, InvalidProducerEpoch) as error:
            end = await self._repeat_end(held, error)
        self._doubtful = None
        if end is not None and held.offsets is not None:
            held.offsets.note_committed()
        return end

    async def _repeat_end(self, held: HeldRecords, error: RiachoError) -> End | None:
        """Return the end of a transaction that cannot be aborted; None if it was aborted before."""
        try:
            if held.end is None:
                raise error
            end = await self._ask(held.end, self._block_s)
        except InvalidProducerEpoch as fenced:
            self._fenced = fenced
            raise
        except InvalidTransactionState:
            self._identity = None
            return None
        self._identity = end.identity
        return end

    async def _ask(self, ask: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        return await patiently(ask, self._backoff, timeout_s)
