"""Staging for Kafka's clients: the batches that wait for a transaction share an object and a write.

A client has several requests for a transaction under way, on connections of their own. Here they
stand in one line for each transactional id, and whoever is at its head takes all that wait along:
one object, then one write of the item, which lists their runs in the order of the line. While
these are written, the next ones gather.

Each batch is judged for itself, before the object is written and again when the item is: one that
is refused keeps none of the others from being staged.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from service.log.gateway import Gateway
from service.transactions import state
from service.transactions.clients import NamedTransaction, opened
from service.transactions.items import Known, TransactionItems
from service.transactions.room import check_item_bytes, check_lanes, run_bytes
from service.transactions.state import Transaction
from service.transactions.told import expected
from storage.cas import Undecided
from storage.errors import (
    InvalidTransactionState,
    OutOfOrderSequence,
    RiachoError,
    UnknownTopicOrPartition,
)
from storage.formats.kafka.batches import Batches
from storage.formats.partitions import PartitionNumber
from storage.head.producers import SEQUENCES
from storage.lanes.atomic import LaneRuns
from storage.lanes.building import Records, size_of
from storage.lanes.commits import too_late
from storage.lanes.rolls import FLIGHT_MAX_S
from storage.tasks import begin, drop_error
from storage.topics.topics import Topic

GROUP_BYTES_MAX: Final = 8 * 1024 * 1024
GROUP_BATCHES_MAX: Final = 500

UNKNOWN_OFFSET: Final = -1


@dataclass(eq=False, slots=True, kw_only=True)
class BatchToStage:
    """A batch of a transaction, in line."""

    named: NamedTransaction
    topic: Topic
    partition: PartitionNumber
    batches: Batches
    answer: "asyncio.Future[int]"

    @property
    def first(self) -> int:
        assert self.batches.claim is not None
        return self.batches.claim.base_sequence

    @property
    def end(self) -> int:
        return (self.first + self.batches.count) % SEQUENCES

    @property
    def size_bytes(self) -> int:
        return len(self.batches.data)


@dataclass(slots=True)
class _Line:
    waiting: deque[BatchToStage] = field(default_factory=deque)

    def taken(self) -> list[BatchToStage]:
        """Take as many as may share an object."""
        group: list[BatchToStage] = []
        size_bytes = 0
        while self.waiting and len(group) < GROUP_BATCHES_MAX:
            size_bytes += self.waiting[0].size_bytes
            if group and size_bytes > GROUP_BYTES_MAX:
                break
            group.append(self.waiting.popleft())
        return group


class BatchStaging:
    def __init__(self, gateway: Gateway, items: TransactionItems) -> None:
        self._gateway = gateway
        self._items = items
        self._lines: dict[str, _Line] = {}

    async def stage(
        self, named: NamedTransaction, topic: Topic, partition: PartitionNumber, batches: Batches
    ) -> int:
        """Write the batch as part of the transaction; return the offset that it may get.

        That offset is never too high. It is exact if nobody else writes to the partition until
        the commit; -1 if there is nothing to go by.

        A copy of a batch is staged once. Batches take their places before anything is awaited.
        Raises `InvalidProducerEpoch`, `NotItsProducer`, `InvalidTransactionState` if no
        transaction is open and an older client asks, `OutOfOrderSequence`, and
        `TransactionTooLarge` before anything is written.
        """
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(drop_error)
        key = named.transactional_id
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
            begin(self._work(key, line))
        line.waiting.append(
            BatchToStage(
                named=named, topic=topic, partition=partition, batches=batches, answer=answer
            )
        )
        return await answer

    async def _work(self, key: str, line: _Line) -> None:
        while line.waiting:
            await self._group(key, line.taken())
        del self._lines[key]

    async def _group(self, key: str, group: Sequence[BatchToStage]) -> None:
        """Stage some batches, and answer each."""
        try:
            await self._stage(key, group)
        except UnknownTopicOrPartition as error:
            left = [each for each in group if not each.answer.done()]
            if len(group) == 1:
                _fail(left, error)
                return
            # A topic was deleted or widened since: the others have nothing to do with it.
            for each in left:
                await self._group(key, [each])
        except Exception as error:  # noqa: BLE001
            _fail(group, error)

    async def _stage(self, key: str, group: Sequence[BatchToStage]) -> None:
        while True:
            known, verdict = await self._judged(key, group)
            for each, error in verdict.refused:
                _fail([each], error)
            if verdict.wanted:
                _check_room(known, verdict.wanted)
                born_s = self._gateway.world.monotonic_s()
                written = await self._write(verdict.wanted)
                if not await self._add(key, verdict.wanted, written, born_s):
                    group = [each for each in group if not each.answer.done()]
                    continue
            # Only now: what they are copies of may be in this very group.
            for each in verdict.repeated:
                _answer(each, UNKNOWN_OFFSET)
            return

    async def _judged(self, key: str, group: Sequence[BatchToStage]) -> tuple[Known, "_Verdict"]:
        """Return what to do with each, by the item in the cache if that allows all of them."""
        known = await self._items.likely(key)
        verdict = _judge(known.txn, group, self._gateway.world.now_ms())
        if len(verdict.wanted) < len(group):
            self._items.forget(key)
            known = await self._items.current(key)
            verdict = _judge(known.txn, group, self._gateway.world.now_ms())
        return known, verdict

    async def _write(self, group: Sequence[BatchToStage]) -> list[LaneRuns]:
        """Write one object; no reader can see it yet."""
        if len(group) == 1:
            # Only for one can the cached topic be stale without making trouble for others.
            return await self._gateway.with_topic(
                group[0].topic.name, lambda topic: self._write_to([topic], group)
            )
        topics = [await self._gateway.topics.get(each.topic.name) for each in group]
        return await self._write_to(topics, group)

    async def _write_to(
        self, topics: Sequence[Topic], group: Sequence[BatchToStage]
    ) -> list[LaneRuns]:
        appends: list[tuple[Topic, dict[PartitionNumber, Records]]] = []
        size_bytes = 0
        for topic, each in zip(topics, group, strict=True):
            topic.check_partition(each.partition)
            each.topic = topic
            records = await self._gateway.as_stored(topic, each.partition, each.batches)
            appends.append((topic, {each.partition: records}))
            size_bytes += size_of(records)
        return await self._gateway.batcher.stage(appends, size_bytes)

    async def _add(
        self, key: str, group: Sequence[BatchToStage], written: Sequence[LaneRuns], born_s: float
    ) -> bool:
        """Add what was written to the item; return whether all of it was still wanted."""

        async def attempt(is_in_doubt: bool) -> bool | Undecided:
            if is_in_doubt:
                self._items.forget(key)
            known, verdict = await self._judged(key, group)
            txn = known.txn
            if txn is not None and txn.open and state.holds_object(txn.open, written):
                # An earlier attempt did it; its reply was lost.
                for each in group:
                    _answer(each, UNKNOWN_OFFSET)
                return True
            if len(verdict.wanted) < len(group):
                if is_in_doubt:
                    return Undecided(InvalidTransactionState("the transaction has ended"))
                return False
            if self._gateway.world.monotonic_s() - born_s > FLIGHT_MAX_S:
                raise too_late()
            assert verdict.opened is not None, key
            new = _with(verdict.opened, group, written)
            await self._items.write(key, known, new)
            self._answer_all(verdict.opened, group)
            return True

        return await self._items.retry(key, attempt)

    def _answer_all(self, before: Transaction, group: Sequence[BatchToStage]) -> None:
        """Answer with the offsets that the records get if nobody else writes there meanwhile."""
        assert before.open is not None
        places = {(each.topic.topic_id, each.partition) for each in group}
        ahead = dict.fromkeys(places, 0)
        for staged in before.open.staged:
            for partition, count in staged.counts().items():
                if (staged.topic_id, partition) in ahead:
                    ahead[staged.topic_id, partition] += count
        for each in group:
            place = each.topic.topic_id, each.partition
            end = self._known_end(each.topic, each.partition)
            _answer(each, UNKNOWN_OFFSET if end is None else end + ahead[place])
            ahead[place] += each.batches.count

    def _known_end(self, topic: Topic, partition: PartitionNumber) -> int | None:
        number, local = topic.lane_of(partition)
        view = self._gateway.lanes.lane(topic.topic_id, number).watched.latest
        if view is None or local >= view.head.partition_count:
            return None
        return view.head.next_offsets[local]


@dataclass(slots=True)
class _Verdict:
    """What to do with each batch of a group."""

    opened: Transaction | None
    """The item in which the transaction is open; None: nobody may write to it."""
    wanted: list[BatchToStage] = field(default_factory=list)
    repeated: list[BatchToStage] = field(default_factory=list)
    refused: list[tuple[BatchToStage, RiachoError]] = field(default_factory=list)


def _judge(txn: Transaction | None, group: Sequence[BatchToStage], now_ms: int) -> _Verdict:
    verdict = _Verdict(None)
    following: dict[tuple[str, PartitionNumber], int | None] = {}
    for each in group:
        place = each.topic.name, each.partition
        try:
            txn = verdict.opened = opened(txn, each.named, now_ms, begins=each.named.is_new_client)
            assert txn.open is not None
            if place not in following:
                following[place] = expected(txn.told, txn.open.sequences, *place)
            number = following[place]
            if number is not None and _is_repeated(each, number):
                verdict.repeated.append(each)
                continue
        except RiachoError as error:
            verdict.refused.append((each, error))
            continue
        following[place] = each.end
        verdict.wanted.append(each)
    return verdict


def _is_repeated(each: BatchToStage, number: int) -> bool:
    """Whether the batch was staged before; raises `OutOfOrderSequence` if some are missing."""
    behind = (number - each.first) % SEQUENCES
    if behind == 0:
        return False
    if each.batches.count <= behind <= SEQUENCES // 2:
        return True
    raise OutOfOrderSequence(
        f"sequence {each.first} for {each.topic.name}/{each.partition}, and {number} comes next"
        f" in transaction {each.named}"
    )


def _check_room(known: Known, group: Sequence[BatchToStage]) -> None:
    staged = () if known.txn is None or known.txn.open is None else known.txn.open.staged
    lanes = {(each.topic_id, each.lane) for each in staged}
    more = {(each.topic.topic_id, each.topic.lane_of(each.partition)[0]) for each in group}
    check_lanes(len(lanes | more))
    places = {(each.topic.topic_id, each.partition) for each in group}
    size_bytes = sum(each.size_bytes for each in group)
    check_item_bytes(known.size_bytes + run_bytes(len(more), len(places), size_bytes))


def _with(
    txn: Transaction, group: Sequence[BatchToStage], written: Sequence[LaneRuns]
) -> Transaction:
    """Return the item with what was written for the group."""
    for topic in {each.topic.topic_id: each.topic for each in group}.values():
        mine = [each for each in group if each.topic.topic_id == topic.topic_id]
        # The last batch of a partition says what comes next.
        lasts = {each.partition: each for each in mine}
        txn = state.stage(
            txn,
            topic,
            [lane for lane in written if lane.topic_id == topic.topic_id],
            {partition: each.first for partition, each in lasts.items()},
            {partition: each.batches.count for partition, each in lasts.items()},
        )
    return txn


def _answer(each: BatchToStage, offset: int) -> None:
    if not each.answer.done():
        each.answer.set_result(offset)


def _fail(group: Sequence[BatchToStage], error: Exception) -> None:
    for each in group:
        if not each.answer.done():
            each.answer.set_exception(error)
