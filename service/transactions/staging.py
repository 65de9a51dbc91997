"""Staging: records of a transaction become durable, but not yet part of the log.

The object is written first, then the item that refers to it. A crash in between leaves an
unreferenced object. Objects of one transaction may be written concurrently. They are added to the
item in the order in which the requests came, because the order of records in a partition is the
order of their runs in the item.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from service.log.gateway import Gateway, Wanted
from service.log.numbering import Numbered, sequences_of
from service.log.sequences import past_gap
from service.transactions import state
from service.transactions.items import Known, TransactionItems
from service.transactions.room import check_item_bytes, check_lanes, run_bytes
from service.transactions.state import Outcome, Ref, Sequences
from storage.cas import Undecided
from storage.errors import (
    Conflict,
    InvalidRequest,
    OutOfOrderSequence,
)
from storage.formats.partitions import PartitionNumber
from storage.lanes.atomic import LaneRuns
from storage.lanes.commits import too_late
from storage.lanes.rolls import FLIGHT_MAX_S
from storage.tasks import Arrival, Arrivals
from storage.topics.topics import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of a request: the number of records for each partition, and the request's name.

    A commit may list names, and then commits only these requests. Requests with a sequence have
    no name, since a copy of the request may be the one that was staged.
    """

    counts: dict[PartitionNumber, int]
    name: str | None


class Staging:
    def __init__(self, gateway: Gateway, items: TransactionItems) -> None:
        self._gateway = gateway
        self._items = items
        self._arrivals = Arrivals[str]()
        """By transactional id: the requests that are not staged yet."""

    async def stage(
        self,
        transaction_id: str,
        topic_name: str,
        batch: pa.RecordBatch,
        size_bytes: int,
        wanted: Wanted,
        producer: tuple[int, int] | None = None,
        sequences: Mapping[PartitionNumber, int] | int | None = None,
    ) -> Receipt:
        """Write the records as part of the transaction.

        With `sequences`, a copy of a request gets the first reply and is staged once. Raises
        `InvalidTransactionState` or `InvalidProducerEpoch` if the transaction is not or no
        longer open, `OutOfOrderSequence`, and `TransactionTooLarge` before anything is written.
        """
        ref = state.parse_ref(transaction_id)
        if producer is not None and producer != (ref.producer_id, ref.epoch):
            raise InvalidRequest(
                f"producer id {producer[0]} and epoch {producer[1]} are not those of transaction"
                f" {ref}; leave the headers out, they follow from it"
            )

        async def attempt(topic: Topic) -> Receipt:
            parts = await self._gateway.assigned(topic, batch, wanted, sender)
            counts = {p: part.num_rows for p, part in parts.items()}
            numbers = {} if sequences is None else sequences_of(parts, sequences)
            known = await self._items.hopeful(ref)
            opened = state.find_open(known.txn, ref)
            # A sequence that is too early now may be right when its turn comes.
            with suppress(OutOfOrderSequence):
                if state.is_staged(opened, topic.name, numbers, counts):
                    return Receipt(counts=counts, name=None)
            _check_room(known, topic, parts, size_bytes)
            born_s = self._gateway.world.monotonic_s()
            runs = await self._gateway.batcher.stage([(topic, parts)], size_bytes)
            written = _Written(
                topic=topic, runs=runs, numbers=numbers, counts=counts, born_s=born_s
            )
            await self._add(arrival, ref, written)
            name = state.name_of(runs[0].runs[0]) if sequences is None else None
            return Receipt(counts=counts, name=name)

        sender = None
        if sequences is not None:
            # Records without a key must go to the same partition as in a copy of the request.
            sender = Numbered(producer_id=ref.producer_id, epoch=ref.epoch, sequence=sequences)
        arrival = self._arrivals.join(ref.transactional_id)
        try:
            return await self._gateway.with_topic(topic_name, attempt)
        finally:
            arrival.leave()

    async def _add(self, arrival: Arrival[str], ref: Ref, written: "_Written") -> None:
        """Add what was written to the transaction, in order of arrival."""

        async def attempt(is_in_doubt: bool) -> Undecided | None:
            return await self._try(ref, written, is_in_doubt)

        async def add(is_retry: bool) -> None:
            if is_retry:
                self._items.forget(ref.transactional_id)
            try:
                await self._items.retry(ref.transactional_id, attempt)
            except OutOfOrderSequence:
                # The missing request may be the next in turn, or at another gateway.
                arrival.leave()
                raise

        await arrival.turn()
        await past_gap(self._gateway.world, add)

    async def _try(self, ref: Ref, written: "_Written", is_in_doubt: bool) -> Undecided | None:
        known = await self._items.hopeful(ref)
        try:
            opened = state.find_open(known.txn, ref)
        except Conflict as error:
            if is_in_doubt and _may_hold(known, ref):
                return Undecided(error)
            raise
        if state.holds_object(opened, written.runs):
            return None  # An earlier attempt did it; its reply was lost.
        topic, numbers, counts = written.topic, written.numbers, written.counts
        if state.is_staged(opened, topic.name, numbers, counts):
            return None  # A copy of this request was faster.
        if self._gateway.world.monotonic_s() - written.born_s > FLIGHT_MAX_S:
            raise too_late()
        assert known.txn is not None, ref
        new = state.stage(known.txn, topic, written.runs, numbers, counts)
        await self._items.write(ref.transactional_id, known, new)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The records of one request, durable but not yet referenced."""

    topic: Topic
    runs: Sequence[LaneRuns]
    numbers: Sequences
    counts: Mapping[PartitionNumber, int]
    born_s: float


def _may_hold(known: Known, ref: Ref) -> bool:
    """Whether a write whose reply was lost may be in the log by now."""
    assert known.txn is not None, ref
    for ended in known.txn.ends:
        if (ended.producer_id, ended.epoch) == (ref.producer_id, ref.epoch):
            return ended.outcome is Outcome.COMMITTED
    return True


def _check_room(
    known: Known, topic: Topic, parts: Mapping[PartitionNumber, pa.RecordBatch], size_bytes: int
) -> None:
    """Raise `TransactionTooLarge` if the transaction could not be committed with these records."""
    assert known.txn is not None, topic.name
    assert known.txn.open is not None, topic.name
    lanes = {(each.topic_id, each.lane) for each in known.txn.open.staged}
    more = {(topic.topic_id, topic.lane_of(partition)[0]) for partition in parts}
    check_lanes(len(lanes | more))
    check_item_bytes(known.size_bytes + run_bytes(len(more), len(parts), size_bytes))
