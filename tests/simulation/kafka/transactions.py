"""Transactional producers that speak Kafka's protocol, of both generations.

An older one (librdkafka, Java before 4.0) keeps its epoch, announces what it writes to, and numbers
its records on from one transaction to the next. A newer one (KIP-890) hears the next epoch with the
answer to each end, and just writes. Both send again over other connections what got no answer, and
ask for another epoch when they do not know what became of it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from service.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.checker.transaction_rules import (
    ABORTED,
    COMMITTED,
    FENCED,
    OUTDATED,
    REFUSED,
    UNAVAILABLE,
    UNKNOWN,
    Ending,
    Place,
    TransactionHistory,
)
from tests.service.kafka.cluster import batch
from tests.simulation.asking import Asking, Ended, Over
from tests.simulation.kafka.connections import PASSING, Connection, KafkaClient, Lost
from tests.simulation.kafka.log_calls import PRODUCE_BY_ID, PRODUCE_BY_NAME, KafkaTopic, produced

INIT: Final = 4
ADD_PARTITIONS: Final = 3
ADD_OFFSETS: Final = 3
OLD_PRODUCE: Final = 11
OLD_OFFSETS, NEW_OFFSETS = 3, 5
OLD_END, NEW_END = 3, 5
SETTLED_S: Final = 60.0

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_ENDS: Final = {
    ErrorCode.INVALID_TXN_STATE: REFUSED,
    ErrorCode.PRODUCER_FENCED: FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: FENCED,
    # Refused, and can be aborted: of a generation that has passed, or ended by someone else.
    ErrorCode.TRANSACTION_ABORTABLE: OUTDATED,
    ErrorCode.UNKNOWN_PRODUCER_ID: OUTDATED,
}


@dataclass(frozen=True)
class Expected:
    """The offset that a producer was told of the first record of a batch, before the commit."""

    place: Place
    value: str
    offset: int


class KafkaTransactions:
    """What all transactional producers of a run share."""

    def __init__(
        self,
        chance: random.Random,
        now_s: Callable[[], float],
        history: TransactionHistory,
        asking: Asking,
        client: Callable[[Callable[[str], None], str], KafkaClient],
    ) -> None:
        self.chance = chance
        self.now_s = now_s
        self.history = history
        self.asking = asking
        self.topic = KafkaTopic("", b"")
        self.counts = Counter[str]()
        self.expected: list[Expected] = []
        self._client = client
        self._ends: dict[asyncio.Task[Any], None] = {}
        """Requests for an end that may still be carried out."""

    def producer(self, transactional_id: str, *, is_new: bool) -> "KafkaProducer":
        client = self._client(self.complain, self.topic.name)
        return KafkaProducer(self, client, transactional_id, is_new=is_new)

    def complain(self, what: str) -> None:
        self.history.errors.append(f"at {self.now_s():.3f}: {what}")

    def began(self, sent: "asyncio.Task[Any]") -> None:
        self._ends[sent] = None
        sent.add_done_callback(lambda done: self._ends.pop(done, None))

    async def settle(self) -> None:
        """Wait for ends that got no answer; give up those that hang at a dead gateway."""
        if self._ends:
            await asyncio.wait(list(self._ends), timeout=SETTLED_S)
        for sent in tuple(self._ends):
            sent.cancel()
        await asyncio.sleep(0)  # So that they are recorded.

    def compare(self) -> None:
        """Compare expected offsets with those that the records got: none may be too high."""
        found: dict[Place, dict[str, int]] = {
            place: {value: offset for offset, value in records}
            for place, records in self.history.final.items()
        }
        for each in self.expected:
            offset = found.get(each.place, {}).get(each.value, each.offset)
            if offset < each.offset:
                self.complain(f"{each} is at {offset}")


class KafkaProducer:
    """One instance of a transactional id."""

    def __init__(
        self,
        shared: KafkaTransactions,
        client: KafkaClient,
        transactional_id: str,
        *,
        is_new: bool,
    ) -> None:
        self.pair = -1, -1
        self._is_new = is_new
        self._shared = shared
        self._asking = shared.asking
        self._chance = shared.chance
        self._client = client
        self._transactional_id = transactional_id
        self._sequences: dict[int, int] = {}
        self._is_in_doubt = False
        """Whether batches were given up that may have been written."""
        self._lost: list[asyncio.Task[Any]] = []
        """Requests that got no answer, and may still be carried out."""

    @property
    def generation(self) -> str:
        return "newer" if self._is_new else "older"

    @property
    def needs_epoch(self) -> bool:
        """Whether what comes late could be taken for a part of the next transaction."""
        is_late = any(not sent.done() for sent in self._lost)
        return self._is_in_doubt or (is_late and not self._is_new)

    async def init(self, timeout_ms: int, *, again: bool = False) -> None:
        """Become a new instance, or get another epoch as the same one."""
        known_as = self.pair if again else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=known_as[0],
            producer_epoch=known_as[1],
        )
        answer, code = await self._persist(INIT, request, lambda answer: answer.error_code)
        if code in _FENCED:
            raise Over("fenced")
        if code != ErrorCode.NONE:
            self._shared.complain(f"InitProducerId: {code.name}")
            raise Over(code.name)
        self._shared.counts["epochs asked for"] += again
        self._take((answer.producer_id, answer.producer_epoch))

    def _take(self, pair: tuple[int, int]) -> None:
        self.pair, self._sequences = pair, {}
        self._is_in_doubt = False
        self._lost.clear()

    async def _persist(
        self, version: int, request: Any, code_of: Callable[[Any], int]
    ) -> tuple[Any, ErrorCode]:
        """Return an answer and its code after any number of retries, or raise `Over`."""
        for _ in range(self._asking.tries_max):
            sent = None
            try:
                connection = await self._client.connection()
                sent = connection.send(version, request)
                answer = await self._client.reply(connection, sent)
            except Lost:
                self._note(f"{type(request).__name__} lost")
                self._lost += [] if sent is None else [sent]
            else:
                code = ErrorCode(code_of(answer))
                self._note(f"{type(request).__name__} {code.name}")
                if code not in PASSING:
                    return answer, code
            await self._asking.pause()
        raise Over("nobody answers")

    # Writing

    async def announce(self, partitions: Sequence[int]) -> bool:
        """Say what will be written to; return whether the transaction can go on."""
        if self._is_new:
            return True
        topic = AddPartitionsToTxnTopic(name=self._shared.topic.name, partitions=list(partitions))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self.pair[0],
            v3_and_below_producer_epoch=self.pair[1],
            v3_and_below_topics=[topic],
        )

        def code_of(answer: Any) -> int:
            [found] = answer.results_by_topic_v3_and_below
            return max(each.partition_error_code for each in found.results_by_partition)

        _, code = await self._persist(ADD_PARTITIONS, request, code_of)
        return self._goes_on("AddPartitionsToTxn", code)

    async def write(self, values: Mapping[Place, tuple[str, ...]]) -> bool:
        """Write to all partitions at once; return whether all of it was acknowledged."""
        done = await asyncio.gather(*(self._line(place, of) for place, of in values.items()))
        return all(done)

    async def _line(self, place: Place, values: tuple[str, ...]) -> bool:
        """Write two batches to a partition, one directly behind the other, until both are there."""
        first = self._sequences.get(place[1], 0)
        self._sequences[place[1]] = first + len(values)
        cut = self._chance.randint(0, len(values))
        parts = [(first, values[:cut]), (first + cut, values[cut:])]
        left = [part for part in parts if part[1]]
        for _ in range(self._asking.tries_max):
            try:
                connection = await self._client.connection(place[1])
            except Lost:
                continue
            sent = [connection.send(*self._produce(place[1], *part)) for part in left]
            codes = [await self._produced(connection, one) for one in sent]
            for (_, of), (code, offset) in zip(left, codes, strict=True):
                if code is ErrorCode.NONE and offset >= 0:
                    self._shared.expected.append(Expected(place, of[0], offset))
            self._note(f"Produce to {place[1]}: {' '.join(code.name for code, _ in codes)}")
            # Only the second can be out of order, if the first did not arrive.
            is_behind = codes[0][0] is not ErrorCode.NONE
            left = [p for p, (code, _) in zip(left, codes, strict=True) if code != ErrorCode.NONE]
            if not left:
                return True
            for number, (code, _) in enumerate(codes):
                if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and number and is_behind:
                    continue
                if code not in PASSING and not self._goes_on("Produce", code):
                    self._is_in_doubt = True
                    return False
            self._client.forget_leaders()
            await self._asking.pause()
        self._is_in_doubt = True
        return False

    def _produce(
        self, partition: int, sequence: int, values: Sequence[str]
    ) -> tuple[int, ProduceRequest]:
        producer = (*self.pair, sequence)
        records = batch(*map(str.encode, values), producer=producer, is_transactional=True)
        by_id = self._is_new and self._chance.random() < 0.5
        topic = self._shared.topic
        data = TopicProduceData(
            **({"topic_id": topic.topic_id} if by_id else {"name": topic.name}),
            partition_data=[PartitionProduceData(index=partition, records=records)],
        )
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, transactional_id=self._transactional_id, topic_data=[data]
        )
        if not self._is_new:
            return OLD_PRODUCE, request
        return PRODUCE_BY_ID if by_id else PRODUCE_BY_NAME, request

    async def _produced(
        self, connection: Connection, sent: "asyncio.Task[Any]"
    ) -> tuple[ErrorCode, int]:
        try:
            reply = await self._client.reply(connection, sent)
        except Lost:
            return ErrorCode.REQUEST_TIMED_OUT, -1
        [found] = produced(reply).values()
        return found

    async def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> bool:
        """Send offsets of a group without members; return whether they were taken."""
        if not self._is_new:
            announced = AddOffsetsToTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self.pair[0],
                producer_epoch=self.pair[1],
                group_id=group,
            )
            _, code = await self._persist(ADD_OFFSETS, announced, lambda a: a.error_code)
            if not self._goes_on("AddOffsetsToTxn", code):
                return False
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            for partition, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            member_id="",
            generation_id=-1,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        version = NEW_OFFSETS if self._is_new else OLD_OFFSETS
        _, code = await self._persist(
            version, request, lambda a: max(p.error_code for t in a.topics for p in t.partitions)
        )
        return self._goes_on("TxnOffsetCommit", code)

    def _goes_on(self, call: str, code: ErrorCode) -> bool:
        """Return whether the transaction goes on; it ends if someone else ended it."""
        if code not in _FENCED and code != ErrorCode.NONE:
            self._shared.complain(f"{call} of {self._transactional_id} {self.pair}: {code.name}")
        return code == ErrorCode.NONE

    # Ending

    async def end(self, name: str, wants: str) -> str:
        """Ask for an end until the outcome is known; return it. Raises `Over`."""
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            committed=wants == COMMITTED,
        )
        for _ in range(self._asking.tries_max):
            ended = await self._ask(name, wants, request)
            if ended.answer == FENCED:
                self._shared.counts["transactions, fenced"] += 1
                raise Over("fenced")
            if ended.is_final:
                what = ended.answer if ended.answer in {COMMITTED, ABORTED} else "refused"
                self._shared.counts[f"transactions of {self.generation} clients, {what}"] += 1
                if ended.next_epoch not in {None, self.pair}:
                    assert ended.next_epoch is not None
                    self._take(ended.next_epoch)
                return ended.answer
            await self._asking.pause()
        return UNKNOWN

    async def haunt(self, name: str, wants: str, pair: tuple[int, int]) -> None:
        """Long after the end, ask a newer producer's transaction to end again, either way."""
        await asyncio.sleep(self._chance.expovariate(0.2))
        if self._chance.random() < 0.3:
            wants = ABORTED if wants == COMMITTED else COMMITTED
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=pair[0],
            producer_epoch=pair[1],
            committed=wants == COMMITTED,
        )
        await self._ask(name, wants, request)

    async def _ask(self, name: str, wants: str, request: EndTxnRequest) -> Ended:
        """Ask once; whenever a gateway answers, what it says becomes part of the history."""
        began_s = self._shared.now_s()
        try:
            connection = await self._client.connection()
        except Lost:
            return Ended(UNAVAILABLE, is_final=False)
        sent = connection.send(NEW_END if self._is_new else OLD_END, request)

        def answered(done: "asyncio.Task[Any]") -> None:
            is_known = not done.cancelled() and done.exception() is None
            ended = Ended(UNKNOWN, is_final=False)
            if is_known:
                ended = self._ended(wants, done.result())
            self._note(f"{wants} {name} {ended.answer} {ended.next_epoch}")
            now_s = self._shared.now_s()
            self._shared.history.endings.append(
                Ending(name, wants, began_s, now_s, ended.answer, ended.next_epoch)
            )

        sent.add_done_callback(answered)
        self._shared.began(sent)
        try:
            return self._ended(wants, await self._client.reply(connection, sent))
        except Lost:
            self._lost.append(sent)
            return Ended(UNKNOWN, is_final=False)

    def _ended(self, wants: str, answer: Any) -> Ended:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            following = (answer.producer_id, answer.producer_epoch) if self._is_new else None
            return Ended(wants, following)
        if code in PASSING:
            # Only a gateway that stops is known to have done nothing.
            is_known = code is ErrorCode.NOT_COORDINATOR
            return Ended(UNAVAILABLE if is_known else UNKNOWN, is_final=False)
        if code not in _ENDS:
            self._shared.complain(f"EndTxn of {self._transactional_id}: {code.name}")
        return Ended(_ENDS.get(code, code.name))

    def _note(self, what: str) -> None:
        self._asking.note(f"{self._transactional_id} {self.pair} {what}")
