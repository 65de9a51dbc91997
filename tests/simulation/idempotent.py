"""Idempotent producers as actors: they number their batches and retry them.

Each has up to five batches of a partition in flight, over a network that repeats, delays and loses
requests. A producer that gives up a batch begins the next epoch, and may also continue with the
old one.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.checker.idempotent_rules import (
    ACKED,
    DUPLICATE,
    OUT_OF_ORDER,
    STALE,
    UNAVAILABLE,
    UNKNOWN,
    IdempotentHistory,
    Line,
    Sent,
)
from tests.checker.log_rules import Produced
from tests.simulation.hosts import Host
from tests.simulation.http import Net, NetPlan, Refused, call
from tests.simulation.kafka.log_clients import KafkaLogClients

IN_FLIGHT_MAX = 5
CALM_TRIES_MAX = 200
FIRST_CLIENT = 1_000_000
"""Each batch is a client of its own for the rules of the log: other rules check their order."""


@dataclass
class IdempotentPlan:
    producers: int
    batches: int
    in_flight: int
    tries_max: int
    pause_s: float
    net: NetPlan

    @classmethod
    def of(cls, chance: random.Random) -> "IdempotentPlan":
        producers = chance.choice([0, 0, 3, 8, 25])
        return cls(
            producers=producers,
            batches=chance.randint(60, 150) // max(1, producers),
            in_flight=chance.choice([1, IN_FLIGHT_MAX, IN_FLIGHT_MAX]),
            tries_max=chance.choice([1, 2, 8]),
            pause_s=chance.choice([0.0, 0.1, 1.0]),
            net=NetPlan.of(chance),
        )


@dataclass(eq=False)
class Batch:
    sequence: int
    values: tuple[str, ...]
    by_kafka: bytes | None = None
    """As it is sent by Kafka's protocol, if it is."""
    is_settled: bool = False


@dataclass(eq=False)
class Counter:
    """The next sequence of a producer in one epoch of a partition."""

    line: Line
    next_sequence: int = 0
    is_given_up: bool = False
    batches: list[Batch] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def waiting(self) -> list[Batch]:
        return [batch for batch in self.batches if not batch.is_settled]

    def change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Idempotents:
    def __init__(
        self,
        plan: IdempotentPlan,
        chance: random.Random,
        hosts: Callable[[], list[Host]],
        now_s: Callable[[], float],
        trace: list[str],
        kafka: KafkaLogClients | None = None,
    ) -> None:
        self.plan = plan
        self.history = IdempotentHistory()
        self._kafka = kafka
        self.net = Net(plan.net, chance, hosts)
        self.is_calm = False
        self.is_over = False
        """Whether producers send no new batches."""
        self._chance = chance
        self._now_s = now_s
        self._trace = trace

    def calm_down(self) -> None:
        self.is_calm = True
        self.net.calm_down()

    async def live(self, topic: str, partitions: int) -> None:
        """Send all batches of one producer; return when each is written or given up."""
        producer = await self._introduce()
        counters: dict[int, Counter] = {}
        tasks = []
        for _ in range(self.plan.batches):
            if self.is_over:
                break
            partition = self._chance.randrange(partitions)
            counter = counters.get(partition) or Counter(Line(producer, partition, 0))
            while not counter.is_given_up and len(counter.waiting()) >= self.plan.in_flight:
                await counter.changed.wait()
            if counter.is_given_up:
                counter = Counter(counter.line._replace(epoch=counter.line.epoch + 1))
            counters[partition] = counter
            tasks.append(asyncio.create_task(self._deliver(topic, counter, self._next(counter))))
            if self._chance.random() < 0.3:
                await asyncio.sleep(self._chance.random() * self.plan.pause_s)
        await asyncio.gather(*tasks)

    def produced(self) -> list[Produced]:
        """Return the outcome of each batch, in the form that the rules of the log need."""
        copies: dict[tuple[Line, int], list[Sent]] = {}
        for sent in self.history.sent:
            copies.setdefault(sent.batch, []).append(sent)
        return [_produced(FIRST_CLIENT + n, of) for n, of in enumerate(copies.values())]

    async def _introduce(self) -> int:
        while True:
            if self._kafka is not None and self._kafka.chosen():
                known = await self._kafka.introduce()
                if known is not None:
                    return known
            try:
                answer = await self.net.send(lambda host: call(host, "POST", "/v1/producers", {}))
                return int(answer["producer_id"])
            except (TimeoutError, Refused):
                await asyncio.sleep(0.1)

    def _next(self, counter: Counter) -> Batch:
        first = counter.next_sequence
        count = self._chance.randint(1, 4)
        producer, partition, epoch = counter.line
        values = tuple(f"{producer}/{partition}/{epoch}/{first + row}" for row in range(count))
        counter.next_sequence += count
        by_kafka = None
        if self._kafka is not None and self._kafka.chosen():
            by_kafka = self._kafka.batch(values, (producer, epoch, first))
        counter.batches.append(Batch(first, values, by_kafka))
        return counter.batches[-1]

    async def _deliver(self, topic: str, counter: Counter, batch: Batch) -> None:
        """Send a batch until it is known to be written, or is given up."""
        tries = 0
        while tries < (CALM_TRIES_MAX if self.is_calm else self.plan.tries_max):
            is_first = counter.waiting()[0] is batch
            answer = await self._send(topic, counter.line, batch)
            tries += 1
            if answer in {ACKED, DUPLICATE}:
                batch.is_settled = True
                counter.change()
                return
            if answer == STALE:
                return
            if counter.is_given_up and self._chance.random() < 0.5:
                return  # Otherwise continue, like a producer that did not get the answer.
            if answer == OUT_OF_ORDER and not is_first and not counter.is_given_up:
                tries -= 1  # Earlier batches are not written yet, which is not its own failure.
            await asyncio.sleep(0.02 + self._chance.random() * 0.2)
        if self.is_calm and not counter.is_given_up:
            self.history.stuck.append(f"{counter.line} {batch.values}")
        counter.is_given_up = True
        counter.change()

    async def _send(self, topic: str, line: Line, batch: Batch) -> str:
        """Return the answer, if one arrived.

        Batches of one producer may come through both doors, each always through the same.
        """
        path = f"/v1/topics/{topic}/partitions/{line.partition}/records"
        body = {"records": [{"value": value} for value in batch.values]}
        headers = {
            "riacho-producer-id": str(line.producer),
            "riacho-producer-epoch": str(line.epoch),
            "riacho-sequence": str(batch.sequence),
        }

        async def copy(host: Host) -> str:
            began_s = self._now_s()
            answer, base = UNKNOWN, None
            try:
                if self._kafka is not None and batch.by_kafka is not None:
                    answer, base = await self._kafka.append(host, line, batch.by_kafka)
                else:
                    reply: Any = await call(host, "POST", path, body, headers)
                    answer, base = ACKED, reply["results"][0]["base_offset"]
            except Refused as error:
                answer = self._meaning(error)
            finally:
                sent = Sent(
                    line, batch.sequence, batch.values, began_s, self._now_s(), answer, base
                )
                self.history.sent.append(sent)
                self._note(f"sent {batch.values[0]} {answer} {base}")
            return answer

        try:
            return await self.net.send(copy)
        except TimeoutError:
            return UNKNOWN

    def _meaning(self, error: Refused) -> str:
        if error.passes:
            return UNKNOWN if error.may_have_applied else UNAVAILABLE
        if error.code not in {OUT_OF_ORDER, STALE, DUPLICATE}:
            self.history.errors.append(f"{error}: {error.detail}")
        return error.code

    def _note(self, what: str) -> None:
        self._trace.append(f"{self._now_s():.6f} {what}")


def _produced(client: int, copies: list[Sent]) -> Produced:
    acked = [sent for sent in copies if sent.base is not None]
    one = min(acked, key=lambda sent: sent.ended_s) if acked else copies[0]
    maybe = any(sent.answer in {UNKNOWN, DUPLICATE} for sent in copies)
    # Any copy may have written the batch.
    began_s = min(sent.began_s for sent in copies)
    return Produced(client, one.line.partition, one.values, began_s, one.ended_s, one.base, maybe)
