"""Gateways, producers, readers and a group in one process, on a virtual clock, from one seed.

python -m tests.simulation.simulator --seed 7        replay one
make sim SEEDS=200                                   run many
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from dataclasses import dataclass, field

import pyarrow as pa

from service.app import App
from service.gateway import Gateway
from service.metrics import Metrics
from service.registry import Registry
from service.settings import Settings
from storage.errors import RiachoError
from storage.memory import MemoryObjects
from storage.reader import Budget
from storage.records import record_batch
from storage.zones import Zones
from tests.checker.history import History, violations
from tests.checker.log_rules import Fetched, Produced
from tests.simulation.copier_plan import CopierPlan
from tests.simulation.exactly_once import ExactlyOnce, WatchedMetadata
from tests.simulation.idempotent import IdempotentPlan, Idempotents
from tests.simulation.janitors import JanitorPlan, Janitors, short_flights
from tests.simulation.members import GroupPlan, Members
from tests.simulation.reading import fetch, read_all
from tests.simulation.world import (
    Faults,
    FaultyLink,
    FaultyMetadata,
    FaultyObjects,
    VirtualLoop,
    world_of,
)

TOPIC = "t"
CALM = Faults(slow_s=0.001)


@dataclass
class Plan:
    """What a seed decides before anything happens."""

    gateways: int
    producers: int
    readers: int
    partitions: int
    lane_partitions: int
    calls: int
    faults: Faults
    kills: int
    quiet_after_s: float
    group: GroupPlan
    idempotent: IdempotentPlan
    copiers: CopierPlan
    inline_bytes_max: int
    """Beyond about this, runs and windows of producers leave the head."""

    @classmethod
    def of(cls, chance: random.Random) -> "Plan":
        plan = cls(
            gateways=chance.randint(1, 3),
            producers=chance.randint(2, 5),
            readers=chance.randint(1, 3),
            partitions=chance.randint(1, 4),
            lane_partitions=chance.choice([1, 2, 64]),
            calls=chance.randint(20, 80),
            faults=Faults(
                before=chance.choice([0.0, 0.02, 0.1]),
                after=chance.choice([0.0, 0.05, 0.15]),
                late=chance.choice([0.0, 0.03, 0.1]),
                slow_s=chance.choice([0.001, 0.02, 0.2]),
            ),
            kills=chance.randint(0, 3),
            quiet_after_s=chance.uniform(5, 30),
            group=GroupPlan.of(chance),
            idempotent=IdempotentPlan.of(chance),
            copiers=CopierPlan.of(chance),
            inline_bytes_max=chance.choice([150, 600, 4096]),
        )
        # Most of the time not everybody is on the stage: more seeds show more than longer ones.
        match chance.randrange(6):
            case 0:
                plan.copiers.copiers = plan.copiers.writers = plan.idempotent.producers = 0
            case 1 | 2:
                plan.group.members = plan.copiers.copiers = plan.copiers.writers = 0
            case 3 | 4:
                plan.group.members = plan.idempotent.producers = 0
                plan.quiet_after_s += 30
        return plan


@dataclass
class Process:
    gateway: Gateway
    link: FaultyLink
    app: App


@dataclass
class Simulation:
    seed: int
    loop: VirtualLoop
    trace: list[str] = field(default_factory=list)
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.plan = Plan.of(self.chance)
        self.table_chance = random.Random(self.seed + 6)
        self.table_limits = self.table_chance.choice([[0], [0, 900, 65_536], [65_536]])
        store_chance = random.Random(self.seed + 1)
        self.objects = MemoryObjects(world_of(self.loop, store_chance).now_ms)
        self.metadata = WatchedMetadata(lambda: store_chance.randbytes(12).hex())
        self.processes = [self._start() for _ in range(self.plan.gateways)]
        now_s, trace = self.loop.time, self.trace
        self.members = Members(
            self.plan.group, random.Random(self.seed + 2), self._apps, now_s, trace
        )
        self.history.group = self.members.history
        self.idempotents = Idempotents(
            self.plan.idempotent, random.Random(self.seed + 3), self._apps, now_s, trace
        )
        self.history.idempotent = self.idempotents.history
        self.exactly_once = ExactlyOnce(
            self.plan.copiers,
            random.Random(self.seed + 4),
            self._apps,
            now_s,
            trace,
            self.metadata,
        )
        self.history.transactions = self.exactly_once.history
        janitor_chance = random.Random(self.seed + 5)
        self.janitors = Janitors(
            JanitorPlan.of(janitor_chance, self.plan.faults),
            janitor_chance,
            self.loop,
            self._apps,
            self.objects,
            self.metadata,
            trace,
        )
        self.history.keyed = self.janitors.history

    def _apps(self) -> list[App]:
        return [process.app for process in self.processes]

    def _start(self) -> Process:
        gateway, link = self._gateway(self.plan.faults)
        registry = Registry(gateway.settings, gateway.metadata, gateway.world)
        return Process(gateway, link, App(gateway, registry, Metrics()))

    def _gateway(self, faults: Faults) -> tuple[Gateway, FaultyLink]:
        chance = random.Random(self.chance.randrange(2**62))
        world = world_of(self.loop, chance, chance.randint(-300_000, 300_000))
        link = FaultyLink(chance, faults)
        settings = Settings(
            batch_bytes_max=2000,
            linger_max_ms=50,
            flights_max=3,
            head_poll_ms=200,
            group_upkeep_s=5,
            table_batch_bytes_max=self.table_chance.choice(self.table_limits),
        )
        metadata = FaultyMetadata(self.metadata, link)
        zones = Zones({"a": FaultyObjects(self.objects, link)})
        gateway = Gateway(settings, zones, metadata, world)
        gateway._lane_runtime.inline_bytes_max = self.plan.inline_bytes_max
        return gateway, link

    async def run(self) -> History:
        await self._create_topic()
        faults = asyncio.create_task(self._make_trouble())
        producers = [asyncio.create_task(self._produce(n)) for n in range(self.plan.producers)]
        readers = [asyncio.create_task(self._read(n)) for n in range(self.plan.readers)]
        readers += [asyncio.create_task(self._tick()), *self._start_group()]
        readers += [*self.exactly_once.start(), *self.janitors.start()]
        producers += [
            asyncio.create_task(self.idempotents.live(TOPIC, self.plan.partitions))
            for _ in range(self.plan.idempotent.producers)
        ]
        producers.append(asyncio.create_task(self.janitors.write()))
        await asyncio.gather(*producers)
        await self.idempotents.net.settle()
        self.history.produced += self.idempotents.produced()
        if self.plan.group.members:
            await asyncio.sleep(self.plan.group.restless_s)
        await self.exactly_once.run()
        faults.cancel()
        self._calm_down()
        await self.exactly_once.drain()
        if self.plan.group.members:
            await self.members.drain(self._ends)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(faults, *readers, return_exceptions=True)
        await self._read_everything()
        for process in self.processes:
            await process.gateway.aclose()
            self.history.batches += process.gateway.batcher.batch_count
        return self.history

    def _start_group(self) -> "list[asyncio.Task[None]]":
        if not self.plan.group.members:
            return []
        tasks = [asyncio.create_task(self.members.look())]
        if self.plan.group.grows:
            tasks.append(asyncio.create_task(self._grow()))
        numbers = range(self.plan.group.members)
        return [*tasks, *(asyncio.create_task(self.members.live(n)) for n in numbers)]

    async def _tick(self) -> None:
        """End sessions and transactions now and then, as a schedule would."""
        while True:
            await asyncio.sleep(self.chance.uniform(1, 9))
            with contextlib.suppress(RiachoError, TimeoutError):
                async with asyncio.timeout(60):
                    app = self.chance.choice(self.processes).app
                    await app._upkeep.tick()
                    await app._transaction_upkeep.tick()

    async def _grow(self) -> None:
        """Add partitions that nobody writes to, but that someone must own."""
        for extra in (1, 3):
            await asyncio.sleep(self.chance.uniform(1, 10))
            with contextlib.suppress(RiachoError, TimeoutError):
                async with asyncio.timeout(60):
                    topics = self.chance.choice(self.processes).gateway.topics
                    await topics.alter(TOPIC, partitions=self.plan.partitions + extra)

    async def _ends(self) -> dict[int, int]:
        """Return where every partition ends that has records."""
        infos = await self.processes[0].gateway.partitions(TOPIC)
        return {info.partition: info.high_watermark for info in infos if info.high_watermark}

    async def _create_topic(self) -> None:
        gateway, _ = self._gateway(CALM)
        await gateway.topics.create(
            TOPIC,
            partitions=self.plan.partitions,
            config={"lane.partitions": self.plan.lane_partitions},
        )
        await self.exactly_once.prepare(gateway)
        await self.janitors.prepare(gateway)

    async def _make_trouble(self) -> None:
        for _ in range(self.plan.kills):
            await asyncio.sleep(self.chance.uniform(0.1, 5))
            number = self.chance.randrange(len(self.processes))
            self.trace.append(f"{self.loop.now_s:.6f} kill {number}")
            self.processes[number].link.dead = True
            self.processes[number] = self._start()
        await asyncio.sleep(self.plan.quiet_after_s)
        self._calm_down()

    def _calm_down(self) -> None:
        self.idempotents.calm_down()
        self.exactly_once.calm_down()
        for process in self.processes:
            process.link.faults = CALM

    async def _produce(self, client: int) -> None:
        for call in range(self.plan.calls):
            partition = self.chance.randrange(self.plan.partitions)
            values = tuple(f"{client}-{call}-{n}" for n in range(self.chance.randint(1, 5)))
            await self._produce_one(client, partition, values)
            if self.chance.random() < 0.3:
                await asyncio.sleep(self.chance.expovariate(10))

    async def _produce_one(self, client: int, partition: int, values: tuple[str, ...]) -> None:
        process = self.chance.choice(self.processes)
        count = len(values)
        batch: pa.RecordBatch = record_batch([0] * count, [None] * count, values)
        began_s = self.loop.now_s
        base: int | None = None
        maybe = True
        try:
            async with asyncio.timeout(60):
                placed = await process.gateway.produce(TOPIC, batch, 100 * count, partition)
            base, maybe = placed[partition][0], False
        except RiachoError as error:
            maybe = error.may_have_applied
        except TimeoutError:
            pass  # The gateway died, or its answer did.
        self.history.produced.append(
            Produced(client, partition, values, began_s, self.loop.now_s, base, maybe)
        )
        self.trace.append(f"{self.loop.now_s:.6f} produce {client} {values[0]} {base} {maybe}")

    async def _read(self, client: int) -> None:
        partition = self.chance.randrange(self.plan.partitions)
        offset = 0
        while True:
            process = self.chance.choice(self.processes)
            began_s = self.loop.now_s
            wait_s = self.chance.choice([0.0, 0.5, 5.0])
            try:
                async with asyncio.timeout(60):
                    offset = await self._fetch(process, client, partition, offset, began_s, wait_s)
            except (RiachoError, TimeoutError):
                await asyncio.sleep(0.1)
            await asyncio.sleep(self.chance.expovariate(20))

    async def _fetch(
        self,
        process: Process,
        client: int,
        partition: int,
        offset: int,
        began_s: float,
        wait_s: float,
    ) -> int:
        budget = Budget(
            records_max=self.chance.choice([1, 7, 1000]),
            bytes_max=self.chance.choice([1, 500, 10**6]),
        )
        values, result = await fetch(process.gateway, TOPIC, partition, offset, budget, wait_s)
        following = values[-1][0] + 1 if values else offset
        self.history.fetched.append(
            Fetched(
                client,
                partition,
                offset,
                began_s,
                values,
                following,
                result.high_watermark,
                wait_s > 0,
            )
        )
        self.trace.append(f"{self.loop.now_s:.6f} fetch {client} {offset} {following}")
        return following

    async def _read_everything(self) -> None:
        """Read the whole log through a gateway that remembers nothing."""
        await self.janitors.sweep_all()
        gateway, _ = self._gateway(CALM)
        for partition in range(self.plan.partitions):
            self.history.final[partition] = await read_all(gateway, TOPIC, partition)
        await self.exactly_once.read_everything(gateway)
        await self.janitors.finish(gateway)


def simulate(seed: int) -> tuple[History, list[str]]:
    """Return the history and the trace of one seed."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        simulation = Simulation(seed, loop)
        with short_flights():
            history = loop.run_until_complete(simulation.run())
        return history, simulation.trace
    finally:
        # What belonged to gateways that were killed still hangs on their dead links. Nobody is
        # left to hear what becomes of it.
        loop.set_exception_handler(lambda *_: None)
        while left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left, timeout=1))
        asyncio.set_event_loop(None)
        loop.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one only, and show its trace")
    parser.add_argument("--seeds", type=int, default=200, help="run so many (default 200)")
    parser.add_argument("--first", type=int, default=0, help="beginning with this one")
    given = parser.parse_args()
    seeds = (
        [given.seed] if given.seed is not None else range(given.first, given.first + given.seeds)
    )
    began, failed, acked = time.monotonic(), 0, 0
    for seed in seeds:
        history, trace = simulate(seed)
        acked += sum(call.base is not None for call in history.produced)
        wrong = violations(history)
        if given.seed is not None:
            print("\n".join(trace))
        for line in wrong[:5]:
            print(f"seed {seed}: {line}")
        if wrong:
            failed += 1
            print(f"replay: python -m tests.simulation.simulator --seed {seed}")
    took = time.monotonic() - began
    print(f"{len(seeds)} seeds, {acked} acknowledged calls, {failed} failed, {took:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
