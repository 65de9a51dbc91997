"""Guards: three ways to apply an atomic write only once, however often it is sent.

Each keeps an item that is written in the same metadata transaction as the records. The item
records that the write happened, and the reply. A guard is asked before anything is written, and
again after every failed attempt to commit.

    transaction   producer id (odd) and epoch     a whole transaction in one call
    sequence      producer id (even) and number   the last five calls of the producer
    key           any text                        every call within a day
"""

from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from service.log.sequences import past_gap
from service.transactions import state
from service.transactions.items import Known, TransactionItems
from service.transactions.state import End, Outcome, Ref, Results
from service.world.clock import World
from storage import keys
from storage.errors import (
    DuplicateSequence,
    IdempotencyKeyReused,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionTooLarge,
)
from storage.formats import frames
from storage.head.producers import EPOCH_MAX, REMEMBERED_MAX, SEQUENCES
from storage.stores.metadata import VALUE_BYTES_MAX, MetadataStore, Op, Put, Versioned

WINDOW_BYTES_MAX: Final = 128 * 1024
"""Maximum size of a window with more than one call: beyond it, fewer than five are kept."""

_WINDOW_MAGIC: Final = b"RAW1"
_KEY_MAGIC: Final = b"RIK1"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedAnswer:
    results: Results | None
    """None: written long ago; the offsets are not kept any more."""
    producer_id: int | None = None
    epoch: int | None = None
    """The next epoch, after a whole transaction."""
    is_replayed: bool = False


class Guard(Protocol):
    op_count: int

    async def look(self) -> GuardedAnswer | None:
        """Return the reply if the write has happened already; raise if it may not be done."""

    async def ops(self, results: Results) -> list[Op] | GuardedAnswer:
        """Return the operations that record the write; else return or raise as `look` does.

        The item that `look` read is used once: if it has changed, the write meets a conflict.
        """

    def answer(self, results: Results) -> GuardedAnswer:
        """Return the reply to a write that was done just now."""


class Unguarded:
    """No record of the write is kept, so copies of the call are not detected."""

    op_count = 0

    async def look(self) -> None:
        pass

    async def ops(self, _: Results) -> list[Op]:
        return []

    def answer(self, results: Results) -> GuardedAnswer:
        return GuardedAnswer(results=results)


class TransactionGuard:
    """Guards a call that is a whole transaction, which ends the transactional id's epoch."""

    def __init__(self, items: TransactionItems, ref: Ref, digest: bytes) -> None:
        # After the last epoch a new producer id is needed, which is an item too.
        self.op_count = 2 if ref.epoch == EPOCH_MAX else 1
        self._items = items
        self._ref = ref
        self._digest = digest
        self._next_id: int | None = None
        self._seen: Known | None = None

    async def look(self) -> GuardedAnswer | None:
        self._seen = await self._items.current(self._ref.transactional_id)
        return self._checked(self._seen)

    async def ops(self, results: Results) -> list[Op] | GuardedAnswer:
        if self._seen is None:
            answer = await self.look()
            if answer is not None:
                return answer
        known, self._seen = self._seen, None
        assert known is not None, self._ref
        assert known.txn is not None, self._ref
        if self._next_id is None:
            self._next_id = await self._items.next_id(known.txn)
        new = self._items.committed(known.txn, self._next_id, results, self._digest)
        return self._items.ops(self._ref.transactional_id, known, new)

    def answer(self, results: Results) -> GuardedAnswer:
        assert self._next_id is not None, self._ref
        ref = self._ref
        ended = End(ref.producer_id, ref.epoch, Outcome.COMMITTED, self._next_id)
        return GuardedAnswer(
            results=results, producer_id=ended.next_producer_id, epoch=ended.next_epoch
        )

    def _checked(self, known: Known) -> GuardedAnswer | None:
        txn, ref = known.txn, self._ref
        if txn is None:
            raise InvalidProducerEpoch(
                f"the transactional id {ref.transactional_id!r} was not used for long and is"
                " forgotten; POST /v1/producers makes it again"
            )
        for ended in txn.ends:
            if (ended.producer_id, ended.epoch) != (ref.producer_id, ref.epoch):
                continue
            if ended.outcome is Outcome.COMMITTED and ended.digest == self._digest:
                is_last = txn.results_of == (ref.producer_id, ref.epoch)
                return GuardedAnswer(
                    results=txn.results if is_last else None,
                    producer_id=ended.next_producer_id,
                    epoch=ended.next_epoch,
                )
        if (ref.producer_id, ref.epoch) != (txn.producer_id, txn.epoch):
            raise state.superseded(ref, txn)
        if txn.open is not None:
            raise InvalidTransactionState(
                f"transaction {ref} is open; commit or abort it before a call that is one by itself"
            )
        return None


class Window(msgspec.Struct, array_like=True, frozen=True):
    """The last atomic calls of a plain producer."""

    epoch: int
    next_sequence: int
    changed_ms: int
    calls: tuple[tuple[int, int, Results], ...]
    """Sequence, number of records, and their offsets; oldest first."""


class SequenceGuard:
    op_count = 1

    def __init__(
        self,
        metadata: MetadataStore,
        world: World,
        producer: tuple[int, int],
        sequence: int,
        record_count: int,
    ) -> None:
        self._metadata = metadata
        self._world = world
        self._producer_id, self._epoch = producer
        self._key = keys.atomic_producer(self._producer_id)
        self._sequence = sequence
        self._count = record_count
        self._has_seen = False
        self._seen: Versioned | None = None

    async def look(self) -> GuardedAnswer | None:
        return await past_gap(self._world, self._look)

    async def _look(self, _: bool) -> GuardedAnswer | None:
        self._seen = await self._metadata.get(self._key)
        answer = self._checked(decode_window(self._seen))
        self._has_seen = answer is None
        return answer

    async def ops(self, results: Results) -> list[Op] | GuardedAnswer:
        if not self._has_seen:
            answer = await self.look()
            if answer is not None:
                return answer
        self._has_seen = False
        item, window = self._seen, decode_window(self._seen)
        former = window.calls if window is not None and window.epoch == self._epoch else ()
        following = (self._sequence + self._count) % SEQUENCES
        calls = (*former, (self._sequence, self._count, results))[-REMEMBERED_MAX:]
        while True:
            new = Window(self._epoch, following, self._world.now_ms(), calls)
            value = frames.seal(_WINDOW_MAGIC, msgspec.msgpack.encode(new))
            if len(value) <= WINDOW_BYTES_MAX or len(calls) == 1:
                return [_put(self._key, value, item)]
            calls = calls[1:]

    def answer(self, results: Results) -> GuardedAnswer:
        return GuardedAnswer(results=results)

    def _checked(self, window: Window | None) -> GuardedAnswer | None:
        expected = 0
        if window is not None:
            if self._epoch < window.epoch:
                raise InvalidProducerEpoch(
                    f"producer {self._producer_id} writes with epoch {self._epoch}, but epoch"
                    f" {window.epoch} has been seen: a newer instance has taken its place"
                )
            if self._epoch == window.epoch:
                expected = window.next_sequence
                answer = self._remembered(window)
                if answer is not None:
                    return answer
        if self._sequence != expected:
            raise OutOfOrderSequence(
                f"producer {self._producer_id}: sequence {self._sequence}, and {expected} comes"
                " next: what is in between is missing"
            )
        return None

    def _remembered(self, window: Window) -> GuardedAnswer | None:
        for sequence, count, results in window.calls:
            if (sequence, count) == (self._sequence, self._count):
                return GuardedAnswer(results=results)
        behind = (window.next_sequence - self._sequence) % SEQUENCES
        remembered = (window.next_sequence - window.calls[0][0]) % SEQUENCES
        if self._count <= behind <= SEQUENCES // 2 and behind > remembered:
            raise DuplicateSequence(
                f"producer {self._producer_id}: sequence {self._sequence} was written before its"
                f" last {len(window.calls)} calls, so its offsets are not remembered; it is in the"
                " log once"
            )
        return None


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """The write that was done under an idempotency key."""

    fingerprint: bytes
    created_ms: int
    results: Results


class KeyGuard:
    op_count = 1

    def __init__(
        self, metadata: MetadataStore, world: World, digest: str, fingerprint: bytes
    ) -> None:
        self._metadata = metadata
        self._world = world
        self._key = keys.idempotency_key(digest)
        self._fingerprint = fingerprint
        self._has_seen = False

    async def look(self) -> GuardedAnswer | None:
        item = await self._metadata.get(self._key)
        if item is None:
            self._has_seen = True
            return None
        kept = decode_kept(item)
        if kept.fingerprint != self._fingerprint:
            raise IdempotencyKeyReused(
                "this Idempotency-Key was used for another request, with another body; use a new"
                " key for each"
            )
        return GuardedAnswer(results=kept.results, is_replayed=True)

    async def ops(self, results: Results) -> list[Op] | GuardedAnswer:
        if not self._has_seen:
            answer = await self.look()
            if answer is not None:
                return answer
        self._has_seen = False
        kept = Kept(self._fingerprint, self._world.now_ms(), results)
        return [_put(self._key, frames.seal(_KEY_MAGIC, msgspec.msgpack.encode(kept)), None)]

    def answer(self, results: Results) -> GuardedAnswer:
        return GuardedAnswer(results=results)


def _put(key: str, value: bytes, item: Versioned | None) -> Put:
    if len(value) > VALUE_BYTES_MAX:
        raise TransactionTooLarge(
            f"the answer would take {len(value)} bytes to remember, and can take"
            f" {VALUE_BYTES_MAX}: write to fewer partitions at once"
        )
    return Put(key, value, None if item is None else item.version)


_WINDOW: Final = msgspec.msgpack.Decoder(Window)
_KEPT: Final = msgspec.msgpack.Decoder(Kept)


def decode_window(item: Versioned | None) -> Window | None:
    if item is None:
        return None
    return frames.unpack(_WINDOW_MAGIC, item.value, _WINDOW, "the calls of a producer")


def decode_kept(item: Versioned) -> Kept:
    return frames.unpack(_KEY_MAGIC, item.value, _KEPT, "an idempotency key")
