"""Clients that write to the log, read it, and delete from its beginning."""

import asyncio
import random
from collections.abc import Callable

from service.log.delete_records import delete_records
from storage.errors import OffsetOutOfRange, RiachoError
from storage.formats.records import record_batch
from storage.reading.reader import Budget
from tests.checker.history import History
from tests.checker.log_rules import Fetched, Produced
from tests.simulation.hosts import Host
from tests.simulation.kafka.connections import KafkaClient, Lost
from tests.simulation.kafka.contents import Content
from tests.simulation.kafka.log_calls import RefusedByKafka
from tests.simulation.kafka.log_calls import delete_records as delete_by_kafka
from tests.simulation.kafka.log_clients import KafkaLogClients
from tests.simulation.plan import Plan
from tests.simulation.reading import Patience, fetch
from tests.simulation.world import FIRST_MS

TOPIC = "t"
PATIENCE_S = 60.0
CALLS_MIN = 10


class LogClients:
    def __init__(
        self,
        plan: Plan,
        chance: random.Random,
        hosts: Callable[[], list[Host]],
        now_s: Callable[[], float],
        trace: list[str],
        history: History,
        kafka: KafkaLogClients,
    ) -> None:
        self._kafka = kafka
        self._plan = plan
        self._chance = chance
        self._hosts = hosts
        self._now_s = now_s
        self._trace = trace
        self._history = history
        self._acked_ends: dict[int, int] = {}
        self.is_over = False
        """Whether producers stop after `CALLS_MIN` calls."""

    async def produce(self, client: int) -> None:
        for call in range(self._plan.calls):
            if self.is_over and call >= CALLS_MIN:
                break
            partition = self._chance.randrange(self._plan.partitions)
            values = tuple(f"{client}-{call}-{n}" for n in range(self._chance.randint(1, 5)))
            await self.produce_one(client, partition, values, self._plan.patience_s)
            if self._chance.random() < 0.3:
                await asyncio.sleep(self._chance.expovariate(10))

    async def produce_one(
        self, client: int, partition: int, values: tuple[str, ...], patience_s: float
    ) -> int | None:
        """Send a value once; return its offset, if known."""
        host = self._chance.choice(self._hosts())
        count = len(values)
        # Records that only one zone holds are lost when it is wiped.
        waits_for_all = self._chance.random() < 0.7 or self._plan.wipes
        began_s = self._now_s()
        stamp_ms = FIRST_MS + int(began_s * 1000)
        batch = record_batch([stamp_ms] * count, [None] * count, values)
        for value in values:
            self._kafka.witness.sends(value, Content(stamp_ms, None, value.encode()).line)
        base: int | None = None
        maybe = True
        try:
            async with asyncio.timeout(patience_s):
                produced = host.gateway.produce(
                    TOPIC, batch, 100 * count, partition, waits_for_all=waits_for_all
                )
                placed = await host.serve(produced)
            base, maybe = placed[partition][0], False
            self._acked_ends[partition] = max(self._acked_ends.get(partition, 0), base + count)
        except RiachoError as error:
            maybe = error.may_have_applied
        except TimeoutError:
            pass  # The gateway died or is paused, or its answer was lost.
        self._history.produced.append(
            Produced(client, partition, values, began_s, self._now_s(), base, maybe)
        )
        self._note(f"produce {client} {values[0]} {base} {maybe}")
        return base

    async def read(self, client: int) -> None:
        """Read one partition continuously."""
        partition = self._chance.randrange(self._plan.partitions)
        offset, patience = 0, Patience()
        by_kafka = self._kafka.client()
        while True:
            host = self._chance.choice(self._hosts())
            wait_s = self._chance.choice([0.0, 0.5, 5.0])
            try:
                async with asyncio.timeout(PATIENCE_S):
                    if self._kafka.chosen():
                        following = await self._fetch_by_kafka(
                            by_kafka, client, partition, offset, wait_s
                        )
                    else:
                        following = await self._fetch(host, client, partition, offset, wait_s)
                    patience.saw(following > offset)
                    offset = following
            except OffsetOutOfRange:
                offset = await self._earliest(host, partition, offset)
            except (RiachoError, TimeoutError, Lost):
                await asyncio.sleep(0.1)
            except RefusedByKafka as error:
                self._kafka.judge("Fetch", error)
                await asyncio.sleep(0.1)
            await asyncio.sleep(self._chance.expovariate(20) * patience.factor)

    async def trim(self) -> None:
        """Sometimes delete the records before an acknowledged offset."""
        by_kafka = self._kafka.client()
        while self._plan.trims:
            await asyncio.sleep(self._chance.expovariate(0.3))
            if not self._acked_ends:
                continue
            partition = self._chance.choice(sorted(self._acked_ends))
            before = self._chance.randint(0, self._acked_ends[partition])
            host = self._chance.choice(self._hosts())
            outcome: object = None
            try:
                async with asyncio.timeout(PATIENCE_S):
                    if self._kafka.chosen():
                        outcome = await delete_by_kafka(by_kafka, TOPIC, partition, before)
                    else:
                        deleted = delete_records(host.gateway, TOPIC, {partition: before})
                        outcome = await host.serve(deleted)
            except (RiachoError, TimeoutError, Lost) as error:
                outcome = type(error).__name__
            except RefusedByKafka as error:
                outcome = self._kafka.judge("DeleteRecords", error)
            self._note(f"delete {partition} before {before}: {outcome}")

    async def _fetch(
        self, host: Host, client: int, partition: int, offset: int, wait_s: float
    ) -> int:
        began_s = self._now_s()
        budget = Budget(
            records_max=self._chance.choice([1, 7, 1000]),
            bytes_max=self._chance.choice([1, 500, 10**6]),
        )
        values, result = await host.serve(
            fetch(host.gateway, TOPIC, partition, offset, budget, wait_s, self._kafka.witness)
        )
        following = values[-1][0] + 1 if values else offset
        self._history.fetched.append(
            Fetched(
                client,
                partition,
                offset,
                began_s,
                values,
                following,
                result.high_watermark,
                wait_s > 0,
                self._now_s(),
                result.log_start_offset,
            )
        )
        self._note(f"fetch {client} {offset} {following}")
        return following

    async def _fetch_by_kafka(
        self, by_kafka: KafkaClient, client: int, partition: int, offset: int, wait_s: float
    ) -> int:
        began_s = self._now_s()
        result = await self._kafka.fetch(by_kafka, partition, offset, wait_s)
        self._history.fetched.append(
            Fetched(
                client,
                partition,
                offset,
                began_s,
                tuple((each.offset, each.name) for each in result.found),
                result.next_offset,
                result.high_watermark,
                wait_s > 0,
                self._now_s(),
                result.log_start,
                result.view_age_s,
            )
        )
        self._note(f"fetch by Kafka {client} {offset} {result.next_offset}")
        return result.next_offset

    async def _earliest(self, host: Host, partition: int, offset: int) -> int:
        try:
            async with asyncio.timeout(PATIENCE_S):
                info = await host.serve(host.gateway.partition(TOPIC, partition))
        except (RiachoError, TimeoutError):
            return offset
        return info.log_start_offset

    def _note(self, what: str) -> None:
        self._trace.append(f"{self._now_s():.6f} {what}")
