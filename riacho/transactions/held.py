"""One transaction in its producer's memory: records, offsets and progress."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from riacho.consumer.group_offsets import GroupOffsets
from riacho.delivery.answers import NO_OFFSET, answer
from riacho.delivery.batches import Batch, Draft
from riacho.records import TopicPartition
from riacho.transactions.calls import End, Identity
from storage.errors import RiachoError

CALL_BYTES_MAX: Final = 4 * 1024 * 1024
CALL_RECORDS_MAX: Final = 50_000
"""Maximum content of one call. A transaction within it costs the gateway one write."""


class HeldRecords:
    """Records are *loose* until they are staged, or sent with the commit if they are few."""

    def __init__(self, identity: Identity, number: int) -> None:
        self.identity = identity
        self.number = number
        self.loose: dict[TopicPartition, Batch] = {}
        self.sent: list[Batch] = []
        self.offsets: GroupOffsets | None = None
        self.transaction_id: str | None = None
        self.is_begun = False
        """Whether the gateway may know of it."""
        self.is_staging = False
        self.is_over = False
        self.staging: asyncio.Task[None] | None = None
        self.rested = asyncio.Event()
        self.failure: RiachoError | None = None
        """Why it can no longer be committed."""
        self.end: Callable[[], Awaitable[End]] | None = None
        """The call that commits it, once it has been attempted."""
        self.is_doubtful = False
        """Whether it may be committed although no reply said so."""
        self._loose_bytes = 0
        self._loose_count = 0
        self._counts: dict[TopicPartition, int] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.loose or self.sent or self.offsets)

    def has_room(self, size_bytes: int) -> bool:
        """Whether `size_bytes` more can be sent together with the loose records."""
        return not self.loose or (
            self._loose_bytes + size_bytes <= CALL_BYTES_MAX
            and self._loose_count < CALL_RECORDS_MAX
        )

    def add(self, partition: TopicPartition, draft: Draft) -> None:
        batch = self.loose.get(partition)
        if batch is None:
            batch = self.loose[partition] = Batch(partition, self.number, 0.0)
            batch.sequence = self._counts.get(partition, 0)
        batch.drafts.append(draft)
        self._loose_bytes += draft.size_bytes
        self._loose_count += 1

    def take_loose(self) -> list[Batch]:
        """Return the loose records to be sent now: numbered, one batch per partition."""
        batches = list(self.loose.values())
        for batch in batches:
            self._counts[batch.partition] = batch.sequence + len(batch.drafts)
        self.sent += batches
        self.loose, self._loose_bytes, self._loose_count = {}, 0, 0
        return batches

    async def rest(self) -> None:
        """Return when nothing is being staged."""
        while self.is_staging:
            self.rested.clear()
            await self.rested.wait()

    def succeed(self, end: End) -> None:
        """Answer all records with their offsets, as far as the gateway still knows them."""
        if self.offsets is not None:
            self.offsets.note_committed()
        taken: dict[TopicPartition, int] = {}
        for batch in self._batches():
            start = taken.get(batch.partition, 0)
            taken[batch.partition] = start + len(batch.drafts)
            offsets = list(end.offsets.get(batch.partition, ()))[start : start + len(batch.drafts)]
            if len(offsets) != len(batch.drafts):
                offsets = [NO_OFFSET] * len(batch.drafts)
            answer(batch, offsets)

    def fail(self, error: RiachoError) -> None:
        """Answer all records with `error`: they are not written, or may not be."""
        for batch in self._batches():
            answer(batch, error)
            for draft in batch.drafts:
                if isinstance(draft.answer, asyncio.Future) and not draft.answer.cancelled():
                    draft.answer.exception()  # The caller that ends the transaction gets it too.

    def _batches(self) -> list[Batch]:
        return [*self.sent, *self.loose.values()]
