"""Transactions in one simulation: topics, copiers, atomic writers and watchers."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from service.log.gateway import Gateway
from storage.errors import RiachoError
from storage.formats import frames
from storage.formats.records import record_batch
from storage.head import head as heads
from storage.reading.reader import Budget
from tests.checker.transaction_rules import Moment, Shown, TransactionHistory
from tests.simulation.asking import Asking
from tests.simulation.atomic_writers import ATOMS, AtomicWriters
from tests.simulation.cloud import WatchedMetadata
from tests.simulation.copier_plan import CopierPlan
from tests.simulation.copiers import COPIES, GROUP, SOURCE, Copiers
from tests.simulation.hosts import Create, Host
from tests.simulation.http import Net
from tests.simulation.kafka.connections import KafkaClient
from tests.simulation.kafka.log_calls import KafkaTopic
from tests.simulation.kafka.plan import KafkaPlan
from tests.simulation.kafka.transactions import KafkaTransactions
from tests.simulation.reading import Patience, fetch, read_all

READERS = 2
DRAIN_S = 300.0


class ExactlyOnce:
    def __init__(
        self,
        plan: CopierPlan,
        chance: random.Random,
        hosts: Callable[[], list[Host]],
        now_s: Callable[[], float],
        trace: list[str],
        metadata: WatchedMetadata,
        kafka: KafkaPlan,
        kafka_chance: random.Random,
    ) -> None:
        if kafka.is_on and kafka_chance.random() < 0.7:
            # Members of HTTP cannot send their offsets by Kafka's protocol.
            plan = replace(plan, in_group=False)
        self.plan = plan
        self._kafka_plan = kafka
        self.history = TransactionHistory(copies_to=COPIES)
        self._chance = chance
        self._hosts = hosts
        self._now_s = now_s
        self._metadata = metadata
        self.net = Net(plan.net, chance, hosts)
        self._asking = Asking(self.net, chance, now_s, trace, self.history)
        self.kafka = KafkaTransactions(
            kafka_chance,
            now_s,
            self.history,
            self._asking,
            lambda complain, topic: KafkaClient(
                lambda: kafka.net, kafka_chance, hosts, complain, topic
            ),
        )
        share = 0.0 if plan.in_group else kafka.share
        self._copiers = Copiers(plan, chance, now_s, self.history, self._asking, self.kafka, share)
        self._places = [(COPIES, p) for p in range(plan.partitions if plan.copiers else 0)]
        self._places += [(ATOMS, p) for p in range(plan.partitions if plan.writers else 0)]
        self._ends: dict[str, int] = {}
        """Records in each lane of the copies, by the key of its head."""
        self._copied: dict[int, int] = {}

    async def prepare(self, gateway: Gateway, create: Create) -> None:
        """Create the topics, and fill the source."""
        config: dict[str, object] = {"lane.partitions": self.plan.lane_partitions}
        if self.plan.writers:
            await create(ATOMS, self.plan.partitions, config)
        if not self.plan.copiers:
            return
        await create(SOURCE, self.plan.source_partitions, config)
        config |= self._kafka_plan.config
        copies = await create(COPIES, self.plan.partitions, config)
        self.kafka.topic = KafkaTopic(copies.name, copies.topic_id)
        for partition in range(self.plan.source_partitions):
            values = [f"{partition}:{number}" for number in range(self.plan.records)]
            count = len(values)
            batch = record_batch([0] * count, [None] * count, values)
            await gateway.produce(SOURCE, batch, 100 * count, partition)
            self.history.source[partition] = values
        heads_of_copies = f"head/{copies.topic_id.hex()}/"
        self._metadata.watch = lambda items: self._look(heads_of_copies, items)

    def start(self) -> "list[asyncio.Task[None]]":
        readers = range(READERS if self._places else 0)
        writers = AtomicWriters(
            self._chance, self._asking, self.history, self.plan.partitions, self.plan.calls
        )
        self._writing = [asyncio.create_task(writers.live(n)) for n in range(self.plan.writers)]
        return [
            *(asyncio.create_task(self._watch()) for _ in readers),
            *(asyncio.create_task(self._copiers.keep(n)) for n in range(self.plan.copiers)),
        ]

    def calm_down(self) -> None:
        self._asking.is_calm = True
        self.net.calm_down()
        self._copiers.calm_down()

    async def run(self) -> None:
        """Let the actors work under faults for a while, or until they are done."""
        if self.plan.copiers:
            await self._until_copied(120)

    async def drain(self) -> None:
        """Wait until everything is copied and written, then stop all actors."""
        if self.plan.copiers:
            self.history.is_drained = await self._until_copied(DRAIN_S)
        await asyncio.gather(*self._writing)
        self._copiers.stop()
        await self.net.settle()
        await self.kafka.settle()

    async def read_everything(self, gateway: Gateway) -> None:
        for place in self._places:
            self.history.final[place] = await read_all(gateway, *place)
        self.kafka.compare()

    async def _until_copied(self, within_s: float) -> bool:
        give_up_s = self._now_s() + within_s
        total = self.plan.records * self.plan.source_partitions
        while sum(self._copied.values()) < total and self._now_s() < give_up_s:
            await asyncio.sleep(1)
        return sum(self._copied.values()) == total

    async def _watch(self) -> None:
        """Read one partition after the other, repeatedly."""
        offsets, patience = dict.fromkeys(self._places, 0), Patience()
        while True:
            await asyncio.sleep(self._chance.expovariate(3) * patience.factor)
            place = self._chance.choice(self._places)
            budget = Budget(records_max=self._chance.choice([1, 7, 1000]), bytes_max=10**6)
            began_s = self._now_s()
            host = self._chance.choice(self._hosts())
            try:
                async with asyncio.timeout(20):
                    values, result = await host.serve(
                        fetch(host.gateway, *place, offsets[place], budget)
                    )
            except (RiachoError, TimeoutError):
                continue
            end = result.high_watermark
            patience.saw(bool(values))
            if values:
                offsets[place] = values[-1][0] + 1
            is_end_of_now = offsets[place] == end
            self.history.shown.append(
                Shown(place, began_s, self._now_s(), values, end, is_end_of_now)
            )
            if is_end_of_now and self._chance.random() < 0.05:
                offsets[place] = 0

    def _look(self, heads_of_copies: str, items: Mapping[str, bytes]) -> None:
        """Record what is committed, immediately after each change."""
        is_news = False
        for key, value in items.items():
            if key.startswith(heads_of_copies):
                self._ends[key] = sum(heads.decode(value).next_offsets)
                is_news = True
            elif key.startswith(f"offset/{GROUP}/"):
                self._copied |= _offsets(value)
                is_news = True
        if is_news:
            written = sum(self._ends.values())
            self.history.moments.append(Moment(self._now_s(), dict(self._copied), written))


def _offsets(value: bytes) -> dict[int, int]:
    _, partitions = msgspec.msgpack.decode(frames.unseal(b"RGO1", value), type=tuple[bytes, Any])
    return {partition: stored[0] for partition, stored in partitions.items()}
