"""Clients of the log that speak Kafka's protocol; what they see is judged as that of all others."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.transactions import InitProducerIdRequest
from tests.checker.history import History
from tests.checker.idempotent_rules import (
    ACKED,
    DUPLICATE,
    OUT_OF_ORDER,
    STALE,
    UNAVAILABLE,
    UNKNOWN,
    Line,
)
from tests.checker.log_rules import Produced
from tests.simulation.hosts import Host
from tests.simulation.http import NetPlan
from tests.simulation.kafka.connections import PASSING, Connection, KafkaClient, Lost
from tests.simulation.kafka.contents import Content, Maker, encoded
from tests.simulation.kafka.log_calls import (
    KafkaFetched,
    KafkaTopic,
    RefusedByKafka,
    fetch,
    produce_request,
    produced,
)
from tests.simulation.kafka.plan import KafkaPlan
from tests.simulation.kafka.witness import Witness
from tests.simulation.world import FIRST_MS

if TYPE_CHECKING:
    from tests.simulation.plan import Plan

CALLS_MIN = 10
INIT_PRODUCER_ID = 5

_ANSWERS = {
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: DUPLICATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: OUT_OF_ORDER,
    # Nothing is known of the producer: what comes before this batch is not there.
    ErrorCode.UNKNOWN_PRODUCER_ID: OUT_OF_ORDER,
    ErrorCode.INVALID_PRODUCER_EPOCH: STALE,
    ErrorCode.REQUEST_TIMED_OUT: UNKNOWN,
}

_OUTCOMES = {
    ErrorCode.NONE: "acknowledged batches",
    ErrorCode.REQUEST_TIMED_OUT: "batches with unknown outcomes",
}


@dataclass(eq=False)
class _Sent:
    """The batches of one request, and what waits for its reply."""

    values: dict[int, tuple[str, ...]]
    began_s: float
    reply: "asyncio.Task[Any]"


class KafkaLogClients:
    def __init__(
        self,
        plan: "Plan",
        kafka: KafkaPlan,
        chance: random.Random,
        hosts: Callable[[], list[Host]],
        now_s: Callable[[], float],
        trace: list[str],
        history: History,
    ) -> None:
        self.plan = kafka
        self._calls = plan
        self._chance = chance
        self._hosts = hosts
        self._now_s = now_s
        self._trace = trace
        self._history = history
        self.witness = Witness()
        history.doors = self.witness.history
        self._maker = Maker(chance, kafka.padding_bytes_max)
        self.topic = KafkaTopic("", b"")
        self.is_over = False
        self.counts = Counter[str]()

    def calm_down(self) -> None:
        self.plan.net = NetPlan()

    def chosen(self) -> bool:
        """Whether the next call of a client that may choose is one of Kafka's."""
        return self.plan.is_on and self._chance.random() < self.plan.share

    def client(self) -> KafkaClient:
        complain = self.witness.complains
        return KafkaClient(
            lambda: self.plan.net, self._chance, self._hosts, complain, self.topic.name
        )

    @property
    def partitions(self) -> int:
        return self._calls.partitions

    def by_id(self) -> bool:
        return self._chance.random() < 0.5

    # Producers without numbers

    async def produce(self, number: int) -> None:
        """Send batches over one connection after the other, several at a time."""
        client = self.client()
        acks = -1 if self._calls.wipes else self._chance.choice([-1, -1, 1, 0])
        call = 0
        while call < self._calls.calls and not (self.is_over and call >= CALLS_MIN):
            try:
                connection = await client.connection(self._partition())
            except Lost:
                call += 1
                continue
            together = self._chance.randint(1, self.plan.in_flight)
            sent = [self._send(connection, number, call + n, acks) for n in range(together)]
            call += together
            for each in sent:
                await self._await(client, connection, number, each)
            if self._chance.random() < 0.3:
                await asyncio.sleep(self._chance.expovariate(10))

    def _partition(self) -> int:
        return self._chance.randrange(self._calls.partitions)

    def _send(self, connection: Connection, client: int, call: int, acks: int) -> _Sent:
        began_s = self._now_s()
        values: dict[int, tuple[str, ...]] = {}
        batches: dict[int, bytes] = {}
        for partition in dict.fromkeys([self._partition(), self._partition()]):
            count = self._chance.randint(1, 5)
            values[partition] = tuple(f"{client}-{call}-{partition}-{n}" for n in range(count))
            batches[partition] = self.batch(values[partition])
        request = produce_request(self.topic, batches, acks, by_id=self.by_id())
        return _Sent(values, began_s, connection.send(*request))

    def batch(self, values: Sequence[str], producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
        """Return a new batch; what is in it is recorded."""
        contents = [self._content(value) for value in values]
        return encoded(contents, self._chance.choice(self.plan.codecs), producer)

    def _content(self, value: str) -> Content:
        content = self._maker.content(value, FIRST_MS + int(self._now_s() * 1000))
        self.witness.sends(value, content.line)
        return content

    async def _await(
        self, client: KafkaClient, connection: Connection, number: int, sent: _Sent
    ) -> None:
        outcomes: dict[int, tuple[ErrorCode, int]] = {}
        try:
            reply = await client.reply(connection, sent.reply, self._calls.patience_s)
            if reply is not None:
                outcomes = produced(reply)
        except Lost:
            pass  # What was sent may be in the log, now or later.
        for partition, values in sent.values.items():
            code, base = outcomes.get(partition, (ErrorCode.REQUEST_TIMED_OUT, -1))
            if code not in PASSING and code != ErrorCode.NONE:
                self.witness.complains(f"Produce: {code.name} for {values}")
            if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                client.forget_leaders()
            is_acked = code == ErrorCode.NONE
            self.counts[_OUTCOMES.get(code, "refused batches")] += 1
            self._history.produced.append(
                Produced(
                    number,
                    partition,
                    values,
                    sent.began_s,
                    self._now_s(),
                    base if is_acked else None,
                    code == ErrorCode.REQUEST_TIMED_OUT,
                )
            )
            self._note(f"produce by Kafka {number} {values[0]} {code.name} {base}")

    # Producers with numbers, whose batches `idempotent.py` makes up and repeats

    async def introduce(self) -> int | None:
        """Return a new producer id, or None if there was no answer."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        try:
            answer = await self.client().call(INIT_PRODUCER_ID, request)
        except Lost:
            return None
        return None if answer.error_code else int(answer.producer_id)

    async def append(self, host: Host, line: Line, batch: bytes) -> tuple[str, int | None]:
        """Send a batch to one gateway; return its answer, and the offset."""
        if host.broker is None or not host.broker.is_open:
            return UNAVAILABLE, None
        connection = Connection(host, self.witness.complains)
        version, request = produce_request(
            self.topic, {line.partition: batch}, -1, by_id=self.by_id()
        )
        sent = connection.send(version, request)
        try:
            reply = await connection.reply(sent, float("inf"))
        except Lost:
            return UNKNOWN, None
        code, base = produced(reply)[line.partition]
        if code == ErrorCode.NONE:
            self.counts["numbered batches"] += 1
            return ACKED, base
        if code in _ANSWERS:
            return _ANSWERS[code], None
        if code not in PASSING:
            self.witness.complains(f"Produce: {code.name} for {line}")
        return UNAVAILABLE, None

    # Readers

    async def fetch(
        self, client: KafkaClient, partition: int, offset: int, wait_s: float
    ) -> KafkaFetched:
        """Return the records of a partition; raises as `log_calls.fetch` does."""
        bytes_max = self._chance.choice([1, 500, 10**6])
        fetched = await fetch(
            client,
            self.topic,
            partition,
            offset,
            bytes_max=bytes_max,
            wait_s=wait_s,
            by_id=self.by_id(),
        )
        self.witness.reads("kafka", partition, fetched.found)
        return fetched

    async def read_all(self, partition: int, start: int) -> list[tuple[int, str]]:
        """Return all records of a partition."""
        client, records = self.client(), list[tuple[int, str]]()
        while True:
            offset = records[-1][0] + 1 if records else start
            fetched = await self.fetch(client, partition, offset, 0.0)
            if not fetched.found:
                return records
            records += [(each.offset, each.name) for each in fetched.found]

    def judge(self, what: str, error: RefusedByKafka) -> str:
        """Complain of an error that no client should receive; return its name."""
        if not error.passes:
            self.witness.complains(f"{what}: {error}")
        return str(error)

    def _note(self, what: str) -> None:
        self._trace.append(f"{self._now_s():.6f} {what}")
